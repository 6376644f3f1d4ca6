"""Runs a broker inside a program: `async with Broker() as broker`.

It is the same node with the same listeners that `millstream serve` runs, without the process around
it. Any Kafka client can connect to it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from millstream.benchmark import BenchmarkConfig, BenchmarkResult, run_benchmark
from millstream.config import Config
from millstream.embedding.figures import Figures
from millstream.embedding.groups import Groups
from millstream.embedding.partitions import Partitions
from millstream.embedding.topics import Topics
from millstream.model import CONTROL_LOG, SYSTEM, Session
from millstream.ports import Clock, Files
from millstream.replication.group_commit import LANES_MAX
from millstream.server.listeners import Interpose
from millstream.server.net.connection import Address
from millstream.server.service import Service, first_of
from millstream.server.system.machine import fit, look_around
from millstream.server.system.real_ports import WorkerThreads, real_ports


class Broker:
    """`async with Broker(BrokerConfig(...)) as broker:` serves clients inside the block.

    Entering raises `StartupError` with one sentence if it cannot. `clock`, `files` and `interpose`
    take the place of parts of the outside world, for tests.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        interpose: Interpose | None = None,
    ) -> None:
        if config is not None and not isinstance(config, Config):
            raise TypeError(f"config is {config!r}, it takes a BrokerConfig")
        self.config = config or Config()
        self._threads = WorkerThreads()
        self._sync_threads = WorkerThreads("sync", LANES_MAX)
        self._clock = clock
        self._files = files
        self._interpose = interpose
        self._service: Service | None = None
        self._life: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._service is not None:
            raise RuntimeError("a Broker is entered once; make another one")
        machine = look_around()
        config = fit(self.config, machine)
        ports = replace(real_ports(config), threads=self._threads, sync_threads=self._sync_threads)
        ports = replace(ports, clock=self._clock or ports.clock, files=self._files or ports.files)
        service = self._service = Service(
            config, ports, interpose=self._interpose, descriptors_max=machine.descriptors_max
        )
        self._offer(service, ports.clock)
        # A task group would wrap whatever the user's block raises. This one is awaited by `_end`.
        self._life = asyncio.create_task(service.run(), name="millstream broker")
        opened = asyncio.create_task(service.opened.wait())
        try:
            await asyncio.wait({self._life, opened}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self.kill()
            raise
        finally:
            opened.cancel()
        if self._life.done():
            await self._end()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._service is not None:
            self._service.stop()
        try:
            await self._end()
        except Exception:
            if problem is None:  # What the block raised says more.
                raise

    @property
    def bootstrap(self) -> str:
        """The address, as clients take it in `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        return self._running.address.host

    @property
    def port(self) -> int:
        return self._running.address.port

    @property
    def addresses(self) -> Mapping[str, Address]:
        """Host and port of each listener: `kafka` (FlyMQ's clients as well), `flux`, `classic`."""
        return self._running.addresses

    @property
    def cluster_id(self) -> str:
        return self._running.node.cluster_id

    async def benchmark(self, config: BenchmarkConfig) -> BenchmarkResult:
        """Measure it with real clients, in threads of this process; every record is verified."""
        if not isinstance(config, BenchmarkConfig):
            raise TypeError(f"config is {config!r}, it takes a BenchmarkConfig")
        return await asyncio.to_thread(run_benchmark, self.bootstrap, config)

    async def sync(self) -> None:
        """Return when all that was written so far is on stable storage, acknowledged or not."""
        hub = self._running.node.hub
        await hub.commits.synced(hub.replicas[CONTROL_LOG])  # One round syncs every log.

    async def kill(self) -> None:
        """Pull the plug: clients are cut off, nothing is synced or marked as left in order."""
        if self._life is None or self._life.done():
            return
        self._life.cancel()
        await asyncio.wait({self._life})
        self._close_threads()

    @property
    def _running(self) -> Service:
        if self._service is None or not self._service.opened.is_set():
            raise RuntimeError("the broker is not running: use `async with Broker(...) as broker:`")
        return self._service

    def _offer(self, service: Service, clock: Clock) -> None:
        session, node = Session(principal=SYSTEM), service.node
        self.topics = Topics(session, node)
        self.groups = Groups(session, node)
        self.partitions = Partitions(session, node, clock=clock)
        self.metrics = Figures(session, service)

    def _close_threads(self) -> None:
        self._threads.close()
        self._sync_threads.close()

    async def _end(self) -> None:
        """Wait for the end, and raise the reason if it was not a good one."""
        assert self._life is not None
        await asyncio.wait({self._life})
        self._close_threads()
        if not self._life.cancelled() and (problem := self._life.exception()) is not None:
            raise first_of(problem)

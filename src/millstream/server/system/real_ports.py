"""The real outside world: the machine's clock, its randomness, its threads, its disk.

Owns the real implementations of the ports that are not files. A node alone has no links to others.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from queue import SimpleQueue
from random import SystemRandom
from typing import TypeAlias, TypeVar, cast

from millstream.config import Config
from millstream.errors import OutOfResources, PeerUnreachable, StartupError
from millstream.model import NodeId
from millstream.ports import (
    CallHandler,
    Files,
    LinkReceiver,
    PeerIdentity,
    PeerMessage,
    Ports,
)
from millstream.replication.group_commit import LANES_MAX
from millstream.server.system.peer_ports import RealPeers
from millstream.server.system.protoc import Protoc
from millstream.server.system.secrets import SystemSecrets
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.memory import MemoryFiles

_log = logging.getLogger(__name__)

T = TypeVar("T")

_Job: TypeAlias = tuple["asyncio.Future[object]", Callable[[], object]]

# As many as read, compact and unpack for clients side by side.
THREADS_MAX = 4


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def elapsed_s() -> float:
    """Seconds since some moment, whatever is done to the wall clock or to the loop's time."""
    return time.perf_counter()


def thread_lock() -> AbstractContextManager[object]:
    """A lock between threads, which a thread may take again."""
    return threading.RLock()


def thread_cpu_s() -> float:
    """The CPU time of the thread that asks."""
    return time.thread_time()


class WorkerThreads:
    """Threads that take work from one queue, started as they are needed.

    An executor does the same, but a job handed to it and back costs 31 us of CPU instead of 14, and
    a sync round is such a job. Work under way when the process ends is like work in a power cut.
    """

    def __init__(self, name: str = "work", count_max: int = THREADS_MAX) -> None:
        self._name = name
        self._count_max = count_max
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0

    async def run(self, work: Callable[[], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if len(self._threads) < min(self._unfinished + 1, self._count_max):
            self._start_thread()
        self._unfinished += 1
        try:
            self._jobs.put((cast("asyncio.Future[object]", done), work))
            return await done
        finally:
            self._unfinished -= 1

    def close(self) -> None:
        """Wait for the work under way and end the threads, where the process goes on without."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _start_thread(self) -> None:
        """Start one more; without it the work waits for those that run, if there are any."""
        name = f"millstream-{self._name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as problem:  # Python's word for a limit of threads or memory.
            if not self._threads:
                raise OutOfResources(f"cannot start the thread {name}: {problem}") from problem
            _log.warning("could not start a thread name=%s problem=%s", name, problem)
            return
        self._threads.append(thread)


def _work(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        done, work = job
        result: object = None
        problem: Exception | None = None
        try:
            result = work()
        except Exception as raised:
            problem = raised
        # In a closed loop no task waits for the result.
        with suppress(RuntimeError):
            done.get_loop().call_soon_threadsafe(_complete, done, result, problem)
        del job, done, work, result, problem  # Or they would live until the next job comes.


def _complete(done: "asyncio.Future[object]", result: object, problem: Exception | None) -> None:
    if done.done():
        return  # The waiting task was cancelled.
    if problem is None:
        done.set_result(result)
    else:
        done.set_exception(problem)


class NoLinks:
    """The links of a node without peers."""

    def open(self, receiver: LinkReceiver) -> None:
        return

    async def start(self, identity: PeerIdentity, listen: str) -> str:
        raise StartupError("this node keeps no connection to other nodes")

    def set_peers(self, addresses: Mapping[NodeId, str]) -> None:
        assert not addresses, "a lone node has no peers"

    def watch(self, watcher: Callable[[NodeId, bool], None]) -> None:
        return

    def is_up(self, node: NodeId) -> bool:
        return False

    def send(self, node: NodeId, message: PeerMessage) -> None:
        raise AssertionError(f"a lone node spoke to node {node}")

    def queued_bytes(self, node: NodeId) -> int:
        return 0

    def end(self, node: NodeId, reason: str) -> None:
        return

    def close(self) -> None:
        return


class NoCalls:
    """The calls of a node without peers."""

    async def ask(self, node: NodeId, method: str, payload: bytes, *, timeout_s: float) -> bytes:
        raise PeerUnreachable(node, was_sent=False)

    def tell(self, node: NodeId, method: str, payload: bytes) -> None:
        return

    def serve(self, method: str, handler: CallHandler) -> None:
        return


def real_ports(config: Config) -> Ports:
    """The ports of a node; `StartupError` for one that is told its peers."""
    if len(config.voters) > 1:
        raise StartupError(
            f"nodes = {sorted(config.voters)} asks for a cluster, and a cluster grows from one "
            "node: leave nodes away, and use `millstream cluster invite` and `cluster join`"
        )
    entropy = SystemRandom()
    threads, secrets = WorkerThreads(), SystemSecrets()
    records_bytes_max = config.limits.frame_bytes_max
    peers = RealPeers(entropy, config.peers, secrets, threads, records_bytes_max=records_bytes_max)
    files: Files = MemoryFiles() if config.storage == "memory" else DiskFiles(Path(config.data_dir))
    return Ports(
        clock=SystemClock(),
        entropy=entropy,
        files=files,
        threads=threads,
        sync_threads=WorkerThreads("sync", LANES_MAX),
        links=peers,
        calls=peers,
        secrets=secrets,
        schema_compiler=Protoc(),
    )

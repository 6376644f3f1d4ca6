"""The world of simulated nodes: clocks that disagree, disks that forget, links that break.

Owns the fake ports and what can go wrong with them. Everything random comes from one `Random`, and
time is the virtual loop's, so a seed is a whole history.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TypeVar

from millstream.model import CLUSTER_LEVELS, NodeId
from millstream.ports import Ports
from millstream.server.system.protoc import Protoc
from millstream.server.system.secrets import SystemSecrets
from tests.simulation.node_links import Network, SimulatedLinks
from tests.support.crashing_files import CrashingFiles

T = TypeVar("T")

START_MS = 1_700_000_000_000


class SkewedClock:
    """Wall time of one node: off by a constant, and it may step."""

    def __init__(self, skew_ms: int) -> None:
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return START_MS + int(asyncio.get_running_loop().time() * 1000) + self.skew_ms


class SlowThreads:
    """Work takes time, and happens at the beginning of it or at the end."""

    def __init__(self, random: Random, files: CrashingFiles) -> None:
        self._random = random
        self._files = files
        self.delay_s_max = 0.01

    async def run(self, work: Callable[[], T]) -> T:
        delay_s = self._random.uniform(0, self.delay_s_max)
        if self._random.random() < 0.5:
            result = work()
            await asyncio.sleep(delay_s)
            return result
        life = self._files.life
        await asyncio.sleep(delay_s)
        if self._files.life != life:
            raise asyncio.CancelledError  # A thread does not outlive a power cut.
        return work()


class Machine:
    """One node's hardware: it outlives the node's many lives."""

    def __init__(self, node_id: NodeId, network: Network, random: Random) -> None:
        self.id = node_id
        self.files = CrashingFiles()
        self.clock = SkewedClock(random.randint(-3_600_000, 3_600_000))
        self.threads = SlowThreads(random, self.files)
        self.journal_rewrites = 0
        self.levels = CLUSTER_LEVELS  # Of the version that is installed.
        self._network = network
        self._random = random
        self.files.on_operation = self._count

    def _count(self, kind: str, path: str) -> None:
        self.journal_rewrites += (kind, path) == ("rename", "journal")

    def ports(self) -> Ports:
        links = SimulatedLinks(self.id, self._network)
        return Ports(
            clock=self.clock,
            entropy=self._random,
            files=self.files,
            threads=self.threads,
            sync_threads=self.threads,
            links=links,
            calls=links,
            secrets=SystemSecrets(),
            schema_compiler=Protoc(),
            levels=self.levels,
        )

    def lose_power(self) -> None:
        self._network.detach(self.id)
        self.files.power_cut(self._random, reorder=self._random.random() < 0.3)

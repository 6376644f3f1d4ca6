"""The real outside world: the machine's clock, its randomness, its threads, its disk.

Owns the real implementations of the ports that are not files. Links to other nodes are not built
yet; a node alone has none.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

from millstream.config import Config
from millstream.model import LogId, NodeId
from millstream.ports import Files, PeerMessage, Ports
from millstream.storage.disk import DiskFiles
from millstream.storage.memory import MemoryFiles

T = TypeVar("T")

# One syncs, the others compact or read what is cold.
THREADS_MAX = 4


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class WorkerThreads:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="millstream")

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


class NoLinks:
    """The links of a node without peers."""

    def open(self, receive: Callable[[NodeId, LogId, PeerMessage], None]) -> None:
        return

    def send(self, to: NodeId, log: LogId, message: PeerMessage) -> None:
        raise AssertionError(f"a lone node spoke to node {to}")

    def close(self) -> None:
        return


def real_ports(config: Config) -> Ports:
    files: Files = MemoryFiles() if config.storage == "memory" else DiskFiles(Path(config.data_dir))
    return Ports(
        clock=SystemClock(),
        entropy=SystemRandom(),
        files=files,
        threads=WorkerThreads(),
        links=NoLinks(),
    )

"""`millstream serve`: a node as a process, with its signals, its log lines and its exit code."""

import asyncio
import ctypes
import gc
import logging
import signal
import sys
from collections.abc import Mapping

from millstream.config import Config, load
from millstream.errors import StartupError, StorageError
from millstream.server.doors import Doors
from millstream.server.node import Node, build_node
from millstream.server.outside import real_ports

DONE, FAILED = 0, 1

# Blocks up to this size come from memory that was used before, which need not be zeroed and mapped
# page by page: a frame of 1 MiB is put together in 60 us instead of 420.
REUSED_BYTES_MAX = 8 * 2**20
# How much of it the process keeps for the next frame.
KEPT_BYTES_MAX = 32 * 2**20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # Of malloc.h, in the GNU C library.

# Objects made before the collector looks for cycles among them. Requests hardly make any, and what
# is there when the doors open stays for good.
COLLECTED_OBJECTS_MIN = 10_000


def run(*, path: str | None, flags: Mapping[str, object], verbose: bool) -> int:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s %(message)s",
        stream=sys.stderr,
    )
    problem: BaseException | None = None
    try:
        config = load(path=path, flags=flags)
        _keep_freed_memory()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config))
    except* (StartupError, StorageError) as problems:
        problem = problems
    if problem is None:
        return DONE
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    print(f"millstream: {problem}", file=sys.stderr)
    return FAILED


async def _serve(config: Config) -> None:
    node = build_node(config, real_ports(config))
    doors = Doors(node)
    stop_asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop_asked.set)
    async with asyncio.TaskGroup() as group:
        life = group.create_task(node.run())
        life.add_done_callback(lambda _: stop_asked.set())
        serving = group.create_task(_open_doors(node, doors))
        await stop_asked.wait()
        await doors.stop()
        serving.cancel()
        node.stop()


async def _open_doors(node: Node, doors: Doors) -> None:
    """Open the doors, and say so on standard output, once: scripts wait for this line."""
    await node.ready.wait()
    opened = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(doors.run(opened))
        await opened.wait()
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECTED_OBJECTS_MIN)
        kafka = doors.kafka.address
        config = node.config
        data = config.data_dir if config.storage == "disk" else "(memory)"
        print(
            f"millstream ready node={config.node_id} kafka={kafka.host}:{kafka.port} data={data}",
            flush=True,
        )


def _keep_freed_memory() -> None:
    if sys.platform != "linux":
        return
    c_library = ctypes.CDLL(None)
    if hasattr(c_library, "mallopt"):  # Not every C library has it.
        c_library.mallopt(_M_MMAP_THRESHOLD, REUSED_BYTES_MAX)
        c_library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop

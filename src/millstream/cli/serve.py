"""`millstream serve`: a node as a process, with its signals, its log lines and its exit code."""

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping

from millstream.config import Config, load
from millstream.errors import StartupError, StorageError
from millstream.server.node import Node, build_node
from millstream.server.outside import real_ports

DONE, FAILED = 0, 1


def run(*, path: str | None, flags: Mapping[str, object], verbose: bool) -> int:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s %(message)s",
        stream=sys.stderr,
    )
    try:
        config = load(path=path, flags=flags)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config))
    except (StartupError, StorageError) as problem:
        print(f"millstream: {problem}", file=sys.stderr)
        return FAILED
    return DONE


async def _serve(config: Config) -> None:
    node = build_node(config, real_ports(config))
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, node.stop)
    async with asyncio.TaskGroup() as group:
        group.create_task(node.run())
        announcer = group.create_task(_announce(node))
        announcer.add_done_callback(lambda _: None)


async def _announce(node: Node) -> None:
    """Say on standard output, once, that the node is up: scripts wait for this line."""
    await node.ready.wait()
    print(f"millstream ready node={node.config.node_id} data={node.config.data_dir}", flush=True)


def _loop_factory() -> "type[asyncio.AbstractEventLoop] | None":
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop

"""A node with its doors open: the one way to run a broker, as a process or inside another.

Owns the order between the two: the doors open once the node is ready and close before it stops. The
one thing to know: `stop` ends in good order, cancelling `run` pulls the plug.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.config import Config
from millstream.ports import Ports
from millstream.server.connection import Address
from millstream.server.doors import Doors, Interpose, take_ports
from millstream.server.faults import is_fatal
from millstream.server.loop_monitor import LoopMonitor
from millstream.server.node import build_node
from millstream.server.outside import elapsed_s


class Service:
    """`run` it; clients are served once `opened` is set; then `stop` it.

    Raises `StartupError` with one sentence, here or from `run`, if it cannot serve.
    """

    def __init__(
        self,
        config: Config,
        ports: Ports,
        *,
        interpose: Interpose | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        taken = take_ports(config)
        try:
            self.node = build_node(config, ports)
            self.doors = Doors(self.node, taken, interpose, descriptors_max=descriptors_max)
        except BaseException:
            for port in taken.values():
                port.close()
            raise
        self._monitor = LoopMonitor(self.node.metrics, elapsed_s)
        self.opened = asyncio.Event()
        self._stop_asked = asyncio.Event()

    @property
    def address(self) -> Address:
        """Where Kafka clients connect, once it is opened."""
        return self.doors.open["kafka"].address

    @property
    def addresses(self) -> dict[str, Address]:
        """Where each door is, by its name, once they are opened."""
        return {name: listener.address for name, listener in self.doors.open.items()}

    def stop(self) -> None:
        """Ask it to stop in good order, at whatever point it is; `run` returns when it has."""
        self._stop_asked.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        loop.set_exception_handler(partial(self._handle, before))
        try:
            await self._run()
        except BaseException:
            self.node.abandon()
            raise
        finally:
            self.doors.close()
            self.opened.clear()
            loop.set_exception_handler(before)

    def _handle(
        self,
        before: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None,
        loop: asyncio.AbstractEventLoop,
        context: dict[str, Any],  # As asyncio has it.
    ) -> None:
        """An error in a callback of the loop: the node's own stops it, all others are logged."""
        problem = context.get("exception")
        if isinstance(problem, Exception) and is_fatal(problem):
            self.node.faults.report(problem)
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            life = group.create_task(self.node.run())
            life.add_done_callback(lambda _: self._stop_asked.set())
            serving = group.create_task(self._open_doors())
            monitoring = group.create_task(self._monitor.run())
            await self._stop_asked.wait()
            monitoring.cancel()
            await self.doors.stop()
            serving.cancel()
            self.node.stop()

    async def _open_doors(self) -> None:
        await self.node.ready.wait()
        await self.doors.run(self.opened)


def first_of(problem: BaseException) -> BaseException:
    """What went wrong first: one sentence for a person, where task groups make a tree."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem

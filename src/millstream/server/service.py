"""Runs a node with its listeners, as a process or inside another program.

The listeners open once the node is ready and close before it stops; HTTP opens first and closes
last, because it tells how far a start or a stop has come. `stop` is an orderly stop;
cancelling `run` has the effect of a crash.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.config import Config
from millstream.ports import Ports
from millstream.server.faults import is_fatal
from millstream.server.listener_specs import listener_specs
from millstream.server.listeners import Interpose, Listeners, take_ports
from millstream.server.net.connection import Address
from millstream.server.node import Node, build_node
from millstream.server.system.loop_monitor import LoopMonitor
from millstream.server.system.machine import DiskSpace, disk_space
from millstream.server.system.real_ports import elapsed_s, thread_cpu_s

if TYPE_CHECKING:
    from millstream.server.monitoring.vitals import VitalSigns


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
            self.node.metrics.elapsed_s = elapsed_s
            self._monitor = LoopMonitor(self.node.metrics, elapsed_s, thread_cpu_s)
            self.listeners = Listeners(
                self.node,
                taken,
                interpose,
                descriptors_max=descriptors_max,
                monitor=self._monitor,
            )
            self.vitals: VitalSigns | None = None
            if any("http" in spec.protocols for spec in listener_specs(config)):
                self.vitals = self.listeners.vitals = _vital_signs(
                    self.node, self.listeners, self._monitor
                )
        except BaseException:
            for port in taken.values():
                port.close()
            raise
        self.opened = asyncio.Event()
        self._stop_asked = asyncio.Event()

    @property
    def address(self) -> Address:
        """The address of the Kafka listener, once it is open."""
        return self.listeners.open["kafka"].address

    @property
    def addresses(self) -> dict[str, Address]:
        """The address of each listener, by its name, once they are open."""
        return {name: listener.address for name, listener in self.listeners.open.items()}

    def stop(self) -> None:
        """Request an orderly stop, at any time; `run` returns when it is done."""
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
            self.listeners.close()
            self.opened.clear()
            loop.set_exception_handler(before)

    def _handle(
        self,
        before: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None,
        loop: asyncio.AbstractEventLoop,
        context: dict[str, Any],  # As asyncio has it.
    ) -> None:
        """Handle an error in a loop callback: a fatal one stops the node, others are logged."""
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
            serving = group.create_task(self._open_listeners())
            monitoring = group.create_task(self._monitor.run())
            watching = group.create_task(self.vitals.run()) if self.vitals is not None else None
            await self._stop_asked.wait()
            monitoring.cancel()
            if watching is not None:
                watching.cancel()
            await self.node.hand_over()
            await self.listeners.stop()
            serving.cancel()
            self.node.stop()

    async def _open_listeners(self) -> None:
        await self.listeners.run(self.opened, self.node.ready)


def _vital_signs(node: Node, listeners: Listeners, monitor: LoopMonitor) -> "VitalSigns":
    from millstream.server.monitoring.vitals import VitalSigns

    config = node.config

    def space() -> DiskSpace | None:
        return disk_space(config.data_dir) if config.storage == "disk" else None

    return VitalSigns(
        node,
        listeners,
        monitor,
        elapsed_s=elapsed_s,
        disk_space=space,
        certificate_ends_s=listeners.certificate_ends_s,
    )


def first_of(problem: BaseException) -> BaseException:
    """The first error in a tree of exception groups: one sentence for the operator."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem

"""The doors of a node: which protocol is spoken on which port.

Owns opening them once the node is ready and closing them before it stops. All of them open before
any client is told so, and one that cannot open keeps the node from serving: a door that is silently
shut would be found out by a client.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from millstream.server.connection import Address, Gateway, Greeter, Guest
from millstream.server.greeters import (
    classic_greeter,
    flux_greeter,
    flymq_greeter,
    kafka_greeter,
    on_first_guest,
)
from millstream.server.listener import Listener
from millstream.server.node import Node
from millstream.server.sniff import Sniffer

_log = logging.getLogger(__name__)

FLYMQ_FIRST_BYTE = 0xAF  # Of a Kafka request it would be a length of more than two gigabytes.

# Stands between a connection and its gateway: sees what is asked, and what is answered.
Interpose = Callable[[Gateway], Gateway]


class Doors:
    def __init__(self, node: Node, interpose: Interpose | None = None) -> None:
        config = node.config
        self._config = config
        # By name; "kafka" is the port that FlyMQ's clients use as well.
        self.open: dict[str, Listener] = {}
        shared = _shared_greeter(node, interpose)
        if shared is not None:
            self._add("kafka", config.port, shared)
        if "flux" in config.doors:
            self._add("flux", config.port_of("flux"), on_first_guest(flux_greeter, node))
        if "classic" in config.doors:
            self._add("classic", config.port_of("classic"), on_first_guest(classic_greeter, node))

    @property
    def connection_count(self) -> int:
        return sum(listener.connection_count for listener in self.open.values())

    async def run(self, opened: asyncio.Event) -> None:
        """Serve until cancelled; `opened` is set once clients can connect."""
        async with asyncio.TaskGroup() as group:
            for listener in self.open.values():
                is_open = asyncio.Event()
                group.create_task(listener.run(is_open))
                await is_open.wait()
            opened.set()

    async def stop(self) -> None:
        """Accept nobody more, and let those who are here have what they wait for."""
        limit_s = self._config.timing.stop_ms_max / 1000
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*(listener.stop() for listener in self.open.values()))
        except TimeoutError:
            _log.warning("closed connections that were still waiting after %.0f s", limit_s)

    def _add(self, name: str, port: int, greet: Greeter) -> None:
        self.open[name] = Listener(
            name, Address(self._config.host, port), greet, self._config.limits
        )


def _shared_greeter(node: Node, interpose: Interpose | None) -> Greeter | None:
    """The port of Kafka clients and FlyMQ clients: whoever comes is known by the first byte."""
    has_kafka, has_flymq = ("kafka" in node.config.doors), ("flymq" in node.config.doors)
    if not has_kafka:
        return flymq_greeter(node) if has_flymq else None
    kafka = kafka_greeter(node)

    def greet_kafka(guest: Guest) -> Gateway:
        gateway = kafka(guest)
        return gateway if interpose is None else interpose(gateway)

    if not has_flymq:
        return greet_kafka
    flymq = on_first_guest(flymq_greeter, node)

    def greet(guest: Guest) -> Gateway:
        return Sniffer({FLYMQ_FIRST_BYTE: partial(flymq, guest)}, partial(greet_kafka, guest))

    return greet

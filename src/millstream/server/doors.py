"""The doors of a node: which protocol is spoken on which port.

Owns opening them once the node is ready and closing them before it stops. All of them open before
any client is told so, and one that cannot open keeps the node from serving: a door that is silently
shut would be found out by a client.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from millstream.config import Config
from millstream.server.clients import Clients
from millstream.server.connection import Address, Gateway, Greeter, Guest
from millstream.server.greeters import (
    classic_greeter,
    flux_greeter,
    flymq_greeter,
    kafka_greeter,
    on_first_guest,
)
from millstream.server.listener import Listener, Port, take_port
from millstream.server.node import Node
from millstream.server.sniff import Sniffer

_log = logging.getLogger(__name__)

FLYMQ_FIRST_BYTE = 0xAF  # Of a Kafka request it would be a length of more than two gigabytes.

# Stands between a connection and its gateway: sees what is asked, and what is answered.
Interpose = Callable[[Gateway], Gateway]


def take_ports(config: Config) -> dict[str, Port]:
    """Take the ports of all listeners, by name, or none; "kafka" is the one of FlyMQ's as well."""
    wanted: list[tuple[str, int, str]] = []
    if "kafka" in config.doors or "flymq" in config.doors:
        wanted.append(("kafka", config.port, "--port"))
    if "flux" in config.doors:
        wanted.append(("flux", config.port_of("flux"), "--flux-port"))
    if "classic" in config.doors:
        wanted.append(("classic", config.port_of("classic"), "--classic-port"))
    taken: dict[str, Port] = {}
    try:
        for name, number, flag in wanted:
            taken[name] = take_port(name, Address(config.host, number), flag=flag)
    except BaseException:
        for port in taken.values():
            port.close()
        raise
    return taken


class Doors:
    def __init__(
        self,
        node: Node,
        ports: Mapping[str, Port],
        interpose: Interpose | None = None,
        *,
        descriptors_max: int | None = None,
    ) -> None:
        self._config = config = node.config
        self._clients = Clients(
            config.limits,
            node.metrics,
            node.threads,
            node.faults,
            descriptors_max=descriptors_max,
        )
        greeters = {
            "kafka": _shared_greeter(node, interpose),
            "flux": on_first_guest(flux_greeter, node),
            "classic": on_first_guest(classic_greeter, node),
        }
        self.open: dict[str, Listener] = {
            name: Listener(port, greet, self._clients)
            for name, port in ports.items()
            if (greet := greeters[name]) is not None
        }

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

    def close(self) -> None:
        """Give the ports back, whether they were ever served or not."""
        for listener in self.open.values():
            listener.close()


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

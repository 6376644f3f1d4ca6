"""The listeners of a node: a port for each protocol, shared by Kafka and FlyMQ.

Opens them once the node is ready and closes them before it stops. The node reports ready after all
of them are open. A listener that cannot open keeps the node from starting; otherwise a client would
be the first to notice the missing port.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from millstream.config import Config
from millstream.server.gateway_factories import (
    classic_gateway_factory,
    flux_gateway_factory,
    flymq_gateway_factory,
    http_gateway_factory,
    kafka_gateway_factory,
    on_first_client,
)
from millstream.server.net.clients import Clients
from millstream.server.net.connection import Address, Gateway, GatewayFactory, NewClient
from millstream.server.net.first_byte import FirstByteGateway
from millstream.server.net.listener import Listener, Port, take_port
from millstream.server.node import Node
from millstream.server.system.loop_monitor import LoopMonitor
from millstream.server.system.machine import DESCRIPTORS_RESERVED

_log = logging.getLogger(__name__)

FLYMQ_FIRST_BYTE = 0xAF  # Of a Kafka request it would be a length of more than two gigabytes.

# Wraps the gateway of a Kafka connection: sees its requests and its replies.
Interpose = Callable[[Gateway], Gateway]


def take_ports(config: Config) -> dict[str, Port]:
    """Bind the ports of all listeners, by name, or none; "kafka" serves FlyMQ clients as well."""
    ports: list[tuple[str, int, str]] = []
    if "kafka" in config.listeners or "flymq" in config.listeners:
        ports.append(("kafka", config.port, "--port"))
    if "flux" in config.listeners:
        ports.append(("flux", config.port_of("flux"), "--flux-port"))
    if "classic" in config.listeners:
        ports.append(("classic", config.port_of("classic"), "--classic-port"))
    if "http" in config.listeners:
        ports.append(("http", config.port_of("http"), "--http-port"))
    taken: dict[str, Port] = {}
    try:
        for name, number, flag in ports:
            taken[name] = take_port(name, Address(config.host, number), flag=flag)
    except BaseException:
        for port in taken.values():
            port.close()
        raise
    return taken


class Listeners:
    def __init__(
        self,
        node: Node,
        ports: Mapping[str, Port],
        interpose: Interpose | None = None,
        *,
        descriptors_max: int | None = None,
        monitor: LoopMonitor | None = None,
    ) -> None:
        self._config = config = node.config
        self._clients = Clients(
            config.limits,
            node.metrics,
            node.threads,
            node.faults,
            descriptors_max=descriptors_max,
            monitor=monitor,
        )
        if descriptors_max is not None:
            highest = descriptors_max - config.limits.open_files_max - DESCRIPTORS_RESERVED
            node.running_config.bound(
                "max_connections",
                max(highest, config.limits.connections_max),
                f"this process may open {descriptors_max} files; raise that with `ulimit -n`, or "
                "LimitNOFILE= of a systemd unit, and restart",
            )
        node.running_config.watch(self._clients.reconfigure)
        factories = {
            "kafka": _shared_factory(node, interpose),
            "flux": on_first_client(flux_gateway_factory, node),
            "classic": on_first_client(classic_gateway_factory, node),
            "http": on_first_client(http_gateway_factory, node),
        }
        self.open: dict[str, Listener] = {
            name: Listener(port, make_gateway, self._clients)
            for name, port in ports.items()
            if (make_gateway := factories[name]) is not None
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
        """Accept no more clients, and wait until all requests in progress are answered."""
        limit_s = self._config.timing.stop_ms_max / 1000
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.gather(*(listener.stop() for listener in self.open.values()))
        except TimeoutError:
            _log.warning("closed connections that were still waiting after %.0f s", limit_s)

    def close(self) -> None:
        """Release the ports, whether clients were served or not."""
        for listener in self.open.values():
            listener.close()


def _shared_factory(node: Node, interpose: Interpose | None) -> GatewayFactory | None:
    """Kafka and FlyMQ share a port: the first byte of a client tells them apart."""
    has_kafka, has_flymq = ("kafka" in node.config.listeners), ("flymq" in node.config.listeners)
    if not has_kafka:
        return flymq_gateway_factory(node) if has_flymq else None
    kafka = kafka_gateway_factory(node)

    def make_kafka_gateway(client: NewClient) -> Gateway:
        gateway = kafka(client)
        return gateway if interpose is None else interpose(gateway)

    if not has_flymq:
        return make_kafka_gateway
    flymq = on_first_client(flymq_gateway_factory, node)

    def make_gateway(client: NewClient) -> Gateway:
        return FirstByteGateway(
            {FLYMQ_FIRST_BYTE: partial(flymq, client)}, partial(make_kafka_gateway, client)
        )

    return make_gateway

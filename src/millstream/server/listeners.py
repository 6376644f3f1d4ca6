"""The listeners of a node, each with its port, protocols and certificates.

Opens them once the node is ready and closes them before it stops; HTTP opens at once and closes
last, for probes. The node reports ready after all of them are open. A listener that cannot open
keeps the node from starting; otherwise a client would be the first to notice the missing port.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from millstream.config import Config
from millstream.metrics import INSECURE_LISTENERS
from millstream.server.gateway_factories import (
    answer_forwarded_requests,
    classic_gateway_factory,
    flux_gateway_factory,
    flymq_gateway_factory,
    http_gateway_factory,
    kafka_gateway_factory,
    on_first_client,
)
from millstream.server.listener_specs import ListenerSpec, insecure, listener_specs
from millstream.server.net.admission import Admission, Guard
from millstream.server.net.clients import Clients
from millstream.server.net.connection import Address, Gateway, GatewayFactory, NewClient
from millstream.server.net.first_byte import FirstByteGateway
from millstream.server.net.listener import Listener, Port, take_port
from millstream.server.node import Node
from millstream.server.system.loop_monitor import LoopMonitor
from millstream.server.system.machine import DESCRIPTORS_RESERVED
from millstream.server.system.tls import TlsContexts

if TYPE_CHECKING:
    from millstream.protocols.http.serving import Server
    from millstream.server.monitoring.vitals import VitalSigns

_log = logging.getLogger(__name__)

WARNED_EVERY_S = 24 * 60 * 60.0
FLYMQ_FIRST_BYTE = 0xAF  # Of a Kafka request it would be a length of more than two gigabytes.

# Wraps the gateway of a Kafka connection: sees its requests and its replies.
Interpose = Callable[[Gateway], Gateway]


def take_ports(config: Config) -> dict[str, Port]:
    """Bind the ports of all listeners, by name, or none."""
    taken: dict[str, Port] = {}
    try:
        for spec in listener_specs(config):
            address = Address(spec.host, spec.port)
            taken[spec.name] = take_port(spec.name, address, flag=spec.flag)
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
        self.is_stopping = False
        self.vitals: VitalSigns | None = None  # Set by the service.
        self.http: Server | None = None  # Of all its listeners; made by the first request.
        answer_forwarded_requests(node, self)
        self._config = config = node.config
        self._threads = node.threads
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
        self._specs = listener_specs(config)
        self._admission = Admission(config.limits, node.metrics, node.audit.recorder, node.usage)
        self._recorder = node.audit.recorder
        node.members.listeners = {
            spec.name: (
                spec.advertised_host or spec.host,
                spec.advertised_port or ports[spec.name].address.port,
            )
            for spec in self._specs
        }
        node.running_config.watch(self._admission.reconfigure)
        self._tls = {
            spec.name: TlsContexts(spec.name, spec.tls, node.secrets, _application_protocols(spec))
            for spec in self._specs
            if spec.transport.is_tls
        }
        self.open: dict[str, Listener] = {
            spec.name: Listener(
                ports[spec.name],
                _factory(node, spec, interpose, self),
                self._clients,
                Guard(spec, self._admission, node.authentication),
                self._tls.get(spec.name),
            )
            for spec in self._specs
        }
        node.metrics.set(INSECURE_LISTENERS, len(insecure(self._specs)))

    @property
    def held_bytes(self) -> int:
        """The memory of unanswered requests."""
        return self._clients.memory.held_bytes

    @property
    def connection_count(self) -> int:
        return sum(listener.connection_count for listener in self.open.values())

    async def run(self, opened: asyncio.Event, ready: asyncio.Event) -> None:
        """Serve until cancelled; `opened` is set once clients can connect.

        All but HTTP open when the node is `ready`.
        """
        async with asyncio.TaskGroup() as group:
            for contexts in self._tls.values():
                group.create_task(self._follow_files(contexts))
            if insecure(self._specs):
                group.create_task(self._warn_daily())
            early, late = self._by_order()
            for listeners in (early, late):
                for listener in listeners:
                    is_open = asyncio.Event()
                    group.create_task(listener.run(is_open))
                    await is_open.wait()
                await ready.wait()
            opened.set()

    def certificate_ends_s(self) -> float | None:
        """Seconds until the first certificate ends; None without TLS."""
        return min((contexts.ends_s() for contexts in self._tls.values()), default=None)

    async def reload(self) -> bool:
        """Take new certificates now; return whether there were any."""
        taken = [await self._reload(contexts, is_forced=True) for contexts in self._tls.values()]
        return any(taken)

    async def _reload(self, contexts: TlsContexts, *, is_forced: bool = False) -> bool:
        kept_before = contexts.kept_count
        is_taken = await self._threads.run(partial(contexts.reload, is_forced=is_forced))
        has_changed = is_taken or contexts.kept_count > kept_before
        if has_changed and self._recorder is not None:
            self._recorder.note_system(
                "tls.reload",
                {"listener": contexts.listener, "problem": contexts.problem},
                result="success" if is_taken else "failure",
            )
        return is_taken

    async def _follow_files(self, contexts: TlsContexts) -> None:
        while contexts.reload_ms:
            await asyncio.sleep(contexts.reload_ms / 1000)
            await self._reload(contexts)

    async def _warn_daily(self) -> None:
        while True:
            names = ", ".join(spec.name for spec in insecure(self._specs))
            _log.warning("the network reaches these listeners without a login: %s", names)
            await asyncio.sleep(WARNED_EVERY_S)

    async def stop(self) -> None:
        """Accept no more clients, and wait until all requests in progress are answered."""
        self.is_stopping = True
        limit_s = self._config.timing.stop_ms_max / 1000
        try:
            async with asyncio.timeout(limit_s):
                early, late = self._by_order()
                await asyncio.gather(*(listener.stop() for listener in late))
                await asyncio.gather(*(listener.stop() for listener in early))
        except TimeoutError:
            _log.warning("closed connections that were still waiting after %.0f s", limit_s)

    def _by_order(self) -> tuple[list[Listener], list[Listener]]:
        """HTTP, which opens first and closes last; and the others."""
        http = {spec.name for spec in self._specs if "http" in spec.protocols}
        return (
            [listener for name, listener in self.open.items() if name in http],
            [listener for name, listener in self.open.items() if name not in http],
        )

    def close(self) -> None:
        """Release the ports, whether clients were served or not."""
        for listener in self.open.values():
            listener.close()


def _factory(
    node: Node, spec: ListenerSpec, interpose: Interpose | None, listeners: Listeners
) -> GatewayFactory:
    if spec.protocols[0] in {"kafka", "flymq"}:
        return _shared_factory(node, spec, interpose)
    makers: dict[str, Callable[[Node], GatewayFactory]] = {
        "flux": flux_gateway_factory,
        "classic": classic_gateway_factory,
        "http": partial(http_gateway_factory, listeners=listeners),
    }
    return on_first_client(makers[spec.protocols[0]], node)


def _application_protocols(spec: ListenerSpec) -> tuple[str, ...]:
    return ("http/1.1",) if "http" in spec.protocols else ()


def _shared_factory(node: Node, spec: ListenerSpec, interpose: Interpose | None) -> GatewayFactory:
    """Kafka and FlyMQ share a port: the first byte of a client tells them apart."""
    has_kafka, has_flymq = ("kafka" in spec.protocols), ("flymq" in spec.protocols)
    advertised = Address(spec.advertised_host, spec.advertised_port)
    make_flymq = partial(flymq_gateway_factory, advertised=advertised)
    if not has_kafka:
        return make_flymq(node)
    kafka = kafka_gateway_factory(node, advertised=advertised)

    def make_kafka_gateway(client: NewClient) -> Gateway:
        gateway = kafka(client)
        return gateway if interpose is None else interpose(gateway)

    if not has_flymq:
        return make_kafka_gateway
    flymq = on_first_client(make_flymq, node)

    def make_gateway(client: NewClient) -> Gateway:
        return FirstByteGateway(
            {FLYMQ_FIRST_BYTE: partial(flymq, client)}, partial(make_kafka_gateway, client)
        )

    return make_gateway

"""Builds the gateway of each protocol for a new client, from the services of the node.

The function that returns a factory makes what all connections of its listener share, once. It also
imports the protocol's modules; `on_first_client` delays that until the first client connects,
because most nodes never see a client of every protocol and a node should be ready at once.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from millstream.engine.access.login import Login
from millstream.engine.cluster.peer_calls import HTTP_METHOD
from millstream.model import NodeId, Session
from millstream.server.net.connection import Address, Gateway, GatewayFactory, NewClient
from millstream.server.node import Node, Phase
from millstream.server.system.real_ports import elapsed_s

if TYPE_CHECKING:
    from millstream.protocols.http.context import Services as HttpServices
    from millstream.protocols.http.context import State
    from millstream.protocols.http.serving import Server
    from millstream.server.listeners import Listeners

AS_DIALLED = Address("", 0)


def on_first_client(make: Callable[[Node], GatewayFactory], node: Node) -> GatewayFactory:
    """Return a factory that calls `make` when the first client connects."""
    made: list[GatewayFactory] = []

    def make_gateway(client: NewClient) -> Gateway:
        if not made:
            made.append(make(node))
        return made[0](client)

    return make_gateway


def kafka_gateway_factory(node: Node, *, advertised: Address = AS_DIALLED) -> GatewayFactory:
    from millstream.protocols.kafka.context import Broker, Endpoint
    from millstream.protocols.kafka.fetch_sessions import Sessions
    from millstream.protocols.kafka.gateway import KafkaGateway
    from millstream.protocols.kafka.router import HANDLERS

    config = node.config
    broker = Broker(
        config=config,
        cluster_id=node.cluster_id,
        topics=node.topics,
        partitions=node.partitions,
        groups=node.groups,
        consumer_groups=node.consumer_groups,
        producer_ids=node.producer_ids,
        fetch_sessions=Sessions(config.limits, node.entropy),
        transactions=node.transactions,
        batch_groups=node.batch_groups,
        client_quotas=node.client_quotas,
        resources=node.resources,
        usage=node.usage,
        dead_letters=node.dead_letters,
        delayed=node.delayed,
        repairs=node.repairs,
        users=node.users,
        access_rules=node.access_rules,
        audit=node.audit,
        encryption=node.encryption,
        checkpoints=node.checkpoints,
        members=node.members,
        cluster=node.cluster,
    )

    def make_gateway(client: NewClient) -> Gateway:
        return KafkaGateway(
            broker,
            HANDLERS,
            config.limits,
            dialled=Endpoint(*_advertised(advertised, client.dialled)),
            session=_session(client, "kafka"),
            pace=client.pace,
            login=_login(client, "kafka"),
            is_audited=node.audit.recorder is not None,
        )

    return make_gateway


def flymq_gateway_factory(node: Node, *, advertised: Address = AS_DIALLED) -> GatewayFactory:
    from millstream.protocols.flymq.context import Endpoint, Services
    from millstream.protocols.flymq.gateway import FlymqGateway
    from millstream.protocols.flymq.open_transactions import OpenTransactions
    from millstream.protocols.flymq.router import HANDLERS
    from millstream.server.listener_specs import listener_specs

    config = node.config
    services = Services(
        config=config,
        cluster_id=node.cluster_id,
        topics=node.topics,
        partitions=node.partitions,
        publisher=node.publisher,
        delayed=node.delayed,
        groups=node.groups,
        consumer_groups=node.consumer_groups,
        transactions=OpenTransactions(
            node.transactions, node.partitions, node.topics, config=config, clock=node.clock
        ),
        usage=node.usage,
        unpacking=node.unpacking,
        dead_letters=node.dead_letters,
        users=node.users,
        access_rules=node.access_rules,
        lets_anonymous_in=lambda: any(spec.lets_anonymous_in for spec in listener_specs(config)),
        audit=node.audit,
        schemas=node.schemas,
        schema_changes=node.schema_changes,
    )

    def make_gateway(client: NewClient) -> Gateway:
        return FlymqGateway(
            services,
            HANDLERS,
            config.limits,
            dialled=Endpoint(*_advertised(advertised, client.dialled)),
            session=_session(client, "flymq"),
            pace=client.pace,
            login=_login(client, "flymq"),
            is_audited=node.audit.recorder is not None,
        )

    return make_gateway


def flux_gateway_factory(node: Node) -> GatewayFactory:
    from millstream.protocols.flux.context import Services
    from millstream.protocols.flux.envelopes import Envelopes
    from millstream.protocols.flux.gateway import FluxGateway

    services = Services(
        config=node.config,
        cluster_id=node.cluster_id,
        topics=node.topics,
        partitions=node.partitions,
        publisher=node.publisher,
        deliveries=node.deliveries,
        usage=node.usage,
        envelopes=Envelopes(node.clock, limits=node.config.limits),
    )

    def make_gateway(client: NewClient) -> Gateway:
        return FluxGateway(
            services,
            node.config.limits,
            push_channel=client.push_channel,
            dialled=f"{client.dialled.host}:{client.dialled.port}",
            session=_session(client, "flux"),
            pace=client.pace,
            login=_login(client, "flux"),
            is_audited=node.audit.recorder is not None,
        )

    return make_gateway


def classic_gateway_factory(node: Node) -> GatewayFactory:
    from millstream.protocols.classic.context import Services
    from millstream.protocols.classic.gateway import ClassicGateway

    services = Services(
        config=node.config,
        clock=node.clock,
        topics=node.topics,
        publisher=node.publisher,
        deliveries=node.deliveries,
        users=node.users,
    )

    def make_gateway(client: NewClient) -> Gateway:
        return ClassicGateway(
            services,
            push_channel=client.push_channel,
            session=_session(client, "classic"),
            login=_login(client, "classic"),
            is_audited=node.audit.recorder is not None,
        )

    return make_gateway


def http_gateway_factory(node: Node, *, listeners: "Listeners | None" = None) -> GatewayFactory:
    from millstream.protocols.http.gateway import HttpGateway
    from millstream.protocols.http.serving import Client

    server = _http_server(node, listeners)

    def make_gateway(client: NewClient) -> Gateway:
        login = _login(client, "http")
        session = _session(client, "http")
        conversation = Client(session, login, client.push_channel, client.pace)
        return HttpGateway(server, conversation, client.hang_up)

    return make_gateway


def answer_forwarded_requests(node: Node, listeners: "Listeners") -> None:
    """Answer HTTP requests that other nodes pass on, whether this one has a listener or not."""

    async def answer(_node: NodeId, payload: bytes) -> bytes:
        from millstream.protocols.http.operate.forwarding import answer_forwarded

        return await answer_forwarded(_http_server(node, listeners), payload)

    node.calls.serve(HTTP_METHOD, answer)


def _http_server(node: Node, listeners: "Listeners | None") -> "Server":
    """One for all listeners, so that each of them knows the same jobs and answers."""
    from millstream.protocols.http.operate.forwarding import Forwarding
    from millstream.protocols.http.router import Router
    from millstream.protocols.http.routes import APIS

    if listeners is not None and listeners.http is not None:
        return listeners.http
    members = node.members
    forwarding = Forwarding(
        node.calls,
        me=members.me,
        others=lambda: [
            each.node_id
            for each in members.nodes
            if each.node_id != members.me and members.is_up(each.node_id)
        ],
    )
    server = _server_class(node)(_http_services(node, listeners), Router(APIS), forwarding)
    if listeners is not None:
        listeners.http = server
    return server


def _http_services(node: Node, listeners: "Listeners | None") -> "HttpServices":
    from millstream.protocols.http.context import Services
    from millstream.protocols.http.operate.jobs import Jobs
    from millstream.protocols.http.records.scans import Scans
    from millstream.server.net.views import cut_connection, node_figures, open_connections

    return Services(
        config=node.config,
        cluster_id=node.cluster_id,
        clock=node.clock,
        entropy=node.entropy,
        elapsed_s=elapsed_s,
        threads=node.threads,
        started_ms=node.clock.now_ms(),
        state=lambda: _state(node, listeners is not None and listeners.is_stopping),
        health=lambda: (
            [] if listeners is None or listeners.vitals is None else listeners.vitals.checks()
        ),
        report=node.faults.report,
        node_figures=lambda: node_figures(node, listeners),
        log_lines=lambda: _log_lines(listeners),
        is_up=node.members.is_up,
        cluster=node.cluster,
        connections=lambda: open_connections(listeners),
        cut_connection=lambda number: cut_connection(listeners, number),
        history=node.history,
        metrics=node.metrics,
        topics=node.topics,
        partitions=node.partitions,
        publisher=node.publisher,
        groups=node.groups,
        consumer_groups=node.consumer_groups,
        transactions=node.transactions,
        delayed=node.delayed,
        deliveries=node.deliveries,
        dead_letters=node.dead_letters,
        client_quotas=node.client_quotas,
        resources=node.resources,
        repairs=node.repairs,
        users=node.users,
        audit=node.audit,
        access_rules=node.access_rules,
        logins=node.logins,
        scans=Scans(node.config.http),
        jobs=Jobs(node.config.http, node.clock, node.run_in_background),
        unpacking=node.unpacking,
        schemas=node.schemas,
        schema_changes=node.schema_changes,
    )


def _log_lines(listeners: "Listeners | None") -> list[str]:
    vitals = None if listeners is None else listeners.vitals
    return [] if vitals is None else vitals.log_lines.lines()


def _server_class(node: Node) -> "Callable[..., Server]":
    """The usual one, unless requests leave spans."""
    if node.tracer is None:
        from millstream.protocols.http.serving import Server

        return Server
    from millstream.protocols.http.monitoring.traced_server import TracedServer

    return partial(TracedServer, node.tracer)


def _state(node: Node, is_stopping: bool) -> "State":
    from millstream.protocols.http.context import State

    if node.phase is Phase.READY and not is_stopping:
        return State.READY
    return State.STARTING if node.phase in {Phase.BUILT, Phase.STARTING} else State.STOPPING


def _advertised(advertised: Address, dialled: Address) -> Address:
    """The address in metadata responses: as configured, or as the client dialled it."""
    return Address(advertised.host or dialled.host, advertised.port or dialled.port)


def _session(client: NewClient, protocol: str) -> Session:
    return replace(client.session, address=client.peer, protocol=protocol)


def _login(client: NewClient, protocol: str) -> Login | None:
    if client.login is not None:
        client.login.session = _session(client, protocol)
    return client.login

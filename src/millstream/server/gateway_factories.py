"""Builds the gateway of each protocol for a new client, from the services of the node.

The function that returns a factory makes what all connections of its listener share, once. It also
imports the protocol's modules; `on_first_client` delays that until the first client connects,
because most nodes never see a client of every protocol and a node should be ready at once.
"""

from collections.abc import Callable

from millstream.server.net.connection import Address, Gateway, GatewayFactory, NewClient
from millstream.server.node import Node


def on_first_client(make: Callable[[Node], GatewayFactory], node: Node) -> GatewayFactory:
    """Return a factory that calls `make` when the first client connects."""
    made: list[GatewayFactory] = []

    def make_gateway(client: NewClient) -> Gateway:
        if not made:
            made.append(make(node))
        return made[0](client)

    return make_gateway


def kafka_gateway_factory(node: Node) -> GatewayFactory:
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
    )

    def make_gateway(client: NewClient) -> Gateway:
        here = Endpoint(*_advertised(node, client.dialled))
        return KafkaGateway(
            broker, HANDLERS, config.limits, dialled=here, peer=client.peer, pace=client.pace
        )

    return make_gateway


def flymq_gateway_factory(node: Node) -> GatewayFactory:
    from millstream.protocols.flymq.context import Endpoint, Services
    from millstream.protocols.flymq.gateway import FlymqGateway
    from millstream.protocols.flymq.open_transactions import OpenTransactions
    from millstream.protocols.flymq.router import HANDLERS

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
    )

    def make_gateway(client: NewClient) -> Gateway:
        here = Endpoint(*_advertised(node, client.dialled))
        return FlymqGateway(
            services, HANDLERS, config.limits, dialled=here, peer=client.peer, pace=client.pace
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
            peer=client.peer,
            pace=client.pace,
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
    )

    def make_gateway(client: NewClient) -> Gateway:
        return ClassicGateway(services, push_channel=client.push_channel, peer=client.peer)

    return make_gateway


def http_gateway_factory(node: Node) -> GatewayFactory:
    from millstream.protocols.http.gateway import HttpGateway

    def make_gateway(client: NewClient) -> Gateway:
        return HttpGateway(node.metrics)

    return make_gateway


def _advertised(node: Node, dialled: Address) -> Address:
    """The address in metadata responses: as configured, or as the client dialled it."""
    config = node.config
    return Address(config.advertised_host or dialled.host, config.advertised_port or dialled.port)

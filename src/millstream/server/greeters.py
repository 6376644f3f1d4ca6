"""How each protocol greets a client: its gateway, with as much of the node as it may ask of.

Owns the composition of gateways and nothing else. What all conversations of one door share is made
once, by the function that makes its greeter. The one thing to know: a door's modules are imported
by that function, and `on_first_guest` puts that off until somebody comes: most nodes never see a
client of every protocol, and a node should be ready at once.
"""

from collections.abc import Callable

from millstream.server.connection import Address, Gateway, Greeter, Guest
from millstream.server.node import Node


def on_first_guest(make: Callable[[Node], Greeter], node: Node) -> Greeter:
    """The greeter that `make` makes, once it is needed."""
    made: list[Greeter] = []

    def greet(guest: Guest) -> Gateway:
        if not made:
            made.append(make(node))
        return made[0](guest)

    return greet


def kafka_greeter(node: Node) -> Greeter:
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

    def greet(guest: Guest) -> Gateway:
        here = Endpoint(*_advertised(node, guest.dialled))
        return KafkaGateway(
            broker, HANDLERS, config.limits, dialled=here, peer=guest.peer, pace=guest.pace
        )

    return greet


def flymq_greeter(node: Node) -> Greeter:
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

    def greet(guest: Guest) -> Gateway:
        here = Endpoint(*_advertised(node, guest.dialled))
        return FlymqGateway(
            services, HANDLERS, config.limits, dialled=here, peer=guest.peer, pace=guest.pace
        )

    return greet


def flux_greeter(node: Node) -> Greeter:
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
        envelopes=Envelopes(node.clock, delay_ms_max=node.config.limits.deferred_ms_max),
    )

    def greet(guest: Guest) -> Gateway:
        return FluxGateway(
            services,
            node.config.limits,
            outbox=guest.outbox,
            dialled=f"{guest.dialled.host}:{guest.dialled.port}",
            peer=guest.peer,
            pace=guest.pace,
        )

    return greet


def classic_greeter(node: Node) -> Greeter:
    from millstream.protocols.classic.context import Services
    from millstream.protocols.classic.gateway import ClassicGateway

    services = Services(
        config=node.config,
        clock=node.clock,
        topics=node.topics,
        publisher=node.publisher,
        deliveries=node.deliveries,
    )

    def greet(guest: Guest) -> Gateway:
        return ClassicGateway(services, outbox=guest.outbox, peer=guest.peer)

    return greet


def _advertised(node: Node, dialled: Address) -> Address:
    """Where a client is told that this node is: where it was found, or as configured."""
    config = node.config
    return Address(config.advertised_host or dialled.host, config.advertised_port or dialled.port)

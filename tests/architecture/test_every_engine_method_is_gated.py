"""Nothing gets past the gate: whoever is denied everything gets nothing done anywhere."""

import asyncio
import inspect
from collections.abc import Callable

import pytest

from millstream.codec.records import ControlKind, Marker
from millstream.control.batch_groups import Ending
from millstream.control.catalog import Topic
from millstream.control.quotas import Entity
from millstream.control.resources import ResourceKind
from millstream.engine.batch_groups import BatchGroups
from millstream.engine.dead_letters import DeadLetters, RedrivePlan
from millstream.engine.deferred import Deferred
from millstream.engine.delivery import Deliveries, SubscriptionSpec
from millstream.engine.gate import Operation
from millstream.engine.partitions import Partitions
from millstream.engine.publishing import Publication, Publisher, Receipts
from millstream.engine.quotas import ClientQuotas
from millstream.engine.reading import Earliest, Slice, Want
from millstream.engine.resources import ResourceSettings
from millstream.engine.topics import Topics
from millstream.engine.transactions import Transactions
from millstream.errors import Denied
from millstream.metrics import REQUESTS
from millstream.model import Acks, Epoch, Producer, Session, TopicPartition
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run

SERVICES = {
    Topics: "topics",
    Partitions: "partitions",
    Transactions: "transactions",
    BatchGroups: "batch_groups",
    ClientQuotas: "client_quotas",
    ResourceSettings: "resources",
    Deferred: "deferred",
    Publisher: "publisher",
    Deliveries: "deliveries",
    DeadLetters: "dead_letters",
}
HEARD = SubscriptionSpec(name="billing", topics=("orders",))
STRANGER = Session(principal="stranger")


def arguments_of(topic: Topic) -> dict[str, tuple[tuple[object, ...], dict[str, object]]]:
    return {
        "Topics.create": (("fresh",), {}),
        "Topics.check_create": (("fresh",), {}),
        "Topics.delete": (("orders",), {}),
        "Topics.alter": (("orders", {"retention_ms": "1"}), {}),
        "Topics.check_alter": (("orders", {"retention_ms": "1"}), {}),
        "Topics.add_partitions": (("orders",), {"total": 5}),
        "Topics.check_add_partitions": (("orders",), {"total": 5}),
        "Topics.node_config": ((), {}),
        "Topics.quorum": ((), {}),
        "Topics.describe": (("orders",), {}),
        "Topics.describe_id": ((topic.topic_id,), {}),
        "Topics.describe_number": ((topic.number,), {}),
        "Topics.list": ((), {}),
        "Partitions.append": ((ORDERS, batch(b"a"), Acks.ALL), {}),
        "Partitions.read": (([Want(ORDERS, 0, 100)],), {}),
        "Partitions.find": ((ORDERS, Earliest()), {}),
        "Partitions.epoch_end": ((ORDERS, Epoch(1)), {}),
        "Partitions.delete_records": ((ORDERS,), {}),
        "Partitions.leadership": ((topic,), {}),
        "Partitions.health": ((ORDERS,), {}),
        "Partitions.write_marker": ((ORDERS, Marker(ControlKind.ABORT, 1, 0, 0)), {}),
        "Partitions.producers": ((ORDERS,), {}),
        "Transactions.coordinator_of": (("billing",), {}),
        "Transactions.init": (("billing",), {"timeout_ms": 1000}),
        "Transactions.add_partitions": (("billing", Producer(1, 0), [ORDERS]), {}),
        "Transactions.add_offsets": (("billing", Producer(1, 0), "readers"), {}),
        "Transactions.check_partitions": (("billing", Producer(1, 0), [ORDERS]), {}),
        "Transactions.check_offsets": (("billing", 1, 0, "readers"), {}),
        "Transactions.end": (("billing", Producer(1, 0)), {"commits": True}),
        "Transactions.describe": (("billing",), {}),
        "Transactions.list": ((), {}),
        "ClientQuotas.describe": ((), {}),
        "ClientQuotas.alter": ((Entity("test", None), {"producer_byte_rate": 1.0}), {}),
        "ClientQuotas.check_alter": ((Entity("test", None), {"producer_byte_rate": 1.0}), {}),
        "ResourceSettings.describe": ((ResourceKind.NODE, "1"), {}),
        "ResourceSettings.names": ((ResourceKind.GROUP,), {}),
        "ResourceSettings.alter": ((ResourceKind.NODE, "1", {"retention_ms": "1"}), {}),
        "ResourceSettings.check_alter": ((ResourceKind.NODE, "1", {"retention_ms": "1"}), {}),
        "ResourceSettings.admit_to_loggers": ((Operation.ALTER,), {}),
        "Deferred.list": (("orders",), {}),
        "Deferred.describe": (("orders~0",), {}),
        "Deferred.cancel": (("orders~0",), {}),
        "Publisher.publish": (([Publication("orders", b"a")],), {}),
        "Publisher.publish_many": (("orders", [(None, b"a", ())]), {}),
        "Publisher.publish_one": (("orders", (None, b"a", ())), {}),
        "Deliveries.subscribe": ((HEARD, lambda records: True), {}),
        "Deliveries.join": (("billing", lambda records: True), {}),
        "Deliveries.create": ((HEARD,), {}),
        "Deliveries.delete": (("billing",), {}),
        "Deliveries.list": ((), {}),
        "Deliveries.describe": (("billing",), {}),
        "DeadLetters.list": (("orders",), {}),
        "DeadLetters.statistics": (("orders",), {}),
        "DeadLetters.replay": ((TopicPartition("orders.dlq", 0), 0), {}),
        "DeadLetters.redrive": (("orders", RedrivePlan()), {}),
        "DeadLetters.purge": (("orders",), {}),
        "BatchGroups.begin": (("spark:orders",), {}),
        "BatchGroups.end": (("spark:orders", Ending(1, "query", 0, {})), {"commits": True}),
    }


def public_methods() -> list[str]:
    return [
        f"{service.__name__}.{name}"
        for service in SERVICES
        for name, _ in inspect.getmembers(service, inspect.isfunction)
        if not name.startswith("_")
    ]


class OnlyFriends:
    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return session == SESSION


async def ask(method: Callable[..., object], *arguments: object, **keywords: object) -> None:
    result = method(STRANGER, *arguments, **keywords)
    if isinstance(result, list) and isinstance(result[0], asyncio.Future):
        await asyncio.wait(result)
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, Receipts):  # A publisher is told for each message.
        result[0]
    if isinstance(result, list):  # A reader is told for each partition.
        raise result[0].error if isinstance(result[0], Slice) else result[0].exception()


def test_every_public_method_takes_the_session_first() -> None:
    for name in public_methods():
        service, _, method = name.partition(".")
        owner = next(s for s in SERVICES if s.__name__ == service)
        assert list(inspect.signature(getattr(owner, method)).parameters)[1] == "session", name


@pytest.mark.parametrize("name", public_methods())
def test_a_stranger_is_denied_and_changes_nothing(name: str) -> None:
    service, _, method = name.partition(".")
    attributes = {one.__name__: attribute for one, attribute in SERVICES.items()}

    async def story() -> None:
        async with running_node(policy=OnlyFriends()) as node:
            topic = await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            arguments, keywords = arguments_of(topic)[name]
            owner = getattr(node, attributes[service])

            with pytest.raises(Denied, match="stranger may not"):
                await ask(getattr(owner, method), *arguments, **keywords)

            assert node.topics.list(SESSION) == [topic]
            health = node.partitions.health(SESSION, ORDERS)
            assert (health.log.start_offset, health.log.end_offset) == (0, 1)
            denied = [s for s in node.metrics.samples() if s.metric is REQUESTS]
            assert any("denied" in sample.labels for sample in denied)

    run(story())


def test_a_topic_that_does_not_exist_is_denied_before_it_is_unknown() -> None:
    async def story() -> None:
        async with running_node(policy=OnlyFriends()) as node:
            with pytest.raises(Denied):
                node.partitions.health(STRANGER, TopicPartition("secret", 0))

    run(story())

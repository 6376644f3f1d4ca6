"""Delayed records as our own clients ask for them."""

from collections.abc import Sequence

from millstream.kafka_wire.apis.millstream import (
    CancelDelayedRequest,
    CancelDelayedResponse,
    DescribeDelayedRequest,
    DescribeDelayedResponse,
    ListDelayedRequest,
    ListDelayedResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import Acks
from millstream.server.node import Node
from tests.support.nodes import NOW_MS, ORDERS, SESSION
from tests.support.queues import batch_of, message, running_orders
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask

DUE_MS = NOW_MS + 60_000


async def delay(node: Node, *values: bytes) -> Sequence[str]:
    sent = batch_of(*(message(value, deliver_at=DUE_MS) for value in values), key=b"k")
    appended = await node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
    return [appended.delayed[at] for at in range(len(values))]


async def listed(
    node: Node, *, topic: str | None, after: str | None, count_max: int
) -> ListDelayedResponse:
    request = ListDelayedRequest(topic=topic, after=after, count_max=count_max)
    return await ask(node, request, ListDelayedResponse)


def test_they_are_listed_looked_at_and_cancelled() -> None:
    async def story() -> None:
        async with running_orders() as node:
            first, second = await delay(node, b"1", b"2")

            page = await listed(node, topic="orders", after=None, count_max=1)
            remaining = await listed(node, topic=None, after=page.next_after, count_max=9)
            answer = await ask(node, DescribeDelayedRequest(id=second), DescribeDelayedResponse)
            gone = await ask(node, CancelDelayedRequest(id=first), CancelDelayedResponse)

            assert [delayed_record.id for delayed_record in page.delayed] == [first]
            assert [delayed.id for delayed in remaining.delayed] == [second]
            assert remaining.next_after is None
            place = ("orders", 0, DUE_MS)
            for delayed in (*remaining.delayed, answer, gone):
                assert (delayed.topic, delayed.partition, delayed.due_ms) == place  # type: ignore[attr-defined]
            assert (answer.key, answer.value) == (b"k", b"2")
            assert [(header.name, header.value) for header in answer.headers] == [
                ("ms-deliver-at", b"%d" % DUE_MS)
            ]

    run(story())


def test_what_cannot_be_is_refused_with_a_reason() -> None:
    async def story() -> None:
        async with running_orders() as node:
            await delay(node, b"1")

            nothing = await listed(node, topic=None, after=None, count_max=0)
            nowhere = await listed(node, topic="no", after=None, count_max=1)
            unknown = [
                await listed(node, topic=None, after="x", count_max=1),
                await ask(node, DescribeDelayedRequest(id="orders~99"), DescribeDelayedResponse),
                await ask(node, CancelDelayedRequest(id="orders~99"), CancelDelayedResponse),
            ]

            assert nothing.error_code == ErrorCode.INVALID_REQUEST
            assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert {answer.error_code for answer in unknown} == {ErrorCode.RESOURCE_NOT_FOUND}
            assert all(answer.error_message for answer in (nothing, nowhere, *unknown))

    run(story())

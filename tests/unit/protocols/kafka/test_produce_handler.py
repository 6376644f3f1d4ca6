"""Produce as clients ask for it: what is answered at once, later, never, and what goes wrong."""

import inspect

import pytest

from millstream.errors import ProtocolError
from millstream.kafka_wire.apis.data import ProduceRequest, ProduceResponse
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.kafka_wire.headers import RequestHeader
from millstream.model import Acks
from millstream.protocols.kafka.handlers.data import produce
from millstream.server.node import Node
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.queues import batch_of, message
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import context_of

NONE, LEADER, ALL = 0, 1, -1


def begin(node: Node, *partitions: int, acks: int, timeout_ms: int = 30_000) -> object:
    parts = [ProduceRequest.Topic.Partition(index=p, records=batch(b"a")) for p in partitions]
    request = ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequest.Topic(name="orders", partition_data=parts)],
    )
    return produce(context_of(node, RequestHeader(0, 9, 7), SESSION), request)


def outcomes(response: object) -> list[tuple[int, int, int]]:
    """Partition, error and offset of each answer."""
    assert isinstance(response, ProduceResponse)
    (topic,) = response.responses
    return [(p.index, p.error_code, p.base_offset) for p in topic.partition_responses]


async def orders(node: Node) -> None:
    await node.topics.create(SESSION, "orders", partitions=2)


def test_what_is_written_on_the_leader_is_answered_at_once() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            assert outcomes(begin(node, 0, 1, acks=LEADER)) == [(0, 0, 0), (1, 0, 0)]
            assert outcomes(begin(node, 1, 0, acks=LEADER)) == [(1, 0, 1), (0, 0, 1)]

    run(story())


def test_what_must_be_durable_is_answered_when_it_is_and_each_partition_for_itself() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

            coming = begin(node, 0, 7, 1, acks=ALL)

            assert inspect.isawaitable(coming)
            assert outcomes(await coming) == [(0, 0, 0), (7, unknown, -1), (1, 0, 0)]

    run(story())


def test_a_producer_that_will_not_wait_is_told_so_and_the_record_stays() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            late = begin(node, 0, 1, acks=ALL, timeout_ms=0)
            patient = begin(node, 0, acks=ALL)

            assert inspect.isawaitable(late)
            assert inspect.isawaitable(patient)
            timed_out = ErrorCode.REQUEST_TIMED_OUT
            assert outcomes(await late) == [(0, timed_out, -1), (1, timed_out, -1)]
            assert outcomes(await patient) == [(0, 0, 1)]

    run(story())


def test_without_acks_nothing_is_answered_and_a_refusal_is_the_end() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            assert begin(node, 0, acks=NONE) is None
            with pytest.raises(ProtocolError, match="orders-7"):
                begin(node, 7, acks=NONE)

    run(story())


def test_no_other_acks_are_known() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)

            refused = outcomes(begin(node, 0, acks=2))

            assert refused == [(0, ErrorCode.INVALID_REQUIRED_ACKS, -1)]

    run(story())


def test_a_batch_without_acks_is_pending_until_it_is_written() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            delayed = batch_of(message(b"x", delay_ms=60_000))
            queued = node.partitions.append(SESSION, ORDERS, delayed, Acks.ALL)

            pending = begin(node, 0, acks=NONE)

            assert inspect.isawaitable(pending)
            assert await pending is None
            assert queued.done()
            assert begin(node, 0, acks=NONE) is None

    run(story())

"""Dead letters over the wire: what waits, sent back in steps, purged, and what is refused."""

import asyncio
from collections.abc import Sequence

import pytest

from millstream.engine.partitions.slices import Earliest
from millstream.engine.publish.publisher import Publication
from millstream.engine.push import SubscriptionSpec
from millstream.kafka_wire.apis.millstream import (
    DescribeDeadLettersRequest,
    DescribeDeadLettersResponse,
    ListDeadLettersRequest,
    ListDeadLettersResponse,
    PurgeDeadLettersRequest,
    PurgeDeadLettersResponse,
    RedriveDeadLettersRequest,
    RedriveDeadLettersResponse,
    ReplayDeadLetterRequest,
    ReplayDeadLetterResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.protocols.kafka.handlers.own import dead_letters
from millstream.server.node import Node
from tests.support.deliveries import Subscriber, make_topic, publish, until, values_in
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run
from tests.unit.protocols.kafka.asking import ask


async def give_up(node: Node, *values: bytes) -> None:
    """Publish records, and have a subscription reject them all."""
    await make_topic(node)
    await publish(node, *values)
    reader = Subscriber()
    spec = SubscriptionSpec(name="readers", topics=("orders",), start=Earliest())
    member = (await reader.subscribe(node, spec)).member
    assert member is not None
    await until(lambda: len(reader.got) == len(values))
    for delivery in reader.got:
        assert member.reject(
            delivery.target, delivery.record.offset, "rejected", "no such customer"
        )
    while len(await letters(node)) < len(values):
        await asyncio.sleep(0.01)
    reader.close()


async def letters(
    node: Node, topic: str = "orders", count_max: int = 100
) -> Sequence[ListDeadLettersResponse.Letter]:
    request = ListDeadLettersRequest(topic=topic, count_max=count_max)
    answer = await ask(node, request, ListDeadLettersResponse)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    assert answer.topic == "orders.dlq"
    return answer.letters


async def redrive(
    node: Node,
    *,
    where: str | None = None,
    group: str | None = None,
    to: str | None = None,
    count_max: int = 100,
    is_dry_run: bool = False,
) -> tuple[int, int]:
    request = RedriveDeadLettersRequest(
        topic="orders", filter=where, group=group, to=to, count_max=count_max, is_dry_run=is_dry_run
    )
    answer = await ask(node, request, RedriveDeadLettersResponse)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return answer.sent, answer.skipped


async def replay(node: Node, partition: int, offset: int, to: str | None = None) -> ErrorCode:
    request = ReplayDeadLetterRequest(topic="orders", partition=partition, offset=offset, to=to)
    answer = await ask(node, request, ReplayDeadLetterResponse)
    assert bool(answer.error_code) is (answer.error_message is not None)
    return ErrorCode(answer.error_code)


def test_what_waits_is_listed_and_counted() -> None:
    async def story() -> None:
        async with running_node() as node:
            await give_up(node, b"a", b"b")

            first, second = await letters(node)
            assert (first.partition, first.offset, first.value) == (0, 0, b"a")
            assert (second.origin_topic, second.origin_offset) == ("orders", 1)
            assert (first.group, first.attempts, first.reason) == ("readers", 1, "rejected")
            assert first.error == "no such customer"
            assert "ms-dlq-topic" in {header.name for header in first.headers}
            request = DescribeDeadLettersRequest(topic="orders.dlq")
            counted = await ask(node, request, DescribeDeadLettersResponse)
            assert (counted.topic, counted.waiting, counted.is_complete) == ("orders.dlq", 2, True)
            assert [(reason.name, reason.count) for reason in counted.by_reason] == [
                ("rejected", 2)
            ]
            assert [(group.name, group.count) for group in counted.by_group] == [("readers", 2)]
            assert 0 < counted.oldest_ms <= counted.newest_ms

    run(story())


def test_a_list_says_whether_there_are_more_and_stays_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await give_up(node, b"a" * 10_000, b"b" * 10_000, b"c")
            second = ListDeadLettersRequest(topic="orders", count_max=2)
            answer = await ask(node, second, ListDeadLettersResponse)
            assert (len(answer.letters), answer.has_more) == (2, True)

            monkeypatch.setattr(dead_letters, "LISTED_BYTES_MAX", 100)
            all_of_them = ListDeadLettersRequest(topic="orders", count_max=3)
            answer = await ask(node, all_of_them, ListDeadLettersResponse)
            assert (len(answer.letters), answer.has_more) == (1, True)

    run(story())


def test_a_topic_without_dead_letters_has_none() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)

            assert await letters(node) == []
            assert await redrive(node) == (0, 0)
            request = DescribeDeadLettersRequest(topic="orders")
            counted = await ask(node, request, DescribeDeadLettersResponse)
            assert (counted.waiting, counted.oldest_ms, counted.newest_ms) == (0, -1, -1)
            purged = await ask(
                node, PurgeDeadLettersRequest(topic="orders"), PurgeDeadLettersResponse
            )
            assert (purged.error_code, purged.count) == (ErrorCode.NONE, 0)

    run(story())


def test_one_is_sent_back_once() -> None:
    async def story() -> None:
        async with running_node() as node:
            await give_up(node, b"a", b"b")

            assert await replay(node, 0, 1) is ErrorCode.NONE

            assert await values_in(node, "orders") == [b"a", b"b", b"b"]
            assert [letter.value for letter in await letters(node)] == [b"a"]
            for partition, offset in ((0, 1), (0, 99), (7, 0), (-1, 0), (0, -1)):
                assert await replay(node, partition, offset) is ErrorCode.RESOURCE_NOT_FOUND
            assert await replay(node, 0, 0, to="nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story())


def test_a_redrive_goes_in_steps_that_the_broker_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with running_node() as node:
            await give_up(node, *[b"%d" % at for at in range(5)])
            monkeypatch.setattr(dead_letters, "STEP_RECORDS_MAX", 2)

            assert await redrive(node, is_dry_run=True) == (5, 0)
            assert [await redrive(node, count_max=9) for _ in range(4)] == [
                (2, 0),
                (2, 0),
                (1, 0),
                (0, 0),
            ]

            assert await values_in(node, "orders") == 2 * [b"%d" % at for at in range(5)]
            assert await letters(node) == []

    run(story())


def test_a_redrive_takes_what_a_filter_and_a_group_say() -> None:
    async def story() -> None:
        async with running_node() as node:
            await give_up(node, b"good", b"bad", b"good")
            await make_topic(node, "elsewhere")

            assert await redrive(node, group="nobody") == (0, 3)
            assert await redrive(node, where="value contains 'good'", to="elsewhere") == (2, 1)

            assert await values_in(node, "elsewhere") == [b"good", b"good"]
            assert [letter.value for letter in await letters(node)] == [b"bad"]

    run(story())


def test_all_are_purged() -> None:
    async def story() -> None:
        async with running_node() as node:
            await give_up(node, b"a", b"b")

            purged = await ask(
                node, PurgeDeadLettersRequest(topic="orders"), PurgeDeadLettersResponse
            )

            assert purged.count == 2
            assert await letters(node) == []

    run(story())


def test_what_makes_no_sense_is_an_invalid_request() -> None:
    async def story() -> None:
        async with running_node() as node:
            await give_up(node, b"a")

            listed = await ask(
                node, ListDeadLettersRequest(topic="orders", count_max=0), ListDeadLettersResponse
            )
            assert listed.error_code == ErrorCode.INVALID_REQUEST
            for where, count, code in (
                ("colour", 1, ErrorCode.INVALID_CONFIG),
                (None, -1, ErrorCode.INVALID_REQUEST),
            ):
                request = RedriveDeadLettersRequest(
                    topic="orders",
                    filter=where,
                    group=None,
                    to=None,
                    count_max=count,
                    is_dry_run=False,
                )
                answer = await ask(node, request, RedriveDeadLettersResponse)
                assert answer.error_code == code
                assert answer.error_message

    run(story())


def test_headers_that_anybody_may_have_written_do_not_break_the_answer() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node, "orders.dlq")
            origin = {"topic": b"orders", "partition": b"9" * 30, "offset": b"-7"}
            headers = tuple((f"ms-dlq-{name}", value) for name, value in origin.items())
            letter = Publication("orders.dlq", b"x", headers=(*headers, ("ms-dlq-attempts", b"-1")))
            (sent,) = node.publisher.publish(SESSION, [letter])
            await sent

            (listed,) = await letters(node)

            assert (listed.origin_partition, listed.origin_offset, listed.attempts) == (-1, -1, -1)

    run(story())


def test_a_client_that_leaves_in_the_middle_leaves_nothing_half_done() -> None:
    async def story() -> None:
        async with running_node() as node:
            await give_up(node, *[b"%d" % at for at in range(5)])

            for moments in range(3):
                step = asyncio.ensure_future(redrive(node, count_max=1))
                await asyncio.sleep(moments * 0.0005)
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)

            await redrive(node)
            # What was begun is done, what was not is done now, and nothing twice.
            assert await values_in(node, "orders") == 2 * [b"%d" % at for at in range(5)]

    run(story())

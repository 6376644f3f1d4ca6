"""Messages into partitions, one by one and in bulk."""

import asyncio

import pytest

from millstream.codec.encoding import MessageTemplate, TemplatedMessages, encode_batch, encode_many
from millstream.codec.murmur2 import murmur2
from millstream.codec.records import Record, decode_all
from millstream.config import Config, Limits
from millstream.engine.publish.partitioner import Partitioner
from millstream.engine.publish.publisher import Publication
from millstream.errors import BatchTooLarge, Overloaded, RequestError, UnknownTopic
from millstream.model import TopicPartition
from tests.support.deliveries import make_topic, values_in
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run

HEADERS = (("ms-subject", b"orders.us"),)


def test_each_message_gets_the_receipt_of_its_place() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)

            futures = node.publisher.publish(
                SESSION, [Publication("orders", value) for value in (b"a", b"b", b"c")]
            )
            receipts = [await future for future in futures]

            assert [receipt.offset for receipt in receipts] == [0, 1, 2]
            assert {receipt.target for receipt in receipts} == {TopicPartition("orders", 0)}
            assert await values_in(node, "orders") == [b"a", b"b", b"c"]

    run(story())


def test_messages_for_a_topic_that_is_not_there_keep_their_order() -> None:
    async def story() -> None:
        async with running_node() as node:
            futures = []
            for value in (b"a", b"b", b"c"):
                futures += node.publisher.publish(SESSION, [Publication("fresh", value)])
                await asyncio.sleep(0)
            many = node.publisher.publish_many(SESSION, "fresh", [(None, b"d", ())])

            assert [(await future).offset for future in futures] == [0, 1, 2]
            assert (await many)[0].offset == 3
            assert await values_in(node, "fresh") == [b"a", b"b", b"c", b"d"]

    run(story())


def test_without_auto_creation_a_missing_topic_is_unknown() -> None:
    async def story() -> None:
        async with running_node(Config(auto_create_topics=False)) as node:
            (future,) = node.publisher.publish(SESSION, [Publication("nowhere", b"a")])
            with pytest.raises(UnknownTopic):
                await future

    run(story())


def test_what_waits_for_a_topic_is_bounded() -> None:
    async def story() -> None:
        async with running_node(Config(limits=Limits(publish_waiting_max=2))) as node:
            messages = [Publication("fresh", b"a")] * 2
            kept = node.publisher.publish(SESSION, messages)
            (refused,) = node.publisher.publish(SESSION, [Publication("fresh", b"b")])

            with pytest.raises(Overloaded):
                await refused
            assert [(await future).offset for future in kept] == [0, 1]

    run(story())


def test_one_message_that_is_refused_takes_no_other_with_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            huge = bytes(2 * 2**20)

            futures = node.publisher.publish(
                SESSION, [Publication("orders", value) for value in (b"a", huge, b"b")]
            )

            assert (await futures[0]).offset == 0
            with pytest.raises(BatchTooLarge):
                await futures[1]
            assert (await futures[2]).offset == 1

    run(story())


def test_many_messages_are_cut_into_batches_that_the_topic_takes() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "small", settings={"max_message_bytes": "2000"})
            messages = [(b"k", bytes(100), HEADERS)] * 100

            receipts = await node.publisher.publish_many(SESSION, "small", messages)

            assert receipts.is_plain
            assert [receipts[at].offset for at in range(100)] == list(range(100))

    run(story())


def test_a_mixture_fares_as_its_messages_would_one_by_one() -> None:
    """Several partitions, batches that must be cut, and one kind that fits nowhere."""

    async def story() -> None:
        async with running_node() as node:
            kinds = [MessageTemplate(b"k%d" % n, n, HEADERS) for n in (2, 90, 3)] + [
                MessageTemplate(b"k", 3_000, ())
            ]
            order = [kinds[at % 4] for at in range(400)]
            mixed = TemplatedMessages(order, [b"%0*d" % (kind.size, 7) for kind in order])
            outcomes, stored = [], []
            for topic, messages in (("mixed", mixed), ("listed", list(mixed))):
                small = {"max_message_bytes": "2000"}
                await node.topics.create(SESSION, topic, partitions=3, settings=small)
                receipts = await node.publisher.publish_many(SESSION, topic, messages)
                outcomes.append(
                    [
                        outcome
                        if isinstance(outcome, RequestError)
                        else (outcome.target.partition, outcome.offset)
                        for outcome in receipts.outcomes()
                    ]
                )
                stored.append([await values_in(node, topic, at) for at in range(3)])

            places = [
                [outcome for outcome in some if isinstance(outcome, tuple)] for some in outcomes
            ]
            assert places[0] == places[1]
            for some in outcomes:
                refused = [isinstance(outcome, BatchTooLarge) for outcome in some]
                assert refused == ([False] * 3 + [True]) * 100
            assert stored[0] == stored[1]
            assert sum(map(len, stored[0])) == 300

    run(story())


def test_a_key_goes_where_kafkas_clients_put_it() -> None:
    # From Apache Kafka's own UtilsTest.
    assert murmur2(b"21") == 0xFFFFFFFF & -973932308
    assert murmur2(b"foobar") == 0xFFFFFFFF & -790332482
    assert murmur2(b"a-little-bit-long-string") == 0xFFFFFFFF & -985981536
    assert murmur2(b"a-little-bit-longer-string") == 0xFFFFFFFF & -1486304829
    assert murmur2(b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8") == (0xFFFFFFFF & -58897971)
    assert murmur2(b"abc") == 479470107


def test_keys_decide_and_others_take_turns() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node, partitions=4)
            keyed = await node.publisher.publish_many(
                SESSION, "orders", [(b"%d" % at, b"v", ()) for at in range(50)]
            )
            expected = [Partitioner().of_key(b"%d" % at, 4) for at in range(50)]
            assert [keyed[at].target.partition for at in range(50)] == expected

            turns = [
                (await node.publisher.publish_many(SESSION, "orders", [(None, b"v", ())]))[0]
                for _ in range(8)
            ]
            assert sorted(turn.target.partition for turn in turns) == [0, 0, 1, 1, 2, 2, 3, 3]

    run(story())


def test_a_given_time_and_partition_are_kept() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node, partitions=2)
            futures = node.publisher.publish(
                SESSION,
                [
                    Publication("orders", b"a", partition=1, timestamp_ms=1_700_000_000_005),
                    Publication("orders", b"b", partition=1),
                ],
            )
            receipts = [await future for future in futures]
            assert [receipt.target.partition for receipt in receipts] == [1, 1]
            assert [receipt.offset for receipt in receipts] == [0, 1]
            assert await values_in(node, "orders", 1) == [b"a", b"b"]

    run(story())


def test_a_message_that_was_sent_before_is_said_to_be_a_duplicate() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            headers = (("ms-message-id", b"one"),)
            first = await node.publisher.publish_many(SESSION, "orders", [(None, b"a", headers)])
            again = await node.publisher.publish_many(
                SESSION, "orders", [(None, b"b", ()), (None, b"a", headers)]
            )
            assert first.is_plain
            assert not again.is_plain
            assert again[1].is_duplicate
            assert again[1].offset == first[0].offset == 0
            assert not again[0].is_duplicate
            assert await values_in(node, "orders") == [b"a", b"b"]

    run(story())


def test_a_delayed_message_has_no_offset_yet() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            headers = (("ms-delay-ms", b"60000"),)
            (future,) = node.publisher.publish(
                SESSION, [Publication("orders", b"later", headers=headers)]
            )
            receipt = await future
            assert receipt.offset == -1
            assert receipt.delayed_id is not None

    run(story())


@pytest.mark.parametrize("count", [1, 2, 70, 9000])
def test_encode_many_returns_the_bytes_of_encode_batch(count: int) -> None:
    cycle = [
        (None, None, ()),
        (b"key", b"value", HEADERS),
        (b"", b"", ()),
        (b"k" * 100, b"v" * 200, (("a", None), ("ü", b"x" * 70))),
        (b"key", b"v" * 9000, HEADERS),
    ]
    messages = [cycle[at % len(cycle)] for at in range(count)]

    _, encoded = encode_many(messages, 1234)

    assert encoded == encode_batch(
        [Record(at, 1234, *message) for at, message in enumerate(messages)]
    )
    assert len(decode_all(encoded, decompressed_bytes_max=2**26)) == count


def test_a_message_alone_gets_its_receipt() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node, partitions=3)

            first = node.publisher.publish_one(SESSION, "orders", (b"key", b"a", ()))
            second = node.publisher.publish_one(SESSION, "orders", (b"key", b"b", HEADERS))
            third = node.publisher.publish_one(SESSION, "orders", (None, b"c", ()), partition=2)

            at = (murmur2(b"key") & 0x7FFFFFFF) % 3
            assert [(await published).target.partition for published in (first, second, third)] == [
                at,
                at,
                2,
            ]
            assert [(await published).offset for published in (first, second)] == [0, 1]

    run(story())


def test_messages_alone_wait_behind_others_for_a_topic_that_is_not_there() -> None:
    async def story() -> None:
        async with running_node() as node:
            publishing = []
            for value in (b"a", b"b", b"c", b"d", b"e"):
                message = (None, value, ())
                publishing.append(node.publisher.publish_one(SESSION, "fresh", message))
                await asyncio.sleep(0)

            assert [(await published).offset for published in publishing] == [0, 1, 2, 3, 4]
            assert await values_in(node, "fresh") == [b"a", b"b", b"c", b"d", b"e"]

    run(story())


def test_a_message_alone_that_is_refused_raises_at_once() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)

            with pytest.raises(BatchTooLarge):
                node.publisher.publish_one(SESSION, "orders", (None, bytes(2**21), ()))
            with pytest.raises(UnknownTopic):
                node.publisher.publish_one(SESSION, "orders", (None, b"a", ()), partition=7)

    run(story())

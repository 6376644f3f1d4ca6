"""Flux clients and what becomes of their commands, on virtual time."""

import asyncio
import json
from dataclasses import replace

import pytest

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.config import Config, Flux, Limits
from millstream.control.quotas import Entity
from millstream.engine.partitions.slices import Want
from millstream.engine.publish.sequence_numbers import place_of
from millstream.errors import NotLeader, RequestError, StorageUnavailable
from millstream.metrics import APPENDED_BATCHES
from millstream.model import Acks, TopicPartition
from millstream.protocols.flux import replaying
from millstream.server.gateway_factories import flux_gateway_factory
from millstream.server.node import Node
from tests.support.flux import FluxTalk, messages
from tests.support.nodes import NOW_MS, ORDERS, SESSION, running_node
from tests.support.virtual_loop import run


async def stored(node: Node, target: TopicPartition = ORDERS) -> list[Record]:
    (part,) = await node.partitions.read(SESSION, [Want(target, 0, 2**20)])
    assert part.records is not None
    data = part.records.read()
    values, at = [], 0
    while at < len(data):
        values += decode_all(data, at, decompressed_bytes_max=2**20)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return values


async def statistics(talk: FluxTalk, sid: str) -> dict[str, object]:
    answer: dict[str, dict[str, object]]
    answer = json.loads((await talk.say(b"STATS %b" % sid.encode())).removeprefix(b"+STATS "))
    return answer[sid]


def batches(node: Node) -> float:
    return sum(s.value for s in node.metrics.samples() if s.metric is APPENDED_BATCHES)


def test_publications_in_a_row_share_a_batch_and_are_answered_one_by_one() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            before = batches(node)

            replied = await FluxTalk(node).say(*[b"PUB orders.us 5", b"hello"] * 50)

            assert replied == b"+OK\r\n" * 50
            assert batches(node) - before == 1
            assert len(await stored(node)) == 50

    run(story())


def test_a_record_has_its_subject_as_key_and_as_header() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)
            await talk.say(b"PUB orders.us 5", b"hello")
            await talk.say(
                b"HPUB orders.eu 32 33", b"ms-key: k", b"Msg-ID: 7", b"Abc: d", b"", b"x"
            )

            plain, special = await stored(node)

            assert (plain.key, plain.value) == (b"orders.us", b"hello")
            assert plain.headers == (("ms-subject", b"orders.us"),)
            assert (special.key, special.value) == (b"k", b"x")
            assert special.headers == (
                ("ms-subject", b"orders.eu"),
                ("ms-message-id", b"7"),
                ("Abc", b"d"),
            )

    run(story())


def test_replies_keep_the_order_of_commands_over_topics_that_must_be_created_first() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)

            replied = await talk.say(
                b"PUB orders 1", b"A", b"PING", b"PUB or/ders 1", b"B", b"PUB bills 1", b"C", b"?"
            )

            assert [line[:8] for line in replied.split(b"\r\n")] == [
                b"+OK",
                b"PONG",
                b"-ERR INV",
                b"+OK",
                b"-ERR unk",
                b"",
            ]
            assert [record.value for record in await stored(node)] == [b"A"]

    run(story())


def test_what_was_subscribed_to_in_the_same_breath_is_delivered_after_the_answer() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)

            replied = await talk.say(b"SUB orders.> s1", b"PUB orders.us 1", b"A", b"PING")
            (message,) = await talk.hear(1)

            assert replied.startswith(b"+OK\r\n")
            assert (message.subject, message.sid, message.value) == ("orders.us", "s1", b"A")

    run(story())


def test_a_number_names_topic_partition_and_offset_and_grows() -> None:
    async def story() -> None:
        async with running_node() as node:
            orders = await node.topics.create(SESSION, "orders")
            bills = await node.topics.create(SESSION, "bills", partitions=3)
            talk = FluxTalk(node)
            await talk.say(b"SUB > s1")
            await talk.say(*[b"PUB orders.us 1", b"A"] * 3, b"PUB bills.a 1", b"B")

            heard = await talk.hear(4)

            numbers = [m.sequence for m in heard if m.subject == "orders.us"]
            assert numbers == sorted(numbers)
            assert [place_of(n) for n in numbers] == [(orders.number, 0, at) for at in range(3)]
            (bill,) = [m.sequence for m in heard if m.subject == "bills.a"]
            place = place_of(bill)
            assert place is not None
            assert (place.topic_number, place.offset) == (bills.number, 0)

    run(story())


def test_a_client_without_room_is_sent_the_rest_when_it_has_some() -> None:
    async def story() -> None:
        async with running_node() as node:
            slow, quick = FluxTalk(node), FluxTalk(node)
            await slow.say(b"SUB orders s1")
            await quick.say(b"SUB orders s1")
            slow.has_room = False
            await quick.say(*[b"PUB orders 1", b"A"] * 10)
            await quick.hear(10)
            assert b"MSG" not in slow.heard

            slow.has_room = True
            assert slow.on_room is not None
            slow.on_room()

            assert len(await slow.hear(10)) == 10

    run(story())


def test_a_client_that_listens_may_be_silent() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)
            assert not talk.is_awaited
            await talk.say(b"SUB orders s1")
            assert talk.is_awaited
            await talk.say(b"UNSUB s1")
            assert not talk.is_awaited

    run(story())


def test_what_other_protocols_wrote_cannot_break_a_line() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            talk = FluxTalk(node)
            await talk.say(b"SUB > s1")
            evil = (("ms-subject", b"a b\r\n+OK\r\n"), ("x\r\ny", b"1\r\n\r\n2"))
            batch = encode_batch(
                [Record(0, NOW_MS, None, b"one", evil), Record(1, NOW_MS, None, None, ())]
            )
            await node.partitions.append(SESSION, ORDERS, batch, Acks.ALL)

            first, second = await talk.hear(2)

            assert (first.subject, first.value) == ("a_b__+OK__", b"one")
            assert (second.subject, second.value) == ("orders", b"")
            await talk.say(b"HEADERS ON", b"REPLAY %d" % first.sequence)
            (again,) = await talk.hear(1)
            assert again.headers == b"x  y: 1    2\r\n\r\n"

    run(story())


def test_statistics_tell_what_a_subscription_does() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)
            await talk.say(b"SUB orders s1", b"SUB bills s2", b"FLOWCTL s1 PUSH 500 10")
            await talk.say(b"PUB orders 1", b"A", b"PUB orders 1", b"B")
            first, _ = await talk.hear(2)
            await talk.say(b"ACK %d" % first.sequence)

            ones = json.loads((await talk.say(b"STATS s1")).removeprefix(b"+STATS "))
            both = json.loads((await talk.say(b"STATS")).removeprefix(b"+STATS "))

            assert set(ones) == {"s1"}
            subscription = ones["s1"]
            assert (
                subscription.items()
                >= {"id": "s1", "mode": 0, "active": True, "delivered": 2}.items()
            )
            assert (
                subscription.items()
                >= {"acknowledged": 1, "unacknowledged": 1, "dropped": 0}.items()
            )
            assert set(subscription) >= {
                "rate_limit_tokens",
                "buffered",
                "buffer_usage",
                "slow_consumer",
            }
            assert set(both) == {"s1", "s2"}
            assert await talk.say(b"STATS nobody") == b"+STATS {}\r\n"

    run(story())


def test_info_tells_where_and_what_the_broker_is() -> None:
    async def story() -> None:
        async with running_node() as node:
            reply = await FluxTalk(node).say(b"INFO")

            facts = json.loads(reply.removeprefix(b"INFO "))
            assert facts["server_id"] == facts["leader"] == "127.0.0.1:4222"
            assert facts["cluster_id"] == node.cluster_id
            assert facts["is_leader"] is True

    run(story())


def test_a_client_over_its_quota_is_not_read_for_a_while() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)
            await talk.say(b"PUB orders 100", b"x" * 100)
            assert talk.pace.resume_at == 0
            everybody = Entity("ANONYMOUS", None)
            await node.client_quotas.alter(SESSION, everybody, {"producer_byte_rate": 10.0})

            replied = await talk.say(b"PUB orders 100", b"x" * 100)

            assert replied == b"+OK\r\n"
            assert talk.pace.resume_at > 0

    run(story())


def test_a_client_is_sent_no_more_than_its_quota() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk, writer = FluxTalk(node), FluxTalk(node)
            everybody = Entity("ANONYMOUS", None)
            await node.client_quotas.alter(SESSION, everybody, {"consumer_byte_rate": 1000.0})
            await talk.say(b"SUB orders s1", b"FLOWCTL s1 PUSH 1000 1")
            began = asyncio.get_running_loop().time()

            for _ in range(10):
                await writer.say(b"PUB orders 1000", bytes(1000))
            await talk.hear(10)

            assert 7 < asyncio.get_running_loop().time() - began < 12
            assert talk.pace.resume_at == 0
            await talk.say(b"PULL orders 5")
            assert talk.pace.resume_at > 0

    run(story())


def test_subscriptions_of_one_connection_are_bounded() -> None:
    async def story() -> None:
        config = replace(Config(), flux=Flux(subscriptions_max=2))
        async with running_node(config) as node:
            talk = FluxTalk(node)

            replied = await talk.say(b"SUB a 1", b"SUB a 2", b"SUB a 3", b"UNSUB 1", b"SUB a 3")
            flows = await talk.say(*(b"FLOWCTL %d PUSH" % n for n in range(5)))

            assert replied.split(b"\r\n")[:5] == [
                b"+OK",
                b"+OK",
                b"-ERR 2 subscriptions are the most",
                b"+OK",
                b"+OK",
            ]
            assert flows.count(b"+OK") <= 4

    run(story())


def test_what_is_configured_for_slow_consumers_holds_for_all_who_say_nothing() -> None:
    async def story() -> None:
        flux = Flux(flow_buffer=4, flow_slow_threshold=0.5, flow_overflow="drop")
        async with running_node(replace(Config(), flux=flux)) as node:
            talk, publisher = FluxTalk(node), FluxTalk(node)
            await talk.say(b"SUB orders s1")
            talk.has_room = False

            await publisher.say(*[b"PUB orders 1", b"A"] * 2)
            while (figures := await statistics(talk, "s1"))["buffered"] != 2:
                await asyncio.sleep(0.001)
            assert (figures["slow_consumer"], figures["dropped"]) == (True, 0)

            await publisher.say(*[b"PUB orders 1", b"B"] * 9)
            while (figures := await statistics(talk, "s1"))["dropped"] != 7:
                await asyncio.sleep(0.001)
            assert (figures["buffered"], figures["buffer_usage"]) == (4, 1.0)

    run(story())


def test_a_message_is_done_when_it_is_sent_if_the_broker_is_told_so() -> None:
    async def story() -> None:
        config = replace(Config(), flux=Flux(ack_timeout_ms=0))
        async with running_node(config) as node:
            talk = FluxTalk(node)
            await talk.say(b"SUB orders s1")
            await talk.say(b"PUB orders 1", b"A")
            await talk.hear(1)

            figures = await statistics(talk, "s1")

            assert figures["unacknowledged"] == 0

    run(story())


def test_a_limited_subscription_ends_with_its_last_message_if_nothing_is_acknowledged() -> None:
    async def story() -> None:
        config = replace(Config(), flux=Flux(ack_timeout_ms=0))
        async with running_node(config) as node:
            talk = FluxTalk(node)
            await talk.say(b"SUB orders s1", b"UNSUB s1 2")
            await talk.say(*[b"PUB orders 1", b"A"] * 5)
            await talk.hear(2)

            while await talk.say(b"STATS s1") != b"+STATS {}\r\n":
                await asyncio.sleep(0.001)

            assert not messages(talk.heard)
            assert await talk.say(b"SUB orders s1") == b"+OK\r\n"

    run(story())


def test_the_last_message_is_the_last_however_large_those_before_it_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        monkeypatch.setattr(replaying, "ANSWER_BYTES_MAX", 100)
        async with running_node() as node:
            talk = FluxTalk(node)
            for number in range(10):
                await talk.say(b"PUB orders 60", b"%060d" % number)

            replayed = messages(await talk.say(b"REPLAY LAST"))
            answer = await talk.say(b"REPLAY LAST 3")

            assert [int(message.value) for message in replayed] == [9]
            assert [int(message.value) for message in messages(answer)] == [9]
            assert answer.endswith(b"-ERR cut after 1 messages\r\n")

    run(story())


def test_a_topic_that_is_made_anew_is_pulled_from_its_beginning() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)
            await talk.say(*[b"PUB orders 1", b"A"] * 2)
            (pulled, _) = messages(await talk.say(b"PULL orders 9"))

            await node.topics.delete(SESSION, "orders")
            gone = await talk.say(b"PULL orders 9", b"REPLAY %d" % pulled.sequence)
            await talk.say(*[b"PUB orders 1", b"B"] * 3)
            again = messages(await talk.say(b"PULL orders 9"))

            assert gone == b"+OK 0\r\n-ERR there is no such message\r\n"
            assert [message.value for message in again] == [b"B"] * 3
            assert pulled.sequence not in [message.sequence for message in again]

    run(story())


def test_an_ack_for_a_topic_that_is_gone_settles_nothing_of_its_successor() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)
            await talk.say(b"SUB orders s1", b"PUB orders 1", b"A", b"PUB orders 1", b"A")
            (first, second) = await talk.hear(2)
            await talk.say(b"ACK %d" % first.sequence)

            await node.topics.delete(SESSION, "orders")
            await talk.say(*[b"PUB orders 1", b"B"] * 2)
            (_, successor) = await talk.hear(2)
            await talk.say(b"ACK %d" % second.sequence)
            before = await statistics(talk, "s1")
            await talk.say(b"ACK %d" % successor.sequence)
            after = await statistics(talk, "s1")

            assert (before["acknowledged"], before["unacknowledged"]) == (1, 2)
            assert (after["acknowledged"], after["unacknowledged"]) == (2, 1)

    run(story())


def test_the_last_message_is_found_behind_many_that_expired() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)
            await talk.say(b"PUB orders 1", b"A", b"PUB orders 1", b"B")
            await talk.say(*[b"HPUB orders 18 19", b"ms-ttl-ms: 500", b"", b"X"] * 300)
            await asyncio.sleep(1)

            last = messages(await talk.say(b"REPLAY LAST"))
            second = messages(await talk.say(b"REPLAY LAST 2"))
            more = messages(await talk.say(b"REPLAY LAST 9"))

            assert [message.value for message in last] == [b"B"]
            assert [message.value for message in second] == [b"A", b"B"]
            assert [message.value for message in more] == [b"A", b"B"]

    run(story())


def test_who_is_gone_is_sent_nothing() -> None:
    async def story() -> None:
        async with running_node() as node:
            make_gateway = flux_gateway_factory(node)
            gone, here = FluxTalk(node, make_gateway), FluxTalk(node, make_gateway)
            await gone.say(b"SUB orders s1", b"SUB orders workers s2")
            await here.say(b"SUB orders s1")
            gone.gateway.close()
            before = gone.heard

            await here.say(b"PUB orders 1", b"A")
            await here.hear(1)

            assert gone.heard == before

    run(story())


def test_a_pull_through_much_that_does_not_match_lets_others_have_their_turn() -> None:
    async def story() -> None:
        async with running_node() as node:
            reader, writer = FluxTalk(node), FluxTalk(node)
            for _ in range(8):
                await writer.say(b"PUB orders.us 300000", bytes(300_000))
            await writer.say(b"PUB orders.eu 1", b"A")
            done: list[str] = []

            async def pull() -> None:
                assert b"+OK 1\r\n" in await reader.say(b"PULL orders.eu 5")
                done.append("pull")

            async def ping() -> None:
                await writer.say(b"PING")
                done.append("ping")

            await asyncio.gather(pull(), ping())

            assert done == ["ping", "pull"]

    run(story())


def test_an_answer_is_bounded_in_bytes() -> None:
    async def story() -> None:
        async with running_node() as node:
            talk = FluxTalk(node)
            for _ in range(20):
                await talk.say(b"PUB orders 600000", bytes(600_000))

            pulled = [await talk.say(b"PULL orders 100") for _ in range(3)]
            replayed = await talk.say(b"REPLAY FIRST 100")
            few = await talk.say(b"REPLAY FIRST 5")

            assert [reply.rpartition(b"+OK ")[2] for reply in pulled] == [
                b"14\r\n",
                b"6\r\n",
                b"0\r\n",
            ]
            assert replayed.endswith(b"-ERR cut after 13 messages\r\n")
            assert few.endswith(b"\r\n+OK\r\n")

    run(story())


def test_a_flood_for_a_topic_that_is_not_there_yet_waits_and_is_not_refused() -> None:
    async def story() -> None:
        config = replace(Config(), limits=Limits(publish_waiting_max=100))
        async with running_node(config) as node:
            talk = FluxTalk(node)
            said = b"PUB orders 1\r\nA\r\n" * 60

            outcomes = [
                talk.gateway.begin(request)
                for _ in range(10)
                for request in talk.gateway.receive(said)
            ]
            answers = [await outcome for outcome in outcomes]  # type: ignore[misc]

            assert answers == [[b"+OK\r\n" * 60]] * 10
            assert len(await stored(node)) == 600

    run(story())


def test_subjects_keep_their_order_over_many_partitions() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders", partitions=3)
            talk = FluxTalk(node)
            lines = [(b"PUB orders.%d 2" % (n % 7), b"%02d" % n) for n in range(70)]

            replied = await talk.say(*(part for line in lines for part in line))

            assert replied == b"+OK\r\n" * 70
            parts = [await stored(node, TopicPartition("orders", n)) for n in range(3)]
            assert all(parts)
            for subject in range(7):
                (values,) = [
                    keyed
                    for part in parts
                    if (keyed := [r.value for r in part if r.key == b"orders.%d" % subject])
                ]
                assert values == [b"%02d" % n for n in range(subject, 70, 7)]

    run(story())


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (NotLeader(ORDERS, 2), b"-ERR NOT_LEADER leader=2\r\n"),
        (StorageUnavailable("the disk is full"), b"-ERR STORAGE the disk is full\r\n"),
    ],
)
def test_what_is_refused_is_refused_to_each_publication(
    problem: RequestError, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise problem

    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            talk = FluxTalk(node)
            monkeypatch.setattr(node.partitions, "append", refuse)

            replied = await talk.say(b"PUB orders 1", b"A", b"PUB orders 1", b"B", b"PING")

            assert replied == line * 2 + b"PONG\r\n"

    run(story())


def test_a_client_that_leaves_before_its_subscription_is_refused_is_nothing_unusual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with running_node() as node:
            has_left = asyncio.Event()

            async def refuse(*_: object, **__: object) -> None:
                await has_left.wait()
                raise StorageUnavailable("the disk is gone")

            monkeypatch.setattr(node.deliveries, "subscribe", refuse)
            talk = FluxTalk(node)
            saying = asyncio.ensure_future(talk.say(b"SUB orders s1"))
            await asyncio.sleep(0.001)
            talk.gateway.close()
            has_left.set()

            assert b"disk is gone" in await saying

    run(story())

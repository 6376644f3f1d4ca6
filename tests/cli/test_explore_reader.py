"""The explorer's reader against a real broker: pages, gaps, and who asks last."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, time

import pytest

from millstream.cli.explorer.core import paging
from millstream.cli.explorer.core.paging import Span
from millstream.cli.explorer.reader import Reader
from millstream.client import Client, Message, NotFound, TimedOut, TopicPartition, connect
from tests.support.broker_process import BrokerProcess

DEADLINE_S = 60.0
# Not so early that retention takes it away.
EARLY = round(time() * 1000) - 3_600_000


class Undone(Exception):
    """Ends a transaction that is not to be."""


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with connect(broker.address) as client:
        yield client


@pytest.fixture
def topic(client: Client, names: Callable[[], str]) -> str:
    """300 records in partition 0, 20 in partition 1, none in partition 2."""
    name = names()
    client.admin.create_topic(name, partitions=3)
    with client.producer() as producer:
        for number in range(300):
            producer.send(name, f"a{number}", partition=0, timestamp=EARLY)
        for number in range(20):
            producer.send(name, f"b{number}", partition=1, timestamp=EARLY)
    return name


@pytest.fixture
def reader(client: Client, topic: str) -> Iterator[Reader]:
    reader = Reader(client, topic)
    yield reader
    reader.close()


def test_the_newest_page_and_those_before_it_are_the_whole_topic(reader: Reader) -> None:
    newest = reader.begin(reader.turn(), "latest", None)
    oldest = reader.older(reader.turn(), newest.spans)

    assert newest.spans == {0: Span(100, 300), 1: Span(0, 20), 2: Span(0, 0)}
    assert len(newest.records) == 220
    assert oldest.spans == {0: Span(0, 100), 1: Span(0, 0), 2: Span(0, 0)}
    assert [record.offset for record in oldest.records] == list(range(100))
    assert reader.older(reader.turn(), oldest.spans).records == []


def test_pages_go_forward_from_an_offset_and_from_a_time(client: Client, reader: Reader) -> None:
    first = reader.begin(reader.turn(), 50, None)
    second = reader.newer(reader.turn(), first.spans)
    placed = client.produce(reader.topic, "late", partition=2, timestamp=EARLY + 1_000)
    at_time = reader.begin(reader.turn(), placed.timestamp, None)

    assert first.spans == {0: Span(50, 250), 1: Span(20, 20), 2: Span(0, 0)}
    assert [record.offset for record in second.records] == list(range(250, 300))
    assert [record.value for record in at_time.records] == [b"late"]


def test_a_place_behind_the_end_shows_the_newest(reader: Reader) -> None:
    assert reader.begin(reader.turn(), 9_999, 0).spans == {0: Span(100, 300)}


def test_one_partition_can_be_read_alone(reader: Reader) -> None:
    page = reader.begin(reader.turn(), "latest", 1)

    assert page.spans == {1: Span(0, 20)}
    assert {record.partition for record in page.records} == {1}


def test_offsets_without_records_are_no_end(client: Client, topic: str) -> None:
    """Each transaction leaves a marker, which takes an offset and is no record."""
    for number in range(6):
        with client.transaction() as transaction:
            transaction.send(topic, f"t{number}", partition=2)
    reader = Reader(client, topic)

    page = reader.begin(reader.turn(), "latest", 2)
    again = reader.newer(reader.turn(), {2: Span(0, 0)})
    behind = reader.newer(reader.turn(), {2: Span(11, 11)})
    reader.close()

    assert [record.offset for record in page.records] == [0, 2, 4, 6, 8, 10]
    assert again.spans == page.spans == {2: Span(0, 12)}
    assert behind.records == []
    assert behind.spans == {2: Span(11, 12)}


def test_going_back_reaches_over_a_long_gap(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_RECORDS_MAX", 1)
    with client.transaction() as transaction:
        transaction.send(topic, "before", partition=2)
    with suppress(Undone), client.transaction() as transaction:
        for sent in [transaction.send(topic, "undone", partition=2) for _ in range(30)]:
            sent.result()  # It is in the log, and will not count.
        raise Undone
    reader = Reader(client, topic)

    page = reader.begin(reader.turn(), "latest", 2)
    reader.close()

    assert [record.value for record in page.records] == [b"before"]
    assert page.spans == {2: Span(0, 33)}


def test_what_comes_is_followed_without_a_gap(client: Client, reader: Reader) -> None:
    spans = dict(reader.begin(reader.turn(), "latest", None).spans)
    for number in range(5):
        client.produce(reader.topic, f"live{number}", partition=2)

    seen: list[bytes] = []
    deadline = monotonic() + DEADLINE_S
    while len(seen) < 5 and monotonic() < deadline:
        chunk = reader.follow(reader.turn(), spans, 0.5)
        spans |= chunk.spans
        seen += [record.value for record in chunk.records]

    assert seen == [b"live0", b"live1", b"live2", b"live3", b"live4"]


def test_who_reads_gives_up_when_another_asks(reader: Reader) -> None:
    spans = reader.begin(reader.turn(), "latest", None).spans
    waiting = threading.Thread(target=reader.follow, args=(reader.turn(), spans, 2 * DEADLINE_S))
    waiting.start()

    page = reader.begin(reader.turn(), "earliest", 1)
    waiting.join(DEADLINE_S)

    assert not waiting.is_alive()
    assert len(page.records) == 20


def test_what_retention_deleted_is_left_out(client: Client, reader: Reader) -> None:
    client.admin.delete_records({TopicPartition(reader.topic, 0): 290})

    assert reader.begin(reader.turn(), "earliest", 0).spans == {0: Span(290, 300)}
    assert len(reader.older(reader.turn(), {0: Span(295, 300)}).records) == 5


def test_a_topic_that_is_gone_is_named(client: Client, reader: Reader) -> None:
    client.admin.delete_topic(reader.topic)

    with pytest.raises(NotFound, match=reader.topic):
        reader.begin(reader.turn(), "latest", None)


def test_looking_leaves_no_group(client: Client, reader: Reader) -> None:
    before = client.admin.list_groups()

    reader.begin(reader.turn(), "earliest", None)

    assert client.admin.list_groups() == before


def test_who_lost_the_turn_does_not_take_it_back(reader: Reader) -> None:
    lost = reader.turn()
    turn = reader.turn()

    assert reader.begin(lost, "latest", None).records == []
    assert len(reader.begin(turn, "latest", 1).records) == 20


def test_records_that_do_not_come_in_time_are_not_taken_for_none(
    topic: str, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.cli.explorer.reader.READ_S_MAX", -1.0)

    with pytest.raises(TimedOut, match=topic):
        reader.begin(reader.turn(), "latest", None)


def test_an_end_seen_earlier_hides_nothing_that_came_since(
    client: Client, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = reader.begin(reader.turn(), "latest", 1).spans
    turn = reader.turn()
    consumer = reader._opened()
    at = TopicPartition(reader.topic, 1)
    deadline = monotonic() + DEADLINE_S
    while at not in consumer.at_end and monotonic() < deadline:
        reader.follow(turn, spans, 0.1)
    for number in range(3):
        client.produce(reader.topic, f"new{number}", partition=1)
    poll, waits = consumer.poll, []

    def slow_at_first(timeout_s: float) -> Message | None:
        waits.append(timeout_s)
        return poll(timeout_s) if len(waits) > 1 else None

    monkeypatch.setattr(consumer, "poll", slow_at_first)

    page = reader.newer(turn, spans)

    assert [record.value for record in page.records] == [b"new0", b"new1", b"new2"]
    assert page.spans == {1: Span(20, 23)}

"""Records that are put aside are put aside once, whatever attempts at reading them do. No Spark."""

import json
from collections import Counter
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.errors import Refused
from millstream.kafka_client.settings import ClientSettings
from millstream.spark.errors import Fenced
from millstream.spark.options.kafka import client_settings
from millstream.spark.options.source import OnError
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.range_reader import RangeReader
from millstream.spark.values import dead_letters
from millstream.spark.values.bad_values import ValueDecoder
from millstream.spark.values.dead_letters import DeadLetters, Span
from millstream.spark.values.formats import json_reader
from millstream.spark.write import transactions
from tests.spark.sinks import committed_values
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

COUNT = 60
KIND = pa.struct([("id", pa.int64())])
SCHEMA = pa.schema([("value", KIND), ("offset", pa.int64())])


class Died(Exception):
    """What a test has go wrong in an attempt."""


class Reader:
    """Attempts of tasks of one query, each with a connection of its own."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        options = {"kafka.bootstrap.servers": broker.address, "kafka.retry.backoff.ms": "10"}
        options["kafka.max.partition.fetch.bytes"] = "500"
        self.settings: ClientSettings = client_settings(options, client_id="test")
        self.topic = topic
        self.clusters: list[Cluster] = []

    def read(
        self, start: int, end: int, *, group: str = "g", memories: tuple[str, ...] = ()
    ) -> list[int]:
        """The ids of a range's good rows; its bad ones are put aside."""
        cluster = Cluster(self.settings)
        self.clusters.append(cluster)

        def decoder_of(offsets: OffsetRange) -> ValueDecoder:
            letters = DeadLetters(cluster, group, offsets, memories)
            return ValueDecoder(offsets, json_reader(KIND), OnError.DLQ, letters)

        reader = RangeReader(
            cluster, SCHEMA, poll_ms_max=60_000, fails_on_data_loss=True, decoder_of=decoder_of
        )
        rows = reader.read(OffsetRange(self.topic, 0, start, end))
        return [row["value"]["id"] for batch in rows for row in batch.to_pylist()]


@pytest.fixture
def reader(broker: BrokerProcess, topics: Topics, topic: str) -> Iterator[Reader]:
    topics.create(topic)
    topics.create(f"{topic}.dlq", partitions=2)
    values = [bad(n) if n % 3 == 0 else json.dumps({"id": n}) for n in range(COUNT)]
    topics.send_with({"batch.num.messages": 7}, topic, values, partition=0)
    reader = Reader(broker, topic)
    yield reader
    for cluster in reader.clusters:
        cluster.forget()


def bad(number: int) -> str:
    return f"bad {number}"


def aside(broker: BrokerProcess, topic: str) -> Counter[str]:
    return Counter(value.decode() for value in committed_values(broker.address, f"{topic}.dlq"))


def each_once(start: int, end: int) -> Counter[str]:
    return Counter(bad(number) for number in range(start, end) if number % 3 == 0)


def test_a_range_that_is_read_again_puts_nothing_aside_again(
    reader: Reader, broker: BrokerProcess, topic: str
) -> None:
    for start, end in [(0, 30), (0, 30), (30, COUNT), (30, COUNT), (0, COUNT)]:
        records = reader.read(start, end)
        assert records == [number for number in range(start, end) if number % 3]

    assert aside(broker, topic) == each_once(0, COUNT)


def test_what_was_put_aside_under_a_former_name_is_not_put_aside_again(
    reader: Reader, broker: BrokerProcess, topic: str
) -> None:
    reader.read(0, 30, memories=("former.dlq",))
    for start, end in [(0, 30), (30, COUNT), (0, COUNT)]:
        reader.read(start, end, memories=("new.dlq", "former.dlq"))

    assert aside(broker, topic) == each_once(0, COUNT)


def test_another_group_puts_its_own_aside(
    reader: Reader, broker: BrokerProcess, topic: str
) -> None:
    reader.read(0, 9, group="g")
    reader.read(0, 9, group="h")

    assert aside(broker, topic) == each_once(0, 9) + each_once(0, 9)


def test_of_two_attempts_at_the_same_time_one_writes(
    reader: Reader, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt does all of its work while the first is in the middle of it."""
    join = transactions.add_partitions
    rivals: list[list[int]] = []

    def joined(*arguments: object) -> None:
        join(*arguments)  # type: ignore[arg-type]  # Handed on as they came.
        if not rivals:
            rivals.append([])
            rivals[0] = reader.read(0, 30)

    monkeypatch.setattr(transactions, "add_partitions", joined)

    records = reader.read(0, 30)

    assert records == rivals[0]
    assert aside(broker, topic) == each_once(0, 30)


def test_whatever_attempts_die_of_every_record_is_aside_once(
    reader: Reader, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions of two letters, and attempts that die before, within or behind any step."""
    random = Random(7)
    monkeypatch.setattr(dead_letters, "LETTERS_MAX", 2)
    deaths: Counter[str] = Counter()

    def deadly(name: str) -> None:
        real = getattr(transactions, name)

        def step(*arguments: object, **named: object) -> object:
            fate = random.random()
            if fate < 0.1:
                deaths[f"before {name}"] += 1
                raise Died
            reply = real(*arguments, **named)
            if fate < 0.2:
                deaths[f"behind {name}"] += 1
                raise Died
            return reply

        monkeypatch.setattr(transactions, name, step)

    for name in ("begin", "add_partitions", "remember", "end"):
        deadly(name)
    for start in range(0, COUNT, 12):
        while True:
            try:
                reader.read(start, start + 12)
                break
            except Died:
                continue

    assert aside(broker, topic) == each_once(0, COUNT)
    assert len(deaths) > 4


def test_a_rival_that_never_gives_in_fails_the_task(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fenced(*_: object, **__: object) -> None:
        raise Fenced("rival")

    monkeypatch.setattr(transactions, "remember", fenced)

    with pytest.raises(Fenced):
        reader.read(0, 9)


def test_a_letter_that_can_not_be_written_fails_the_task(
    reader: Reader, topics: Topics, topic: str
) -> None:
    topics.delete(f"{topic}.dlq")
    topics.create(f"{topic}.dlq", max_message_bytes=20)

    with pytest.raises(Refused):
        reader.read(0, 9)


def test_what_was_judged_is_one_span_that_grows() -> None:
    span = Span(10, 20)

    assert span.joined(20, 30) == span.joined(15, 30) == Span(10, 30)
    assert span.joined(5, 10) == Span(5, 20)
    assert span.joined(40, 50) == Span(40, 50)

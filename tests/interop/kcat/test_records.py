"""kcat writes records and reads the same ones back."""

import os
import time
from pathlib import Path

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.kcat.clients import Kcat
from tests.interop.programs.lost_answers import losing_the_first_answer
from tests.interop.samples import CODECS

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(kcat: Kcat, topic: str, codec: str, acks: str) -> None:
    how = ["-X", f"compression.codec={codec}", "-X", f"acks={acks}"]
    before_ms = int(time.time() * 1000)

    # The second line has an empty key, the third no value (-Z), the last neither key nor delimiter.
    payload = "key=value\n=no key\ntombstone=\nschlüssel=wert ✓\nalone\n".encode()
    headers = ["-H", "trace=1", "-H", "größe=naïve"]
    kcat.ask("-P", "-t", topic, "-p", "0", "-K=", "-Z", *headers, *how, stdin=payload)
    records = kcat.read(topic)

    pairs = [(record["key"], record["payload"]) for record in records]
    assert pairs == [
        ("key", "value"),
        (None, "no key"),
        ("tombstone", None),
        ("schlüssel", "wert ✓"),
        (None, "alone"),
    ]
    assert [record["offset"] for record in records] == list(range(5))
    assert {tuple(record["headers"]) for record in records} == {("trace", "1", "größe", "naïve")}
    assert {record["tstype"] for record in records} == {"create"}
    assert all(before_ms <= record["ts"] <= int(time.time() * 1000) for record in records)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_is_compressed_goes_where_it_would_be_too_large(
    kcat: Kcat, topic: str, codec: str
) -> None:
    """librdkafka before 2.11 turns compression off, and says nothing, if Produce 0 is missing."""
    value = "x" * 2_000_000

    kcat.write(
        topic, [value], "-X", f"compression.codec={codec}", "-X", "message.max.bytes=4000000"
    )

    assert kcat.values(topic) == [value]


def test_a_record_too_large_for_the_topic_is_refused(kcat: Kcat, topic: str) -> None:
    value = os.urandom(1_000_000).hex().encode()

    said = kcat.refusal(
        "-P", "-t", topic, "-p", "0", "-X", "message.max.bytes=4000000", stdin=value
    )

    assert "Broker: Message size too large" in said


def test_equal_keys_land_in_one_partition_and_stay_in_order(kcat: Kcat, topic: str) -> None:
    payload = "".join(f"key-{number % 10}={number}\n" for number in range(200)).encode()
    kcat.ask("-P", "-t", topic, "-K=", stdin=payload)

    homes: dict[tuple[str, int], list[int]] = {}
    for partition in range(PARTITIONS):
        for record in kcat.read(topic, partition=partition):
            homes.setdefault((record["key"], partition), []).append(int(record["payload"]))

    assert len(homes) == 10
    assert all(numbers == sorted(numbers) for numbers in homes.values())
    assert sum(map(len, homes.values())) == 200


def test_a_reader_starts_and_stops_at_times(kcat: Kcat, topic: str) -> None:
    for value in ("first", "second", "third"):
        kcat.write(topic, [value])  # Three processes: no two write in the same millisecond.
    times = [record["ts"] for record in kcat.read(topic)]

    from_second = kcat.values(topic, "-o", f"s@{times[1]}")
    to_third = kcat.values(topic, "-o", f"s@{times[1]}", "-o", f"e@{times[2]}")
    asked = kcat.ask("-Q", "-t", f"{topic}:0:{times[1]}").decode()

    assert from_second == ["second", "third"]
    assert to_third == ["second"]
    assert asked.strip() == f"{topic} [0] offset 1"


def test_a_reader_starts_at_an_offset_or_so_many_before_the_end(kcat: Kcat, topic: str) -> None:
    kcat.write(topic, list("abcdef"))

    assert kcat.values(topic, "-o", "4") == ["e", "f"]
    assert kcat.values(topic, "-o", "-1") == ["f"]


def test_an_idempotent_producer_writes_each_record_once(kcat: Kcat, topic: str) -> None:
    values = [f"{number}" for number in range(500)]

    kcat.write(topic, values, "-X", "enable.idempotence=true", "-X", "batch.num.messages=20")

    assert kcat.values(topic) == values


def test_a_batch_whose_answer_was_lost_is_written_once(
    program: str, tmp_path: Path, topic: str
) -> None:
    with losing_the_first_answer(tmp_path) as forwarder:
        kcat = Kcat(program, f"127.0.0.1:{forwarder.port}")

        kcat.write(topic, ["a", "b"], "-E", "-X", "enable.idempotence=true", "-X", "linger.ms=100")
        values = kcat.values(topic)

    assert forwarder.lost_count == 1
    assert values == ["a", "b"]


def test_a_reader_of_an_unknown_topic_is_told(kcat: Kcat, topic: str) -> None:
    said = kcat.refusal("-C", "-t", topic, "-p", "0", "-e")

    assert "Broker: Unknown topic or partition" in said or "Local: Unknown partition" in said


def test_a_reader_beyond_the_end_that_wants_no_reset_is_told(kcat: Kcat, topic: str) -> None:
    kcat.write(topic, ["a"])

    said = kcat.refusal(
        "-C", "-t", topic, "-p", "0", "-o", "99", "-X", "topic.auto.offset.reset=error"
    )

    assert "Broker: Offset out of range" in said


def test_the_cluster_and_its_topics_are_listed(kcat: Kcat, topic: str) -> None:
    kcat.write(topic, ["a"])

    every = kcat.ask("-L").decode()
    listing = kcat.ask("-L", "-t", topic).decode()

    assert " 1 brokers:" in every
    assert f'topic "{topic}" with {PARTITIONS} partitions:' in every
    assert [line.strip() for line in listing.splitlines() if "leader" in line] == [
        f"partition {at}, leader 1, replicas: 1, isrs: 1" for at in range(PARTITIONS)
    ]

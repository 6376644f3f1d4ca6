"""MirrorMaker 2: between two Millstreams, and between Apache Kafka and Millstream, both ways."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition

from tests.interop.java.admin import Admin
from tests.interop.java.frameworks import MIRROR_SETTINGS, Framework, install
from tests.interop.java.kafka_server import HOST, apache_kafka
from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX, as_sample, consuming, take
from tests.interop.samples import Sample
from tests.support.broker_process import BrokerProcess
from tests.support.documents import blocks
from tests.support.source_tree import ROOT

COUNT = 500
TOPIC, MIRRORED, GROUP = "orders", "a.orders", "readers"
SETTINGS = {
    "cleanup.policy": "compact,delete",
    "compression.lz4.level": "12",
    "compression.type": "lz4",
    "max.message.bytes": "2000000",
    "preallocate": "true",  # Kept and shown only; MirrorMaker copies it all the same.
    "retention.ms": "123456789",
}
KEPT_SETTINGS = {"max.message.bytes": "2000000", "retention.ms": "86400000"}
PARTITIONS = 3
FIRST_MS = int(time.time() * 1000) - 60_000  # Within the retention of any topic.
PAGE = ROOT / "docs" / "migrate-from-kafka.md"
# The file of the page, and intervals that a test can wait for.
FILE = f"""{blocks(PAGE.read_text(encoding="utf-8"), "properties")[0]}
emit.checkpoints.interval.seconds = 1
sync.group.offsets.interval.seconds = 1
refresh.topics.interval.seconds = 2
refresh.groups.interval.seconds = 2
sync.topic.configs.interval.seconds = 2
offset.storage.partitions = 1
status.storage.partitions = 1
tasks.max = 1
"""
FORTH, BACK = "old->new.enabled = true", "new->old.enabled = false"
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


class Side(NamedTuple):
    address: str
    admin: Admin


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    install()


@pytest.fixture
def millstreams(tmp_path: Path) -> Iterator[list[Side]]:
    with ExitStack() as running:
        yield [running.enter_context(millstream(tmp_path / name)) for name in ("a", "b")]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """Apache Kafka and Millstream, both empty."""
    (tmp_path / "kafka").mkdir()
    settings = "group.initial.rebalance.delay.ms=0\noffsets.topic.num.partitions=1\n"
    with (
        millstream(tmp_path / "millstream") as ours,
        apache_kafka(tmp_path / "kafka", settings=settings) as port,
    ):
        address = f"{HOST}:{port}"
        yield Side(address, Admin(address)), ours


@contextmanager
def millstream(directory: Path) -> Iterator[Side]:
    directory.mkdir()
    broker = BrokerProcess(directory)
    broker.start()
    try:
        yield Side(broker.address, Admin(broker.address))
    finally:
        broker.stop()


@contextmanager
def mirror_maker(directory: Path, settings: str) -> Iterator[Framework]:
    path = directory / "mirror.properties"
    path.write_text(settings, encoding="utf-8")
    mirror = Framework(
        "org.apache.kafka.connect.mirror.MirrorMaker", str(path), log=directory / "mirror.log"
    )
    try:
        yield mirror
    finally:
        mirror.stop()


def samples(numbers: range) -> list[Sample]:
    """Keys that repeat, headers, times of their own, and a tombstone now and then."""
    return [
        Sample(
            key=b"k%d" % (number % 17),
            value=None if number % 50 == 49 else b"%06d" % number,
            headers=[("trace", b"%d" % number), ("empty", b"")],
            timestamp_ms=FIRST_MS + number,
        )
        for number in numbers
    ]


def send(side: Side, numbers: range) -> None:
    """To the partition that the number names."""
    producer = Producer({"bootstrap.servers": side.address, **QUIET})
    for number, item in zip(numbers, samples(numbers), strict=True):
        producer.produce(
            TOPIC,
            key=item.key,
            value=item.value,
            headers=item.headers,  # type: ignore[arg-type]
            timestamp=item.timestamp_ms,
            partition=number % PARTITIONS,
        )
    assert producer.flush(SECONDS_MAX) == 0


def stored(side: Side, count: int, topic: str = TOPIC) -> dict[int, list[Sample]]:
    """All records by partition, in order."""
    with consuming(side.address) as consumer:
        consumer.assign([TopicPartition(topic, at, 0) for at in range(PARTITIONS)])
        messages = sorted(take(consumer, count), key=place)
    return {
        partition: [as_sample(message) for message in members]
        for partition, members in groupby(messages, lambda message: message.partition() or 0)
    }


def place(message: object) -> tuple[int, int]:
    return message.partition(), message.offset()  # type: ignore[attr-defined]


def by_partition(numbers: range) -> dict[int, list[Sample]]:
    parts: dict[int, list[Sample]] = {at: [] for at in range(PARTITIONS)}
    for number, item in zip(numbers, samples(numbers), strict=True):
        parts[number % PARTITIONS].append(item)
    return parts


def read_as_group(side: Side, group: str, count: int) -> set[int]:
    """Join, read `count` records, commit; the numbers of the records in their headers."""
    with consuming(side.address, group_id=group) as consumer:
        consumer.subscribe([TOPIC])
        messages = take(consumer, count)
        consumer.commit(asynchronous=False)
    return {int(as_sample(message).headers[0][1] or b"") for message in messages}


def test_mirror_maker_copies_records_settings_and_offsets(
    millstreams: list[Side], tmp_path: Path
) -> None:
    (a, here), (b, there) = millstreams
    here.create(TOPIC, 1, SETTINGS)
    values = [b"%06d" % number for number in range(COUNT)]
    producer = Producer({"bootstrap.servers": a, **QUIET})
    for value in values:
        producer.produce(TOPIC, value, key=value)
    assert producer.flush(SECONDS_MAX) == 0
    with consuming(a, group_id=GROUP) as consumer:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, COUNT)], asynchronous=False)
    settings = MIRROR_SETTINGS.format(a=a, b=b, topic=TOPIC, group=GROUP)
    with mirror_maker(tmp_path, settings) as mirror:
        mirror.wait_for(1, lambda: there.partition_count(MIRRORED))
        with consuming(b) as consumer:
            consumer.assign([TopicPartition(MIRRORED, 0, 0)])
            assert [message.value() for message in take(consumer, COUNT)] == values
        mirror.wait_for(SETTINGS, lambda: there.settings(MIRRORED))
        mirror.wait_for({0: COUNT}, lambda: there.committed(GROUP, MIRRORED))

        here.change(TOPIC, "retention.ms", "987654321")
        here.change(TOPIC, "compression.lz4.level", None)
        here.grow(TOPIC, 3)

        changed = {**SETTINGS, "retention.ms": "987654321"}
        del changed["compression.lz4.level"]
        mirror.wait_for(changed, lambda: there.settings(MIRRORED))
        mirror.wait_for(3, lambda: there.partition_count(MIRRORED))


@pytest.mark.parametrize("is_way_back", [False, True], ids=["to_millstream", "to_kafka"])
def test_the_file_of_the_migration_page_moves_a_topic_and_its_groups(
    sides: tuple[Side, Side], tmp_path: Path, is_way_back: bool
) -> None:
    kafka, ours = sides
    source, target = (ours, kafka) if is_way_back else (kafka, ours)
    assert FORTH in FILE
    assert BACK in FILE
    settings = FILE.replace("kafka:9092", kafka.address)
    settings = settings.replace("millstream:9092", ours.address)
    if is_way_back:  # As the page says: the two lines swapped.
        settings = settings.replace(FORTH, FORTH.replace("true", "false"))
        settings = settings.replace(BACK, BACK.replace("false", "true"))
    source.admin.create(TOPIC, PARTITIONS, KEPT_SETTINGS)
    send(source, range(COUNT))
    assert read_as_group(source, "ready", COUNT) == set(range(COUNT))
    seen = read_as_group(source, "behind", COUNT // 2)

    with mirror_maker(tmp_path, settings) as mirror:
        ends = source.admin.ends(TOPIC)
        mirror.wait_for(ends, lambda: target.admin.ends(TOPIC))
        assert stored(target, COUNT) == by_partition(range(COUNT))
        mirror.wait_for(KEPT_SETTINGS, lambda: target.admin.settings(TOPIC))
        mirror.wait_for(ends, lambda: target.admin.committed("ready", TOPIC))

        send(source, range(COUNT, COUNT + 60))
        mirror.wait_for(source.admin.ends(TOPIC), lambda: target.admin.ends(TOPIC))

    assert stored(target, COUNT + 60) == by_partition(range(COUNT + 60))
    assert read_as_group(target, "ready", 60) == set(range(COUNT, COUNT + 60))
    # MirrorMaker translates no offset before its first notes: a group begins again there.
    left = sum(target.admin.ends(TOPIC).values())
    left -= sum(max(at, 0) for at in target.admin.committed("behind", TOPIC).values())
    assert left >= COUNT + 60 - len(seen)
    assert seen | read_as_group(target, "behind", left) == set(range(COUNT + 60))


def test_both_sides_take_records_and_nothing_goes_in_circles(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    kafka, ours = sides
    settings = FILE.replace("kafka:9092", kafka.address)
    settings = settings.replace("millstream:9092", ours.address)
    settings = settings.replace(BACK, BACK.replace("false", "true"))
    settings = settings.replace(f"replication.policy.class = {IDENTITY}\n", "")
    assert "replication.policy" not in settings
    for side, numbers in ((kafka, range(COUNT)), (ours, range(COUNT, 2 * COUNT))):
        side.admin.create(TOPIC, PARTITIONS)
        send(side, numbers)

    with mirror_maker(tmp_path, settings) as mirror:
        mirror.wait_for(kafka.admin.ends(TOPIC), lambda: ours.admin.ends("old.orders"))
        mirror.wait_for(ours.admin.ends(TOPIC), lambda: kafka.admin.ends("new.orders"))
        send(kafka, range(2 * COUNT, 2 * COUNT + 60))
        mirror.wait_for(kafka.admin.ends(TOPIC), lambda: ours.admin.ends("old.orders"))

    own = by_partition(range(COUNT))
    later = by_partition(range(2 * COUNT, 2 * COUNT + 60))
    copied = {at: own[at] + later[at] for at in own}
    assert stored(ours, COUNT + 60, "old.orders") == copied
    assert stored(kafka, COUNT, "new.orders") == stored(ours, COUNT)
    for side in sides:
        assert not {"old.new.orders", "new.old.orders"} & side.admin.topics()

"""What is built on Kafka's client: MirrorMaker 2 between two brokers, a Streams application."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.interop.java.frameworks import MIRROR_SETTINGS, Framework, install
from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX, consuming, take
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_clients import produce

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
SESSION_MS = 30_000
DYNAMIC_TOPIC_CONFIG = 1


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    install()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        made.append(BrokerProcess(tmp_path / name))
        made[-1].start()
    yield made[0], made[1]
    for topic in made:
        topic.stop()


class Admin:
    """What the tests ask of one broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.address, **QUIET})

    def create(self, topic: str, partitions: int, settings: dict[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, config=settings or {})
        self._admin.create_topics([new])[topic].result(SECONDS_MAX)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS_MAX)

    def partition_count(self, topic: str) -> int:
        listed = self._admin.list_topics(timeout=SECONDS_MAX).topics
        return len(listed[topic].partitions) if topic in listed else 0

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of the topic itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._admin.describe_configs([resource])[resource].result(SECONDS_MAX)
        return {
            name: entry.value
            for name, entry in entries.items()
            if entry.source == DYNAMIC_TOPIC_CONFIG
        }

    def change(self, topic: str, name: str, value: str | None) -> None:
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value or "", incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)

    def committed(self, group: str, topic: str) -> int | None:
        asked = [ConsumerGroupTopicPartitions(group)]
        try:
            offsets = self._admin.list_consumer_group_offsets(asked)[group].result(SECONDS_MAX)
        except KafkaException:
            return None
        places = {(at.topic, at.partition): at.offset for at in offsets.topic_partitions}
        return places.get((topic, 0))


def test_mirror_maker_copies_records_settings_and_offsets(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    a, b = brokers
    here, there = Admin(a), Admin(b)
    here.create(TOPIC, 1, SETTINGS)
    values = [b"%06d" % number for number in range(COUNT)]
    producer = Producer({"bootstrap.servers": a.address, **QUIET})
    for value in values:
        producer.produce(TOPIC, value, key=value)
    assert producer.flush(SECONDS_MAX) == 0
    with consuming(a.address, group_id=GROUP) as consumer:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, COUNT)], asynchronous=False)
    settings = tmp_path / "mirror.properties"
    settings.write_text(MIRROR_SETTINGS.format(a=a.address, b=b.address, topic=TOPIC, group=GROUP))
    mirror = Framework(
        "org.apache.kafka.connect.mirror.MirrorMaker", str(settings), log=tmp_path / "mirror.log"
    )
    try:
        mirror.wait_for(1, lambda: there.partition_count(MIRRORED))
        with consuming(b.address) as consumer:
            consumer.assign([TopicPartition(MIRRORED, 0, 0)])
            assert [message.value() for message in take(consumer, COUNT)] == values
        mirror.wait_for(SETTINGS, lambda: there.settings(MIRRORED))
        mirror.wait_for(COUNT, lambda: there.committed(GROUP, MIRRORED))

        here.change(TOPIC, "retention.ms", "987654321")
        here.change(TOPIC, "compression.lz4.level", None)
        here.grow(TOPIC, 3)

        changed = {**SETTINGS, "retention.ms": "987654321"}
        del changed["compression.lz4.level"]
        mirror.wait_for(changed, lambda: there.settings(MIRRORED))
        mirror.wait_for(3, lambda: there.partition_count(MIRRORED))
    finally:
        mirror.stop()


@pytest.mark.parametrize("is_rebalancing", [False, True])
def test_a_killed_streams_application_is_back_within_its_session_time(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path, is_rebalancing: bool
) -> None:
    broker, _ = brokers
    admin = Admin(broker)
    for topic in ("words", "counts"):
        admin.create(topic, 2)
    produce(broker.address, "words", *[b"w%d" % (number % 7) for number in range(COUNT)])

    def start(name: str) -> Framework:
        arguments = (broker.address, str(tmp_path / name), str(SESSION_MS))
        return Framework("interop.WordCount", *arguments, log=tmp_path / f"{name}.log")

    running = [start("first")]
    try:
        running[0].wait_for("RUNNING", lambda: (running[0].lines or [""])[-1])
        if is_rebalancing:  # Both die with a JoinGroup that waits for an answer.
            running.append(start("second"))
            running[0].wait_for("REBALANCING", lambda: running[0].lines[-1])
        for process in running:
            process.kill()
        killed = time.monotonic()
        running = [start("third")]
        running[0].wait_for("RUNNING", lambda: (running[0].lines or [""])[-1])
        # A dead member that is taken for a living one costs a second session. Starting a JVM and
        # restoring the store take seconds, on a busy machine many.
        assert time.monotonic() - killed < 2 * SESSION_MS / 1000
        with consuming(broker.address, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition("counts", at, 0) for at in range(2)])
            counts = {(m.key(), m.value()) for m in take(consumer, COUNT)}
    finally:
        for process in running:
            process.stop()
    totals = [COUNT // 7 + (number < COUNT % 7) for number in range(7)]
    assert counts == {(b"w%d" % n, b"%d" % at) for n in range(7) for at in range(1, totals[n] + 1)}

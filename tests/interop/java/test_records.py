"""The Java client writes records and reads the same ones back."""

import time

import pytest
from confluent_kafka import Consumer as Watcher
from confluent_kafka import TopicPartition

from tests.interop.conftest import PARTITIONS
from tests.interop.java.clients import SECONDS_MAX, Java
from tests.interop.java.driver import JavaError
from tests.interop.samples import CODECS, Sample, samples
from tests.support.broker_process import BrokerProcess


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    java: Java, broker: BrokerProcess, topic: str, codec: str, acks: str
) -> None:
    nothing: list[tuple[str, bytes]] = [("nothing", None)]  # type: ignore[list-item]
    sent = [*samples(), Sample(None, None, nothing, samples()[-1].timestamp_ms)]

    java.write(broker.address, topic, sent, compression_type=codec, acks=acks)
    taken = java.read(broker.address, topic, len(sent))

    assert [record.sample for record in taken] == sent
    assert [record.offset for record in taken] == list(range(len(sent)))
    assert {record.timestamp_type for record in taken} == {"CreateTime"}


def test_reports_tell_where_each_record_lies(java: Java, broker: BrokerProcess, topic: str) -> None:
    first = java.write(broker.address, topic, samples(), acks="all")
    second = java.write(broker.address, topic, samples(), acks="1")

    assert first + second == [(0, offset) for offset in range(2 * len(samples()))]


def test_a_topic_may_stamp_its_records_itself(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    sent = samples()
    with java.admin(broker.address) as admin:
        config = {"message.timestamp.type": "LogAppendTime"}
        admin.ask("create_topic", topic=topic, partitions=1, config=config)

    java.write(broker.address, topic, sent)
    taken = java.read(broker.address, topic, len(sent))

    assert {record.timestamp_type for record in taken} == {"LogAppendTime"}
    assert min(record.sample.timestamp_ms for record in taken) > sent[-1].timestamp_ms
    assert [record.sample.value for record in taken] == [sample.value for sample in sent]


def test_equal_keys_land_in_one_partition_and_stay_in_order(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    sent = [Sample(b"key-%d" % (number % 10), b"%d" % number, [], -1) for number in range(300)]

    with java.producer(broker.address) as producer:
        producer.send(topic, sent, partition=None)
    with java.consumer(broker.address) as consumer:
        consumer.assign(topic, *range(PARTITIONS))
        taken = consumer.take(len(sent))

    homes = {(record.sample.key, record.partition) for record in taken}
    assert len(homes) == 10
    for key in {key for key, _ in homes}:
        numbers = [int(record.sample.value or b"") for record in taken if record.sample.key == key]
        assert numbers == sorted(numbers)


def test_a_reader_finds_the_first_record_at_or_after_a_time(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    sent = samples()
    java.write(broker.address, topic, sent)

    with java.consumer(broker.address) as consumer:
        consumer.assign(topic)
        at = f"{topic},0"
        times = [sent[2].timestamp_ms, sent[2].timestamp_ms + 1, sent[-1].timestamp_ms + 1]
        collected = [
            consumer.ask("offsets_for_time", partition=at, timestamp=ms)[0] for ms in times
        ]
        consumer.ask("seek", partition=at, offset=collected[0])
        taken = consumer.take(len(sent) - 2)
        ends = consumer.ask("ends", partition=at)

    assert collected == [2, 3, -1]
    assert [record.sample for record in taken] == sent[2:]
    assert ends == [[0], [len(sent)]]


def test_a_reader_of_many_partitions_gets_what_comes_to_each_of_them_later(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    """From its second fetch on the client names only the partitions that changed."""
    partitions = range(20)
    with java.admin(broker.address) as admin:
        admin.ask("create_topic", topic=topic, partitions=len(partitions))
    with (
        java.producer(broker.address) as producer,
        java.consumer(broker.address) as consumer,
    ):
        consumer.assign(topic, *partitions)
        consumer.poll(1, 300)
        for partition in partitions:
            producer.send(topic, samples()[:1], partition)
            assert [record.partition for record in consumer.take(1)] == [partition]
        consumer.assign(topic, *partitions[:2])
        again = consumer.take(2)

    assert sorted(record.partition for record in again) == [0, 1]


def test_a_reader_beyond_the_end_is_set_back_to_the_start(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    java.write(broker.address, topic, samples())

    with java.consumer(broker.address) as consumer:
        consumer.assign(topic)
        consumer.ask("seek", partition=f"{topic},0", offset=1_000_000)
        taken = consumer.take(len(samples()))

    assert [record.offset for record in taken] == list(range(len(samples())))


def test_a_reader_beyond_the_end_that_wants_no_reset_is_told(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    java.write(broker.address, topic, samples())

    with java.consumer(broker.address, auto_offset_reset="none") as consumer:
        consumer.assign(topic)
        consumer.ask("seek", partition=f"{topic},0", offset=1_000_000)
        with pytest.raises(JavaError) as refused:
            consumer.take(1)

    assert refused.value.errors[0] == "OffsetOutOfRangeException"


def test_a_record_too_large_for_the_topic_is_refused_and_the_next_one_taken(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    large, small = (Sample(None, b"x" * size, [], -1) for size in (2_000_000, 1))

    with java.producer(broker.address, max_request_size=5_000_000) as producer:
        refused = producer.send(topic, [large])
        taken = producer.send(topic, [small])

    assert refused == [["RecordTooLargeException"]]
    assert taken == [(0, 0)]


def test_a_partition_that_is_not_there_is_refused(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    java.write(broker.address, topic, samples())

    with java.producer(broker.address, max_block_ms=2_000) as producer:
        refused = producer.send(topic, samples()[:1], partition=99)

    assert refused == [["TimeoutException"]]


def test_a_topic_whose_name_is_not_one_is_refused(java: Java, broker: BrokerProcess) -> None:
    with java.producer(broker.address) as producer:
        refused = producer.send("no topic!", samples()[:1])

    assert refused == [["InvalidTopicException"]]


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    with java.admin(broker.address) as admin:
        config = {"cleanup.policy": "compact"}
        admin.ask("create_topic", topic=topic, partitions=1, config=config)

    with java.producer(broker.address) as producer:
        refused = producer.send(topic, [Sample(None, b"no key", [], -1)])

    assert refused == [["InvalidRecordException"]]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_an_idempotent_producer_writes_each_record_once(
    java: Java, broker: BrokerProcess, topic: str, codec: str
) -> None:
    start_ms = samples()[0].timestamp_ms
    sent = [Sample(b"%d" % at, b"v" * 50, [], start_ms + at) for at in range(500)]

    reports = java.write(
        broker.address,
        topic,
        sent,
        enable_idempotence="true",
        compression_type=codec,
        batch_size=1_000,
        linger_ms=0,
    )
    taken = java.read(broker.address, topic, len(sent))

    assert [record.sample for record in taken] == sent
    assert reports == [(0, offset) for offset in range(len(sent))]


def test_an_idempotent_producer_writes_each_record_once_though_the_broker_is_killed(
    java: Java, broker: BrokerProcess, topic: str
) -> None:
    sent = [Sample(None, b"%d" % at, [], -1) for at in range(20_000)]
    settings = {"batch_size": 200, "linger_ms": 0, "acks": "all", "retry_backoff_ms": 20}
    with java.admin(broker.address) as admin:
        admin.ask("create_topic", topic=topic, partitions=1)

    with java.producer(broker.address, **settings) as producer:
        producer.start_sending(topic, sent)
        wait_for_records(broker.address, topic, 100)
        broker.kill()
        was_sending = not producer.has_finished_sending
        broker.start()
        reports = producer.finish_sending()
    taken = java.read(broker.address, topic, len(sent))

    assert was_sending
    assert [record.sample.value for record in taken] == [sample.value for sample in sent]
    assert reports == [(0, offset) for offset in range(len(sent))]


def wait_for_records(address: str, topic: str, count: int) -> None:
    """Asked by another client, as the driver is busy sending."""
    watcher = Watcher({"bootstrap.servers": address, "group.id": "none", "log_level": 0})
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while watcher.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1] < count:
            assert time.monotonic() < deadline
    finally:
        watcher.close()

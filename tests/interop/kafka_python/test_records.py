"""kafka-python writes records and reads the same ones back."""

import pytest
from kafka.errors import (
    MessageSizeTooLargeError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from kafka import TopicPartition
from tests.interop.kafka_python.clients import (
    SECONDS_MAX,
    as_sample,
    consuming,
    produce,
    producing,
    take,
)
from tests.interop.samples import CODECS, INIT_PRODUCER_ID, Sample, needs, samples
from tests.support.broker_process import BrokerProcess


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    broker: BrokerProcess, topic: str, codec: str, acks: int | str
) -> None:
    sent = samples()

    produce(
        broker.address,
        topic,
        sent,
        compression_type=None if codec == "none" else codec,
        acks=acks,
        linger_ms=5,
    )
    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        taken = take(consumer, len(sent))

    assert [as_sample(record) for record in taken] == sent
    assert [record.offset for record in taken] == list(range(len(sent)))


def test_answers_tell_where_each_record_lies(broker: BrokerProcess, topic: str) -> None:
    first = produce(broker.address, topic, samples(), acks="all")
    second = produce(broker.address, topic, samples(), acks="all")

    assert first + second == list(range(2 * len(samples())))


def test_a_reader_finds_the_first_record_at_or_after_a_time(
    broker: BrokerProcess, topic: str
) -> None:
    sent = samples()
    produce(broker.address, topic, sent)
    target = TopicPartition(topic, 0)

    with consuming(broker.address) as consumer:
        times = [sent[2].timestamp_ms, sent[2].timestamp_ms + 1, sent[-1].timestamp_ms + 1]
        collected = [consumer.offsets_for_times({target: ms})[target] for ms in times]
        consumer.assign([target])
        consumer.seek(target, collected[0].offset)
        taken = take(consumer, len(sent) - 2)

    assert [place and (place.offset, place.timestamp) for place in collected] == [
        (2, sent[2].timestamp_ms),
        (3, sent[3].timestamp_ms),
        None,
    ]
    assert [as_sample(record) for record in taken] == sent[2:]


def test_the_ends_of_a_partition_frame_what_was_written(broker: BrokerProcess, topic: str) -> None:
    produce(broker.address, topic, samples())
    target = TopicPartition(topic, 0)

    with consuming(broker.address) as consumer:
        ends = consumer.beginning_offsets([target]), consumer.end_offsets([target])

    assert ends == ({target: 0}, {target: len(samples())})


def test_a_reader_beyond_the_end_is_set_back_to_the_start(
    broker: BrokerProcess, topic: str
) -> None:
    produce(broker.address, topic, samples())

    with consuming(broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 1_000_000)
        taken = take(consumer, len(samples()))

    assert [record.offset for record in taken] == list(range(len(samples())))


def test_a_reader_beyond_the_end_that_wants_no_reset_is_told(
    broker: BrokerProcess, topic: str
) -> None:
    produce(broker.address, topic, samples())

    with consuming(broker.address, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 1_000_000)
        with pytest.raises((OffsetOutOfRangeError, NoOffsetForPartitionError)):
            take(consumer, 1)


def test_a_record_too_large_for_the_topic_is_refused_and_the_next_one_taken(
    broker: BrokerProcess, topic: str
) -> None:
    with producing(broker.address, max_request_size=5_000_000) as producer:
        large = producer.send(topic, b"x" * 2_000_000, partition=0)
        with pytest.raises(MessageSizeTooLargeError):
            large.get(timeout=SECONDS_MAX)
        small = producer.send(topic, b"small", partition=0).get(timeout=SECONDS_MAX)

    assert small.offset == 0


@needs(INIT_PRODUCER_ID)
@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_writes_each_record_once(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    start = samples()[0]
    sent = [Sample(b"%d" % at, b"v" * 50, [], start.timestamp_ms + at) for at in range(300)]

    produce(
        broker.address,
        topic,
        sent,
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        batch_size=1_000,
    )
    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        taken = take(consumer, len(sent))
        end = consumer.end_offsets([TopicPartition(topic, 0)])

    assert [as_sample(record) for record in taken] == sent
    assert list(end.values()) == [len(sent)]

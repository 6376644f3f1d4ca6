"""librdkafka writes records and reads the same ones back."""

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.librdkafka.clients import (
    QUIET,
    SECONDS_MAX,
    as_sample,
    consuming,
    produce,
    take,
)
from tests.interop.samples import CODECS, INIT_PRODUCER_ID, Sample, needs, samples
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_clients import batching_producer


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(
    broker: BrokerProcess, topic: str, codec: str, acks: str
) -> None:
    # Only this client sends a record that has neither key nor value.
    sent = [*samples(), Sample(None, None, [], samples()[-1].timestamp_ms)]

    produce(broker.address, topic, sent, compression_type=codec, acks=acks)
    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        taken = take(consumer, len(sent))

    assert [as_sample(message) for message in taken] == sent
    assert [message.offset() for message in taken] == list(range(len(sent)))
    assert {message.timestamp()[0] for message in taken} == {TIMESTAMP_CREATE_TIME}


def test_reports_tell_where_each_record_lies(broker: BrokerProcess, topic: str) -> None:
    first = produce(broker.address, topic, samples(), acks="all")
    second = produce(broker.address, topic, samples(), acks="all")

    assert first + second == [(0, offset) for offset in range(2 * len(samples()))]


def test_a_header_without_a_value_keeps_none(broker: BrokerProcess, topic: str) -> None:
    nothing: list[tuple[str, bytes]] = [("nothing", None)]  # type: ignore[list-item]
    sent = [samples()[0]._replace(headers=nothing)]

    produce(broker.address, topic, sent)
    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        taken = take(consumer, 1)

    assert taken[0].headers() == nothing


def test_equal_keys_land_in_one_partition_and_stay_in_order(
    broker: BrokerProcess, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5, **QUIET})
    for number in range(300):
        producer.produce(topic, key=b"key-%d" % (number % 10), value=b"%d" % number)
    assert producer.flush(SECONDS_MAX) == 0

    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(3)])
        taken = take(consumer, 300)

    homes = {(message.key(), message.partition()) for message in taken}
    assert len(homes) == 10
    for key in {key for key, _ in homes}:
        numbers = [int(message.value()) for message in taken if message.key() == key]  # type: ignore[arg-type]
        assert numbers == sorted(numbers)


def test_a_reader_finds_the_first_record_at_or_after_a_time(
    broker: BrokerProcess, topic: str
) -> None:
    sent = samples()
    produce(broker.address, topic, sent)

    with consuming(broker.address) as consumer:
        at = [sent[2].timestamp_ms, sent[2].timestamp_ms + 1, sent[-1].timestamp_ms + 1]
        collected = [
            consumer.offsets_for_times([TopicPartition(topic, 0, ms)], timeout=10)[0].offset
            for ms in at
        ]
        consumer.assign([TopicPartition(topic, 0, collected[0])])
        taken = take(consumer, len(sent) - 2)

    assert collected == [2, 3, OFFSET_END]
    assert [as_sample(message) for message in taken] == sent[2:]


def test_watermarks_frame_what_was_written(broker: BrokerProcess, topic: str) -> None:
    produce(broker.address, topic, samples())

    with consuming(broker.address) as consumer:
        marks = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)

    assert marks == (0, len(samples()))


def test_a_reader_beyond_the_end_is_set_back_to_the_start(
    broker: BrokerProcess, topic: str
) -> None:
    produce(broker.address, topic, samples())

    with consuming(broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1_000_000)])
        taken = take(consumer, len(samples()))

    assert [message.offset() for message in taken] == list(range(len(samples())))


def test_a_reader_beyond_the_end_that_wants_no_reset_is_told(
    broker: BrokerProcess, topic: str
) -> None:
    produce(broker.address, topic, samples())

    with consuming(broker.address, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1_000_000)])
        message = consumer.poll(SECONDS_MAX)

    assert message is not None
    assert message.error().name() == "_AUTO_OFFSET_RESET"  # type: ignore[union-attr]


def test_a_record_too_large_for_the_topic_is_refused_and_the_next_one_taken(
    broker: BrokerProcess, topic: str
) -> None:
    errors: list[str | None] = []
    producer = Producer(
        {"bootstrap.servers": broker.address, "message.max.bytes": 5_000_000, **QUIET}
    )

    for value in (b"x" * 2_000_000, b"small"):
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: errors.append(error.name() if error else None),
        )
        assert producer.flush(SECONDS_MAX) == 0

    assert errors == ["MSG_SIZE_TOO_LARGE", None]


def test_a_partition_that_is_not_there_is_refused(broker: BrokerProcess, topic: str) -> None:
    produce(broker.address, topic, samples())
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": broker.address, "message.timeout.ms": 3_000, **QUIET})

    try:
        producer.produce(
            topic,
            b"x",
            partition=99,
            on_delivery=lambda error, _: errors.append(error.name()),  # type: ignore[union-attr]
        )
        producer.flush(SECONDS_MAX)
    except KafkaException as problem:  # The client may know before it sends anything.
        errors.append(problem.args[0].name())

    assert errors == ["_UNKNOWN_PARTITION"]


@needs(INIT_PRODUCER_ID)
@pytest.mark.parametrize("codec", CODECS)
def test_an_idempotent_producer_writes_each_record_once(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    start = samples()[0]
    sent = [Sample(b"%d" % at, b"v" * 50, [], start.timestamp_ms + at) for at in range(500)]

    produce(
        broker.address,
        topic,
        sent,
        enable_idempotence=True,
        compression_type=codec,
        batch_num_messages=20,
    )
    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        taken = take(consumer, len(sent))
        marks = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)

    assert [as_sample(message) for message in taken] == sent
    assert marks == (0, len(sent))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_only_the_records_to_blame_are_refused_as_invalid(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, **QUIET})
    compacted = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])[topic].result(SECONDS_MAX)
    errors: dict[bytes | None, int | None] = {}

    def report(error: KafkaError | None, message: Message) -> None:
        errors[message.value()] = None if error is None else error.code()

    producer = batching_producer(broker.address, topic, {"compression.type": codec, **QUIET})
    for number in range(10):
        key = None if number in {3, 7} else b"key"
        producer.produce(topic, b"%d" % number, key, partition=0, on_delivery=report)
    assert producer.flush(SECONDS_MAX) == 0

    # KIP-467: the others were in the same batch, and may be sent again as they are.
    other = KafkaError._INVALID_DIFFERENT_RECORD
    invalid = KafkaError.INVALID_RECORD
    assert errors == {b"%d" % at: invalid if at in {3, 7} else other for at in range(10)}

"""A plain Kafka client delays records and has them taken once, by nothing but headers."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX, consuming, take
from tests.interop.samples import CODECS
from tests.support.broker_process import BrokerProcess

Sent = tuple[bytes, dict[str, str]]  # A value and headers.


def connect(address: str, topic: str, **settings: object) -> Producer:
    """A producer that has sent its first record, so that the next ones go out at once."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, **QUIET, **settings})
    send(producer, topic, (b"zero", {}))
    return producer


def send(producer: Producer, topic: str, *samples: Sent) -> list[int]:
    """Send as one batch to partition 0; return the offsets that were reported."""
    reports: list[tuple[KafkaError | None, Message]] = []
    for value, headers in samples:
        producer.produce(
            topic,
            value,
            headers=list(headers.items()),
            partition=0,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
    assert producer.flush(SECONDS_MAX) == 0
    assert [error for error, _ in reports if error is not None] == []
    return [message.offset() for _, message in reports]  # type: ignore[misc]


@pytest.fixture
def reader(broker: BrokerProcess, topic: str) -> Iterator[Consumer]:
    with consuming(broker.address, allow_auto_create_topics=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        yield consumer


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def has_no_more(reader: Consumer) -> bool:
    return reader.poll(0.5) is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_delayed_records_come_when_they_are_due_and_the_others_before_them(
    broker: BrokerProcess, topic: str, reader: Consumer, codec: str, idempotent: bool
) -> None:
    settings = {"compression.type": codec, "enable.idempotence": idempotent}
    producer = connect(broker.address, topic, **settings)
    due = {}
    for round_ in (b"1", b"2"):
        due[round_] = int(time.time() * 1000) + 2_000
        send(
            producer,
            topic,
            (b"delayed" + round_, {"ms-deliver-at": str(due[round_])}),
            (b"plain" + round_, {"mine": "x"}),
            (b"short" + round_, {"ms-delay-ms": "300"}),
        )

    taken = {message.value(): message for message in take(reader, 7)}

    assert time.time() * 1000 >= max(due.values())
    for round_ in due:
        plain, short, delayed = (taken[name + round_] for name in (b"plain", b"short", b"delayed"))
        assert plain.offset() < short.offset() < delayed.offset()  # type: ignore[operator]
        assert delayed.timestamp()[1] == due[round_]
        assert delayed.headers() == [("ms-deliver-at", str(due[round_]).encode())]
    assert has_no_more(reader)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_record_with_a_known_id_is_acknowledged_with_the_offset_of_the_first(
    broker: BrokerProcess, topic: str, reader: Consumer, codec: str, idempotent: bool
) -> None:
    settings = {"compression.type": codec, "enable.idempotence": idempotent}
    producer = connect(broker.address, topic, **settings)
    first = send(producer, topic, (b"one", {"ms-message-id": "1"}))
    again = send(producer, topic, (b"one again", {"ms-message-id": "1"}))
    send(
        producer,
        topic,
        (b"one again", {"ms-message-id": "1"}),
        (b"two", {"ms-message-id": "2"}),
        (b"two again", {"ms-message-id": "2"}),
        (b"three", {}),
    )

    assert first == again == [1]
    assert values(take(reader, 4)) == [b"zero", b"one", b"two", b"three"]
    assert has_no_more(reader)


def test_an_id_counts_when_its_transaction_was_committed_and_not_when_it_was_rolled_back(
    broker: BrokerProcess, topic: str, reader: Consumer
) -> None:
    plain = connect(broker.address, topic)
    producer = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": f"by-{topic}", **QUIET}
    )
    producer.init_transactions(SECONDS_MAX)
    once, twice = (b"one", {"ms-message-id": "1"}), (b"one again", {"ms-message-id": "1"})

    producer.begin_transaction()
    send(producer, topic, (b"rolled back", {"ms-message-id": "1"}))
    producer.abort_transaction(SECONDS_MAX)
    producer.begin_transaction()
    send(producer, topic, once, twice)
    producer.commit_transaction(SECONDS_MAX)
    producer.begin_transaction()
    send(producer, topic, twice)
    send(producer, topic, (b"two", {"ms-message-id": "2"}))
    producer.commit_transaction(SECONDS_MAX)
    assert values(take(reader, 3)) == [b"zero", b"one", b"two"]
    send(plain, topic, twice, (b"three", {"ms-message-id": "3"}))

    assert values(take(reader, 1)) == [b"three"]
    assert has_no_more(reader)


@pytest.mark.parametrize("death", ["stop", "kill"])
def test_ids_and_delays_outlive_the_broker(
    broker: BrokerProcess, topic: str, reader: Consumer, death: str
) -> None:
    producer = connect(broker.address, topic)
    deliver_at = int(time.time() * 1000) + 3_000
    send(
        producer,
        topic,
        (b"one", {"ms-message-id": "1"}),
        (b"late", {"ms-message-id": "2", "ms-deliver-at": str(deliver_at)}),
    )

    getattr(broker, death)()
    broker.kill()
    broker.start()
    send(
        producer,
        topic,
        (b"one again", {"ms-message-id": "1"}),
        (b"late again", {"ms-message-id": "2"}),
        (b"other", {"ms-message-id": "3"}),
    )

    assert sorted(values(take(reader, 4))) == [b"late", b"one", b"other", b"zero"]  # type: ignore[type-var]
    assert time.time() * 1000 >= deliver_at
    assert has_no_more(reader)


def test_a_header_that_says_nothing_sensible_is_refused_with_a_sentence(
    broker: BrokerProcess, topic: str
) -> None:
    reports: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.address, "retries": 0, **QUIET})
    producer.produce(
        topic,
        b"x",
        headers=[("ms-delay-ms", "soon")],
        partition=0,
        on_delivery=lambda error, _: reports.append(error),
    )
    assert producer.flush(SECONDS_MAX) == 0

    (error,) = reports
    assert error is not None
    assert error.code() == KafkaError.INVALID_RECORD

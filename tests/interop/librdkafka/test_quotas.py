"""librdkafka under a quota: it takes the time the quota says, and others do not notice."""

import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX, consuming
from tests.support.broker_process import BrokerProcess
from tests.support.quotas import quotas_of, set_quotas

RATE = 10**6  # Bytes a second.
RECORD_BYTES = 50_000
RECORDS = 80  # Four seconds of the quota, of which one is a burst.
# The burst is free, and the wait that the last request caused is not waited for.
SECONDS_MIN = 2.5


def producer_of(broker: BrokerProcess, client_id: str, **settings: Any) -> Producer:
    config = {"batch.size": 100_000, "linger.ms": 0, "client.id": client_id, **QUIET, **settings}
    return Producer({"bootstrap.servers": broker.address, **config})


def send(producer: Producer, topic: str) -> None:
    for _ in range(RECORDS):
        producer.produce(topic, value=bytes(RECORD_BYTES), partition=0)


def read_all(broker: BrokerProcess, topic: str, client_id: str) -> float:
    """Read all records of `send`; return how many seconds it took."""
    with consuming(broker.address, client_id=client_id) as consumer:
        began = time.monotonic()
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        left = RECORDS
        while left:
            assert time.monotonic() - began < SECONDS_MAX, f"{left} records did not come"
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                left -= 1
        return time.monotonic() - began


def test_a_producer_takes_the_time_of_its_quota_and_another_does_not(
    broker: BrokerProcess, topic: str
) -> None:
    set_quotas(broker.address, "slow-producer", producer_byte_rate=RATE)
    waits: list[float] = []
    slow = producer_of(
        broker, "slow-producer", throttle_cb=lambda event: waits.append(event.throttle_time)
    )
    fast = producer_of(broker, "fast-producer")

    began = time.monotonic()
    send(slow, topic)
    send(fast, topic)
    assert fast.flush(SECONDS_MAX) == 0
    fast_seconds, left_of_slow = time.monotonic() - began, len(slow)
    assert slow.flush(SECONDS_MAX) == 0
    slow_seconds = time.monotonic() - began

    assert slow_seconds >= SECONDS_MIN
    assert fast_seconds < slow_seconds
    assert left_of_slow > 0
    assert any(wait > 0 for wait in waits)


def test_a_consumer_takes_the_time_of_its_quota_and_another_does_not(
    broker: BrokerProcess, topic: str
) -> None:
    set_quotas(broker.address, "slow-consumer", consumer_byte_rate=RATE)
    producer = producer_of(broker, "filler")
    send(producer, topic)
    assert producer.flush(SECONDS_MAX) == 0

    slow_seconds = read_all(broker, topic, "slow-consumer")
    fast_seconds = read_all(broker, topic, "fast-consumer")

    assert slow_seconds >= SECONDS_MIN
    assert fast_seconds < slow_seconds


def test_a_producer_that_wants_no_answer_takes_its_time_too(
    broker: BrokerProcess, topic: str
) -> None:
    set_quotas(broker.address, "silent-producer", producer_byte_rate=RATE)
    producer = producer_of(broker, "silent-producer", acks="0")

    began = time.monotonic()
    send(producer, topic)
    assert producer.flush(SECONDS_MAX) == 0
    read_all(broker, topic, "reader")

    assert time.monotonic() - began >= SECONDS_MIN


def test_quotas_survive_a_stop_and_a_kill(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        set_quotas(broker.address, "app", producer_byte_rate=5, consumer_byte_rate=7)
        broker.stop()
        broker.start()
        set_quotas(broker.address, "app", producer_byte_rate=6)
        broker.kill()
        broker.start()

        assert quotas_of(broker.address) == {
            "app": {"producer_byte_rate": 6.0, "consumer_byte_rate": 7.0}
        }
    finally:
        broker.kill()

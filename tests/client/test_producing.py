"""Sending records: one and many, with reports, a bounded buffer and errors that are seen."""

from datetime import UTC, datetime, timedelta
from threading import Event
from time import sleep, time

import pytest

from millstream.client import (
    BadData,
    Client,
    Closed,
    NotFound,
    NotSupported,
    Refused,
    Undelivered,
    Unreachable,
    connect,
)
from tests.support.broker_process import BrokerProcess


def test_one_record_is_acknowledged_with_its_place(client: Client, topic: str) -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)

    first = client.produce(topic, b"a", key=b"k", partition=1, timestamp=when)
    second = client.produce(topic, "b", partition=1, headers={"trace": "7"})

    assert (first.topic, first.partition, first.offset) == (topic, 1, 0)
    assert first.timestamp == when
    assert second.offset == 1


def test_a_key_goes_where_java_puts_it(client: Client, topic: str) -> None:
    # Murmur2 of "key-0" to "key-5" modulo 3, as Kafka's own partitioner has it.
    placed = [client.produce(topic, b"", key=f"key-{n}").partition for n in range(6)]

    assert placed == [java_partition(f"key-{n}".encode(), 3) for n in range(6)]


def java_partition(key: bytes, count: int) -> int:
    """Kafka's murmur2, written from its description."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    for at in range(0, len(key) - len(key) % 4, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    remaining = key[len(key) - len(key) % 4 :]
    if remaining:
        h = (h ^ int.from_bytes(remaining, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % count


def test_many_records_are_batched_and_each_has_a_future(client: Client, topic: str) -> None:
    with client.producer() as producer:
        deliveries = [producer.send(topic, b"%d" % n, partition=0) for n in range(5_000)]

    assert [delivery.result().offset for delivery in deliveries] == list(range(5_000))


def test_a_full_buffer_makes_the_sender_wait_and_loses_nothing(client: Client, topic: str) -> None:
    with client.producer(buffer_records_max=10) as producer:
        deliveries = []
        for n in range(300):
            deliveries.append(producer.send(topic, b"%d" % n, partition=0))
            assert producer.buffered_count <= 10

    assert [delivery.result().offset for delivery in deliveries] == list(range(300))


def test_a_record_that_is_too_large_fails_by_its_future_or_at_the_end(
    client: Client, topic: str
) -> None:
    # Larger than the broker takes, small enough for the client to try.
    client.admin.alter_topic(topic, {"max.message.bytes": 1_000})

    with (
        pytest.raises(Undelivered, match="1 records did not arrive") as undelivered,
        client.producer() as producer,
    ):
        producer.send(topic, b"x" * 5_000)
    with client.producer() as producer:
        seen = producer.send(topic, b"x" * 5_000)
        assert seen.exception() is not None

    assert undelivered.value.failures[0].code == "MSG_SIZE_TOO_LARGE"


def test_a_partition_that_is_not_there_is_told(client: Client, topic: str) -> None:
    with pytest.raises(NotFound, match=f"'{topic}': it has no partition 99; .*describe_topic"):
        client.produce(topic, b"", partition=99)


def test_a_view_cannot_be_written_to_and_says_where_to_write(client: Client, topic: str) -> None:
    client.views.create(f"{topic}-heavy", of=topic, where="key")

    with pytest.raises(Refused, match=r"it is a view.*Write to the topic that the view shows"):
        client.produce(f"{topic}-heavy", b"")


def test_a_cancelled_delivery_ends_nothing_else(client: Client, topic: str) -> None:
    with client.producer(linger_ms=200) as producer:
        cancelled = producer.send(topic, b"a", partition=0)
        assert cancelled.cancel()
        later = producer.send(topic, b"b", partition=0)

        assert later.result(timeout=20).offset == 1
        assert producer.send(topic, b"c", partition=0).result(timeout=20).offset == 2
    assert cancelled.cancelled()


def test_a_cancelled_delivery_of_a_record_that_failed_is_told_by_flush(
    client: Client, topic: str
) -> None:
    client.admin.alter_topic(topic, {"max.message.bytes": 1_000})
    with client.producer(linger_ms=200) as producer:
        producer.send(topic, b"x" * 5_000).cancel()

        with pytest.raises(Undelivered, match="1 records did not arrive"):
            producer.flush()
        assert producer.send(topic, b"y").result(timeout=20).offset == 0


def test_a_callback_of_the_program_that_raises_ends_nothing(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    called = Event()

    def fail(statistics: str) -> None:
        called.set()
        raise ZeroDivisionError(statistics)

    with connect(broker.address) as client:
        producer = client.producer(stats_cb=fail, statistics_interval_ms=50)
        assert called.wait(20)
        assert producer.send(topic, b"a", partition=0).result(timeout=20).offset == 0
        with client.consumer(topic, stats_cb=fail, statistics_interval_ms=50) as consumer:
            assert next(consumer).value == b"a"

    assert "callback=stats_cb" in caplog.text


def test_a_topic_name_that_cannot_be_is_refused(client: Client) -> None:
    with pytest.raises(Refused, match="a b"):
        client.produce("a b", b"")


def test_the_first_problem_is_the_one_that_is_seen(client: Client, topic: str) -> None:
    client.admin.alter_topic(topic, {"max.message.bytes": 1_000})

    with pytest.raises(KeyError), client.producer() as producer:
        raise KeyError(producer.send(topic, b"x" * 5_000))


def test_a_delayed_record_comes_when_it_is_due(client: Client, topic: str) -> None:
    before = time()
    client.produce(topic, b"late", delay=0.4, partition=0)
    client.produce(topic, b"early", partition=0)

    with client.consumer(topic, idle_s=20) as consumer:
        collected = [next(iter(consumer)).value for _ in range(2)]
    assert collected == [b"early", b"late"]
    assert time() - before >= 0.4


def test_a_record_past_its_lifetime_is_not_delivered(client: Client, topic: str) -> None:
    client.produce(topic, b"short", ttl=0.001, partition=0)
    client.produce(topic, b"long", ttl=timedelta(hours=1), partition=0)
    sleep(0.05)

    with client.consumer(topic, idle_s=20) as consumer:
        assert next(iter(consumer)).value == b"long"


def test_a_duplicate_is_left_out_and_knows_the_first_one(client: Client, topic: str) -> None:
    first = client.produce(topic, b"once", message_id="order-1", partition=0)
    again = client.produce(topic, b"once", message_id="order-1", partition=0)
    other = client.produce(topic, b"other", message_id="order-2", partition=0)

    assert again.offset == first.offset
    assert other.offset > first.offset
    with client.consumer(topic, idle_s=20) as consumer:
        assert [next(iter(consumer)).value for _ in range(2)] == [b"once", b"other"]


def test_a_broker_that_would_ignore_a_delay_is_not_asked_for_it(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client._link, "has_queues", lambda: False)
    with client.producer() as producer:
        for unserved in ({"delay": 1.0}, {"ttl": 1.0}, {"message_id": "a"}):
            with pytest.raises(NotSupported):
                client.produce(topic, b"", **unserved)
            with pytest.raises(NotSupported):
                producer.send(topic, b"", **unserved)


def test_a_value_that_needs_a_serde_says_so(client: Client, topic: str) -> None:
    with pytest.raises(BadData, match="set_serde"):
        client.produce(topic, {"order": 1})


def test_a_closed_producer_and_a_closed_client_say_so(broker: BrokerProcess, topic: str) -> None:
    client = connect(broker.address)
    producer = client.producer()
    client.close()
    client.close()

    with pytest.raises(Closed):
        producer.send(topic, b"")
    with pytest.raises(Closed):
        client.produce(topic, b"")


def test_a_broker_that_is_not_there_is_named_with_its_address() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 \(.*refused\).*millstream serve"):
        connect("127.0.0.1:1")


def test_one_of_several_addresses_is_enough(broker: BrokerProcess) -> None:
    with connect(f"127.0.0.1:1,{broker.address}") as client:
        assert client.admin.describe_cluster().nodes


def test_a_host_that_does_not_exist_is_named() -> None:
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:9092"):
        connect("no-such-host.invalid:9092")


def test_waiting_for_a_broker_that_never_comes_ends() -> None:
    with pytest.raises(Unreachable):
        connect("127.0.0.1:1", wait_s=0.5)


@pytest.mark.parametrize("setting", [{"lingering_ms": 1}, {"acks": "some"}, {"batch_size": 0}])
def test_a_bad_setting_is_refused_by_name(client: Client, setting: dict[str, object]) -> None:
    (name,) = setting

    with pytest.raises(Refused, match=name.replace("_", ".")):
        client.producer(**setting)  # type: ignore[arg-type]

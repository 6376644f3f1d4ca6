"""librdkafka reads views and topics whose records expire: gaps, ends, groups, transactions."""

import time
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX, consuming, produce, take
from tests.interop.samples import Sample
from tests.support.broker_process import BrokerProcess

WHERE = "value contains 'ERROR'"


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address, **QUIET})


def make_topic(broker: BrokerProcess, name: str, *, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    admin = admin_of(broker)  # Held: without it the answer is not waited for.
    admin.create_topics([topic])[name].result(SECONDS_MAX)


def make_view(broker: BrokerProcess, topic: str, *, where: str = WHERE) -> str:
    name = f"errors-of-{topic}"
    make_topic(broker, name, view_of=topic, view_where=where)
    return name


def values(*texts: str) -> list[Sample]:
    return [Sample(None, text.encode(), [], 0) for text in texts]


def until_end(consumer: Consumer) -> list[bytes]:
    """Read until the consumer says that it is at the end; any other error is a failure."""
    collected: list[bytes] = []
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            collected.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            return collected
        else:
            raise AssertionError(error)
    raise AssertionError(f"the end did not come after {collected}")


def test_a_view_made_by_an_admin_client_has_the_offsets_of_its_base(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker, topic)
    view = make_view(broker, topic)
    produce(broker.address, topic, values("ok", "ERROR 1", "ok", "ERROR 2", "ok"))

    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(view, 0, 0)])
        taken = take(consumer, 2)
        low, high = consumer.get_watermark_offsets(TopicPartition(view, 0), SECONDS_MAX)

    assert [(m.topic(), m.offset(), m.value()) for m in taken] == [
        (view, 1, b"ERROR 1"),
        (view, 3, b"ERROR 2"),
    ]
    assert (low, high) == (0, 5)


def test_a_long_stretch_without_a_match_is_passed_and_the_end_is_reached(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker, topic)
    view = make_view(broker, topic)
    produce(broker.address, topic, values("ERROR first", *["x" * 1000] * 30_000, "ERROR last"))
    produce(broker.address, topic, values(*["ok"] * 100))

    # Small fetches: if the client took skip markers for answers that were cut off, it would ask for
    # larger and larger ones, and then complain.
    with consuming(
        broker.address, enable_partition_eof=True, fetch_message_max_bytes=20_000
    ) as consumer:
        consumer.assign([TopicPartition(view, 0, 0)])
        records = until_end(consumer)
        (position,) = consumer.position([TopicPartition(view, 0)])

    assert records == [b"ERROR first", b"ERROR last"]
    assert position.offset == 30_102


def test_a_group_reads_a_view_commits_and_goes_on(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    make_topic(broker, topic, partitions=3)
    view = make_view(broker, topic)
    produce(broker.address, topic, values("ERROR 1", "ok", "ERROR 2"))

    with consuming(broker.address, group_id=group) as consumer:
        consumer.subscribe([view])
        first = take(consumer, 2)
        consumer.commit(asynchronous=False)
    produce(broker.address, topic, values("ok", "ERROR 3"))
    with consuming(broker.address, group_id=group) as consumer:
        consumer.subscribe([view])
        second = take(consumer, 1)
        (committed,) = consumer.committed([TopicPartition(view, 0)], SECONDS_MAX)

    assert [m.value() for m in first] == [b"ERROR 1", b"ERROR 2"]
    assert [m.value() for m in second] == [b"ERROR 3"]
    assert committed.offset == 3


def test_the_lag_of_a_group_on_a_view_comes_to_nothing(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    make_topic(broker, topic)
    view = make_view(broker, topic)
    produce(broker.address, topic, values("ERROR", *["ok"] * 50))

    with consuming(
        broker.address,
        group_id=group,
        enable_auto_commit=True,
        auto_commit_interval_ms=100,
        enable_partition_eof=True,
    ) as consumer:
        consumer.subscribe([view])
        until_end(consumer)
        deadline = time.monotonic() + SECONDS_MAX
        offset = -1
        while offset < 51 and time.monotonic() < deadline:
            consumer.poll(0.1)
            (committed,) = consumer.committed([TopicPartition(view, 0)], SECONDS_MAX)
            offset = committed.offset

    assert offset == 51


def test_only_committed_matches_show_to_readers_of_committed_records(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker, topic)
    view = make_view(broker, topic)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic, **QUIET})
    producer.init_transactions(SECONDS_MAX)
    for name, commits in (("lost", False), ("kept", True), ("gone", False)):
        producer.begin_transaction()
        for text in ("ERROR", "ok"):
            producer.produce(topic, f"{text} {name}".encode(), partition=0)
        producer.flush(SECONDS_MAX)
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS_MAX)

    with consuming(
        broker.address, isolation_level="read_committed", enable_partition_eof=True
    ) as consumer:
        consumer.assign([TopicPartition(view, 0, 0)])
        committed = until_end(consumer)
    with consuming(
        broker.address, isolation_level="read_uncommitted", enable_partition_eof=True
    ) as consumer:
        consumer.assign([TopicPartition(view, 0, 0)])
        everything = until_end(consumer)

    assert committed == [b"ERROR kept"]
    assert everything == [b"ERROR lost", b"ERROR kept", b"ERROR gone"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_filtered_too(broker: BrokerProcess, topic: str, codec: str) -> None:
    make_topic(broker, topic)
    view = make_view(broker, topic)
    produce(
        broker.address, topic, values(*["ok"] * 50, "ERROR", *["ok"] * 50), compression_type=codec
    )

    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(view, 0, 0)])
        (record,) = take(consumer, 1)

    assert (record.offset(), record.value()) == (50, b"ERROR")


def test_a_view_takes_no_records_and_its_base_cannot_go_before_it(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker, topic)
    view = make_view(broker, topic)
    problems: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.address, **QUIET})
    producer.produce(view, b"ERROR", on_delivery=lambda error, _: problems.append(error))
    producer.flush(SECONDS_MAX)
    admin = admin_of(broker)

    # This client asks in a version that has no room for the reason.
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.delete_topics([topic])[topic].result(SECONDS_MAX)
    admin.delete_topics([view])[view].result(SECONDS_MAX)
    admin.delete_topics([topic])[topic].result(SECONDS_MAX)

    assert [error and error.code() for error in problems] == [KafkaError.TOPIC_EXCEPTION]


def test_partitions_that_are_added_to_the_base_are_read_through_the_view(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker, topic)
    view = make_view(broker, topic)

    admin = admin_of(broker)
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": broker.address, **QUIET})
    producer.produce(topic, b"ERROR here", partition=1)
    assert producer.flush(SECONDS_MAX) == 0
    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(view, 1, 0)])
        (record,) = take(consumer, 1)

    assert record.value() == b"ERROR here"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"view.of": "nowhere", "view.where": "key"}, "not a topic"),
        ({"view.of": "BASE", "view.where": "colour"}, "at character 1"),
        ({"view.of": "BASE"}, "view.where"),
    ],
)
def test_what_is_no_view_is_refused_with_a_reason(
    broker: BrokerProcess, topic: str, config: dict[str, str], reason: str
) -> None:
    make_topic(broker, topic)
    options = {key: topic if value == "BASE" else value for key, value in config.items()}
    new_topic = NewTopic(f"view-{topic}", config=options)
    admin = admin_of(broker)

    with pytest.raises(KafkaException, match=reason):
        admin.create_topics([new_topic])[new_topic.topic].result(SECONDS_MAX)


# -- time to live --------------------------------------------------------------------------------


def read_again(broker: BrokerProcess, topic: str) -> Sequence[bytes]:
    with consuming(broker.address, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return until_end(consumer)


def wait_for(broker: BrokerProcess, topic: str, expected: Sequence[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (values := read_again(broker, topic)) != expected:
        assert time.monotonic() < deadline, values


def test_a_record_with_a_time_to_live_is_gone_when_it_is_over(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker, topic, message_ttl_headers="on")
    now_ms = int(time.time() * 1000)
    expected = [
        Sample(None, b"short", [("ms-ttl-ms", b"1")], now_ms - 60_000),
        Sample(None, b"long", [("ms-ttl-ms", b"3600000")], now_ms),
        Sample(None, b"soon", [("ms-ttl-ms", b"3000")], now_ms),
        Sample(None, b"ever", [], now_ms - 60_000),
    ]

    produce(broker.address, topic, expected)

    assert b"short" not in read_again(broker, topic)
    wait_for(broker, topic, [b"long", b"ever"])


def test_a_topic_with_a_time_to_live_shows_no_older_records(
    broker: BrokerProcess, topic: str
) -> None:
    make_topic(broker, topic, message_ttl_ms="600000")
    now_ms = int(time.time() * 1000)
    expected = [
        Sample(None, b"old", [], now_ms - 700_000),
        Sample(None, b"new", [], now_ms),
    ]

    produce(broker.address, topic, expected)

    assert read_again(broker, topic) == [b"new"]

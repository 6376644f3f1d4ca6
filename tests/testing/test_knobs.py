"""The knobs of a test broker, as real clients see them."""

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing import RunningBroker, run_broker
from millstream.testing.broker import Mode, Storage
from millstream.testing.lives import ports_of
from millstream.testing.lost_acks import AckLoss
from millstream.testing.process import HeldPorts
from tests.support.kafka_clients import (
    SECONDS_MAX,
    all_messages,
    all_values,
    consumer,
    produce,
    until,
)

MODES: list[Mode] = ["in-process", "subprocess"]
LASTING: list[tuple[Mode, Storage]] = [
    ("in-process", "memory"),
    ("in-process", "disk"),
    ("subprocess", "disk"),
]
HOUR_MS = 60 * 60 * 1000


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


def create(broker: RunningBroker, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, num_partitions=1, config=settings)])[topic].result()


# -- pause, kill, restart ------------------------------------------------------------------------


def test_no_other_program_gets_the_ports_of_a_broker_that_is_down() -> None:
    with run_broker(mode="subprocess", storage="disk", http=True) as broker:
        ports = ports_of(broker._life.config)
        broker.kill()

        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((broker.host, port))
        broker.restart()

        assert ports_of(broker._life.config) == ports
        AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=SECONDS_MAX)


def test_a_held_port_is_free_again_when_nothing_holds_it() -> None:
    ports = HeldPorts()
    port = ports.choose("127.0.0.1")
    ports.hold("127.0.0.1", port)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))

    del ports

    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


@pytest.mark.parametrize("mode", MODES)
def test_a_paused_broker_answers_no_client_until_it_goes_on(mode: Mode) -> None:
    with run_broker(mode=mode) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.list_topics(timeout=SECONDS_MAX)

        broker.pause()
        socket.create_connection((broker.host, broker.port), timeout=SECONDS_MAX).close()
        with pytest.raises(KafkaException, match=r"_TIMED_OUT|_TRANSPORT"):
            admin.list_topics(timeout=1)
        broker.resume()

        admin.list_topics(timeout=SECONDS_MAX)


@pytest.mark.parametrize(("mode", "storage"), LASTING)
def test_what_was_acknowledged_survives_a_kill(mode: Mode, storage: Storage) -> None:
    with run_broker(mode=mode, storage=storage) as broker:
        assert produce(broker.bootstrap, "orders", b"a", b"b", acks="all") == []
        before = broker.bootstrap

        broker.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((broker.host, broker.port), timeout=SECONDS_MAX)
        broker.restart()

        assert broker.bootstrap == before
        assert all_values(broker.bootstrap, "orders") == [b"a", b"b"]


def test_the_memory_of_a_process_goes_with_it() -> None:
    with run_broker(mode="subprocess", storage="memory") as broker:
        produce(broker.bootstrap, "orders", b"a")
        broker.kill()
        broker.restart()

        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert "orders" not in admin.list_topics(timeout=SECONDS_MAX).topics


@pytest.mark.parametrize(("mode", "storage"), LASTING)
def test_a_client_lives_through_a_restart(mode: Mode, storage: Storage) -> None:
    with run_broker(mode=mode, storage=storage) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("orders", b"before")
        assert producer.flush(SECONDS_MAX) == 0

        broker.restart()
        producer.produce("orders", b"after")

        assert producer.flush(SECONDS_MAX) == 0
        assert all_values(broker.bootstrap, "orders") == [b"before", b"after"]


@pytest.mark.parametrize("mode", MODES)
def test_a_paused_broker_can_be_killed_and_restarted(mode: Mode) -> None:
    with run_broker(mode=mode, storage="disk") as broker:
        produce(broker.bootstrap, "orders", b"a")
        broker.pause()
        broker.restart()
        broker.pause()
        broker.kill()
        broker.restart()

        assert all_values(broker.bootstrap, "orders") == [b"a"]


# -- drop_acks -----------------------------------------------------------------------------------


def test_an_idempotent_producer_writes_once_though_an_acknowledgement_is_lost(
    broker: RunningBroker,
) -> None:
    broker.create_topic("orders")
    with broker.drop_acks(count=1) as lost:
        problems = produce(broker.bootstrap, "orders", b"a", enable_idempotence=True)

    assert problems == []
    assert lost.count == 1
    assert all_values(broker.bootstrap, "orders") == [b"a"]


def test_a_plain_producer_writes_twice_when_an_acknowledgement_is_lost(
    broker: RunningBroker,
) -> None:
    broker.create_topic("orders")
    broker.drop_acks(count=1)

    assert produce(broker.bootstrap, "orders", b"a", enable_idempotence=False) == []
    assert all_values(broker.bootstrap, "orders") == [b"a", b"a"]


def test_a_client_that_never_hears_back_gives_up_on_a_record_that_was_written(
    broker: RunningBroker,
) -> None:
    broker.create_topic("orders")
    with broker.drop_acks() as lost:
        problems = produce(broker.bootstrap, "orders", b"a", retries=0, enable_idempotence=False)

    assert len(problems) == 1
    assert lost.count == 1
    assert all_values(broker.bootstrap, "orders") == [b"a"]
    assert produce(broker.bootstrap, "orders", b"b") == []  # The block is over.


def test_a_commit_of_offsets_holds_though_its_acknowledgement_is_lost(
    broker: RunningBroker,
) -> None:
    produce(broker.bootstrap, "orders", b"a", b"b")
    reader = consumer(broker.bootstrap, "readers")
    place = TopicPartition("orders", 0, 2)

    with broker.drop_acks("commit") as lost:
        reader.commit(offsets=[place], asynchronous=True)
        until(lambda: lost.count > 0, "a commit")
    committed = reader.committed([TopicPartition("orders", 0)], timeout=SECONDS_MAX)
    reader.close()

    assert committed[0].offset == 2


def test_a_transaction_is_committed_once_though_its_acknowledgement_is_lost(
    broker: RunningBroker,
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("orders", b"a", partition=0)
    producer.flush(SECONDS_MAX)

    with broker.drop_acks("transaction", count=1) as lost:
        producer.commit_transaction(SECONDS_MAX)

    assert lost.count == 1
    assert all_values(broker.bootstrap, "orders") == [b"a"]


def test_only_known_acknowledgements_can_be_lost(broker: RunningBroker) -> None:
    with pytest.raises(ValueError, match="produce, commit, transaction"):
        broker.drop_acks("fetch")  # type: ignore[arg-type]


# -- advance_clock -------------------------------------------------------------------------------


def test_the_broker_stamps_records_with_the_time_it_was_moved_to(broker: RunningBroker) -> None:
    create(broker, "orders", message_timestamp_type="LogAppendTime")
    produce(broker.bootstrap, "orders", b"before")
    broker.advance_clock(24 * HOUR_MS)
    produce(broker.bootstrap, "orders", b"after")

    first, second = (m.timestamp()[1] for m in all_messages(broker.bootstrap, "orders"))

    assert second - first >= 24 * HOUR_MS


def test_retention_takes_what_is_too_old_by_the_moved_clock(broker: RunningBroker) -> None:
    create(broker, "orders", retention_ms=str(HOUR_MS))
    produce(broker.bootstrap, "orders", b"a")
    broker.advance_clock(2 * HOUR_MS)

    reader, place = consumer(broker.bootstrap), TopicPartition("orders", 0)
    until(
        lambda: reader.get_watermark_offsets(place, timeout=SECONDS_MAX) == (1, 1),
        "the record to be deleted",
    )
    reader.close()


def test_a_member_that_is_silent_for_too_long_leaves_its_group(broker: RunningBroker) -> None:
    produce(broker.bootstrap, "orders", b"a")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def member_count() -> int:
        described = admin.describe_consumer_groups(["readers"])["readers"].result(SECONDS_MAX)
        return len(described.members)

    # A static member says no goodbye: the broker waits for it to come back.
    reader = consumer(broker.bootstrap, "readers", group_instance_id="one")
    reader.subscribe(["orders"])
    until(lambda: reader.poll(0.2) is not None, "a record")
    reader.close()
    assert member_count() == 1

    broker.advance_clock(HOUR_MS)

    until(lambda: member_count() == 0, "the member to be given up")


def test_a_transaction_that_takes_too_long_is_aborted(broker: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("orders", b"a", partition=0)
    producer.flush(SECONDS_MAX)

    broker.advance_clock(HOUR_MS)

    # Behind the aborted record stands its marker, and readers pass both.
    reader, place = consumer(broker.bootstrap), TopicPartition("orders", 0)
    until(
        lambda: reader.get_watermark_offsets(place, timeout=SECONDS_MAX)[1] == 2,
        "the marker of the abort",
    )
    reader.close()
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS_MAX)
    assert all_values(broker.bootstrap, "orders") == []


def test_the_clock_stays_ahead_over_a_restart_and_never_goes_back(broker: RunningBroker) -> None:
    create(broker, "orders", message_timestamp_type="LogAppendTime")
    broker.advance_clock(24 * HOUR_MS)
    produce(broker.bootstrap, "orders", b"before")
    broker.restart()
    produce(broker.bootstrap, "orders", b"after")

    first, second = (m.timestamp()[1] for m in all_messages(broker.bootstrap, "orders"))

    assert second >= first
    with pytest.raises(ValueError, match="forward only"):
        broker.advance_clock(-1)


def test_created_topics_have_the_partitions_they_were_given(broker: RunningBroker) -> None:
    broker.create_topic("orders", partitions=4)

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(admin.list_topics(timeout=SECONDS_MAX).topics["orders"].partitions) == 4


def test_losses_that_are_over_are_not_kept() -> None:
    losses = AckLoss()
    for _ in range(1_000):
        losses.begin("produce", 1).stop()
    losses.begin("produce", None)

    assert len(losses._losses) == 1
    assert losses.takes(0)

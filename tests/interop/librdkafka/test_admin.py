"""librdkafka asks about the cluster, changes it, and comes to it by different ways."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.interop.conftest import PARTITIONS
from tests.interop.forwarder import forwarding
from tests.interop.librdkafka.clients import (
    QUIET,
    SECONDS_MAX,
    as_sample,
    consuming,
    produce,
    take,
)
from tests.interop.samples import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    needs,
    samples,
)
from tests.support.broker_process import BrokerProcess

WAIT: dict[str, Any] = {"request_timeout": SECONDS_MAX}


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Iterator[AdminClient]:
    return AdminClient({"bootstrap.servers": broker.address, **QUIET})  # type: ignore[return-value]


def alter(
    admin: AdminClient,
    kind: ResourceType,
    name: str,
    entry: tuple[str, str],
    operation: AlterConfigOpType = AlterConfigOpType.SET,
) -> None:
    key, value = entry
    entries = [ConfigEntry(key, value, incremental_operation=operation)]
    change = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([change], **WAIT)[change].result(SECONDS_MAX)


def settings(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    described: dict[str, ConfigEntry] = admin.describe_configs([resource], **WAIT)[resource].result(
        SECONDS_MAX
    )
    return described


def error_of(problem: pytest.ExceptionInfo[KafkaException]) -> str:
    return str(problem.value.args[0].name())


# -- the cluster and its topics ----------------------------------------------------------------


def test_all_topics_are_listed(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    """librdkafka writes the null list of Metadata v9+ in four bytes for one (its issue 5049)."""
    produce(broker.address, topic, samples())

    listed = admin.list_topics(timeout=SECONDS_MAX).topics

    assert len(listed[topic].partitions) == PARTITIONS


def test_a_topic_is_described_with_its_leader(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    produce(broker.address, topic, samples())

    listed = admin.list_topics(topic, timeout=SECONDS_MAX)

    partitions = listed.topics[topic].partitions
    assert sorted(partitions) == list(range(PARTITIONS))
    assert {
        (partition.leader, *partition.replicas, *partition.isrs)
        for partition in partitions.values()
    } == {(1, 1, 1)}


def test_the_cluster_is_one_node_at_the_dialled_address(
    broker: BrokerProcess, admin: AdminClient
) -> None:
    cluster = admin.describe_cluster(**WAIT).result(SECONDS_MAX)

    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [
        (1, broker.host, broker.port)
    ]
    assert cluster.controller.id == 1
    assert cluster.cluster_id


def test_a_reader_of_an_unknown_topic_is_told_and_makes_none(
    broker: BrokerProcess, topic: str
) -> None:
    with consuming(broker.address, allow_auto_create_topics=False) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS_MAX)
        seen = consumer.list_topics(topic, timeout=SECONDS_MAX).topics[topic]

    assert message is not None
    assert message.error().name() == "UNKNOWN_TOPIC_OR_PART"  # type: ignore[union-attr]
    assert seen.error.name() == "UNKNOWN_TOPIC_OR_PART"
    assert seen.partitions == {}


def test_the_ends_of_a_partition_are_listed(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    sent = samples()
    produce(broker.address, topic, sent)
    specs = [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()]

    collected = []
    for spec in specs:
        target = TopicPartition(topic, 0)
        collected.append(admin.list_offsets({target: spec}, **WAIT)[target].result(SECONDS_MAX))

    assert [result.offset for result in collected] == [0, len(sent), len(sent) - 1]
    assert collected[2].timestamp == sent[-1].timestamp_ms


@needs(DELETE_RECORDS)
def test_deleted_records_are_gone(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    sent = samples()
    produce(broker.address, topic, sent)

    target = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([target], **WAIT)[target].result(SECONDS_MAX)
    with consuming(broker.address) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        taken = take(consumer, len(sent) - 4)

    assert deleted.low_watermark == 4
    assert [as_sample(message) for message in taken] == sent[4:]


# -- groups ------------------------------------------------------------------------------------


def test_a_group_is_listed_and_described_then_emptied_and_deleted(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    produce(broker.address, topic, samples())
    with consuming(broker.address, group_id=group, client_id="reader") as consumer:
        consumer.subscribe([topic])
        consumer.commit(take(consumer, 2)[-1], asynchronous=False)  # type: ignore[call-overload]
        described = admin.describe_consumer_groups([group], **WAIT)[group].result(SECONDS_MAX)
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([group], **WAIT)[group].result(SECONDS_MAX)

    listed = admin.list_consumer_groups(**WAIT).result(SECONDS_MAX).valid
    expected = [ConsumerGroupTopicPartitions(group)]
    offsets = admin.list_consumer_group_offsets(expected, **WAIT)[group].result(SECONDS_MAX)
    admin.delete_consumer_groups([group], **WAIT)[group].result(SECONDS_MAX)
    left = admin.list_consumer_groups(**WAIT).result(SECONDS_MAX).valid

    assert described.state == ConsumerGroupState.STABLE
    assert [member.client_id for member in described.members] == ["reader"]
    owned = described.members[0].assignment.topic_partitions
    assert sorted(place.partition for place in owned) == list(range(PARTITIONS))
    assert error_of(refused) == "NON_EMPTY_GROUP"
    assert {group.group_id: group.state for group in listed}[group] == ConsumerGroupState.EMPTY
    assert [
        (topic_partition.partition, topic_partition.offset)
        for topic_partition in offsets.topic_partitions
    ] == [(0, 2)]
    assert group not in {item.group_id for item in left}


def test_a_group_that_is_not_there_cannot_be_deleted(admin: AdminClient, group: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group], **WAIT)[group].result(SECONDS_MAX)

    assert error_of(refused) == "GROUP_ID_NOT_FOUND"


def test_offsets_of_a_group_are_altered_from_outside(
    broker: BrokerProcess, admin: AdminClient, topic: str, group: str
) -> None:
    produce(broker.address, topic, samples())
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 5)])

    admin.alter_consumer_group_offsets([request], **WAIT)[group].result(SECONDS_MAX)
    with consuming(broker.address, group_id=group) as consumer:
        committed = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)

    assert committed[0].offset == 5


# -- changes -----------------------------------------------------------------------------------


@needs(CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS)
def test_a_topic_is_created_grown_and_deleted(admin: AdminClient, topic: str) -> None:
    def count() -> int:
        return len(admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions)

    admin.create_topics([NewTopic(topic, 2, 1)], **WAIT)[topic].result(SECONDS_MAX)
    created = count()
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 2, 1)], **WAIT)[topic].result(SECONDS_MAX)
    admin.create_partitions([NewPartitions(topic, 4)], **WAIT)[topic].result(SECONDS_MAX)
    grown = count()
    admin.delete_topics([topic], **WAIT)[topic].result(SECONDS_MAX)
    with pytest.raises(KafkaException) as gone:
        admin.delete_topics([topic], **WAIT)[topic].result(SECONDS_MAX)

    assert (created, grown) == (2, 4)
    assert error_of(refused) == "TOPIC_ALREADY_EXISTS"
    assert error_of(gone) == "UNKNOWN_TOPIC_OR_PART"


@needs(CREATE_TOPICS)
@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("no/slash", {"num_partitions": 1}, "TOPIC_EXCEPTION"),
        ("too-few", {"num_partitions": 0}, "INVALID_PARTITIONS"),
        ("too-many", {"num_partitions": 1, "replication_factor": 3}, "INVALID_REPLICATION_FACTOR"),
        ("bad", {"num_partitions": 1, "config": {"retention.ms": "x"}}, "INVALID_CONFIG"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    admin: AdminClient, name: str, arguments: dict[str, Any], error: str
) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(name, **arguments)], **WAIT)[name].result(SECONDS_MAX)

    assert error_of(refused) == error


@needs(CREATE_TOPICS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
def test_settings_of_a_topic_are_described_and_altered(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([new], **WAIT)[topic].result(SECONDS_MAX)
    before = settings(admin, ResourceType.TOPIC, topic)
    alter(admin, ResourceType.TOPIC, topic, ("retention.ms", "1234"))
    after = settings(admin, ResourceType.TOPIC, topic)

    assert before["cleanup.policy"].value == after["cleanup.policy"].value == "compact"
    assert before["retention.ms"].value == str(7 * 24 * 60 * 60 * 1000)
    assert after["retention.ms"].value == "1234"


# Each of these was once refused, and MirrorMaker 2 then synced no setting of the topic at all.
@needs(CREATE_TOPICS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
@pytest.mark.parametrize(
    "entry",
    [
        ("compression.gzip.level", "3"),
        ("compression.zstd.level", "5"),
        ("follower.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1"),
    ],
)
def test_a_topic_takes_what_kafka_takes_and_gives_back_what_is_not_set(
    admin: AdminClient, topic: str, entry: tuple[str, str]
) -> None:
    def shown() -> str:
        return str(settings(admin, ResourceType.TOPIC, topic)[name].value)

    name, value = entry
    admin.create_topics([NewTopic(topic, 1, 1)], **WAIT)[topic].result(SECONDS_MAX)
    default = shown()
    alter(admin, ResourceType.TOPIC, topic, (name, ""), AlterConfigOpType.DELETE)
    alter(admin, ResourceType.TOPIC, topic, entry)
    changed = shown()
    alter(admin, ResourceType.TOPIC, topic, (name, ""), AlterConfigOpType.DELETE)

    assert changed == value
    assert shown() == default


# -- ways to the broker ------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_name_and_an_address_both_lead_to_the_broker(
    broker: BrokerProcess, topic: str, group: str, host: str
) -> None:
    address = f"{host}:{broker.port}"

    produce(address, topic, samples())
    with consuming(address, group_id=group) as consumer:
        consumer.subscribe([topic])
        taken = take(consumer, len(samples()))

    assert len(taken) == len(samples())


def test_a_client_behind_a_port_forward_stays_behind_it(tmp_path: Path) -> None:
    with forwarding() as forwarder:
        broker = BrokerProcess(
            tmp_path,
            ADVERTISED_HOST="127.0.0.1",
            ADVERTISED_PORT=forwarder.port,
            TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100,
        )
        broker.start()
        forwarder.target_port = broker.port
        address = f"127.0.0.1:{forwarder.port}"
        try:
            produce(address, "orders", samples())
            with consuming(address, group_id="readers") as consumer:
                consumer.subscribe(["orders"])
                taken = take(consumer, len(samples()))
                brokers = consumer.list_topics("orders", timeout=SECONDS_MAX).brokers
        finally:
            broker.kill()

    assert len(taken) == len(samples())
    assert [(broker.host, broker.port) for broker in brokers.values()] == [
        ("127.0.0.1", forwarder.port)
    ]
    assert forwarder.connection_count > 1


def test_an_admin_that_was_idle_is_served_after_a_restart(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    produce(broker.address, topic, samples())
    admin.list_topics(topic, timeout=SECONDS_MAX)

    broker.stop()
    broker.start()

    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            listed = admin.list_topics(topic, timeout=2)
            break
        except KafkaException:
            assert time.monotonic() < deadline
    assert len(listed.topics[topic].partitions) == PARTITIONS


def test_a_node_is_altered_as_it_runs_and_what_is_not_set_is_taken_back(admin: AdminClient) -> None:
    def altered(operation: AlterConfigOpType, value: str) -> None:
        alter(admin, ResourceType.BROKER, "1", ("log.retention.ms", value), operation)

    def shown() -> tuple[str | None, object]:
        entry = settings(admin, ResourceType.BROKER, "1")["log.retention.ms"]
        return entry.value, entry.source

    default = shown()
    altered(AlterConfigOpType.DELETE, "")
    altered(AlterConfigOpType.SET, "123456")
    changed = shown()
    altered(AlterConfigOpType.DELETE, "")

    assert changed == ("123456", 2)
    assert shown() == default


def test_a_limit_of_connections_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    resource = ConfigResource(ResourceType.BROKER, "1")
    try:
        admin = AdminClient({"bootstrap.servers": broker.address, **QUIET})
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in [("max.connections", "4"), ("scrub.bytes.per.second", "12345")]
        ]
        altered = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin.incremental_alter_configs([altered], **WAIT)[altered].result()
        assert 0 < open_connections(broker, 8) <= 4
        del admin
        broker.stop()
        broker.start()

        admin = AdminClient({"bootstrap.servers": broker.address, **QUIET})
        shown = admin.describe_configs([resource], **WAIT)[resource].result()

        for name, value in [("max.connections", "4"), ("scrub.bytes.per.second", "12345")]:
            assert (shown[name].value, shown[name].source) == (value, 2)
            assert not shown[name].is_read_only
        assert 0 < open_connections(broker, 8) <= 4
        wrong = ConfigEntry("num.io.threads", "3", incremental_operation=AlterConfigOpType.SET)
        threads = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[wrong])
        with pytest.raises(KafkaException, match=r"num\.io\.threads cannot be altered here"):
            admin.incremental_alter_configs([threads], **WAIT)[threads].result()
    finally:
        broker.stop()


def open_connections(broker: BrokerProcess, count: int) -> int:
    """How many of `count` new connections the broker keeps open."""
    opened = [socket.create_connection((broker.host, broker.port)) for _ in range(count)]
    kept = 0
    for future in opened:
        future.settimeout(1.0)
        try:
            assert future.recv(1) == b""  # Closed at once: refused.
        except TimeoutError:
            kept += 1
        except ConnectionResetError:
            pass
    for future in opened:
        future.close()
    return kept


def test_a_client_with_a_very_long_id_is_served(broker: BrokerProcess, topic: str) -> None:
    produce(broker.address, topic, samples(), **{"client.id": "x" * 30_000})

    assert (
        topic
        in AdminClient({"bootstrap.servers": broker.address, "client.id": "y" * 30_000, **QUIET})
        .list_topics(timeout=SECONDS_MAX)
        .topics
    )

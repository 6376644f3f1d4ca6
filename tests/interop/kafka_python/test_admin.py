"""kafka-python asks about the cluster, changes it, and comes to it by different ways."""

from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import (
    LogDirNotFoundError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from kafka import TopicPartition, TopicPartitionReplica
from tests.interop.conftest import PARTITIONS
from tests.interop.forwarder import forwarding
from tests.interop.kafka_python.clients import administering, consuming, produce, take
from tests.interop.samples import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    needs,
    samples,
)
from tests.support.broker_process import BrokerProcess


def test_topics_are_listed_and_described(broker: BrokerProcess, topic: str) -> None:
    produce(broker.address, topic, samples())

    with administering(broker.address) as admin:
        listed = admin.list_topics()
        (described,) = admin.describe_topics([topic])

    assert topic in listed
    assert len(described["partitions"]) == PARTITIONS
    assert {item["leader_id"] for item in described["partitions"]} == {1}


def test_the_cluster_is_one_node_at_the_dialled_address(broker: BrokerProcess) -> None:
    with administering(broker.address) as admin:
        cluster = admin.describe_cluster()

    nodes = [(node["broker_id"], node["host"], node["port"]) for node in cluster["brokers"]]
    assert nodes == [(1, broker.host, broker.port)]
    assert cluster["controller_id"] == 1


def test_a_reader_sees_no_partitions_of_an_unknown_topic(broker: BrokerProcess, topic: str) -> None:
    with consuming(broker.address, allow_auto_create_topics=False) as consumer:
        assert not consumer.partitions_for_topic(topic)


def test_a_group_is_listed_and_described_with_its_offsets(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    produce(broker.address, topic, samples())

    with (
        consuming(broker.address, topic, group_id=group, client_id="reader") as consumer,
        administering(broker.address) as admin,
    ):
        take(consumer, len(samples()))
        consumer.commit()
        listed = {group["group_id"]: group["group_state"] for group in admin.list_groups()}
        described = admin.describe_groups([group])[group]
        offsets = admin.list_group_offsets({group: None})[group]

    assert listed[group] == "Stable"
    assert described["group_state"] == "Stable"
    assert [member["client_id"] for member in described["members"]] == ["reader"]
    assert offsets[TopicPartition(topic, 0)].offset == len(samples())


def test_a_group_that_is_not_there_cannot_be_deleted(broker: BrokerProcess, group: str) -> None:
    with administering(broker.address) as admin:
        outcome = admin.delete_groups([group])

    assert outcome == {group: "GroupIdNotFoundError"}


@needs(CREATE_TOPICS, CREATE_PARTITIONS, DELETE_TOPICS)
def test_a_topic_is_created_grown_and_deleted(broker: BrokerProcess, topic: str) -> None:
    with administering(broker.address) as admin:

        def count() -> int:
            return len(admin.describe_topics([topic])[0]["partitions"])

        admin.create_topics([NewTopic(topic, 2, 1)])
        created = count()
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(topic, 2, 1)])
        admin.create_partitions({topic: NewPartitions(4)})
        grown = count()
        admin.delete_topics([topic])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([topic])

    assert (created, grown) == (2, 4)


@needs(CREATE_TOPICS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
def test_settings_of_a_topic_are_described_and_altered(broker: BrokerProcess, topic: str) -> None:
    with administering(broker.address) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])
        change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1234"})
        admin.alter_configs([change])
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])

    settings = {name: entry["value"] for name, entry in described["topic"][topic].items()}
    assert settings == {"cleanup.policy": "compact", "retention.ms": "1234"}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_name_and_an_address_both_lead_to_the_broker(
    broker: BrokerProcess, topic: str, group: str, host: str
) -> None:
    address = f"{host}:{broker.port}"

    produce(address, topic, samples())
    with consuming(address, topic, group_id=group) as consumer:
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
            with (
                consuming(address, "orders", group_id="readers") as consumer,
                administering(address) as admin,
            ):
                taken = take(consumer, len(samples()))
                cluster = admin.describe_cluster()
        finally:
            broker.kill()

    assert len(taken) == len(samples())
    assert [node["port"] for node in cluster["brokers"]] == [forwarder.port]


def test_the_cluster_says_who_leads_it_and_which_features_are_on(broker: BrokerProcess) -> None:
    with administering(broker.address) as admin:
        quorum = admin.describe_metadata_quorum()
        features = admin.describe_features()
        version = admin.get_broker_version_data(1).broker_version

    (topic,) = quorum["topics"]
    (part,) = topic["partitions"]
    assert (part["leader_id"], part["error"]) == (1, None)
    assert [voter["replica_id"] for voter in part["current_voters"]] == [1]
    assert part["current_voters"][0]["log_end_offset"] == part["high_watermark"]
    assert features["metadata.version"]["finalized"] == (25, 25)
    assert "share.version" not in features
    assert version >= (4, 3)


def test_resources_with_configs_are_listed_and_replicas_stay_in_their_directory(
    broker: BrokerProcess, topic: str
) -> None:
    produce(broker.address, topic, samples())
    replica = TopicPartitionReplica(topic=topic, partition=0, broker_id=1)

    with administering(broker.address) as admin:
        listed = admin.list_config_resources([ConfigResourceType.TOPIC, "BROKER"])
        node = ConfigResource(ConfigResourceType.BROKER, "1")
        described = admin.describe_configs([node], config_filter="all")["broker"]["1"]
        there = admin.alter_replica_log_dirs({replica: described["log.dirs"]["value"]})
        elsewhere = admin.alter_replica_log_dirs({replica: "/somewhere/else"})

    assert topic in listed["topic"]
    assert listed["broker"] == ["1"]
    address = f"PLAINTEXT://{broker.host}:{broker.port}"
    assert described["advertised.listeners"]["value"] == address
    assert (there[replica], elsewhere[replica]) == (NoError, LogDirNotFoundError)

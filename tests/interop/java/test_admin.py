"""The Java admin client asks about the cluster and changes it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.java.clients import Admin, Java
from tests.interop.java.driver import JavaError
from tests.interop.samples import samples
from tests.support.broker_process import BrokerProcess


@pytest.fixture
def admin(java: Java, broker: BrokerProcess) -> Iterator[Admin]:
    with java.admin(broker.address) as admin:
        yield admin


def refusal(admin: Admin, verb: str, **parameters: object) -> str:
    """The name of what Java throws inside its ExecutionException."""
    with pytest.raises(JavaError) as refused:
        admin.ask(verb, **parameters)
    assert refused.value.errors[0] == "ExecutionException"
    return refused.value.errors[1]


# -- topics ------------------------------------------------------------------------------------


def test_a_topic_is_created_described_grown_and_deleted(admin: Admin, topic: str) -> None:
    admin.ask("create_topic", topic=topic, partitions=2, replicas=1)
    listed = admin.ask("list_topics")
    created = admin.ask("describe_topic", topic=topic)
    admin.ask("grow_topic", topic=topic, partitions=4)
    grown = admin.ask("describe_topic", topic=topic)
    admin.ask("delete_topic", topic=topic)

    assert topic in listed
    assert created["partitions"] == [[number, 1, [1], [1]] for number in range(2)]
    assert not created["is_internal"]
    assert len(grown["partitions"]) == 4
    assert grown["id"] == created["id"]
    assert topic not in admin.ask("list_topics")
    assert refusal(admin, "describe_topic", topic=topic) == "UnknownTopicOrPartitionException"


def test_a_topic_made_again_has_another_id(admin: Admin, topic: str) -> None:
    ids = []
    for _ in range(2):
        admin.ask("create_topic", topic=topic)
        ids.append(admin.ask("describe_topic", topic=topic)["id"])
        admin.ask("delete_topic", topic=topic)

    assert ids[0] != ids[1]


def test_a_topic_takes_the_brokers_defaults(admin: Admin, topic: str) -> None:
    admin.ask("create_topic", topic=topic)

    assert len(admin.ask("describe_topic", topic=topic)["partitions"]) == PARTITIONS


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "no topic!"}, "InvalidTopicException"),
        ({"partitions": 0}, "InvalidPartitionsException"),
        ({"replicas": 3}, "InvalidReplicationFactorException"),
        ({"config": {"no.such.setting": "1"}}, "InvalidConfigurationException"),
        ({"config": {"retention.ms": "soon"}}, "InvalidConfigurationException"),
    ],
    ids=lambda argument: argument if isinstance(argument, str) else "",
)
def test_a_topic_that_cannot_be_is_refused(
    admin: Admin, topic: str, arguments: dict[str, object], error: str
) -> None:
    assert refusal(admin, "create_topic", **{"topic": topic, **arguments}) == error


def test_a_topic_is_not_created_twice_nor_shrunk_nor_found_once_gone(
    admin: Admin, topic: str
) -> None:
    admin.ask("create_topic", topic=topic, partitions=2)

    assert refusal(admin, "create_topic", topic=topic) == "TopicExistsException"
    assert refusal(admin, "grow_topic", topic=topic, partitions=1) == "InvalidPartitionsException"
    absent = f"{topic}-absent"
    unknown = "UnknownTopicOrPartitionException"
    assert refusal(admin, "delete_topic", topic=absent) == unknown
    assert refusal(admin, "grow_topic", topic=absent, partitions=9) == unknown


# -- settings ----------------------------------------------------------------------------------


def test_settings_are_described_with_their_source_altered_and_reset(
    admin: Admin, topic: str
) -> None:
    admin.ask("create_topic", topic=topic, config={"cleanup.policy": "compact"})
    created = admin.ask("describe_configs", topic=topic)
    admin.ask("alter_configs", topic=topic, config={"retention.ms": 60_000})
    altered = admin.ask("describe_configs", topic=topic)
    admin.ask("alter_configs", topic=topic, delete=["retention.ms", "cleanup.policy"])
    reset = admin.ask("describe_configs", topic=topic)

    assert created["cleanup.policy"] == ["compact", "DYNAMIC_TOPIC_CONFIG"]
    assert created["retention.ms"] == ["604800000", "DEFAULT_CONFIG"]
    assert altered["retention.ms"] == ["60000", "DYNAMIC_TOPIC_CONFIG"]
    assert altered["cleanup.policy"] == created["cleanup.policy"]
    assert reset["retention.ms"] == created["retention.ms"]
    assert reset["cleanup.policy"] == ["delete", "DEFAULT_CONFIG"]


def test_settings_that_cannot_be_are_refused(admin: Admin, topic: str) -> None:
    admin.ask("create_topic", topic=topic)

    for config in ({"no.such.setting": 1}, {"retention.ms": "soon"}):
        error = refusal(admin, "alter_configs", topic=topic, config=config)
        assert error == "InvalidConfigurationException"
    absent = refusal(admin, "describe_configs", topic=f"{topic}-absent")
    assert absent == "UnknownTopicOrPartitionException"


def test_the_settings_of_a_broker_are_described(admin: Admin) -> None:
    assert admin.ask("describe_configs", broker=1)


# -- records -----------------------------------------------------------------------------------


def test_the_ends_of_a_partition_are_listed(
    java: Java, broker: BrokerProcess, admin: Admin, topic: str
) -> None:
    sent = samples()
    java.write(broker.address, topic, sent)
    specs = ["earliest", "latest", "max_timestamp", sent[2].timestamp_ms]

    collected = [
        admin.ask("list_offsets", partition=f"{topic},0", spec=spec)[f"{topic}-0"] for spec in specs
    ]

    assert [offset for offset, _ in collected] == [0, len(sent), len(sent) - 1, 2]
    assert [at for _, at in collected[2:]] == [sent[-1].timestamp_ms, sent[2].timestamp_ms]


def test_deleted_records_are_gone(
    java: Java, broker: BrokerProcess, admin: Admin, topic: str
) -> None:
    sent = samples()
    java.write(broker.address, topic, sent)

    marks = admin.ask("delete_records", partition=f"{topic},0", offset=4)
    left = java.read(broker.address, topic, len(sent) - 4)
    beyond = refusal(admin, "delete_records", partition=f"{topic},0", offset=1_000)

    assert marks == {f"{topic}-0": 4}
    assert [item.sample for item in left] == sent[4:]
    assert beyond == "OffsetOutOfRangeException"


# -- the cluster -------------------------------------------------------------------------------


def test_the_cluster_is_one_node_at_the_dialled_address(
    broker: BrokerProcess, admin: Admin
) -> None:
    cluster = admin.ask("describe_cluster")

    assert cluster["nodes"] == [[1, broker.host, broker.port]]
    assert cluster["controller"] == 1
    assert cluster["id"]


def test_log_directories_tell_the_size_of_each_replica(
    java: Java, broker: BrokerProcess, admin: Admin, topic: str
) -> None:
    java.write(broker.address, topic, samples())

    sizes = admin.ask("describe_log_dirs", broker=1)

    assert sizes[f"{topic}-0"] > sum(len(sample.value or b"") for sample in samples())
    assert sizes[f"{topic}-1"] == 0


def test_the_calls_of_a_larger_cluster_are_answered_by_one_node(admin: Admin, topic: str) -> None:
    admin.ask("create_topic", topic=topic)

    elected = admin.ask("elect_leaders", partition=f"{topic},0")

    assert "ElectionNotNeededException" in str(elected)
    assert admin.ask("list_reassignments") == {}


def test_features_are_described(admin: Admin) -> None:
    assert "transaction.version" in admin.ask("describe_features")


# -- groups ------------------------------------------------------------------------------------


def test_a_group_is_listed_and_described_then_emptied_and_deleted(
    java: Java, broker: BrokerProcess, admin: Admin, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    settings: dict[str, Any] = {"group_id": group, "client_id": "reader"}
    with java.consumer(broker.address, **settings) as consumer:
        consumer.ask("subscribe", topic=topic)
        consumer.take(len(samples()))
        consumer.ask("commit")
        described = admin.ask("describe_group", group=group)
        refused = refusal(admin, "delete_group", group=group)
        subscribed = refusal(admin, "delete_group_offsets", group=group, partition=f"{topic},0")

    emptied = admin.ask("list_groups")[group]
    offsets = admin.ask("group_offsets", group=group)
    admin.ask("delete_group", group=group)

    assert (described["state"], described["type"]) == ("Stable", "Classic")
    assert described["assignor"] == "range"
    member = {"client_id": "reader", "instance": None, "host": broker.host}
    assert described["members"] == [{**member, "partitions": list(range(PARTITIONS))}]
    assert refused == "GroupNotEmptyException"
    assert subscribed == "GroupSubscribedToTopicException"
    assert emptied == ["Empty", "Classic"]
    assert offsets[f"{topic}-0"] == len(samples())
    assert group not in admin.ask("list_groups")


def test_a_group_that_is_not_there_cannot_be_deleted(admin: Admin, group: str) -> None:
    assert refusal(admin, "delete_group", group=group) == "GroupIdNotFoundException"


def test_offsets_of_a_group_are_altered_and_deleted_from_outside(
    java: Java, broker: BrokerProcess, admin: Admin, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    at = f"{topic},0"

    admin.ask("alter_group_offsets", group=group, partition=at, offset=2)
    with java.consumer(broker.address, group_id=group) as consumer:
        consumer.ask("subscribe", topic=topic)
        first = consumer.take(1)[0]
        refused = refusal(admin, "alter_group_offsets", group=group, partition=at, offset=0)
    before = admin.ask("group_offsets", group=group)
    admin.ask("delete_group_offsets", group=group, partition=at)

    assert first.offset == 2
    assert refused == "UnknownMemberIdException"
    assert before == {f"{topic}-0": 2}
    assert admin.ask("group_offsets", group=group) == {}

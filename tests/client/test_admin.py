"""Topics, settings, groups and transactions as an administrator sees them."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from millstream.client import (
    AlreadyExists,
    Busy,
    Client,
    ClientError,
    NotFound,
    Refused,
    TopicPartition,
    Unreachable,
    connect,
)
from tests.client.conftest import MEMBER, PARTITIONS
from tests.support.broker_process import BrokerProcess

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_the_cluster_is_described(client: Client, broker: BrokerProcess) -> None:
    cluster = client.admin.describe_cluster()

    assert [(node.host, node.port) for node in cluster.nodes] == [(broker.host, broker.port)]
    assert cluster.controller_id == cluster.nodes[0].node_id
    assert cluster.cluster_id


def test_a_topic_lives_its_life(client: Client) -> None:
    admin, name = client.admin, f"orders-{uuid4()}"

    admin.create_topic(name, partitions=2, settings={"retention.ms": 5_000})
    listed = {topic.name: topic for topic in admin.list_topics()}[name]
    for n in range(3):
        client.produce(name, str(n), partition=1)
    admin.alter_topic(name, {"cleanup.policy": "compact"}, unset=["retention.ms"])
    admin.grow_topic(name, 4)
    described = admin.describe_topic(name)
    admin.delete_topic(name)

    assert (listed.partition_count, listed.replication_factor, listed.is_internal) == (2, 1, False)
    assert [partition.partition for partition in described.partitions] == [0, 1, 2, 3]
    assert [partition.offset_count for partition in described.partitions] == [0, 3, 0, 0]
    assert described.partitions[0].in_sync_ids == described.partitions[0].replica_ids
    settings = {setting.name: setting for setting in described.settings}
    assert (settings["cleanup.policy"].value, settings["cleanup.policy"].origin) == (
        "compact",
        "topic",
    )
    assert settings["retention.ms"].is_default
    assert name not in {topic.name for topic in admin.list_topics()}


def test_a_dry_run_creates_nothing(client: Client) -> None:
    name = f"orders-{uuid4()}"

    client.admin.create_topic(name, dry_run=True)

    assert name not in {topic.name for topic in client.admin.list_topics()}


def test_offsets_are_found_by_time(client: Client, topic: str) -> None:
    for n in range(4):
        client.produce(topic, "", partition=0, timestamp=NOON.replace(minute=n))
    at = TopicPartition(topic, 0)

    assert client.admin.offsets([at], NOON.replace(minute=2)) == {at: 2}
    assert client.admin.offsets([at], NOON.replace(hour=13)) == {at: 4}
    assert client.admin.offsets(topic, "latest")[at] == 4
    assert client.admin.offsets(topic, "earliest") == {
        TopicPartition(topic, n): 0 for n in range(PARTITIONS)
    }


def test_records_are_deleted_up_to_an_offset(client: Client, topic: str) -> None:
    for _ in range(4):
        client.produce(topic, "", partition=0)
    at = TopicPartition(topic, 0)

    assert client.admin.delete_records({at: 3}) == {at: 3}
    assert client.admin.partitions(topic)[0].offset_count == 1
    assert client.admin.delete_records({}) == {}


def test_a_partition_that_a_group_has_not_begun_counts_as_lag(
    client: Client, topic: str, group: str
) -> None:
    for partition in (0, 1, 1):
        client.produce(topic, "", partition=partition)
    client.admin.reset_group(group, {TopicPartition(topic, 0): 1})

    lags = {lag.partition: lag.records for lag in client.admin.group_lag(group)}

    assert lags == {0: 0, 1: 2, **dict.fromkeys(range(2, PARTITIONS), 0)}


def test_a_group_is_listed_described_reset_and_deleted(
    client: Client, topic: str, group: str
) -> None:
    admin, at = client.admin, TopicPartition(topic, 0)
    for _ in range(5):
        client.produce(topic, "", partition=0)
    with client.consumer(topic, group=group, auto_commit=False, **MEMBER) as consumer:
        consumer.commit(consumer.take(2)[-1])
        described = admin.describe_group(group)
        lags = {lag.partition: lag for lag in admin.group_lag(group)}
        with pytest.raises(Busy):
            admin.delete_group(group)
        with pytest.raises(ClientError):
            admin.reset_group(group, "earliest")

    assert group in {group.group_id for group in admin.list_groups()}
    assert (described.state, described.kind, len(described.members)) == ("stable", "classic", 1)
    assert len(described.members[0].partitions) == PARTITIONS
    assert (lags[0].committed_offset, lags[0].end_offset, lags[0].records) == (2, 5, 3)
    assert lags[0].member_id == described.members[0].member_id
    assert (lags[1].committed_offset, lags[1].records) == (None, 0)
    assert admin.reset_group(group, "latest", dry_run=True) == {at: 5}
    assert admin.committed(group) == {at: 2}
    assert admin.reset_group(group, "earliest") == {at: 0}
    assert admin.reset_group(group, {at: 1}) == {at: 1}
    assert admin.committed(group) == {at: 1}
    assert len(admin.reset_group(group, "latest", topics=[topic])) == PARTITIONS
    admin.delete_group(group)
    with pytest.raises(NotFound):
        admin.describe_group(group)


def test_transactions_are_listed(client: Client, topic: str) -> None:
    name = f"mill-{uuid4()}"
    with client.transaction(name) as transaction:
        transaction.send(topic, b"").result()
        ongoing = {
            transaction.transactional_id: transaction.state
            for transaction in client.admin.list_transactions()
        }
    done = {
        transaction.transactional_id: transaction.state
        for transaction in client.admin.list_transactions()
    }

    assert ongoing[name] == "Ongoing"
    assert done[name] in ("PrepareCommit", "CompleteCommit")


def test_the_settings_of_a_broker_are_shown(client: Client) -> None:
    assert client.admin.broker_settings()


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda c, t: c.admin.create_topic(t), AlreadyExists),
        (lambda c, t: c.admin.create_topic("a b"), Refused),
        (lambda c, t: c.admin.create_topic(f"{t}-2", partitions=0), Refused),
        (lambda c, t: c.admin.create_topic(f"{t}-2", settings={"no.such": 1}), Refused),
        (lambda c, t: c.admin.create_topic(f"{t}-2", replication_factor=9), Refused),
        (lambda c, t: c.admin.describe_topic("missing"), NotFound),
        (lambda c, t: c.admin.alter_topic("missing", {"retention.ms": 1}), NotFound),
        (lambda c, t: c.admin.alter_topic(t, {"retention.ms": "x"}), Refused),
        (lambda c, t: c.admin.alter_topic(t), Refused),
        (lambda c, t: c.admin.grow_topic("missing", 3), NotFound),
        (lambda c, t: c.admin.grow_topic(t, 1), Refused),
        (lambda c, t: c.admin.delete_topic("missing"), NotFound),
        (lambda c, t: c.admin.offsets("missing", "latest"), NotFound),
        (lambda c, t: c.admin.delete_records({TopicPartition("missing", 0): 1}), NotFound),
        (lambda c, t: c.admin.delete_records({TopicPartition(t, 0): 9}), Refused),
        (lambda c, t: c.admin.describe_group("missing"), NotFound),
        (lambda c, t: c.admin.group_lag("missing"), NotFound),
        (lambda c, t: c.admin.delete_group("missing"), NotFound),
    ],
)
def test_what_cannot_be_done_is_told_by_type(
    client: Client, topic: str, call: Callable[[Client, str], object], kind: type[ClientError]
) -> None:
    with pytest.raises(kind, match=r"cannot |there is no topic") as refused:
        call(client, topic)

    assert type(refused.value) is kind


def test_a_topic_that_is_not_there_is_told_in_the_same_words_everywhere(client: Client) -> None:
    name = f"nope-{uuid4()}"
    admin = client.admin
    calls: list[Callable[[], object]] = [
        lambda: admin.describe_topic(name),
        lambda: admin.topic_settings(name),
        lambda: admin.alter_topic(name, {"retention.ms": 1}),
        lambda: admin.grow_topic(name, 3),
        lambda: admin.delete_topic(name),
        lambda: admin.offsets(name, "latest"),
        lambda: client.consumer(name),
    ]

    for call in calls:
        with pytest.raises(NotFound, match=f"there is no topic '{name}'; .*create_topic"):
            call()


def test_settings_may_be_spelt_with_dots_or_underscores_and_be_any_scalar(client: Client) -> None:
    name = f"settings-{uuid4()}"
    settings = {
        "retention_ms": 60_000,
        "retention.bytes": 1e9,
        "max_message_bytes": "2000",
        "unclean_leader_election_enable": False,
    }
    client.admin.create_topic(name, settings=settings)
    client.admin.alter_topic(name, {"segment_ms": 70_000}, unset=["max_message_bytes"])

    values = {setting.name: setting.value for setting in client.admin.topic_settings(name)}

    assert (values["retention.ms"], values["retention.bytes"]) == ("60000", "1000000000")
    assert (values["segment.ms"], values["max.message.bytes"]) == ("70000", "1048588")
    with pytest.raises(Refused, match="is a NoneType"):
        client.admin.alter_topic(name, {"retention.ms": None})
    with pytest.raises(Refused, match="twice"):
        client.admin.alter_topic(name, {"retention.ms": 1, "retention_ms": 2})


def test_the_address_comes_from_the_argument_the_variable_or_the_default(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", broker.address)
    with connect() as client:
        assert client.address == broker.address

    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", "localhost:1")
    with connect(broker.address) as client:
        assert client.address == broker.address
    with pytest.raises(Unreachable, match="localhost:1"):
        connect(timeout_s=5)

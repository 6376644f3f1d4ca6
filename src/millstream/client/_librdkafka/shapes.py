"""From librdkafka's objects to ours: pure conversions, one per kind of answer.

The arguments are `Any`: librdkafka's classes are imported late, and half of their fields carry no
types. A test per field stands in for the checker.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from millstream.client.errors import Refused
from millstream.client.models import (
    BrokerNode,
    Cluster,
    Group,
    GroupDescription,
    Member,
    Message,
    Partition,
    RecordMetadata,
    Setting,
    Topic,
    TopicPartition,
)
from millstream.names import INTERNAL_PREFIX

_STATES = {
    "PREPARING_REBALANCING": "preparing rebalance",
    "COMPLETING_REBALANCING": "completing rebalance",
}


def text(value: object) -> str:
    """A setting in the brokers' form: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def setting_name(name: str) -> str:
    """`retention_ms` in the brokers' form, `retention.ms`; none of their names has a `_`."""
    return name.replace("_", ".")


def topic_settings(settings: Mapping[str, object], doing: str) -> dict[str, str]:
    """Settings with names and values in the brokers' form; a value that is no scalar is refused."""
    values: dict[str, str] = {}
    for name, value in settings.items():
        plain = value.value if isinstance(value, Enum) else value
        if not isinstance(plain, str | int | float):
            raise Refused(
                f"cannot {doing}: {name} = {value!r} is a {type(value).__name__}; settings are "
                "text, numbers, True or False"
            )
        if setting_name(name) in values:
            raise Refused(f"cannot {doing}: {setting_name(name)} is there twice, with . and with _")
        is_whole = isinstance(plain, float) and plain.is_integer()
        values[setting_name(name)] = text(int(plain) if is_whole else plain)
    return values


def place(target: Any) -> TopicPartition:
    return TopicPartition(target.topic, target.partition)


def node_id(node: Any) -> int | None:
    return None if node is None or node.id < 0 else int(node.id)


def cluster(answer: Any) -> Cluster:
    return Cluster(
        cluster_id=answer.cluster_id or "",
        controller_id=node_id(answer.controller),
        nodes=tuple(
            BrokerNode(node_id=node.id, host=node.host, port=node.port)
            for node in sorted(answer.nodes, key=lambda node: node.id)
        ),
    )


def topic(answer: Any) -> Topic:
    partitions = answer.partitions.values()
    return Topic(
        name=answer.topic,
        partition_count=len(partitions),
        replication_factor=max((len(partition.replicas) for partition in partitions), default=0),
        # Metadata does not carry the mark through librdkafka; the name is Kafka's own rule.
        is_internal=answer.topic.startswith(INTERNAL_PREFIX),
    )


def partition(answer: Any, begin_offset: int, end_offset: int) -> Partition:
    return Partition(
        partition=answer.id,
        leader_id=node_id(answer.leader),
        replica_ids=tuple(replica.id for replica in answer.replicas),
        in_sync_ids=tuple(replica.id for replica in answer.isr),
        begin_offset=begin_offset,
        end_offset=end_offset,
    )


def setting(answer: Any) -> Setting:
    from confluent_kafka.admin import ConfigSource

    origins = {
        ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
        ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster",
        ConfigSource.STATIC_BROKER_CONFIG: "broker file",
        ConfigSource.DEFAULT_CONFIG: "default",
        ConfigSource.GROUP_CONFIG: "group",
    }
    source = ConfigSource(answer.source)
    return Setting(
        name=answer.name,
        value=answer.value,
        origin=origins.get(source, "unknown"),
        is_default=source is ConfigSource.DEFAULT_CONFIG,
        is_read_only=bool(answer.is_read_only),
        is_sensitive=bool(answer.is_sensitive),
    )


def group(answer: Any) -> Group:
    return Group(
        group_id=answer.group_id,
        state=_state(answer),
        kind=answer.type.name.lower() if hasattr(answer, "type") else "unknown",
    )


def group_description(answer: Any) -> GroupDescription:
    return GroupDescription(
        group_id=answer.group_id,
        state=_state(answer),
        kind=answer.type.name.lower(),
        assignor=answer.partition_assignor or "",
        coordinator_id=node_id(answer.coordinator),
        members=tuple(_member(member) for member in answer.members),
    )


def metadata(message: Any) -> RecordMetadata:
    return RecordMetadata(
        topic=message.topic(),
        partition=message.partition(),
        offset=-1 if message.offset() is None else message.offset(),
        timestamp_ms=message.timestamp()[1],
    )


def message(raw: Any, key: Any, value: Any) -> Message:
    return Message(
        topic=raw.topic(),
        partition=raw.partition(),
        offset=raw.offset(),
        timestamp_ms=raw.timestamp()[1],
        key=key,
        value=value,
        headers=tuple(raw.headers() or ()),
    )


def _member(answer: Any) -> Member:
    return Member(
        member_id=answer.member_id,
        client_id=answer.client_id,
        host=answer.host,
        instance_id=answer.group_instance_id,
        partitions=tuple(sorted(place(target) for target in answer.assignment.topic_partitions)),
    )


def _state(answer: Any) -> str:
    name = str(answer.state.name)
    return _STATES.get(name, name.lower())

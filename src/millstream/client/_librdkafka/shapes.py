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
    """A setting as brokers spell it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def setting_name(name: str) -> str:
    """`retention_ms` as brokers spell it, `retention.ms`; none of their names has a `_`."""
    return name.replace("_", ".")


def topic_settings(settings: Mapping[str, object], doing: str) -> dict[str, str]:
    """Settings with names and values as brokers spell them; what is no scalar is refused."""
    spelt: dict[str, str] = {}
    for name, value in settings.items():
        plain = value.value if isinstance(value, Enum) else value
        if not isinstance(plain, str | int | float):
            raise Refused(
                f"cannot {doing}: {name} = {value!r} is a {type(value).__name__}; settings are "
                "text, numbers, True or False"
            )
        if setting_name(name) in spelt:
            raise Refused(f"cannot {doing}: {setting_name(name)} is there twice, with . and with _")
        is_whole = isinstance(plain, float) and plain.is_integer()
        spelt[setting_name(name)] = text(int(plain) if is_whole else plain)
    return spelt


def place(one: Any) -> TopicPartition:
    return TopicPartition(one.topic, one.partition)


def node_id(node: Any) -> int | None:
    return None if node is None or node.id < 0 else int(node.id)


def cluster(found: Any) -> Cluster:
    return Cluster(
        cluster_id=found.cluster_id or "",
        controller_id=node_id(found.controller),
        nodes=tuple(
            BrokerNode(node_id=one.id, host=one.host, port=one.port)
            for one in sorted(found.nodes, key=lambda one: one.id)
        ),
    )


def topic(found: Any) -> Topic:
    partitions = found.partitions.values()
    return Topic(
        name=found.topic,
        partition_count=len(partitions),
        replication_factor=max((len(one.replicas) for one in partitions), default=0),
        # Metadata does not carry the mark through librdkafka; the name is Kafka's own rule.
        is_internal=found.topic.startswith(INTERNAL_PREFIX),
    )


def partition(found: Any, begin_offset: int, end_offset: int) -> Partition:
    return Partition(
        partition=found.id,
        leader_id=node_id(found.leader),
        replica_ids=tuple(one.id for one in found.replicas),
        in_sync_ids=tuple(one.id for one in found.isr),
        begin_offset=begin_offset,
        end_offset=end_offset,
    )


def setting(found: Any) -> Setting:
    from confluent_kafka.admin import ConfigSource

    origins = {
        ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
        ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "cluster",
        ConfigSource.STATIC_BROKER_CONFIG: "broker file",
        ConfigSource.DEFAULT_CONFIG: "default",
        ConfigSource.GROUP_CONFIG: "group",
    }
    source = ConfigSource(found.source)
    return Setting(
        name=found.name,
        value=found.value,
        origin=origins.get(source, "unknown"),
        is_default=source is ConfigSource.DEFAULT_CONFIG,
        is_read_only=bool(found.is_read_only),
        is_sensitive=bool(found.is_sensitive),
    )


def group(found: Any) -> Group:
    return Group(
        group_id=found.group_id,
        state=_state(found),
        kind=found.type.name.lower() if hasattr(found, "type") else "unknown",
    )


def group_description(found: Any) -> GroupDescription:
    return GroupDescription(
        group_id=found.group_id,
        state=_state(found),
        kind=found.type.name.lower(),
        assignor=found.partition_assignor or "",
        coordinator_id=node_id(found.coordinator),
        members=tuple(_member(one) for one in found.members),
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


def _member(found: Any) -> Member:
    return Member(
        member_id=found.member_id,
        client_id=found.client_id,
        host=found.host,
        instance_id=found.group_instance_id,
        partitions=tuple(sorted(place(one) for one in found.assignment.topic_partitions)),
    )


def _state(found: Any) -> str:
    name = str(found.state.name)
    return _STATES.get(name, name.lower())

"""Builds the entries that are written to the offsets topic about a group."""

from uuid import UUID

from millstream.engine.groups.consumer.group import ConsumerGroup
from millstream.engine.groups.views import Commit
from millstream.engine.ledgers.ledger import Entry
from millstream.internal_topics.consumer_groups import ConsumerKey, ConsumersKey
from millstream.internal_topics.groups import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    encode_key,
    encode_value,
)
from millstream.model import TopicPartition


def group_entry(group_id: str, value: GroupValue) -> Entry:
    return Entry(encode_key(GroupKey(group_id)), encode_value(value))


def group_tombstone(group_id: str) -> Entry:
    return Entry(encode_key(GroupKey(group_id)), None)


def offset_entry(
    group_id: str, target: TopicPartition, commit: Commit, *, topic_id: UUID, now_ms: int
) -> Entry:
    value = OffsetValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        committed_ms=now_ms,
        topic_id=topic_id,
    )
    return Entry(_offset_key(group_id, target), encode_value(value))


def offset_tombstone(group_id: str, target: TopicPartition) -> Entry:
    return Entry(_offset_key(group_id, target), None)


def consumer_entries(consumers: ConsumerGroup, *, changed_ms: int) -> list[Entry]:
    """Entries of what has changed since the group was last saved."""
    return [
        Entry(encode_key(key), None if value is None else encode_value(value))
        for key, value in consumers.changes(changed_ms)
    ]


def consumer_tombstones(consumers: ConsumerGroup) -> list[Entry]:
    """The end of a consumer group without members: of those, what is left is yet to be removed."""
    assert not consumers.members
    keys: set[ConsumerKey] = {ConsumersKey(consumers.group_id), *consumers.members.unsaved}
    return [Entry(encode_key(key), None) for key in keys]


def _offset_key(group_id: str, target: TopicPartition) -> bytes:
    return encode_key(OffsetKey(group_id, target.topic, target.partition))

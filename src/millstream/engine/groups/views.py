"""Views of groups and their offsets: values, and how a live group is described."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from millstream.engine.groups.classic.generations import Generations
from millstream.engine.groups.classic.vocabulary import GroupState
from millstream.engine.groups.consumer.vocabulary import ConsumersState
from millstream.internal_topics.groups import NO_EPOCH_KNOWN
from millstream.model import Offset, TopicPartition


class Commit(NamedTuple):
    """An offset, and the consumer's metadata."""

    offset: Offset
    metadata: str = ""
    leader_epoch: int = NO_EPOCH_KNOWN


class Committed(NamedTuple):
    offset: Offset
    metadata: str
    leader_epoch: int
    committed_ms: int


NOT_COMMITTED = Committed(-1, "", NO_EPOCH_KNOWN, -1)


class GroupListing(NamedTuple):
    group_id: str
    state: GroupState | ConsumersState
    protocol_type: str


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(Struct, frozen=True, kw_only=True):
    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str | None
    generation: int
    leader: str | None
    members: tuple[MemberDescription, ...]
    offsets: Mapping[TopicPartition, Committed]


def described(
    group_id: str, now: Generations, offsets: Mapping[TopicPartition, Committed]
) -> GroupDescription:
    return GroupDescription(
        group_id=group_id,
        state=now.state,
        protocol_type=now.protocol_type or "",
        protocol=now.protocol,
        generation=now.generation,
        leader=now.leader,
        members=tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(now.protocol or ""),
                member.assignment if now.state is GroupState.STABLE else b"",
            )
            for member in now.roster
        ),
        offsets=offsets,
    )


def lags(
    offsets: Mapping[TopicPartition, Committed], ends: Mapping[TopicPartition, Offset]
) -> Mapping[TopicPartition, int]:
    """How far a group is behind, where both are known; never less than 0."""
    return {
        target: max(0, ends[target] - committed.offset)
        for target, committed in offsets.items()
        if target in ends
    }

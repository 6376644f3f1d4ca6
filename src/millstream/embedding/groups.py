"""Groups of an embedded broker: members, assignments, offsets and lag.

Owns one view of both kinds of group, the classic one and that of KIP-848.
"""

from millstream.embedding import checks
from millstream.embedding.values import (
    CommittedOffset,
    GroupDetails,
    GroupListed,
    GroupMember,
    GroupStatistics,
)
from millstream.engine.groups.consumer.views import ConsumersDescription
from millstream.engine.groups.views import Committed, GroupDescription
from millstream.engine.partitions.slices import Latest
from millstream.errors import UnknownTopic
from millstream.errors.groups import GroupNotFound
from millstream.model import Session, TopicPartition
from millstream.protocols.kafka.consumer_metadata import assigned_partitions
from millstream.server.node import Node


class Groups:
    def __init__(self, session: Session, node: Node) -> None:
        self._session = session
        self._node = node

    def list(self) -> list[GroupListed]:
        """Every group, by id."""
        return [
            GroupListed(
                group_id=group.group_id, state=group.state.value, protocol_type=group.protocol_type
            )
            for group in self._node.groups.list(self._session)
        ]

    async def describe(self, group_id: str) -> GroupDetails:
        """Members with their partitions, and what is committed; raises `GroupNotFound`."""
        checks.text("group_id", group_id)
        group: GroupDescription | ConsumersDescription
        try:
            group = await self._node.groups.describe(self._session, group_id)
            members = _classic_members(group)
        except GroupNotFound:
            group = await self._node.consumer_groups.describe(self._session, group_id)
            members = _consumers(group)
        return GroupDetails(
            group_id=group_id,
            state=group.state.value,
            members=members,
            offsets=await self._offsets(group_id),
        )

    async def statistics(self, group_id: str) -> GroupStatistics:
        """The figures of a group; raises `GroupNotFound`."""
        group = await self.describe(group_id)
        lags = [committed.lag for committed in group.offsets.values()]
        return GroupStatistics(
            group_id=group_id,
            state=group.state,
            member_count=len(group.members),
            partition_count=len(group.offsets),
            lag_total=sum(lags),
            lag_max=max(lags, default=0),
        )

    async def _offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        offsets = await self._node.groups.fetch_offsets(self._session, group_id)
        return {
            target: CommittedOffset(
                offset=committed.offset,
                end_offset=await self._end(target),
                metadata=committed.metadata,
            )
            for target, committed in sorted(offsets.items(), key=lambda item: item[0])
            if isinstance(committed, Committed)
        }

    async def _end(self, target: TopicPartition) -> int | None:
        try:
            offset = await self._node.partitions.find(self._session, target, Latest())
        except UnknownTopic:
            return None
        return None if offset is None else offset.offset


def _classic_members(group: GroupDescription) -> tuple[GroupMember, ...]:
    return tuple(
        GroupMember(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            partitions=assigned_partitions(group.protocol_type, member.assignment),
        )
        for member in group.members
    )


def _consumers(group: ConsumersDescription) -> tuple[GroupMember, ...]:
    return tuple(
        GroupMember(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            partitions=tuple(
                TopicPartition(share.topic, index)
                for share in member.assigned
                for index in share.partitions
            ),
        )
        for member in group.members
    )

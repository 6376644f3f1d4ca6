"""Groups as users ask for them: join, sync, leave, commit and fetch offsets, describe, delete.

Owns the checks at the door and what is written about offsets; members are `membership`'s, and
where a group lives is `coordinators`'. A commit is answered once it is as durable as a record with
acks=all. Nothing is awaited before a commit is written, so commits keep the order of their calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from uuid import UUID

from millstream.config import Limits
from millstream.control.catalog import Catalog, Topic
from millstream.control.groups import Protocol, check_text
from millstream.engine.coordinator import Coordinator, Group
from millstream.engine.coordinators import Coordinators
from millstream.engine.gate import Gate, Operation, group_resource, topic_resource
from millstream.engine.group_entries import group_tombstone, offset_entry, offset_tombstone
from millstream.engine.group_views import (
    NOT_COMMITTED,
    Commit,
    Committed,
    GroupDescription,
    GroupListing,
    described,
)
from millstream.engine.ledger import Entry
from millstream.engine.rebalance import GroupState, Join, Joined, Leaver, Sync, Synced
from millstream.engine.waiting import loop_ms
from millstream.errors import (
    Denied,
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribed,
    InconsistentProtocol,
    InvalidGroupId,
    NotCoordinator,
    NotLeader,
    OffsetMetadataTooLarge,
    OffsetOutOfRange,
    Overloaded,
    RequestError,
    UnknownMember,
    UnknownTopic,
)
from millstream.model import NodeId, Session, TopicPartition
from millstream.ports import Clock

NO_GENERATION = -1
OFFSET_MAX = 2**63 - 1


class Groups:
    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        coordinators: Coordinators,
        *,
        limits: Limits,
        clock: Clock,
        entropy: Random,
    ) -> None:
        self._gate = gate
        self._catalog = catalog
        self._coordinators = coordinators
        self._limits = limits
        self._clock = clock
        self._entropy = entropy

    # -- members ---------------------------------------------------------------------------------

    async def join(
        self,
        session: Session,
        group_id: str,
        *,
        protocol_type: str,
        protocols: Sequence[Protocol],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        member_id: str = "",
        instance_id: str | None = None,
        needs_known_id: bool = True,
        can_skip_assignment: bool = True,
    ) -> Joined:
        """Enter the next generation; the answer may take as long as a rebalance."""
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))
        _check_group_id(group_id)
        check_text(group_id, instance_id, session.client_id, session.address, protocol_type)
        self._check_protocols(protocols)
        coordinator = await self._coordinators.find(group_id)
        if member_id and group_id not in coordinator.groups:
            raise UnknownMember(member_id)
        group = self._coordinators.open(coordinator, group_id)
        request = Join(
            member_id=member_id,
            new_member_id=f"{instance_id or session.client_id}-{self._uuid()}",
            instance_id=instance_id,
            client_id=session.client_id,
            client_host=session.address,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=max(0, rebalance_timeout_ms),
            protocol_type=protocol_type,
            protocols=tuple(protocols),
            needs_known_id=needs_known_id,
            can_skip_assignment=can_skip_assignment,
        )
        ticket = self._coordinators.waiters.park()
        coordinator.carry_out(group, group.membership.join(ticket, request, loop_ms()))
        coordinator.drop_if_bare(group)
        answer = await self._coordinators.waiters.answer_to(ticket)
        assert isinstance(answer, Joined)
        return answer

    async def sync(
        self,
        session: Session,
        group_id: str,
        *,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Synced:
        """Get this member's assignment; the leader brings those of all."""
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))
        group = await self._live(group_id, member_id)
        request = Sync(
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            assignments=assignments,
            protocol_type=protocol_type,
            protocol=protocol,
        )
        ticket = self._coordinators.waiters.park()
        effects = group.membership.sync(ticket, request, loop_ms())
        group.coordinator.carry_out(group, effects)
        answer = await self._coordinators.waiters.answer_to(ticket)
        assert isinstance(answer, Synced)
        return answer

    async def heartbeat(
        self,
        session: Session,
        group_id: str,
        *,
        member_id: str,
        generation: int,
        instance_id: str | None = None,
    ) -> None:
        """Stay a member; raises what the member has to do instead."""
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))
        group = await self._live(group_id, member_id)
        group.membership.heartbeat(member_id, instance_id, generation, loop_ms())

    async def leave(
        self, session: Session, group_id: str, leavers: Sequence[Leaver]
    ) -> Sequence[RequestError | None]:
        """Take members out of the group; an outcome for each of them."""
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))
        _check_group_id(group_id)
        coordinator = await self._coordinators.find(group_id)
        group = coordinator.groups.get(group_id)
        if group is None:
            return [UnknownMember(leaver.member_id) for leaver in leavers]
        outcomes, effects = group.membership.leave(leavers, loop_ms())
        coordinator.carry_out(group, effects)
        return outcomes

    # -- offsets ---------------------------------------------------------------------------------

    async def commit_offsets(
        self,
        session: Session,
        group_id: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = NO_GENERATION,
    ) -> Mapping[TopicPartition, RequestError | None]:
        """Remember offsets for good; an outcome for each partition.

        Without a generation it is for groups without members. All that is not refused goes into
        one batch: it is remembered as a whole, or not at all.
        """
        self._gate.admit(session, Operation.COMMIT, group_resource(group_id))
        if len(commits) > self._limits.commit_offsets_max:
            raise Overloaded(f"more than {self._limits.commit_offsets_max} offsets in a commit")
        check_text(group_id, *(commit.metadata for commit in commits.values()))
        refusals = {target: self._refusal(session, target, commits[target]) for target in commits}
        coordinator = await self._coordinators.find(group_id)
        group = coordinator.groups.get(group_id)
        if group is not None:
            group.membership.check_commit(member_id, instance_id, generation, loop_ms())
        elif generation >= 0:
            raise GroupNotFound(group_id)
        now_ms = self._clock.now_ms()
        entries = [
            offset_entry(
                group_id,
                target,
                commit,
                topic_id=self._catalog.find(target.topic).topic_id,
                now_ms=now_ms,
            )
            for target, commit in commits.items()
            if refusals[target] is None
        ]
        if entries:
            group = self._coordinators.open(coordinator, group_id)
            await self._propose(coordinator, group, entries)
        return refusals

    async def fetch_offsets(
        self, session: Session, group_id: str, targets: Iterable[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Committed | RequestError]:
        """The committed offsets of these partitions, `NOT_COMMITTED` included; None: of all."""
        self._gate.admit(session, Operation.DESCRIBE, group_resource(group_id))
        coordinator = await self._coordinators.find(group_id)
        offsets = self._offsets(coordinator, group_id)
        if targets is None:
            return {
                target: committed
                for target, committed in offsets.items()
                if self._gate.sees(session, topic_resource(target.topic))
            }
        return {
            target: self._denied(session, Operation.DESCRIBE, target.topic)
            or offsets.get(target, NOT_COMMITTED)
            for target in targets
        }

    async def delete_offsets(
        self, session: Session, group_id: str, targets: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, RequestError | None]:
        """Forget offsets of topics that the group does not read now."""
        self._gate.admit(session, Operation.DELETE, group_resource(group_id))
        group = await self._known(group_id)
        subscribed: frozenset[str] | None = frozenset()
        if group.state is not GroupState.EMPTY:
            subscribed = self._coordinators.subscribed(group)
        if subscribed is None:
            raise GroupNotEmpty(group_id)
        outcomes: dict[TopicPartition, RequestError | None] = {}
        for target in targets:
            outcomes[target] = self._denied(session, Operation.READ, target.topic)
            if outcomes[target] is None and target.topic in subscribed:
                outcomes[target] = GroupSubscribed(group_id, target.topic)
        entries = [
            offset_tombstone(group_id, target) for target in outcomes if not outcomes[target]
        ]
        if entries:
            await self._propose(group.coordinator, group, entries)
        return outcomes

    # -- groups ----------------------------------------------------------------------------------

    async def coordinator_of(self, session: Session, group_id: str) -> NodeId:
        """The node to ask everything else about the group."""
        self._gate.admit(session, Operation.DESCRIBE, group_resource(group_id))
        return await self._coordinators.node_of(group_id)

    async def describe(self, session: Session, group_id: str) -> GroupDescription:
        self._gate.admit(session, Operation.DESCRIBE, group_resource(group_id))
        group = await self._known(group_id)
        return described(
            group_id, group.membership.group, self._offsets(group.coordinator, group_id)
        )

    async def delete(self, session: Session, group_id: str) -> None:
        """Forget a group without members, and all its offsets."""
        self._gate.admit(session, Operation.DELETE, group_resource(group_id))
        group = await self._known(group_id)
        coordinator = group.coordinator
        # What is under way must be known, or it would outlive the group.
        await self._settle(coordinator, group)
        if group.state is GroupState.DEAD:
            raise GroupNotFound(group_id)
        if group.state is not GroupState.EMPTY:
            raise GroupNotEmpty(group_id)
        stored = coordinator.find_stored(group_id)
        entries = [offset_tombstone(group_id, target) for target in stored.offsets]
        if stored.value is not None:
            entries.append(group_tombstone(group_id))
        if entries:
            coordinator.write(group, entries)
        coordinator.drop(group)
        await self._settle(coordinator, group)

    def list(self, session: Session) -> Sequence[GroupListing]:
        """Every group coordinated here that the session may know of, by id."""
        self._gate.admit(session, Operation.DESCRIBE, "groups")
        listings = [
            GroupListing(group_id, group.state, group.membership.group.protocol_type or "")
            for coordinator in self._coordinators.all_here()
            for group_id, group in coordinator.groups.items()
            if self._gate.sees(session, group_resource(group_id))
        ]
        return sorted(listings, key=lambda listing: listing.group_id)

    # -- parts -----------------------------------------------------------------------------------

    async def _live(self, group_id: str, member_id: str) -> Group:
        _check_group_id(group_id)
        coordinator = await self._coordinators.find(group_id)
        group = coordinator.groups.get(group_id)
        if group is None:
            raise UnknownMember(member_id)
        return group

    async def _known(self, group_id: str) -> Group:
        coordinator = await self._coordinators.find(group_id)
        group = coordinator.groups.get(group_id)
        if group is None:
            raise GroupNotFound(group_id)
        return group

    async def _propose(
        self, coordinator: Coordinator, group: Group, entries: Sequence[Entry]
    ) -> None:
        try:
            await coordinator.propose(group, entries)
        except NotLeader as problem:
            raise NotCoordinator(group.group_id, problem.leader) from problem
        finally:
            coordinator.drop_if_bare(group)

    async def _settle(self, coordinator: Coordinator, group: Group) -> None:
        try:
            await coordinator.settle(group)
        except NotLeader as problem:
            raise NotCoordinator(group.group_id, problem.leader) from problem

    def _refusal(
        self, session: Session, target: TopicPartition, commit: Commit
    ) -> RequestError | None:
        denied = self._denied(session, Operation.READ, target.topic)
        if denied is not None:
            return denied
        try:
            self._catalog.find(target.topic).log(target.partition)
        except UnknownTopic as problem:
            return problem
        length_max = self._limits.offset_metadata_length_max
        if len(commit.metadata) > length_max:
            return OffsetMetadataTooLarge(len(commit.metadata), length_max)
        if not 0 <= commit.offset <= OFFSET_MAX:
            return OffsetOutOfRange(target, commit.offset, 0, OFFSET_MAX)
        return None

    def _denied(self, session: Session, operation: Operation, topic: str) -> Denied | None:
        try:
            self._gate.admit(session, operation, topic_resource(topic))
        except Denied as denied:
            return denied
        return None

    def _offsets(
        self, coordinator: Coordinator, group_id: str
    ) -> Mapping[TopicPartition, Committed]:
        """What is committed, short of offsets in a topic that was deleted and created again."""
        stored = coordinator.find_stored(group_id).offsets
        return {
            target: Committed(value.offset, value.metadata, value.leader_epoch, value.committed_ms)
            for target, value in stored.items()
            if (topic := self._topic(target.topic)) is None or topic.topic_id == value.topic_id
        }

    def _topic(self, name: str) -> Topic | None:
        try:
            return self._catalog.find(name)
        except UnknownTopic:
            return None

    def _check_protocols(self, protocols: Sequence[Protocol]) -> None:
        check_text(*(protocol.name for protocol in protocols))
        size = sum(len(protocol.metadata) for protocol in protocols)
        if size > self._limits.member_metadata_bytes_max:
            raise InconsistentProtocol(
                f"{size} bytes of metadata, at most {self._limits.member_metadata_bytes_max}"
            )

    def _uuid(self) -> UUID:
        return UUID(int=self._entropy.getrandbits(128), version=4)


def _check_group_id(group_id: str) -> None:
    """Offsets may be committed under the empty id, as ever; members need a name."""
    if not group_id:
        raise InvalidGroupId(group_id)

"""Groups as protocols ask for them: join, sync, leave, commit and fetch offsets, describe, delete.

Owns the access checks; `classic.membership` owns the members, `offsets` the rules of offsets, and
`coordinators` finds the node of a group. A commit is answered once it is as durable as a record
with acks=all. Nothing is awaited before a commit is written, so commits keep the order of their
calls.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from random import Random
from uuid import UUID

from millstream.config import Limits
from millstream.control.catalog import Catalog
from millstream.engine.gate import (
    CLUSTER,
    Gate,
    Operation,
    group_resource,
    transaction_resource,
)
from millstream.engine.groups.classic.roster import Ticket
from millstream.engine.groups.classic.vocabulary import Join, Joined, Leaver, Sync, Synced
from millstream.engine.groups.coordinator import Coordinator, Group
from millstream.engine.groups.coordinators import Coordinators
from millstream.engine.groups.entries import consumer_tombstones, group_tombstone, offset_tombstone
from millstream.engine.groups.offsets import OffsetRules, Outcomes
from millstream.engine.groups.views import (
    Commit,
    Committed,
    GroupDescription,
    GroupListing,
    described,
)
from millstream.engine.ledgers.ledger import Entry
from millstream.engine.runtime.alarms import loop_ms
from millstream.errors import NotCoordinator, NotLeader, RequestError
from millstream.errors.groups import (
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribed,
    InconsistentProtocol,
    InvalidGroupId,
    UnknownMember,
)
from millstream.internal_topics.groups import Protocol, check_text
from millstream.model import NO_PRODUCER, NodeId, Producer, Session, TopicPartition
from millstream.ports import Clock

NO_GENERATION = -1
OFFSETS_NOTED_MAX = 100  # In one event of the audit trail.

# Raises unless the producer's transaction is open and the group's offsets are part of it. Asked for
# a session, a transactional id, a producer id and its epoch, and a group id; it awaits nothing.
TransactionCheck = Callable[[Session, str, Producer, str], Awaitable[Callable[[], None]]]


class Groups:
    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        coordinators: Coordinators,
        *,
        check_transaction: TransactionCheck,
        limits: Limits,
        clock: Clock,
        entropy: Random,
    ) -> None:
        self._gate = gate
        self._coordinators = coordinators
        self._check_transaction = check_transaction
        self._limits = limits
        self._entropy = entropy
        self._rules = OffsetRules(gate, catalog, limits=limits, clock=clock)

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
        """Join the next generation; the answer may take as long as a rebalance.

        Cancel it when the client has disconnected.
        """
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))
        _check_group_id(group_id)
        check_text(group_id, instance_id, session.client_id, session.address, protocol_type)
        self._check_protocols(protocols)
        coordinator = await self._coordinators.find(group_id)
        is_new = group_id not in coordinator.groups
        if member_id and is_new:
            raise UnknownMember(member_id)
        group = self._coordinators.open(coordinator, group_id)
        coordinator.make_classic(group)
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
        coordinator.apply_effects(group, group.membership.join(ticket, request, loop_ms()))
        coordinator.drop_if_bare(group)
        if is_new and group_id in coordinator.groups:
            self._gate.note("group.create", session, group_resource(group_id))
        answer = await self._answer_to(group, ticket)
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
        """Get this member's assignment; the leader sends those of all members."""
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
        group.coordinator.apply_effects(group, effects)
        answer = await self._answer_to(group, ticket)
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
        """Renew the member's session; raises if it has to join again."""
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))
        group = await self._live(group_id, member_id)
        group.membership.heartbeat(member_id, instance_id, generation, loop_ms())

    async def leave(
        self, session: Session, group_id: str, leavers: Sequence[Leaver]
    ) -> Sequence[RequestError | None]:
        """Remove members from the group; an outcome for each."""
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))
        _check_group_id(group_id)
        coordinator = await self._coordinators.find(group_id)
        group = coordinator.groups.get(group_id)
        if group is None:
            return [UnknownMember(leaver.member_id) for leaver in leavers]
        outcomes, effects = group.membership.leave(leavers, loop_ms())
        coordinator.apply_effects(group, effects)
        return outcomes

    def admit_member(self, session: Session, group_id: str) -> None:
        """Raise unless the session may be a member; for protocols that keep their own members."""
        self._gate.admit(session, Operation.JOIN, group_resource(group_id))

    def sees(self, session: Session, group_id: str) -> bool:
        """Whether a listing may show the group."""
        return self._gate.sees(session, group_resource(group_id))

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
    ) -> Outcomes:
        """Commit offsets; an outcome for each partition.

        Without a generation it is for groups without members. All that is not refused goes into
        one batch: it is committed as a whole, or not at all.
        """
        self._gate.admit(session, Operation.COMMIT, group_resource(group_id))
        outcomes = self._rules.check(session, group_id, commits)
        coordinator = await self._coordinators.find(group_id)
        group = coordinator.groups.get(group_id)
        if group is not None and group.consumers is not None:
            outcomes = self._rules.check_epochs(
                group.consumers, outcomes, member_id=member_id, epoch=generation
            )
        elif group is not None:
            group.membership.check_commit(member_id, instance_id, generation, loop_ms())
        elif generation >= 0:
            raise GroupNotFound(group_id)
        entries = self._rules.entries(group_id, commits, outcomes)
        if entries:
            group = self._coordinators.open(coordinator, group_id)
            await self._propose(coordinator, group, entries)
            self._note_commit(session, group_id, commits, is_reset=generation < 0 and not member_id)
        return outcomes

    async def commit_in_transaction(
        self,
        session: Session,
        group_id: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        transactional_id: str,
        producer: Producer,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = NO_GENERATION,
    ) -> Outcomes:
        """Remember offsets if and when the producer's transaction is committed; an outcome for
        each partition. The member is checked only if there is word of one.
        """
        self._gate.admit(session, Operation.TRANSACT, transaction_resource(transactional_id))
        self._gate.admit(session, Operation.COMMIT, group_resource(group_id))
        _check_group_id(group_id)
        outcomes = self._rules.check(session, group_id, commits)
        coordinator = await self._coordinators.find(group_id)

        def check_member() -> Outcomes:
            return self._member_outcomes(
                coordinator, group_id, outcomes, member_id, instance_id, generation
            )

        check_member()
        check = await self._check_transaction(session, transactional_id, producer, group_id)
        # Nothing is awaited from here to the write: the transaction cannot end in between.
        outcomes = check_member()
        check()
        entries = self._rules.entries(group_id, commits, outcomes)
        if entries:
            group = self._coordinators.open(coordinator, group_id)
            await self._propose(coordinator, group, entries, producer=producer)
        return outcomes

    def _member_outcomes(
        self,
        coordinator: Coordinator,
        group_id: str,
        outcomes: Outcomes,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> Outcomes:
        """The outcomes after the check of a member of a transaction, if there is word of one."""
        group = coordinator.groups.get(group_id)
        if group is not None and group.consumers is not None:
            if member_id or generation >= 0:
                return self._rules.check_epochs(
                    group.consumers, outcomes, member_id=member_id, epoch=generation
                )
        elif group is not None:
            group.membership.check_commit_in_transaction(member_id, instance_id, generation)
        elif generation >= 0:
            raise GroupNotFound(group_id)
        return outcomes

    async def fetch_offsets(
        self,
        session: Session,
        group_id: str,
        targets: Iterable[TopicPartition] | None = None,
        *,
        must_be_stable: bool = False,
        member_id: str | None = None,
        epoch: int = NO_GENERATION,
    ) -> Mapping[TopicPartition, Committed | RequestError]:
        """The committed offsets of these partitions, `NOT_COMMITTED` included; None: of all.

        For a partition with an open transaction this is the offset before it, or, with
        `must_be_stable`, an error for now. A `member_id` must be a member of the consumer group.
        """
        self._gate.admit(session, Operation.DESCRIBE, group_resource(group_id))
        coordinator = await self._coordinators.find_confirmed(group_id)
        group = coordinator.groups.get(group_id)
        if group is not None and group.consumers is not None and (member_id or epoch >= 0):
            group.consumers.check_member(member_id or "", epoch)
        stored = coordinator.find_stored(group_id)
        return self._rules.visible(session, stored, targets, must_be_stable=must_be_stable)

    async def delete_offsets(
        self, session: Session, group_id: str, targets: Iterable[TopicPartition]
    ) -> Outcomes:
        """Forget offsets of topics that the group does not read now, and what is pending there."""
        self._gate.admit(session, Operation.DELETE, group_resource(group_id))
        group = await self._known(group_id)
        subscribed: frozenset[str] | None = frozenset()
        if not group.is_empty:
            subscribed = self._coordinators.subscribed(group)
        if subscribed is None:
            raise GroupNotEmpty(group_id)
        outcomes: dict[TopicPartition, RequestError | None] = {}
        for target in targets:
            outcomes[target] = self._rules.denied(session, Operation.READ, target.topic)
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
        """The coordinator node of the group."""
        self._gate.admit(session, Operation.DESCRIBE, group_resource(group_id))
        return await self._coordinators.node_of(group_id)

    async def describe(self, session: Session, group_id: str) -> GroupDescription:
        self._gate.admit(session, Operation.DESCRIBE, group_resource(group_id))
        await self._coordinators.find_confirmed(group_id)
        group = await self._known(group_id)
        if group.consumers is not None:
            raise GroupNotFound(group_id)  # Not of this kind.
        offsets = self._rules.committed(group.coordinator.find_stored(group_id))
        return described(group_id, group.membership.group, offsets)

    async def delete(self, session: Session, group_id: str) -> None:
        """Forget a group without members, and all its offsets, those of open transactions too."""
        self._gate.admit(session, Operation.DELETE, group_resource(group_id))
        group = await self._known(group_id)
        coordinator = group.coordinator
        # What is under way must be known, or it would outlive the group.
        await self._wait_committed(coordinator, group)
        if group.is_dead:
            raise GroupNotFound(group_id)
        if not group.is_empty:
            raise GroupNotEmpty(group_id)
        stored = coordinator.find_stored(group_id)
        targets = {**stored.offsets, **stored.pending}
        entries = [offset_tombstone(group_id, target) for target in targets]
        if stored.value is not None:
            entries.append(group_tombstone(group_id))
        if group.consumers is not None:
            entries += consumer_tombstones(group.consumers)
        if entries:
            coordinator.write(group, entries)
        coordinator.drop(group)
        await self._wait_committed(coordinator, group)
        self._gate.note("group.delete", session, group_resource(group_id))

    def operations(self, session: Session, group_id: str) -> int:
        """What the session may do with a group, as bits (KIP-430)."""
        return self._gate.operations_of(session, group_resource(group_id))

    def list(self, session: Session) -> Sequence[GroupListing]:
        """Every group coordinated here that the session may see, by id."""
        self._gate.admit(session, Operation.DESCRIBE, "groups")
        sees_all = self._gate.sees(session, CLUSTER)
        listings = [
            GroupListing(group_id, group.state, group.protocol_type)
            for coordinator in self._coordinators.all_here()
            for group_id, group in coordinator.groups.items()
            if sees_all or self._gate.sees(session, group_resource(group_id))
        ]
        return sorted(listings, key=lambda listing: listing.group_id)

    # -- parts -----------------------------------------------------------------------------------

    def _note_commit(
        self,
        session: Session,
        group_id: str,
        commits: Mapping[TopicPartition, Commit],
        *,
        is_reset: bool,
    ) -> None:
        """For the audit trail: a commit by no member moves the group."""
        if not is_reset:
            self._gate.note("offset.commit", session, group_resource(group_id))
            return
        noted = islice(commits.items(), OFFSETS_NOTED_MAX)
        offsets = {str(target): commit.offset for target, commit in noted}
        self._gate.note("offset.reset", session, group_resource(group_id), {"offsets": offsets})

    async def _answer_to(self, group: Group, ticket: Ticket) -> Joined | Synced:
        """Wait for the answer to a ticket; when cancelled, drop the ticket in the group."""
        try:
            return await self._coordinators.waiters.answer_to(ticket)
        except asyncio.CancelledError:
            group.coordinator.abandon(group, ticket)
            raise

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
        self,
        coordinator: Coordinator,
        group: Group,
        entries: Sequence[Entry],
        *,
        producer: Producer = NO_PRODUCER,
    ) -> None:
        try:
            await coordinator.propose(group, entries, producer=producer)
        except NotLeader as problem:
            raise NotCoordinator(group.group_id, problem.leader) from problem
        finally:
            coordinator.drop_if_bare(group)

    async def _wait_committed(self, coordinator: Coordinator, group: Group) -> None:
        try:
            await coordinator.wait_committed(group)
        except NotLeader as problem:
            raise NotCoordinator(group.group_id, problem.leader) from problem

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
    """Members need a group id; offsets may be committed under the empty one, as in Kafka."""
    if not group_id:
        raise InvalidGroupId(group_id)

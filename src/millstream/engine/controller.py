"""The control log from this node's side: propose a command, await its outcome, apply all in order.

Owns the only way to propose, which checks each command first, and the fold of committed commands
into `State`. What follows from a command on this node (opening and dropping replicas) is
`hosting`'s.

Invariant: a committed command that cannot be applied stops the node, except where an operator had
it skipped: a node that leaves out a command silently would serve another state than the others.
"""

import asyncio
import logging
from collections.abc import Callable, Set
from typing import NamedTuple

import msgspec

from millstream.codec.batch import read_header
from millstream.codec.records import Record, decode_each
from millstream.control.access import AccessChange
from millstream.control.catalog import Topic
from millstream.control.commands import (
    UNDECODABLE,
    AccessCommand,
    AlterQuotas,
    AlterResource,
    AnyCommand,
    FinalizeLevel,
    NodeCommand,
    RaiseSchemaIds,
    RequireEncryption,
    ReserveProducerIds,
    TopicCommand,
    actor_of,
    decode,
    encode_for_proposal,
)
from millstream.control.levels import unknown_level
from millstream.control.nodes import Invitation, Node
from millstream.control.resources import Resource
from millstream.control.state import Outcome, State
from millstream.engine.cluster.proposals import Proposals
from millstream.engine.ledgers.ledger import (
    READ_BYTES_MAX,
    UNPACKED_BYTES_MAX,
    Entry,
    Ledger,
)
from millstream.errors import (
    InvalidRequest,
    NotLeader,
    RequestError,
    StartupError,
    StorageError,
    StorageUnavailable,
)
from millstream.model import (
    CLUSTER_LEVELS,
    Epoch,
    LevelRange,
    NodeId,
    Offset,
    ReplicaId,
    Session,
    node_of,
)
from millstream.ports import Clock
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

Applied = Callable[[AnyCommand, Topic | Resource | Node], None]


class Quorum(NamedTuple):
    """The consensus about the control log as this node knows it."""

    leader: NodeId | None
    epoch: Epoch
    high_watermark: Offset
    end_offset: Offset
    as_of_ms: int
    voters: tuple[NodeId, ...]


class Controller:
    def __init__(
        self,
        replica: Replica,
        state: State,
        clock: Clock,
        applied: Applied,
        *,
        skipped: Set[Offset] = frozenset(),
        keeps_outcomes: bool = False,
        proposals: Proposals | None = None,
        levels: LevelRange = CLUSTER_LEVELS,
        node_id: NodeId,
    ) -> None:
        """`skipped` are the offsets of commands that an operator had left out; `proposals` reaches
        the leader of the control log on another node; `levels` are those that this node knows."""
        self.state = state
        # By offset, for the audit trail, which removes them: of commands that were refused or are
        # about users, roles and ACLs. None of a skipped one.
        self.outcomes: dict[Offset, AccessChange | RequestError | None] | None = (
            {} if keeps_outcomes else None
        )
        self._applied = applied
        self._replica = replica
        self._clock = clock
        self._node_id = node_id
        self._skipped = skipped
        self._levels = levels
        self._failure: Exception | None = None
        self._has_failed = asyncio.Event()
        self._has_folded = asyncio.Event()
        self._ledger = Ledger(replica, clock, self._apply)
        self._proposals = proposals
        if proposals is not None:
            proposals.connect(self, replica)
        replica.watch(self._fold)
        self._fold()

    async def run(self) -> None:
        """Wait until the fold fails, then raise the reason: the node cannot go on."""
        await self._has_failed.wait()
        assert self._failure is not None
        raise self._failure

    async def folded(self) -> None:
        """Wait until all that is committed is applied; a read may have to be tried again."""
        while self._ledger.applied_offset < self._replica.high_watermark:
            await self.next_fold()

    async def next_fold(self) -> None:
        """Wait until more may be applied, or the leader has changed."""
        self._has_folded.clear()
        await self._has_folded.wait()

    async def caught_up(self) -> None:
        """Wait until all is applied here that was committed when this began.

        A follower that was away folds an old catalog at first: it asks the leader how far to go.
        """
        if self._proposals is not None:
            await self._proposals.catch_up()
        await self.folded()

    async def propose(self, session: Session, command: TopicCommand) -> Topic:
        """Commit `command` and apply it here; raise its refusal, or `NotLeader`.

        After `NotLeader` the command may still be applied, as with every lost answer.
        """
        topic = await self._propose(session, command)
        assert isinstance(topic, Topic)
        return topic

    async def reserve_producer_ids(self, session: Session, count: int) -> range:
        """Reserve numbers that no other node will ever give out."""
        reserved = await self._propose(session, ReserveProducerIds(count=count))
        assert isinstance(reserved, range)
        return reserved

    async def raise_schema_ids(self, session: Session, context: str, highest: int) -> None:
        """Note for ever that ids of schemas up to `highest` were given."""
        await self._propose(session, RaiseSchemaIds(context=context, highest=highest))

    async def alter_quotas(self, session: Session, command: AlterQuotas) -> None:
        """The same as `propose`, for quotas."""
        await self._propose(session, command)

    async def alter_access(self, session: Session, command: AccessCommand) -> AccessChange:
        """The same as `propose`, for users and roles."""
        change = await self._propose(session, command)
        assert isinstance(change, AccessChange)
        return change

    async def _propose(self, session: Session, command: AnyCommand) -> Outcome:
        """Write only what every node can decode and what today's rules allow, and who asked."""
        if self._failure is not None:
            raise StorageUnavailable(str(self._failure))
        by = actor_of(session, self._clock.now_ms(), self._node_id)
        command = msgspec.structs.replace(command, by=by)
        data = encode_for_proposal(command)
        if self._proposals is not None and not self._replica.is_leader:
            return await self._proposals.forward(data)
        self.state.check(command)
        return await self._ledger.propose([Entry(None, data)])

    def write(self, tag: bytes, data: bytes) -> Offset:
        """Append a command of another node, which knows it by its tag; return its offset.

        Raises its refusal, or `NotLeader`, with nothing written.
        """
        if self._failure is not None:
            raise StorageUnavailable(str(self._failure))
        try:
            command = decode(data)
        except UNDECODABLE as problem:
            raise InvalidRequest(f"a command of another version: {problem}") from None
        if not self._replica.is_leader:
            raise NotLeader(self._replica.name, self._replica.leader)
        self.state.check(command)
        return self._ledger.write([Entry(tag, data)]) - 1

    async def alter_nodes(self, session: Session, command: NodeCommand) -> Node | Invitation:
        """The same as `propose`, for nodes and invitations."""
        outcome = await self._propose(session, command)
        assert isinstance(outcome, Node | Invitation)
        return outcome

    async def require_encryption(self, session: Session, *, is_required: bool) -> None:
        """Have only nodes that encrypt what they write in the cluster, or lift that."""
        await self._propose(session, RequireEncryption(is_required=is_required))

    async def finalize_level(self, session: Session, level: int) -> None:
        """Write what all nodes know from this level of `cluster.version` on."""
        await self._propose(session, FinalizeLevel(level=level))

    async def alter_resource(self, session: Session, command: AlterResource) -> None:
        """The same as `propose`, for settings of what is no topic."""
        await self._propose(session, command)

    @property
    def is_leader(self) -> bool:
        return self._replica.is_leader

    @property
    def leader(self) -> NodeId | None:
        """The leader of the control log, as far as this node knows."""
        return self._replica.leader

    @property
    def voters(self) -> frozenset[ReplicaId]:
        """The replicas that vote on the control log."""
        return self._replica.core.voters

    @property
    def applied_offset(self) -> Offset:
        return self._ledger.applied_offset

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` whenever commands may have been committed, or the leader has changed."""
        self._replica.watch(watcher)

    def commands(self, offset: Offset) -> list[tuple[Offset, int, AnyCommand]]:
        """Some applied commands from `offset` on, with their offsets and times; empty at the end.

        Raises `StorageError` if they cannot be read at the moment.
        """
        end_offset = self._ledger.applied_offset
        if offset >= end_offset:
            return []
        log = self._replica.log
        chunk = log.read(offset, bytes_max=READ_BYTES_MAX, end_offset=end_offset)
        data, at = memoryview(b"" if chunk is None else chunk.read()), 0
        commands: list[tuple[Offset, int, AnyCommand]] = []
        while at < len(data):
            header = read_header(data, at)
            if not header.is_control:
                for record in decode_each(data, at, decompressed_bytes_max=UNPACKED_BYTES_MAX):
                    if offset <= record.offset < end_offset and record.offset not in self._skipped:
                        command = decode(record.value or b"")
                        commands.append((record.offset, record.timestamp, command))
            at += header.size
        return commands

    def quorum(self) -> Quorum:
        """The leader of the control log, and its offsets."""
        replica = self._replica
        return Quorum(
            replica.leader,
            replica.core.epoch,
            replica.high_watermark,
            replica.log.end_offset,
            self._clock.now_ms(),
            tuple(sorted(node_of(voter) for voter in self.voters)),
        )

    def _fold(self) -> None:
        if self._failure is not None:
            return
        try:
            self._ledger.fold()
            self._has_folded.set()
        except Exception as problem:
            if isinstance(problem, StorageError) and self._ledger.retry(problem, self._fold):
                return
            self._failure = problem
            _log.critical("stopping: the control log cannot be applied problem=%s", problem)
            self._ledger.close(StorageUnavailable(str(problem)))
            self._has_failed.set()

    def _apply(self, record: Record) -> Outcome:
        """Apply a record, and give its outcome to the proposal on this node that it comes from."""
        if self._proposals is None or record.key is None:
            return self._apply_command(record)
        try:
            outcome = self._apply_command(record)
        except RequestError as refusal:
            self._proposals.applied(record.key, refusal)
            raise
        self._proposals.applied(record.key, outcome)
        return outcome

    def _apply_command(self, record: Record) -> Outcome:
        if record.offset in self._skipped:
            if self.outcomes is not None:
                self.outcomes[record.offset] = None
            _log.warning("skipped a command, as `repair` was told to offset=%d", record.offset)
            self.state.applied_offset = record.offset + 1
            raise StorageUnavailable(f"the command at offset {record.offset} is skipped")
        try:
            command, outcome = self.state.fold(record.offset, record.value)
        except RequestError as refusal:
            if self.outcomes is not None:
                self.outcomes[record.offset] = refusal
            raise
        level = self.state.nodes.level
        if level > self._levels.highest:  # What follows may be of that level.
            raise StartupError(unknown_level(level, self._levels))
        if self.outcomes is not None and isinstance(outcome, AccessChange):
            self.outcomes[record.offset] = outcome
        if isinstance(outcome, Topic | Resource | Node):
            self._applied(command, outcome)
        return outcome

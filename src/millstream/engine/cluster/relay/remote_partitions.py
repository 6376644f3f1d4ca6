"""Partitions that other nodes lead, for clients that do not look for the leader themselves.

The node that a client speaks to passes its appends, reads and lookups on to the leader by calls.
Kafka's clients are refused with a hint instead, and go there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from millstream.engine.cluster.peer_calls import (
    CALL_S_MAX,
    PeerCalls,
    Problem,
    decode_problem,
    encode_problem,
)
from millstream.engine.cluster.relay.callers import Caller, caller_of, is_relayable
from millstream.engine.cluster.relay.lanes import Append, Appends, Lanes
from millstream.engine.filters.filter import Filter, flymq_filter, parse
from millstream.engine.partitions.slices import (
    AtMaxTimestamp,
    AtTime,
    Earliest,
    FilteredBatches,
    LastRecords,
    Latest,
    OffsetAndTimestamp,
    Place,
    Slice,
    Want,
)
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.runtime.background import BackgroundTasks
from millstream.engine.runtime.futures import AppendFuture
from millstream.errors import (
    BatchTooLarge,
    InvalidRequest,
    LeaderNotReady,
    NotLeader,
    PeerUnreachable,
    RequestError,
    UnknownTopic,
)
from millstream.model import (
    Acks,
    Buffer,
    Isolation,
    NodeId,
    Position,
    Session,
    TopicPartition,
)
from millstream.storage.log.aborted import Aborted

if TYPE_CHECKING:  # It passes on what it does not lead.
    from millstream.engine.partitions.service import Partitions

READ_BYTES_MAX = 2**20  # Of one call: a batch larger than this comes alone.
ANSWER_BYTES_MAX = 4 * 2**20 - 64 * 2**10  # Below what an answer may have.
WAIT_S_MAX = 20.0  # Of one call; a longer poll asks again.
LOOKUP_S_MAX = 10.0  # How long the leader of a partition is looked for.
RETRY_S = 0.05

_PLACES: dict[str, type[Place]] = {
    "earliest": Earliest,
    "latest": Latest,
    "time": AtTime,
    "max_timestamp": AtMaxTimestamp,
    "last": LastRecords,
}
_PLACE_NAMES = {kind: name for name, kind in _PLACES.items()}
_PASSING = (NotLeader, LeaderNotReady, PeerUnreachable)


class _FindQuestion(msgspec.Struct, frozen=True, kw_only=True):
    caller: Caller
    topic: str
    partition: int
    place: str
    number: int | None  # Of a place that has one.
    isolation: int


class _FindAnswer(msgspec.Struct, frozen=True):
    position: OffsetAndTimestamp | None


class _ReadQuestion(msgspec.Struct, frozen=True, kw_only=True):
    caller: Caller
    wants: tuple[tuple[str, int, int, int, int, int], ...]
    min_bytes: int
    bytes_max: int
    wait_ms: int
    isolation: int
    filter: str | None
    is_flymq: bool  # The filter's language.


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes | None
    base_offset: int
    end_offset: int
    gained_bytes: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[Aborted, ...]
    diverging: Position | None
    problem: Problem | None


class _ReadAnswer(msgspec.Struct, frozen=True):
    parts: tuple[_Part, ...]


class _ReadOptions(NamedTuple):
    """How a client reads, see `Partitions.read`."""

    min_bytes: int
    bytes_max: int | None
    deadline: float | None  # Of the loop's clock.
    isolation: Isolation
    filter: Filter | None


class RemotePartitions:
    def __init__(
        self,
        partitions: "Partitions",
        peers: PeerCalls,
        producer_ids: ProducerIds,
        background: BackgroundTasks,
        *,
        me: NodeId,
        leader_of: Callable[[TopicPartition], NodeId | None],
    ) -> None:
        """`leader_of` names the leader of a partition, or raises `UnknownTopic`. The gate of
        `producer_ids` must admit the broker."""
        self._partitions = partitions
        self._peers = peers
        self._me = me
        self._leader_of = leader_of
        appends = Appends(peers, producer_ids, me=me, leader_of=leader_of, append=self._append_here)
        self._lanes = Lanes(appends, background.begin)
        peers.serve("partitions.find", _FindQuestion, self._serve_find)
        peers.serve("partitions.read", _ReadQuestion, self._serve_read)

    # -- appends ---------------------------------------------------------------------------------

    def holds(self, session: Session, target: TopicPartition) -> bool:
        """Whether an append has to wait behind others for the same partition."""
        return self._lanes.is_busy(target) and is_relayable(session)

    def serves(self, session: Session) -> bool:
        """Whether the requests of a session are passed on."""
        return is_relayable(session)

    def append(
        self,
        session: Session,
        target: TopicPartition,
        data: Buffer,
        acks: Acks,
        transactional_id: str | None,
        joins: bool,
    ) -> AppendFuture:
        """Have the leader append a batch, behind those that came before."""
        append = Append(session, data, acks, transactional_id, joins)
        return self._lanes.append(target, append)

    def _append_here(self, target: TopicPartition, append: Append) -> AppendFuture:
        return self._partitions.append(
            replace(append.session, is_relayed=True),
            target,
            append.data,
            append.acks,
            transactional_id=append.transactional_id,
            joins=append.joins,
        )

    # -- lookups ---------------------------------------------------------------------------------

    async def find(
        self, session: Session, target: TopicPartition, place: Place, isolation: Isolation
    ) -> OffsetAndTimestamp | None:
        """Ask the leader; `NotLeader` if none was there in `LOOKUP_S_MAX`."""
        question = _FindQuestion(
            caller=caller_of(session),
            topic=target.topic,
            partition=target.partition,
            place=_PLACE_NAMES[type(place)],
            number=_number_of(place),
            isolation=isolation.value,
        )
        until_s = asyncio.get_running_loop().time() + LOOKUP_S_MAX
        while True:
            leader = self._leader_of(target)
            try:
                if leader == self._me:
                    relayed = replace(session, is_relayed=True)
                    return await self._partitions.find(relayed, target, place, isolation=isolation)
                if leader is None:
                    raise NotLeader(target, None)
                answer = await self._peers.ask(leader, "partitions.find", question, _FindAnswer)
            except _PASSING:
                if asyncio.get_running_loop().time() >= until_s:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                return answer.position

    async def _serve_find(self, _node: NodeId, question: _FindQuestion) -> _FindAnswer:
        kind = _PLACES.get(question.place)
        if kind is None:
            raise InvalidRequest(f"no place {question.place[:100]!r}")
        place = kind() if question.number is None else kind(question.number)  # type: ignore[call-arg]
        position = await self._partitions.find(
            question.caller.session(),
            TopicPartition(question.topic, question.partition),
            place,
            isolation=Isolation(question.isolation),
        )
        return _FindAnswer(position)

    # -- reads -----------------------------------------------------------------------------------

    def is_elsewhere(self, session: Session, wants: Sequence[Want]) -> bool:
        """Whether another node leads one of the partitions, and this one is to ask it."""
        return is_relayable(session) and any(self._node_of(want) != self._me for want in wants)

    async def read(
        self,
        session: Session,
        wants: Sequence[Want],
        min_bytes: int,
        bytes_max: int | None,
        deadline: float | None,
        isolation: Isolation,
        reader_filter: Filter | None,
    ) -> list[Slice]:
        """A slice for each want: first what there is, then a wait at all leaders at once, which
        ends with the first that has records."""
        options = _ReadOptions(min_bytes, bytes_max, deadline, isolation, reader_filter)
        loop = asyncio.get_running_loop()
        while True:
            by_node = self._by_node(wants)
            slices: list[Slice] = [Slice(want.target) for want in wants]
            now = options._replace(deadline=None, min_bytes=0)
            asked = [self._read_at(node, session, wants, at, now) for node, at in by_node.items()]
            for parts in await asyncio.gather(*asked):
                _merge(slices, parts)
            if not _is_to_wait(slices, options, loop.time()):
                return slices
            if not any(isinstance(part.error, _PASSING) for part in slices):
                await self._wait(session, wants, by_node, options)
            else:
                await asyncio.sleep(RETRY_S)

    async def _wait(
        self,
        session: Session,
        wants: Sequence[Want],
        by_node: Mapping[NodeId, Sequence[int]],
        options: _ReadOptions,
    ) -> None:
        """Wait until a leader has records, or until the deadline."""
        polls = [
            asyncio.ensure_future(self._read_at(node, session, wants, at, options))
            for node, at in by_node.items()
        ]
        try:
            await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)

    def _by_node(self, wants: Sequence[Want]) -> dict[NodeId, list[int]]:
        """The indexes of the wants of each node."""
        by_node: dict[NodeId, list[int]] = {}
        for at, want in enumerate(wants):
            by_node.setdefault(self._node_of(want), []).append(at)
        return by_node

    def _node_of(self, want: Want) -> NodeId:
        """The node that serves a want; this one refuses those that no node leads."""
        try:
            return self._leader_of(want.target) or self._me
        except UnknownTopic:
            return self._me

    async def _read_at(
        self,
        node: NodeId,
        session: Session,
        wants: Sequence[Want],
        indexes: Sequence[int],
        options: _ReadOptions,
    ) -> list[tuple[int, Slice]]:
        some = [wants[at] for at in indexes]
        try:
            if node == self._me:
                relayed = replace(session, is_relayed=True)
                parts = await self._partitions.read(relayed, some, **options._asdict())
            else:
                parts = await self._ask(node, session, some, options)
        except RequestError as problem:
            parts = [Slice(want.target, error=problem) for want in some]
        return list(zip(indexes, parts, strict=True))

    async def _ask(
        self, node: NodeId, session: Session, wants: Sequence[Want], options: _ReadOptions
    ) -> list[Slice]:
        left_s = 0.0
        if options.deadline is not None:
            left_s = max(0.0, options.deadline - asyncio.get_running_loop().time())
        wait_s = min(left_s, WAIT_S_MAX)
        bytes_max = READ_BYTES_MAX if options.bytes_max is None else options.bytes_max
        reader = options.filter
        question = _ReadQuestion(
            caller=caller_of(session),
            wants=tuple((*want.target, *want[1:]) for want in wants),
            min_bytes=options.min_bytes,
            bytes_max=min(bytes_max, READ_BYTES_MAX),
            wait_ms=int(wait_s * 1000),
            isolation=options.isolation.value,
            filter=None if reader is None else reader.text,
            is_flymq=reader is not None and reader.is_flymq,
        )
        answer = await self._peers.ask(
            node, "partitions.read", question, _ReadAnswer, timeout_s=wait_s + CALL_S_MAX
        )
        if len(answer.parts) != len(wants):
            raise InvalidRequest(f"node {node} answered {len(answer.parts)} of {len(wants)} reads")
        return [_slice(want, part) for want, part in zip(wants, answer.parts, strict=True)]

    async def _serve_read(self, _node: NodeId, question: _ReadQuestion) -> _ReadAnswer:
        loop = asyncio.get_running_loop()
        reader = None
        if question.filter is not None:
            reader = (flymq_filter if question.is_flymq else parse)(question.filter)
        wait_s = min(question.wait_ms / 1000, WAIT_S_MAX)
        slices = await self._partitions.read(
            question.caller.session(),
            [Want(TopicPartition(*want[:2]), *want[2:]) for want in question.wants],
            min_bytes=question.min_bytes,
            bytes_max=min(question.bytes_max, READ_BYTES_MAX),
            deadline=loop.time() + wait_s if wait_s else None,
            isolation=Isolation(question.isolation),
            filter=reader,
        )
        return _ReadAnswer(tuple(map(_part, slices)))


def _number_of(place: Place) -> int | None:
    match place:
        case AtTime(timestamp_ms):
            return timestamp_ms
        case LastRecords(count):
            return count
        case _:
            return None


def _merge(slices: list[Slice], parts: Sequence[tuple[int, Slice]]) -> None:
    for at, part in parts:
        slices[at] = part


def _is_to_wait(slices: Sequence[Slice], options: _ReadOptions, now_s: float) -> bool:
    """Whether a long poll goes on: leaders that are looked for are waited for as records are."""
    if options.deadline is None or options.deadline <= now_s:
        return False
    if any(part.error is not None and not isinstance(part.error, _PASSING) for part in slices):
        return False
    if any(part.diverging is not None for part in slices):
        return False
    return sum(part.gained_bytes for part in slices) < options.min_bytes


def _part(part: Slice) -> _Part:
    records, problem = part.records, part.error
    if part.size > ANSWER_BYTES_MAX:
        records, problem = None, BatchTooLarge(part.size, ANSWER_BYTES_MAX)
    return _Part(
        data=None if records is None else records.read(),
        base_offset=-1 if records is None else records.base_offset,
        end_offset=-1 if records is None else records.end_offset,
        gained_bytes=0 if records is None else part.gained_bytes,
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable_offset,
        log_start_offset=part.log_start_offset,
        aborted=tuple(part.aborted),
        diverging=part.diverging,
        problem=None if problem is None else encode_problem(problem),
    )


def _slice(want: Want, part: _Part) -> Slice:
    if part.problem is not None:
        return Slice(want.target, error=decode_problem(part.problem))
    records = None
    if part.data is not None:
        # What the other node read for it stays there, in its metrics.
        records = FilteredBatches(
            part.data, part.gained_bytes, part.base_offset, part.end_offset, len(part.data)
        )
    return Slice(
        want.target,
        records,
        part.high_watermark,
        part.last_stable_offset,
        part.log_start_offset,
        part.aborted,
        diverging=part.diverging,
    )

"""Appends to partitions that other nodes lead, for clients that do not look for the leader.

Each partition has a lane: one call under way, and a queue behind it. Batches without a producer get
the lane's own producer id and sequences, so what is sent again after a lost answer is written once.

Invariant: batches of a partition are written in the order in which they came.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import msgspec

from millstream.codec.batch import HEADER_BYTES, SEQUENCE_MAX, Header, read_header, seal
from millstream.engine.cluster.peer_calls import PeerCalls, Problem, decode_problem, encode_problem
from millstream.engine.cluster.relay.callers import Caller, caller_of
from millstream.engine.producer_ids import ProducerIds
from millstream.engine.runtime.futures import AppendFuture, ignore_outcome
from millstream.errors import (
    BatchTooLarge,
    CoordinatorLoading,
    CoordinatorUnavailable,
    LeaderNotReady,
    NotCoordinator,
    NotLeader,
    OutOfOrderSequence,
    Overloaded,
    RequestError,
    TimedOut,
)
from millstream.model import SYSTEM_SESSION, Acks, Appended, Buffer, NodeId, Session, TopicPartition

METHOD = "partitions.append"
# A log remembers the last five batches of a producer: more in one call could not be sent again.
BATCHES_AT_ONCE = 5
CALL_BYTES = 3 * 2**20  # Of batches in one call, below what a call may have.
QUEUED_BYTES_MAX = 64 * 2**20  # In all lanes of a node.
QUEUED_BATCHES_MAX = 10_000  # In one lane.
APPEND_S_MAX = 15.0  # From the arrival of a batch to its outcome.
RETRY_S = 0.05
LANES_MAX = 10_000  # Producers that are kept for later batches.
# Refusals of a node that does not lead, or not yet: the batch is sent again.
PASSING = (
    NotLeader,
    LeaderNotReady,
    CoordinatorLoading,
    CoordinatorUnavailable,
    NotCoordinator,
    TimedOut,
)


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    caller: Caller
    data: bytes
    acks: int
    transactional_id: str | None
    joins: bool


class _Batches(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    batches: tuple[_Batch, ...]


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    base_offset: int = -1
    end_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    duplicates: dict[int, int] = {}
    delayed: dict[int, str] = {}
    problem: Problem | None = None

    def appended(self) -> Appended:
        return Appended(
            self.base_offset,
            self.end_offset,
            self.log_append_time_ms,
            self.log_start_offset,
            self.duplicates,
            self.delayed,
        )


class _Outcomes(msgspec.Struct, frozen=True):
    outcomes: tuple[_Outcome, ...]


class Append(NamedTuple):
    """One batch on its way."""

    session: Session
    data: Buffer
    acks: Acks
    transactional_id: str | None
    joins: bool


class Appends:
    """What a lane needs of its node."""

    def __init__(
        self,
        peers: PeerCalls,
        producer_ids: ProducerIds,
        *,
        me: NodeId,
        leader_of: Callable[[TopicPartition], NodeId | None],
        append: Callable[[TopicPartition, Append], AppendFuture],
    ) -> None:
        """`append` writes to a partition that is led here, or raises."""
        self.peers = peers
        self.producer_ids = producer_ids
        self.me = me
        self.leader_of = leader_of
        self.append = append
        self.queued_bytes = 0
        peers.serve(METHOD, _Batches, self._serve)

    async def send(
        self, target: TopicPartition, batches: Sequence[Append]
    ) -> list[Appended | RequestError]:
        """Have the leader append batches; raises if it could not be asked, or did not answer."""
        leader = self.leader_of(target)
        if leader is None:
            raise NotLeader(target, None)
        if leader == self.me:
            return await self._append_all(target, batches)
        question = _Batches(
            topic=target.topic,
            partition=target.partition,
            batches=tuple(
                _Batch(
                    caller=caller_of(each.session),
                    data=bytes(each.data),
                    acks=each.acks.value,
                    transactional_id=each.transactional_id,
                    joins=each.joins,
                )
                for each in batches
            ),
        )
        answer = await self.peers.ask(leader, METHOD, question, _Outcomes)
        return [
            each.appended() if each.problem is None else decode_problem(each.problem)
            for each in answer.outcomes
        ]

    async def _serve(self, _node: NodeId, question: _Batches) -> _Outcomes:
        target = TopicPartition(question.topic, question.partition)
        batches = [
            Append(
                each.caller.session(),
                each.data,
                Acks(each.acks),
                each.transactional_id,
                each.joins,
            )
            for each in question.batches
        ]
        return _Outcomes(tuple(map(_outcome, await self._append_all(target, batches))))

    async def _append_all(
        self, target: TopicPartition, batches: Sequence[Append]
    ) -> list[Appended | RequestError]:
        """Append in order, with no wait in between; then wait for the outcomes."""
        begun: list[AppendFuture | RequestError] = []
        for batch in batches:
            try:
                begun.append(self.append(target, batch))
            except RequestError as problem:
                begun.append(problem)
        return [each if isinstance(each, RequestError) else await _settled(each) for each in begun]


class _Waiting(NamedTuple):
    append: Append
    header: Header
    done: AppendFuture
    until_s: float


class Lane:
    """The queue of one partition, and the producer that its batches get."""

    def __init__(self, target: TopicPartition, appends: Appends) -> None:
        self._target = target
        self._appends = appends
        self._queue: deque[_Waiting] = deque()
        self._producer_id = -1  # -1: it takes one with the first batch that has none.
        self._sequence = 0

    @property
    def is_busy(self) -> bool:
        return bool(self._queue)

    def add(self, append: Append) -> AppendFuture:
        """Queue a batch; `Overloaded` if too much waits."""
        header = read_header(append.data)
        if header.size > CALL_BYTES:
            raise BatchTooLarge(header.size, CALL_BYTES)
        queued_bytes = self._appends.queued_bytes
        if len(self._queue) >= QUEUED_BATCHES_MAX or queued_bytes + header.size > QUEUED_BYTES_MAX:
            raise Overloaded(f"{len(self._queue)} batches wait for the leader of {self._target}")
        loop = asyncio.get_running_loop()
        done: AppendFuture = loop.create_future()
        done.add_done_callback(ignore_outcome)
        self._appends.queued_bytes += header.size
        # The buffer belongs to the connection that it came over.
        kept = append._replace(data=bytes(append.data))
        self._queue.append(_Waiting(kept, header, done, loop.time() + APPEND_S_MAX))
        return done

    async def run(self) -> None:
        """Send until the queue is empty."""
        while self._queue:
            self._expire()
            if self._queue:
                await self._send_some()

    # -- parts -----------------------------------------------------------------------------------

    async def _send_some(self) -> None:
        try:
            if self._producer_id < 0:
                producer_id = await self._appends.producer_ids.next(SYSTEM_SESSION)
                self._producer_id, self._sequence = producer_id, 0
            some = self._first()
            outcomes = await self._appends.send(self._target, self._stamped(some))
        except RequestError as problem:
            # Its outcome may be unknown: the same batches are sent again, with their sequences.
            await self._wait_for_leader(problem)
            return
        if len(outcomes) != len(some):
            await asyncio.sleep(RETRY_S)
            return
        if not self._settle(some, outcomes):
            await asyncio.sleep(RETRY_S)

    def _first(self) -> list[_Waiting]:
        some: list[_Waiting] = []
        size = 0
        for waiting in self._queue:
            size += waiting.header.size
            if some and (len(some) == BATCHES_AT_ONCE or size > CALL_BYTES):
                break
            some.append(waiting)
        return some

    def _stamped(self, some: Sequence[_Waiting]) -> list[Append]:
        """The batches with sequences from the first that is not acknowledged on."""
        stamped, sequence = [], self._sequence
        for append, header, _, _ in some:
            if header.has_producer:
                stamped.append(append)
                continue
            own = header._replace(
                producer_id=self._producer_id, producer_epoch=0, base_sequence=sequence
            )
            _, data = seal(own, memoryview(append.data)[HEADER_BYTES:])
            stamped.append(append._replace(data=data))
            sequence = _after(sequence, header)
        return stamped

    def _settle(
        self, some: Sequence[_Waiting], outcomes: Sequence[Appended | RequestError]
    ) -> bool:
        """Answer the batches whose outcome is known, in order; return whether all were.

        A batch behind one that was refused has a sequence that the log did not expect: it was not
        written, and gets the next sequence when it is sent again.
        """
        for at, (waiting, outcome) in enumerate(zip(some, outcomes, strict=True)):
            is_own = not waiting.header.has_producer
            if isinstance(outcome, Appended):
                if is_own:
                    self._sequence = _after(self._sequence, waiting.header)
                self._end(waiting, outcome)
            elif is_own and isinstance(outcome, OutOfOrderSequence):
                if at == 0:
                    self._producer_id = -1  # The log has lost what this producer had written.
                return False
            elif isinstance(outcome, PASSING):
                return False
            else:
                if is_own:
                    self._producer_id = -1  # Whether it was written is not known.
                self._end(waiting, outcome)
        return True

    def _end(self, waiting: _Waiting, outcome: Appended | RequestError) -> None:
        assert self._queue[0] is waiting
        self._queue.popleft()
        self._appends.queued_bytes -= waiting.header.size
        if waiting.done.done():
            return  # The request was cancelled.
        if isinstance(outcome, RequestError):
            waiting.done.set_exception(outcome)
        else:
            waiting.done.set_result(outcome)

    def _expire(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while self._queue and self._queue[0].until_s <= now_s:
            # It may have been written: the next batch must not take its sequence.
            self._producer_id = -1
            text = f"the leader of {self._target} did not answer in {APPEND_S_MAX:g} s"
            self._end(self._queue[0], TimedOut(text))

    async def _wait_for_leader(self, problem: RequestError) -> None:
        if not problem.retriable:
            self._end(self._queue[0], problem)
            self._producer_id = -1
            return
        await asyncio.sleep(RETRY_S)


class Lanes:
    """The lanes of a node; the least recently used ones without work are dropped."""

    def __init__(
        self, appends: Appends, begin: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """`begin` runs work in the background."""
        self._appends = appends
        self._begin = begin
        self._lanes: OrderedDict[TopicPartition, Lane] = OrderedDict()

    def is_busy(self, target: TopicPartition) -> bool:
        """Whether batches for the partition wait here: later ones wait behind them."""
        lane = self._lanes.get(target)
        return lane is not None and lane.is_busy

    def append(self, target: TopicPartition, append: Append) -> AppendFuture:
        """Queue a batch for the leader of a partition."""
        lane = self._lanes.get(target)
        if lane is None:
            self._make_room()
            lane = self._lanes[target] = Lane(target, self._appends)
        self._lanes.move_to_end(target)
        was_busy = lane.is_busy
        done = lane.add(append)
        if not was_busy:
            self._begin(lane.run())
        return done

    def _make_room(self) -> None:
        if len(self._lanes) >= LANES_MAX:
            idle = next((at for at, lane in self._lanes.items() if not lane.is_busy), None)
            if idle is None:
                raise Overloaded(f"batches wait for the leaders of {LANES_MAX} partitions")
            del self._lanes[idle]


async def _settled(appending: AppendFuture) -> Appended | RequestError:
    try:
        return await appending
    except RequestError as problem:
        return problem


def _outcome(outcome: Appended | RequestError) -> _Outcome:
    if isinstance(outcome, RequestError):
        return _Outcome(problem=encode_problem(outcome))
    return _Outcome(
        base_offset=outcome.base_offset,
        end_offset=outcome.end_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
        duplicates=dict(outcome.duplicates),
        delayed=dict(outcome.delayed),
    )


def _after(sequence: int, header: Header) -> int:
    return (sequence + header.count) & SEQUENCE_MAX

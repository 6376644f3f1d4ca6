"""The way of a client's batch from its admission into the log, if it asks for something on it.

Owns the batches that must wait for what they ask for: a topic of ours, a window that is loading, a
setting; or for being looked into by a thread, if they are large. What is done with them then is
`sorting`'s. Invariant: a batch that waits holds up all later ones of its partition, so none
overtakes it. A batch that asks for nothing (see `queue_headers`) passes by all of this.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from millstream.codec.compression import SMALL_BYTES_MAX, Codec
from millstream.config import Limits
from millstream.cooperative import all_at_once, one_by_one
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.ledgers.shards import BROKER
from millstream.engine.partitions.admission import Admitted
from millstream.engine.produce.message_ids import STEP_IDS, Windows
from millstream.engine.produce.options import Asked, read_batch, search, unpack, unpack_small
from millstream.engine.produce.split import STEP_RECORDS, Arrival, Rest, Sorting
from millstream.engine.produce.transactional import Batch, TransactionalWrites
from millstream.engine.produce.unpacking import NotSmall, Unpacking
from millstream.engine.runtime.futures import Writing, count_batch, pass_on, see
from millstream.engine.topics import Topics
from millstream.errors import CoordinatorUnavailable, InvalidBatch, Overloaded, RequestError
from millstream.internal_topics.transactions import Participant
from millstream.metrics import Metrics
from millstream.model import Acks, Buffer, LogId, Producer
from millstream.ports import Clock
from millstream.replication.replica import Replica
from millstream.settings import Switch

READ_BYTES_MAX = 32 * 2**10  # Of records that are looked into at once, not in steps.
# Unpacked at once, in all batches that arrive in one turn of the loop: 5 ms or so. The rest of them
# goes to threads, so that a request with many batches holds up the loop no longer than one does.
TURN_BYTES_MAX = 8 * 2**20
# Unpacked without looking whose turn it is, so that normal batches pay one addition for all this.
UNWATCHED_BYTES_MAX = 2**20
# Served before others have a turn: a queue must empty faster than it fills.
SERVED_AT_ONCE = 64
SERVED_S_MAX = 0.003
# gzip takes four times as long as the others.
_WEIGHTS = {codec: max(SMALL_BYTES_MAX.values()) // SMALL_BYTES_MAX[codec] for codec in Codec}


T = TypeVar("T")


class RunsWork(Protocol):
    """Does work on a thread, in memory that is reserved for it."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class _Waiting(NamedTuple):
    arrival: Arrival
    arrived_ms: int
    done: Writing
    asked: Asked | None = None  # None: nobody has looked.
    is_large: bool = False  # It is unpacked on a thread.
    admit: Callable[[], Admitted] | None = None  # What is to be done first, on a thread.


class Intake:
    def __init__(
        self,
        transactions: TransactionalWrites,
        windows: Windows,
        scheduler: DelayedScheduler,
        topics: Topics,
        sorting: Sorting,
        unpacking: Unpacking,
        *,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`topics` changes settings on behalf of the broker: its gate must admit it."""
        self._transactions = transactions
        self._windows = windows
        self._scheduler = scheduler
        self._topics = topics
        self._sorting = sorting
        self._unpacking = unpacking
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._lines: dict[LogId, deque[_Waiting]] = {}
        self._unserved: asyncio.Queue[LogId] = asyncio.Queue()  # As many as there are lines.
        self._queued_bytes = 0
        self._turn_bytes = 0  # Unpacked on the loop, weighted:
        self._is_watched = False  # in this turn, or since it was looked at last.

    async def run(self) -> None:
        """Serve those who wait, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._serve(await self._unserved.get()))

    def append(self, arrival: Arrival, *, admit: Callable[[], Admitted] | None = None) -> Writing:
        """Write what is to be written now; the future is done when `acks` says so.

        Raises at once, with nothing written, or from the future, with the outcome unknown. With
        `admit` the batch is what that returns, on a thread.
        """
        line = self._lines.get(arrival.replica.id) if self._lines else None
        if line is not None or admit is not None:
            return self._enqueue(arrival, admit=admit)
        try:
            payload = self._search(arrival)
        except NotSmall:
            return self._enqueue(arrival, is_large=True)
        if payload is None:
            return self._write(arrival)
        asked = None
        if len(payload) <= READ_BYTES_MAX:
            asked = all_at_once(self._read(arrival, payload, now_ms=self._clock.now_ms()))
            if not self._must_wait(arrival, asked):
                return self._take(arrival, asked)
        return self._enqueue(arrival, asked=asked)

    # -- those who wait --------------------------------------------------------------------------

    def _enqueue(
        self,
        arrival: Arrival,
        *,
        asked: Asked | None = None,
        is_large: bool = False,
        admit: Callable[[], Admitted] | None = None,
    ) -> Writing:
        log_id, size = arrival.replica.id, arrival.header.size
        line = self._lines.get(log_id)
        count = 0 if line is None else len(line)
        if count >= self._limits.intake_queued_batches_max:
            raise Overloaded(f"{count} batches wait for {arrival.target} already")
        if self._queued_bytes and self._queued_bytes + size > self._limits.intake_queued_bytes_max:
            raise Overloaded(
                f"batches of {self._queued_bytes} bytes wait to be looked into already"
            )
        if line is None:
            line = self._lines[log_id] = deque()
            self._unserved.put_nowait(log_id)
        done: Writing = asyncio.get_running_loop().create_future()
        done.add_done_callback(see)
        line.append(_Waiting(arrival, self._clock.now_ms(), done, asked, is_large, admit))
        self._queued_bytes += size
        return done

    async def _serve(self, log_id: LogId) -> None:
        """Let one after the other have what it lacks, and then its way."""
        line = self._lines[log_id]
        loop = asyncio.get_running_loop()
        served, until_s = 0, loop.time() + SERVED_S_MAX
        try:
            while line:
                waiting = line[0]
                try:
                    writing = await self._serve_one(waiting)
                    writing.add_done_callback(partial(pass_on, waiting.done))
                except RequestError as problem:
                    if not waiting.done.done():
                        waiting.done.set_exception(problem)
                line.popleft()
                self._queued_bytes -= waiting.arrival.header.size
                served += 1
                if line and (served >= SERVED_AT_ONCE or loop.time() >= until_s):
                    await asyncio.sleep(0)  # There may be many, and each is searched.
                    served, until_s = 0, loop.time() + SERVED_S_MAX
        finally:
            del self._lines[log_id]
            self._queued_bytes -= sum(waiting.arrival.header.size for waiting in line)
            for waiting in line:  # The node is stopping.
                if not waiting.done.done():
                    waiting.done.set_exception(CoordinatorUnavailable(str(log_id)))

    async def _serve_one(self, waiting: _Waiting) -> Writing:
        arrival, asked = waiting.arrival, waiting.asked
        if waiting.admit is not None:
            admitted = await self._unpacking.run(waiting.admit, packed_bytes=arrival.header.size)
            arrival = arrival._replace(header=admitted.header, data=admitted.data)
        if asked is not None:
            return await self._serve_asked(arrival, asked)
        if waiting.is_large:
            return await self._serve_large(arrival, now_ms=waiting.arrived_ms)
        try:
            payload = self._search(arrival)
        except NotSmall:
            return await self._serve_large(arrival, now_ms=waiting.arrived_ms)
        if payload is None:
            return self._write(arrival)
        asked = await one_by_one(self._read(arrival, payload, now_ms=waiting.arrived_ms))
        return await self._serve_asked(arrival, asked)

    async def _serve_large(self, arrival: Arrival, *, now_ms: int) -> Writing:
        """Unpack a batch on a thread. Its room is kept until all that it asks for is done."""
        bytes_max = self._unpacking.bytes_max
        async with self._unpacking.room(arrival.header.size) as room:
            try:
                payload = await room.run(
                    lambda: search(unpack(arrival.data, arrival.header, bytes_max=bytes_max))
                )
            except RequestError as problem:
                self._unpacking.report("refused", arrival.target, None, problem)
                raise
            room.shrink(0 if payload is None else len(payload))
            if payload is None:
                return self._write(arrival)
            asked = await one_by_one(self._read(arrival, payload, now_ms=now_ms))
            del payload
            return await self._serve_asked(arrival, asked, unpack_by=room.run)

    async def _serve_asked(
        self, arrival: Arrival, asked: Asked, *, unpack_by: RunsWork | None = None
    ) -> Writing:
        """With `unpack_by` what unpacks the batch once more is done by that."""
        while self._lacks_anything(arrival, asked):
            await self._provide(arrival, asked)
        return await self._take_slowly(arrival, asked, unpack_by)

    def _must_wait(self, arrival: Arrival, asked: Asked) -> bool:
        """Whether a batch cannot be taken in one step."""
        is_long = len(asked.due_ms) > STEP_RECORDS or len(asked.message_ids) > STEP_IDS
        is_split = arrival.header.has_producer and self._needs_books(arrival, asked)
        return is_long or is_split or self._lacks_anything(arrival, asked)

    def _lacks_anything(self, arrival: Arrival, asked: Asked) -> bool:
        topic = arrival.target.topic
        return (
            self._lacks_switch(arrival, asked)
            or (self._needs_books(arrival, asked) and not self._scheduler.is_ready(topic))
            or (self._is_checked(arrival, asked) and self._lacks_window(arrival.replica))
        )

    def _lacks_window(self, replica: Replica) -> bool:
        return self._windows.find(replica) is None or self._windows.is_held(replica.id.topic_id)

    async def _provide(self, arrival: Arrival, asked: Asked) -> None:
        topic = arrival.target.topic
        if self._lacks_switch(arrival, asked):
            # Readers and cleaners look at the header only where the topic says so: it must be
            # known to all of them before such a record can be seen.
            await self._topics.alter(BROKER, topic, {"message_ttl_headers": Switch.ON.value})
        if self._needs_books(arrival, asked):
            await self._scheduler.ready(topic)
        if self._is_checked(arrival, asked):
            await self._scheduler.known(topic)
            await self._windows.released(arrival.replica.id.topic_id)
            await self._windows.load(arrival.replica, self._scheduler.message_ids)

    def _needs_books(self, arrival: Arrival, asked: Asked) -> bool:
        due_ms = asked.due_ms.values()
        return self._scheduler.is_needed(arrival.target.topic, due_ms, arrival.header)

    @staticmethod
    def _lacks_switch(arrival: Arrival, asked: Asked) -> bool:
        settings = arrival.replica.log.records.settings
        return asked.has_ttl and settings.message_ttl_headers is Switch.OFF

    @staticmethod
    def _is_checked(arrival: Arrival, asked: Asked) -> bool:
        """Whether ids count."""
        settings = arrival.replica.log.records.settings
        return (
            bool(asked.message_ids)
            and settings.message_id_window_ms > 0
            and settings.message_id_count_max > 0
        )

    # -- what is asked ---------------------------------------------------------------------------

    def _search(self, arrival: Arrival) -> Buffer | None:
        """The records of a batch that may ask for something; None if it does not.

        Raises `NotSmall` for a batch that would hold up the loop.
        """
        settings = arrival.replica.log.records.settings
        if settings.message_queue_headers is not Switch.ON:
            return None
        header = arrival.header
        codec = header.codec
        if self._turn_bytes > TURN_BYTES_MAX and codec is not Codec.NONE:
            raise NotSmall
        try:
            payload = unpack_small(arrival.data, header, bytes_max=self._unpacking.bytes_max)
        except RequestError as problem:
            self._unpacking.report("refused", arrival.target, None, problem)
            raise
        if codec is not Codec.NONE:
            size = SMALL_BYTES_MAX[codec] if payload is None else len(payload)
            self._turn_bytes += size * _WEIGHTS[codec]
            if self._turn_bytes > UNWATCHED_BYTES_MAX and not self._is_watched:
                self._turn_bytes, self._is_watched = 0, True
                asyncio.get_running_loop().call_soon(self._end_turn)
        if payload is None:
            raise NotSmall
        return search(payload)

    def _end_turn(self) -> None:
        self._turn_bytes, self._is_watched = 0, False

    def _read(
        self, arrival: Arrival, payload: Buffer, *, now_ms: int
    ) -> Generator[None, None, Asked]:
        asked = yield from read_batch(
            arrival.header, payload, now_ms=now_ms, delay_ms_max=self._limits.deferred_ms_max
        )
        if not arrival.header.is_transactional:
            return asked
        if any(due_ms > now_ms for due_ms in asked.due_ms.values()):
            raise InvalidBatch(
                "a record in a transaction cannot be delayed: it would be delivered "
                "after the transaction has ended, whichever way it ends"
            )
        # What was due before is a copy of a record that was delayed, and stays in its batch.
        return asked._replace(due_ms={})

    def _take(self, arrival: Arrival, asked: Asked, rest: Rest | None = None) -> Writing:
        """Let a batch have what it asks for; it lacks nothing."""
        return self._write(arrival, partial(self._take_now, arrival, asked, rest))

    def _take_now(self, arrival: Arrival, asked: Asked, rest: Rest | None) -> Writing:
        if self._is_settled(arrival, asked):
            return self._append(arrival)
        is_checked = self._is_checked(arrival, asked)
        done = all_at_once(self._sorting.sort(arrival, asked, is_checked=is_checked))
        return all_at_once(self._sorting.finish(arrival, done, rest))

    async def _take_slowly(
        self, arrival: Arrival, asked: Asked, unpack_by: RunsWork | None
    ) -> Writing:
        """The same in steps, with all else committed before the rest is written."""
        is_checked = self._is_checked(arrival, asked)
        if arrival.header.is_transactional:
            # Its transaction may end between two steps.
            if unpack_by is None or not is_checked:
                return self._take(arrival, asked)
            async with self._windows.held(arrival.replica.id.topic_id):
                gone = await one_by_one(self._sorting.duplicates(arrival, asked))
                rest = await self._rest(arrival, gone, unpack_by)
                return self._take(arrival, asked, rest)
        if self._is_settled(arrival, asked):
            return self._append(arrival)
        if not is_checked:
            return await self._sort_slowly(arrival, asked, unpack_by, is_checked=False)
        # Nobody else may take an id for new that is being written here.
        async with self._windows.held(arrival.replica.id.topic_id):
            return await self._sort_slowly(arrival, asked, unpack_by, is_checked=True)

    async def _sort_slowly(
        self, arrival: Arrival, asked: Asked, unpack_by: RunsWork | None, *, is_checked: bool
    ) -> Writing:
        done = await one_by_one(self._sorting.sort(arrival, asked, is_checked=is_checked))
        # Once the log knows the sequences, what is not in the books by then never will be.
        await self._sorting.settle(done)
        rest = None if unpack_by is None else await self._rest(arrival, done.gone, unpack_by)
        return await one_by_one(self._sorting.finish(arrival, done, rest))

    async def _rest(
        self, arrival: Arrival, gone: AbstractSet[int], unpack_by: RunsWork
    ) -> Rest | None:
        """What is left of a large batch, made on a thread; None if it stays as it is."""
        if not gone:
            return None
        return await unpack_by(lambda: all_at_once(self._sorting.rest(arrival, gone)))

    def _is_settled(self, arrival: Arrival, asked: Asked) -> bool:
        """Whether a batch goes as it is; also if it was taken before, with all that came of it."""
        if not asked.due_ms and not self._is_checked(arrival, asked):
            return True
        return arrival.replica.log.records.producers.check(arrival.header) is not None

    # -- writing ---------------------------------------------------------------------------------

    def _write(self, arrival: Arrival, write: Callable[[], Writing] | None = None) -> Writing:
        """Write a batch as it is, or in another way, if its transaction allows it."""
        header, replica = arrival.header, arrival.replica
        if not header.is_transactional:
            return self._append(arrival) if write is None else write()
        assert arrival.transactional_id is not None
        batch = Batch(
            arrival.transactional_id,
            Producer(header.producer_id, header.producer_epoch),
            Participant(arrival.target.topic, arrival.target.partition, replica.id.topic_id),
            header.base_sequence,
            partial(self._append, arrival) if write is None else write,
        )
        producers = replica.log.records.producers
        return self._transactions.append(batch, producers, joins=arrival.joins)

    def _append(self, arrival: Arrival) -> Writing:
        replica, _, data, header, acks, _, _ = arrival
        appended = replica.append(data, header)
        count_batch(self._metrics, header)
        if acks is Acks.ALL:
            return replica.acknowledged(appended.end_offset, appended)
        # Before offset 0 everything is committed: what needs no waiting is done at once.
        return replica.committed(0, appended)

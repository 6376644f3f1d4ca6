"""The way of a client's batch from its admission into the log, if it asks for something on it.

Owns the batches that must wait for what they ask for: a topic of ours, a window that is loading, a
setting; or for being looked into, if they are large. What is done with them then is `sorting`'s.
The one thing to know: one that waits holds up all later ones of its partition, so none overtakes
it. A batch that asks for nothing (see `queue_headers`) passes by all of this.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple

from millstream.codec.steps import all_at_once
from millstream.config import Limits
from millstream.control.transactions import Participant
from millstream.engine.deduplication import STEP_IDS, Windows
from millstream.engine.deferred_shards import DeferredShards
from millstream.engine.queue_headers import Asked, read_batch, search
from millstream.engine.shards import BROKER
from millstream.engine.sorting import STEP_RECORDS, Arrival, Sorting
from millstream.engine.steps import one_by_one
from millstream.engine.topics import Topics
from millstream.engine.transactional_writes import Batch, TransactionalWrites
from millstream.engine.writing import Writing, count_batch, pass_on, see
from millstream.errors import CoordinatorUnavailable, InvalidBatch, Overloaded, RequestError
from millstream.metrics import Metrics
from millstream.model import Acks, Buffer, LogId, Producer
from millstream.ports import Clock
from millstream.replication.replica import Replica
from millstream.settings import Switch

READ_BYTES_MAX = 32 * 2**10  # Of records that are looked into at once, not in steps.


class _Waiting(NamedTuple):
    arrival: Arrival
    arrived_ms: int
    asked: Asked | None  # None: nobody has looked.
    done: Writing


class Intake:
    def __init__(
        self,
        transactions: TransactionalWrites,
        windows: Windows,
        deferred: DeferredShards,
        topics: Topics,
        sorting: Sorting,
        *,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`topics` changes settings on behalf of the broker: its gate must admit it."""
        self._transactions = transactions
        self._windows = windows
        self._deferred = deferred
        self._topics = topics
        self._sorting = sorting
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._lines: dict[LogId, deque[_Waiting]] = {}
        self._unserved: asyncio.Queue[LogId] = asyncio.Queue()  # As many as there are lines.

    async def run(self) -> None:
        """Serve those who wait, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._serve(await self._unserved.get()))

    def append(self, arrival: Arrival) -> Writing:
        """Write what is to be written now; the future is done when `acks` says so.

        Raises at once, with nothing written, or from the future, with the outcome unknown.
        """
        line = self._lines.get(arrival.replica.id) if self._lines else None
        if line is not None:
            return self._enqueue(line, arrival, None)
        payload = self._search(arrival)
        if payload is None:
            return self._write(arrival)
        asked = None
        if len(payload) <= READ_BYTES_MAX:
            asked = all_at_once(self._read(arrival, payload, now_ms=self._clock.now_ms()))
            if not self._must_wait(arrival, asked):
                return self._take(arrival, asked)
        line = self._lines[arrival.replica.id] = deque()
        self._unserved.put_nowait(arrival.replica.id)
        return self._enqueue(line, arrival, asked)

    # -- those who wait --------------------------------------------------------------------------

    def _enqueue(self, line: deque[_Waiting], arrival: Arrival, asked: Asked | None) -> Writing:
        if len(line) >= self._limits.intake_queued_batches_max:
            raise Overloaded(f"{len(line)} batches wait for {arrival.target} already")
        done: Writing = asyncio.get_running_loop().create_future()
        done.add_done_callback(see)
        line.append(_Waiting(arrival, self._clock.now_ms(), asked, done))
        return done

    async def _serve(self, log_id: LogId) -> None:
        """Let one after the other have what it lacks, and then its way."""
        line = self._lines[log_id]
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
                if line:
                    await asyncio.sleep(0)  # There may be many, and each is searched.
        finally:
            del self._lines[log_id]
            for waiting in line:  # The node is stopping.
                if not waiting.done.done():
                    waiting.done.set_exception(CoordinatorUnavailable(str(log_id)))

    async def _serve_one(self, waiting: _Waiting) -> Writing:
        arrival, asked = waiting.arrival, waiting.asked
        if asked is None:
            payload = self._search(arrival)
            if payload is None:
                return self._write(arrival)
            asked = await one_by_one(self._read(arrival, payload, now_ms=waiting.arrived_ms))
        while self._lacks_anything(arrival, asked):
            await self._provide(arrival, asked)
        return await self._take_slowly(arrival, asked)

    def _must_wait(self, arrival: Arrival, asked: Asked) -> bool:
        """Whether a batch cannot be taken in one step."""
        is_long = len(asked.due_ms) > STEP_RECORDS or len(asked.message_ids) > STEP_IDS
        is_split = arrival.header.has_producer and self._needs_books(arrival, asked)
        return is_long or is_split or self._lacks_anything(arrival, asked)

    def _lacks_anything(self, arrival: Arrival, asked: Asked) -> bool:
        topic = arrival.target.topic
        return (
            self._lacks_switch(arrival, asked)
            or (self._needs_books(arrival, asked) and not self._deferred.is_ready(topic))
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
            await self._deferred.ready(topic)
        if self._is_checked(arrival, asked):
            await self._deferred.known(topic)
            await self._windows.released(arrival.replica.id.topic_id)
            await self._windows.load(arrival.replica, self._deferred.message_ids)

    def _needs_books(self, arrival: Arrival, asked: Asked) -> bool:
        due_ms = asked.due_ms.values()
        return self._deferred.is_needed(arrival.target.topic, due_ms, arrival.header)

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

    @staticmethod
    def _search(arrival: Arrival) -> Buffer | None:
        """The records of a batch that may ask for something; None if it does not."""
        settings = arrival.replica.log.records.settings
        is_on = settings.message_queue_headers is Switch.ON
        return search(arrival.data, arrival.header) if is_on else None

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

    def _take(self, arrival: Arrival, asked: Asked) -> Writing:
        """Let a batch have what it asks for; it lacks nothing."""
        return self._write(arrival, partial(self._take_now, arrival, asked))

    def _take_now(self, arrival: Arrival, asked: Asked) -> Writing:
        if self._is_settled(arrival, asked):
            return self._append(arrival)
        is_checked = self._is_checked(arrival, asked)
        done = all_at_once(self._sorting.sort(arrival, asked, is_checked=is_checked))
        return all_at_once(self._sorting.finish(arrival, done))

    async def _take_slowly(self, arrival: Arrival, asked: Asked) -> Writing:
        """The same in steps, with all else committed before the rest is written."""
        if arrival.header.is_transactional:
            return self._take(arrival, asked)  # Its transaction may end between two steps.
        if self._is_settled(arrival, asked):
            return self._append(arrival)
        if not self._is_checked(arrival, asked):
            return await self._sort_slowly(arrival, asked, is_checked=False)
        # Nobody else may take an id for new that is being written here.
        async with self._windows.held(arrival.replica.id.topic_id):
            return await self._sort_slowly(arrival, asked, is_checked=True)

    async def _sort_slowly(self, arrival: Arrival, asked: Asked, *, is_checked: bool) -> Writing:
        done = await one_by_one(self._sorting.sort(arrival, asked, is_checked=is_checked))
        # Once the log knows the sequences, what is not in the books by then never will be.
        await self._sorting.settle(done)
        return await one_by_one(self._sorting.finish(arrival, done))

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
        # Before offset 0 everything is committed: what needs no waiting is done at once.
        return replica.committed(appended.end_offset if acks is Acks.ALL else 0, appended)

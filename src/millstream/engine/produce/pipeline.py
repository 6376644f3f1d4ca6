"""Takes an admitted batch into the log, with the queue options of its records applied.

Owns the queue of batches for each partition. A batch waits there for what its options need (the
internal topic of delayed records, a window of message ids, a topic setting), or for a thread that
unpacks it, if it is large. What its options do to its records is decided in `split`.

Order of the steps, in `_serve_one`: admit on a thread, search for options, read them, provide what
they need, split, wait until delayed records are committed, append the remainder.

Invariant: a batch that waits holds up all later ones of its partition, so none overtakes it. A
batch without queue options (see `options`) is appended at once unless its partition has a queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from millstream.codec.batch import CODEC_BITS, HEADER_BYTES, TRANSACTIONAL
from millstream.codec.compression import SMALL_BYTES_MAX, Codec
from millstream.config import Limits
from millstream.cooperative import all_at_once, one_by_one
from millstream.engine.delayed.scheduler import DelayedScheduler
from millstream.engine.partitions.admission import Admitted
from millstream.engine.produce.message_ids import STEP_IDS, Windows
from millstream.engine.produce.options import QueueOptions, read_batch, search, unpack, unpack_small
from millstream.engine.produce.schema_checks import SchemaChecks
from millstream.engine.produce.split import (
    NO_OFFSET,
    STEP_RECORDS,
    BatchSplitter,
    IncomingBatch,
    Remainder,
)
from millstream.engine.produce.transactional import Batch, TransactionalWrites
from millstream.engine.produce.unpacking import NotSmall, Unpacking
from millstream.engine.runtime.futures import (
    AppendFuture,
    BatchCount,
    copy_outcome,
    ignore_outcome,
)
from millstream.engine.topics import Topics
from millstream.errors import CoordinatorUnavailable, InvalidBatch, Overloaded, RequestError
from millstream.internal_topics.transactions import Participant
from millstream.metrics import Metrics
from millstream.model import SYSTEM_SESSION, Acks, Appended, Buffer, LogId, Producer
from millstream.ports import Clock
from millstream.replication.replica import Replica
from millstream.settings import Switch

READ_BYTES_MAX = 32 * 2**10  # Options in up to so many bytes are read at once, not in steps.
# Unpacked at once, in all batches that come in one turn of the loop: 5 ms or so. All further ones
# go to threads, so that a request with many batches holds up the loop no longer than one does.
TURN_BYTES_MAX = 8 * 2**20
# Unpacked before turns of the loop are watched, so that normal batches pay one addition for this.
UNWATCHED_BYTES_MAX = 2**20
# Served before other tasks have a turn: a queue must empty faster than it fills.
SERVED_AT_ONCE = 64
SERVED_S_MAX = 0.003
# gzip takes four times as long as the others.
_WEIGHTS = {codec: max(SMALL_BYTES_MAX.values()) // SMALL_BYTES_MAX[codec] for codec in Codec}


T = TypeVar("T")


class RunsWork(Protocol):
    """Runs work on a thread, in memory that is reserved for it."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class _QueuedBatch(NamedTuple):
    incoming: IncomingBatch
    arrived_ms: int
    done: AppendFuture
    options: QueueOptions | None = None  # None: not read yet.
    is_large: bool = False  # It is unpacked on a thread.
    admit: Callable[[], Admitted] | None = None  # Run first, on a thread.


class ProducePipeline:
    def __init__(
        self,
        transactions: TransactionalWrites,
        windows: Windows,
        scheduler: DelayedScheduler,
        topics: Topics,
        splitter: BatchSplitter,
        unpacking: Unpacking,
        *,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
        schema_checks: SchemaChecks | None = None,
    ) -> None:
        """`topics` changes settings on behalf of the broker: its gate must admit the broker."""
        self._transactions = transactions
        self._windows = windows
        self._scheduler = scheduler
        self._topics = topics
        self._splitter = splitter
        self._unpacking = unpacking
        self._schema_checks = schema_checks  # None: the registry is off.
        self._limits = limits
        self._clock = clock
        self._count = BatchCount(metrics, clock)
        self._queues: dict[LogId, deque[_QueuedBatch]] = {}
        self._unserved: asyncio.Queue[LogId] = asyncio.Queue()  # As many as there are queues.
        self._queued_bytes = 0
        self._turn_bytes = 0  # Unpacked on the loop, weighted by codec:
        self._is_watched = False  # in this turn if watched, else since the last watched turn.

    async def run(self) -> None:
        """Serve the queues, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._serve(await self._unserved.get()))

    def append(
        self, incoming: IncomingBatch, *, admit: Callable[[], Admitted] | None = None
    ) -> AppendFuture:
        """Append a batch, or queue it; the future is done when `acks` says so.

        Raises at once, with nothing written, or from the future, with the outcome unknown. With
        `admit` that runs first, on a thread, and returns the batch to write.
        """
        queue = self._queues.get(incoming.replica.id) if self._queues else None
        if queue is not None or admit is not None:
            return self._enqueue(incoming, admit=admit)
        if incoming.replica.log.settings.checks_schemas and not self._fits_now(incoming):
            return self._enqueue(incoming)
        try:
            payload = self._search(incoming)
        except NotSmall:
            return self._enqueue(incoming, is_large=True)
        if payload is None:
            return self._write(incoming)
        options = None
        if len(payload) <= READ_BYTES_MAX:
            options = all_at_once(self._read(incoming, payload, now_ms=self._clock.now_ms()))
            if not self._must_wait(incoming, options):
                return self._take(incoming, options)
        return self._enqueue(incoming, options=options)

    # -- the queues ------------------------------------------------------------------------------

    def _enqueue(
        self,
        incoming: IncomingBatch,
        *,
        options: QueueOptions | None = None,
        is_large: bool = False,
        admit: Callable[[], Admitted] | None = None,
    ) -> AppendFuture:
        log_id, size = incoming.replica.id, incoming.header.size
        queue = self._queues.get(log_id)
        count = 0 if queue is None else len(queue)
        if count >= self._limits.intake_queued_batches_max:
            raise Overloaded(f"{count} batches wait for {incoming.target} already")
        if self._queued_bytes and self._queued_bytes + size > self._limits.intake_queued_bytes_max:
            raise Overloaded(f"batches of {self._queued_bytes} bytes wait to be unpacked already")
        if queue is None:
            queue = self._queues[log_id] = deque()
            self._unserved.put_nowait(log_id)
        done: AppendFuture = asyncio.get_running_loop().create_future()
        done.add_done_callback(ignore_outcome)
        queue.append(_QueuedBatch(incoming, self._clock.now_ms(), done, options, is_large, admit))
        self._queued_bytes += size
        return done

    async def _serve(self, log_id: LogId) -> None:
        """Take one batch after the other, until the queue is empty."""
        queue = self._queues[log_id]
        loop = asyncio.get_running_loop()
        served, until_s = 0, loop.time() + SERVED_S_MAX
        try:
            while queue:
                queued = queue[0]
                try:
                    future = await self._serve_one(queued)
                    future.add_done_callback(partial(copy_outcome, queued.done))
                except RequestError as problem:
                    if not queued.done.done():
                        queued.done.set_exception(problem)
                queue.popleft()
                self._queued_bytes -= queued.incoming.header.size
                served += 1
                if queue and (served >= SERVED_AT_ONCE or loop.time() >= until_s):
                    await asyncio.sleep(0)  # There may be many, and each is searched for options.
                    served, until_s = 0, loop.time() + SERVED_S_MAX
        finally:
            del self._queues[log_id]
            self._queued_bytes -= sum(queued.incoming.header.size for queued in queue)
            for queued in queue:  # The node is stopping.
                if not queued.done.done():
                    queued.done.set_exception(CoordinatorUnavailable(str(log_id)))

    async def _serve_one(self, queued: _QueuedBatch) -> AppendFuture:
        incoming, options = queued.incoming, queued.options
        if queued.admit is not None:
            admitted = await self._unpacking.run(queued.admit, packed_bytes=incoming.header.size)
            incoming = incoming._replace(header=admitted.header, data=admitted.data)
        if options is None and incoming.replica.log.settings.checks_schemas:
            checked = await self._checks().check(incoming)
            if checked is None:
                return incoming.replica.committed(0, _nothing(incoming))
            incoming = checked
        if options is not None:
            return await self._serve_options(incoming, options)
        if queued.is_large:
            return await self._serve_large(incoming, now_ms=queued.arrived_ms)
        try:
            payload = self._search(incoming)
        except NotSmall:
            return await self._serve_large(incoming, now_ms=queued.arrived_ms)
        if payload is None:
            return self._write(incoming)
        options = await one_by_one(self._read(incoming, payload, now_ms=queued.arrived_ms))
        return await self._serve_options(incoming, options)

    async def _serve_large(self, incoming: IncomingBatch, *, now_ms: int) -> AppendFuture:
        """Unpack a batch on a thread. Its memory stays reserved until its options are applied."""
        bytes_max = self._unpacking.bytes_max
        async with self._unpacking.room(incoming.header.size) as room:
            try:
                payload = await room.run(
                    lambda: search(unpack(incoming.data, incoming.header, bytes_max=bytes_max))
                )
            except RequestError as problem:
                self._unpacking.report("refused", incoming.target, None, problem)
                raise
            room.shrink(0 if payload is None else len(payload))
            if payload is None:
                return self._write(incoming)
            options = await one_by_one(self._read(incoming, payload, now_ms=now_ms))
            del payload
            return await self._serve_options(incoming, options, unpack_by=room.run)

    async def _serve_options(
        self, incoming: IncomingBatch, options: QueueOptions, *, unpack_by: RunsWork | None = None
    ) -> AppendFuture:
        """With `unpack_by` the batch is unpacked again by that, if it must be."""
        while self._lacks_anything(incoming, options):
            await self._provide(incoming, options)
        return await self._take_in_steps(incoming, options, unpack_by)

    def _must_wait(self, incoming: IncomingBatch, options: QueueOptions) -> bool:
        """Whether a batch cannot be taken in one step."""
        is_long = len(options.due_ms) > STEP_RECORDS or len(options.message_ids) > STEP_IDS
        needs_shard = self._needs_delayed_shard(incoming, options)
        is_split = needs_shard and (
            incoming.header.has_producer
            or self._scheduler.node_of(incoming.target.topic) is not None
        )
        return is_long or is_split or self._lacks_anything(incoming, options)

    def _lacks_anything(self, incoming: IncomingBatch, options: QueueOptions) -> bool:
        topic = incoming.target.topic
        return (
            self._lacks_switch(incoming, options)
            or (
                self._needs_delayed_shard(incoming, options) and not self._scheduler.is_ready(topic)
            )
            or (self._is_checked(incoming, options) and self._lacks_window(incoming.replica))
        )

    def _lacks_window(self, replica: Replica) -> bool:
        return self._windows.find(replica) is None or self._windows.is_held(replica.id.topic_id)

    async def _provide(self, incoming: IncomingBatch, options: QueueOptions) -> None:
        topic = incoming.target.topic
        if self._lacks_switch(incoming, options):
            # Readers and cleaners look at the header only where the topic says so: it must be
            # known to all of them before such a record can be seen.
            await self._topics.alter(
                SYSTEM_SESSION, topic, {"message_ttl_headers": Switch.ON.value}
            )
        if self._needs_delayed_shard(incoming, options):
            await self._scheduler.ready(topic)
        if self._is_checked(incoming, options):
            await self._scheduler.known(topic)
            await self._windows.released(incoming.replica.id.topic_id)
            topic_id = incoming.replica.id.topic_id
            delayed_ids = await self._scheduler.message_ids_of(topic, topic_id)
            await self._windows.load(incoming.replica, delayed_ids)

    def _needs_delayed_shard(self, incoming: IncomingBatch, options: QueueOptions) -> bool:
        due_ms = options.due_ms.values()
        return self._scheduler.is_needed(incoming.target.topic, due_ms, incoming.header)

    @staticmethod
    def _lacks_switch(incoming: IncomingBatch, options: QueueOptions) -> bool:
        settings = incoming.replica.log.settings
        return options.has_ttl and settings.message_ttl_headers is Switch.OFF

    @staticmethod
    def _is_checked(incoming: IncomingBatch, options: QueueOptions) -> bool:
        """Whether ids count."""
        settings = incoming.replica.log.settings
        return (
            bool(options.message_ids)
            and settings.message_id_window_ms > 0
            and settings.message_id_count_max > 0
        )

    # -- options ---------------------------------------------------------------------------------

    def _search(self, incoming: IncomingBatch) -> Buffer | None:
        """The uncompressed records of a batch that may have options; None if it has none.

        Raises `NotSmall` for a batch that would hold up the loop.
        """
        settings = incoming.replica.log.settings
        if settings.message_queue_headers is not Switch.ON:
            return None
        header = incoming.header
        if not header.attributes & CODEC_BITS:
            return search(incoming.data, HEADER_BYTES)
        return search(self._unpack_small(incoming))

    def _unpack_small(self, incoming: IncomingBatch) -> Buffer:
        header = incoming.header
        codec = header.codec
        if self._turn_bytes > TURN_BYTES_MAX:
            raise NotSmall
        try:
            payload = unpack_small(incoming.data, header, bytes_max=self._unpacking.bytes_max)
        except RequestError as problem:
            self._unpacking.report("refused", incoming.target, None, problem)
            raise
        size = SMALL_BYTES_MAX[codec] if payload is None else len(payload)
        self._turn_bytes += size * _WEIGHTS[codec]
        if self._turn_bytes > UNWATCHED_BYTES_MAX and not self._is_watched:
            self._turn_bytes, self._is_watched = 0, True
            asyncio.get_running_loop().call_soon(self._end_turn)
        if payload is None:
            raise NotSmall
        return payload

    def _end_turn(self) -> None:
        self._turn_bytes, self._is_watched = 0, False

    def _read(
        self, incoming: IncomingBatch, payload: Buffer, *, now_ms: int
    ) -> Generator[None, None, QueueOptions]:
        options = yield from read_batch(
            incoming.header, payload, now_ms=now_ms, limits=self._limits
        )
        if not incoming.header.is_transactional:
            return options
        if any(due_ms > now_ms for due_ms in options.due_ms.values()):
            raise InvalidBatch(
                "a record in a transaction cannot be delayed: it would be delivered "
                "after the transaction has ended, whichever way it ends"
            )
        # A due time in the past is that of a copy of a delayed record, which stays in its batch.
        return options._replace(due_ms={})

    def _take(
        self, incoming: IncomingBatch, options: QueueOptions, remainder: Remainder | None = None
    ) -> AppendFuture:
        """Apply the options of a batch that lacks nothing."""
        return self._write(incoming, partial(self._take_now, incoming, options, remainder))

    def _take_now(
        self, incoming: IncomingBatch, options: QueueOptions, remainder: Remainder | None
    ) -> AppendFuture:
        if self._is_unchanged(incoming, options):
            return self._append(incoming)
        is_checked = self._is_checked(incoming, options)
        split = all_at_once(self._splitter.split(incoming, options, is_checked=is_checked))
        return all_at_once(self._splitter.append_remainder(incoming, split, remainder))

    async def _take_in_steps(
        self, incoming: IncomingBatch, options: QueueOptions, unpack_by: RunsWork | None
    ) -> AppendFuture:
        """Apply the options in steps; all else is committed before the remainder is written."""
        is_checked = self._is_checked(incoming, options)
        if incoming.header.is_transactional:
            # Its transaction may end between two steps.
            if unpack_by is None or not is_checked:
                return self._take(incoming, options)
            async with self._windows.held(incoming.replica.id.topic_id):
                removed = await one_by_one(self._splitter.duplicates(incoming, options))
                remainder = await self._remainder(incoming, removed, unpack_by)
                return self._take(incoming, options, remainder)
        if self._is_unchanged(incoming, options):
            return self._append(incoming)
        if not is_checked:
            return await self._split_in_steps(incoming, options, unpack_by, is_checked=False)
        # While a batch is split, no other batch may take one of its ids for new.
        async with self._windows.held(incoming.replica.id.topic_id):
            return await self._split_in_steps(incoming, options, unpack_by, is_checked=True)

    async def _split_in_steps(
        self,
        incoming: IncomingBatch,
        options: QueueOptions,
        unpack_by: RunsWork | None,
        *,
        is_checked: bool,
    ) -> AppendFuture:
        kept = await self._splitter.delay_elsewhere(incoming, options, is_checked=is_checked)
        split = await one_by_one(
            self._splitter.split(incoming, options, is_checked=is_checked, kept=kept)
        )
        # Once the log knows the sequences, a retry is a duplicate: all delayed records must be
        # committed by then.
        await self._splitter.wait_until_committed(split)
        remainder = (
            None if unpack_by is None else await self._remainder(incoming, split.removed, unpack_by)
        )
        return await one_by_one(self._splitter.append_remainder(incoming, split, remainder))

    async def _remainder(
        self, incoming: IncomingBatch, removed: AbstractSet[int], unpack_by: RunsWork
    ) -> Remainder | None:
        """The remainder of a large batch, made on a thread; None if it stays as it is."""
        if not removed:
            return None
        return await unpack_by(lambda: all_at_once(self._splitter.remainder(incoming, removed)))

    def _is_unchanged(self, incoming: IncomingBatch, options: QueueOptions) -> bool:
        """Whether a batch is appended as it is; also a retry of one that was split before."""
        if not options.due_ms and not self._is_checked(incoming, options):
            return True
        return incoming.replica.log.producers.check(incoming.header) is not None

    # -- schemas ---------------------------------------------------------------------------------

    def _fits_now(self, incoming: IncomingBatch) -> bool:
        return self._checks().passes_now(incoming)

    def _checks(self) -> SchemaChecks:
        if self._schema_checks is None:
            raise InvalidBatch(
                "the topic checks schemas (schema.validation.*), and this node has no registry "
                "(registry.enabled)"
            )
        return self._schema_checks

    # -- writing ---------------------------------------------------------------------------------

    def _write(
        self, incoming: IncomingBatch, write: Callable[[], AppendFuture] | None = None
    ) -> AppendFuture:
        """Write a batch as it is, or in another way, if its transaction allows it."""
        header, replica = incoming.header, incoming.replica
        if not header.attributes & TRANSACTIONAL:
            return self._append(incoming) if write is None else write()
        assert incoming.transactional_id is not None
        batch = Batch(
            incoming.transactional_id,
            Producer(header.producer_id, header.producer_epoch),
            Participant(incoming.target.topic, incoming.target.partition, replica.id.topic_id),
            header.base_sequence,
            partial(self._append, incoming) if write is None else write,
        )
        producers = replica.log.producers
        return self._transactions.append(batch, producers, joins=incoming.joins)

    def _append(self, incoming: IncomingBatch) -> AppendFuture:
        replica, _, data, header, acks, _, _ = incoming
        appended = self._count.append(replica, data, header)
        if acks is Acks.ALL:
            replica.commit_written()
            return replica.acknowledged(appended.end_offset, appended)
        # Everything before offset 0 is committed: without a wait the future is done at once.
        return replica.committed(0, appended)


def _nothing(incoming: IncomingBatch) -> Appended:
    """The answer to a batch of which no record is left."""
    return Appended(NO_OFFSET, 0, NO_OFFSET, incoming.replica.log.start_offset)

"""Writes a batch of rows: opened on the driver, written by tasks, ended as one.

Owns the three modes: batches of transactions (Millstream), a transaction for each task (plain
Kafka), and none at all (at least once). Knows no Spark: `spark_writers` passes rows and the task.
Invariant: a task commits nothing by itself where the broker can end a batch as one. It leaves its
transaction open, and only the driver knows which attempts of which tasks count.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import MillstreamError, ProtocolError
from millstream.kafka_client.cluster import Cluster, cluster_for
from millstream.kafka_client.errors import TransientError
from millstream.model import Producer, TopicPartition
from millstream.names import BATCH_MEMBER_MARK
from millstream.spark.errors import (
    BatchRefused,
    Fenced,
    InvalidOption,
    OlderCheckpoint,
    OtherQuery,
    UnwritableRow,
)
from millstream.spark.options.sink import DELIVER_AT, TTL_MS, Guarantee, SinkOptions
from millstream.spark.read.arrow import Array
from millstream.spark.write import transactions
from millstream.spark.write.encoding import as_binary, encode_rows
from millstream.spark.write.lease import Lease
from millstream.spark.write.partitioner import Columns, Router
from millstream.spark.write.producing import Pipeline
from millstream.spark.write.query_identity import QueryIdentity, checkpoint_identity
from millstream.spark.write.transactions import Member, Opened

log = logging.getLogger(__name__)

CHUNK_BYTES = 4 * 2**20  # Rows encoded at once: enough that numpy pays, few enough to overlap.
GROUP_PREFIX = "spark:"
GROUPS_MAX = 64  # Remembered by one worker process.


class WriteMode(Enum):
    AT_LEAST_ONCE = "at least once"
    BATCHES = "one atomic batch"
    TASKS = "a transaction for each task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a batch is written: made on the driver, sent to the tasks."""

    options: SinkOptions
    mode: WriteMode
    identity: QueryIdentity
    opened: Opened | None = None
    partition_counts: Mapping[str, int] = field(default_factory=dict)  # Of the option topic.

    @property
    def group(self) -> str:
        return GROUP_PREFIX + self.identity.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task that writes. `series` is the query that counts the batches; `attempt` differs from
    all other attempts of the same query's tasks."""

    series: str
    batch_id: int
    partition: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of a task, for the driver."""

    group: str
    term: int | None  # None where there is nothing to end on the driver.
    series: str
    member: Member | None  # None: nothing was written, or nothing that is left to end.
    row_count: int
    byte_count: int


# -- on the driver ---------------------------------------------------------------------------------


def open_batch(options: SinkOptions, *, own_columns: Sequence[str] = ()) -> Plan:
    """Decide how to write, and begin the batch where that is to be done.

    `own_columns` are the columns that only Millstream heeds.
    """
    cluster = cluster_for(options.client)
    if own_columns and not transactions.has_batches(cluster):
        raise InvalidOption(
            f"column {own_columns[0]} is only for Millstream, and this broker is another"
        )
    counts = {}
    if options.topic is not None:
        # It is created once, and not by every task; nor does every task look it up.
        counts[options.topic] = cluster.partition_count(options.topic)
    plan = Plan(
        options=options,
        mode=WriteMode.AT_LEAST_ONCE,
        identity=_identity(options),
        partition_counts=counts,
    )
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return plan
    if transactions.has_batches(cluster):
        opened = _opened(cluster, plan.identity)
        return replace(plan, mode=WriteMode.BATCHES, opened=opened)
    if options.assumes_deterministic_tasks:
        return replace(plan, mode=WriteMode.TASKS)
    raise InvalidOption(
        "this broker can't end the transactions of all tasks as one, so a batch that is run again "
        "is exactly once only if each task gets the same rows again, which a data source can't "
        "see: set assumeDeterministicTasks to true if that is so (no shuffle, no random values), "
        "or deliveryGuarantee to at_least_once"
    )


def _identity(options: SinkOptions) -> QueryIdentity:
    prefix = options.transactional_id_prefix
    if prefix is not None and options.batch_id is not None:
        # One function of foreachBatch may write to several topics, each under a memory of its own.
        return QueryIdentity(name=f"{prefix}/{options.topic}" if options.topic else prefix)
    if prefix is not None:
        return QueryIdentity(name=prefix)
    if options.checkpoint is not None:
        return checkpoint_identity(options.checkpoint)
    return QueryIdentity(name=uuid4().hex)


def _opened(cluster: Cluster, identity: QueryIdentity) -> Opened:
    """Open the query's group, whose memory may be under a name of an earlier version."""
    opened = transactions.begin_batch(cluster, GROUP_PREFIX + identity.name)
    if opened.series:
        return opened
    for name in identity.former_names:
        # Opened, not only looked at: a driver of the earlier version can commit no more.
        former = transactions.begin_batch(cluster, GROUP_PREFIX + name)
        if former.series and identity.query_id in (None, former.series):
            return former._replace(term=opened.term)
    return opened


def commit(options: SinkOptions, written: Sequence[Written | None], batch_id: int) -> None:
    """End the batch. May be called again for the same batch, and by a later run of the query."""
    _end([result for result in written if result is not None], options, batch_id, commits=True)


def abort(options: SinkOptions, written: Sequence[Written | None], batch_id: int) -> None:
    """Give the batch up, as far as that is possible: what was committed stays.

    Nothing is raised: a transaction that stays open is ended by the next run, or by its timeout.
    """
    try:
        _end([result for result in written if result is not None], options, batch_id, commits=False)
    except (BatchRefused, Fenced) as problem:
        log.info("batch not aborted batch_id=%d problem=%s", batch_id, problem)
    except MillstreamError as problem:
        log.warning("could not abort batch_id=%d problem=%s", batch_id, problem)


def _end(written: Sequence[Written], options: SinkOptions, batch_id: int, *, commits: bool) -> None:
    runs = {
        (result.group, result.term, result.series) for result in written if result.term is not None
    }
    if not runs:
        return
    ((group, term, series),) = runs  # All tasks of a batch come from one plan.
    assert term is not None
    transactions.end_batch(
        cluster_for(options.client),
        group,
        term,
        series=series,
        batch_id=batch_id,
        commits=commits,
        members=[result.member for result in written if result.member is not None],
    )


# -- in a task -------------------------------------------------------------------------------------


def write(plan: Plan, task: Task, batches: Iterable[Array]) -> Written:
    """Write Arrow record batches; raises with nothing visible to readers of committed records."""
    query_id = plan.identity.query_id
    if query_id not in (None, task.series):
        raise OtherQuery(task.series, query_id)
    writer = _WRITERS[plan.mode](plan, task)
    try:
        if writer.is_done():
            for _ in batches:
                pass  # Spark counts on its rows being taken.
            return writer.written()
        writer.prepare()
        for rows in _chunks(batches, plan.options):
            writer.add(rows)
        return writer.finish()
    except BaseException:
        writer.give_up()
        raise
    finally:
        writer.close()


class _Writer:
    """Writes at least once: batches of an idempotent producer, as they come."""

    def __init__(self, plan: Plan, task: Task) -> None:
        self._plan = plan
        self._task = task
        self._cluster: Cluster = cluster_for(plan.options.client)
        self._counts: dict[str, int] = dict(plan.partition_counts)
        self._router = Router(plan.options.topic, self._partition_count, turn=task.partition)
        self._pipeline: Pipeline | None = None
        self._row_count = 0

    def is_done(self) -> bool:
        """Whether an earlier attempt has written, and committed, all of it."""
        return False

    def prepare(self) -> None:
        """Do what can be done before the first row is there."""
        return

    def add(self, rows: Columns) -> None:
        if self._pipeline is None:
            self._pipeline = self._begin()
        rows, shares = self._router.route(rows)
        self._join(share.target for share in shares)
        pieces = encode_rows(rows, shares, bytes_max=self._plan.options.batch_bytes_max)
        self._pipeline.send(pieces, shares)
        self._row_count += len(rows.values)

    def finish(self) -> Written:
        if self._pipeline is not None:
            self._pipeline.flush()
        return self.written()

    def give_up(self) -> None:
        return

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()

    def written(self) -> Written:
        return self._written(None, None)

    def _written(self, term: int | None, member: Member | None) -> Written:
        return Written(
            group=self._plan.group,
            term=term,
            series=self._task.series,
            member=member,
            row_count=self._row_count,
            byte_count=0 if self._pipeline is None else self._pipeline.bytes_count,
        )

    def _begin(self) -> Pipeline:
        producer = transactions.new_producer(self._cluster)
        return Pipeline(self._cluster, self._plan.options, producer)

    def _join(self, targets: Iterable[TopicPartition]) -> None:
        return

    def _partition_count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._cluster.partition_count(topic)
        return self._counts[topic]


class _TransactionalWriter(_Writer, ABC):
    """Writes in a transaction that is left open."""

    def __init__(self, plan: Plan, task: Task) -> None:
        super().__init__(plan, task)
        self._member: Member | None = None
        self._joined: set[TopicPartition] = set()

    def give_up(self) -> None:
        """Abort the transaction at once; if that fails, its timeout aborts it."""
        if self._member is None:
            return
        with suppress(MillstreamError, OSError, ProtocolError, TransientError):
            transactions.end_now(self._cluster, self._member, commits=False)

    def _begin(self) -> Pipeline:
        options = self._plan.options
        if self._member is None:
            timeout_ms = options.transaction_timeout_ms
            self._member = transactions.begin(self._cluster, self._name(), timeout_ms)
        producer: Producer = self._member.producer
        return Pipeline(self._cluster, options, producer, self._member.transactional_id)

    def _join(self, targets: Iterable[TopicPartition]) -> None:
        assert self._member is not None
        fresh = set(targets) - self._joined
        if fresh:
            transactions.add_partitions(self._cluster, self._member, fresh)
            self._joined |= fresh

    @abstractmethod
    def _name(self) -> str:
        """The transactional id."""


class _BatchWriter(_TransactionalWriter):
    """Leaves its transaction for the driver to end with all others of the batch."""

    def __init__(self, plan: Plan, task: Task) -> None:
        super().__init__(plan, task)
        options = plan.options
        self._lease = Lease(
            options.client,
            plan.group,
            self._opened.term,
            timeout_ms=options.transaction_timeout_ms,
        )

    def prepare(self) -> None:
        # Rows take tens of milliseconds to get here, from the source and through the JVM; the
        # round trip that begins a transaction is over by then.
        if self._plan.group in _with_rows:
            self._pipeline = self._begin()

    def add(self, rows: Columns) -> None:
        self._lease.check()
        super().add(rows)

    def finish(self) -> Written:
        _note_rows(self._plan.group, has_rows=self._row_count > 0)
        written = super().finish()
        self._lease.check()
        return written

    def _join(self, targets: Iterable[TopicPartition]) -> None:
        """Add nothing: a broker that has batches adds the partition with its first records."""

    def close(self) -> None:
        self._lease.close()
        super().close()

    def _begin(self) -> Pipeline:
        pipeline = super()._begin()
        self._lease.member = self._member
        return pipeline

    def is_done(self) -> bool:
        opened = self._opened
        if opened.series != self._task.series:
            return False
        return _is_last(self._task, opened.last_committed_batch)

    def written(self) -> Written:
        return self._written(self._opened.term, self._member)

    @property
    def _opened(self) -> Opened:
        assert self._plan.opened is not None
        return self._plan.opened

    def _name(self) -> str:
        task = self._task
        name = f"{task.batch_id}.{task.partition}.{task.attempt}"
        return f"{self._plan.group}{BATCH_MEMBER_MARK}{self._opened.term}~{name}"


class _TaskWriter(_TransactionalWriter):
    """Commits by itself, and remembers the batch in the same transaction.

    A group of its own remembers it, as an offset: Kafka commits offsets only for partitions that
    exist, and there may be more tasks than partitions.
    """

    def is_done(self) -> bool:
        # Fences an earlier producer of this name first, and ends its transaction.
        timeout_ms = self._plan.options.transaction_timeout_ms
        self._member = transactions.begin(self._cluster, self._name(), timeout_ms)
        names = (self._name(), *(self._name(former) for former in self._former_groups()))
        numbers = (transactions.remembered(self._cluster, name) for name in names)
        return _is_last(self._task, next(filter(None, numbers), 0) - 1)

    def finish(self) -> Written:
        written = super().finish()
        if self._joined:
            assert self._member is not None
            home, number = min(self._joined), self._task.batch_id + 1
            transactions.remember(self._cluster, self._member, self._name(), home, number)
            transactions.end(self._cluster, self._member, commits=True)
        return written

    def _name(self, group: str | None = None) -> str:
        return f"{group or self._plan.group}-{self._task.series}-{self._task.partition}"

    def _former_groups(self) -> Iterator[str]:
        return (GROUP_PREFIX + name for name in self._plan.identity.former_names)


def _is_last(task: Task, last_committed_batch: int) -> bool:
    """Whether the batch is the last one that was committed: Spark runs only that one again.

    A batch before it comes from a checkpoint that was put back, and has other rows in it than what
    was committed under its number. Raises `OlderCheckpoint`.
    """
    if task.batch_id < last_committed_batch:
        raise OlderCheckpoint(task.series, task.batch_id, last_committed_batch)
    return task.batch_id == last_committed_batch


# Batch groups whose last task in this process had rows. Empty tasks are common behind a shuffle,
# and a transaction begun for one costs the coordinator a write.
_with_rows: dict[str, None] = {}


def _note_rows(group: str, *, has_rows: bool) -> None:
    _with_rows.pop(group, None)
    if has_rows:
        _with_rows[group] = None
    while len(_with_rows) > GROUPS_MAX:
        del _with_rows[next(iter(_with_rows))]


_WRITERS: dict[WriteMode, Callable[[Plan, Task], _Writer]] = {
    WriteMode.AT_LEAST_ONCE: _Writer,
    WriteMode.BATCHES: _BatchWriter,
    WriteMode.TASKS: _TaskWriter,
}


# -- rows ------------------------------------------------------------------------------------------


def _chunks(batches: Iterable[Array], options: SinkOptions) -> Iterator[Columns]:
    """Put small record batches together, and cut large ones."""
    waiting: list[Array] = []
    size = 0
    for batch in batches:
        row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
        step = max(1, CHUNK_BYTES // row_bytes)
        for at in range(0, batch.num_rows, step):
            piece = batch.slice(at, step)
            waiting.append(piece)
            size += piece.nbytes
            if size >= CHUNK_BYTES:
                yield _columns(waiting, options)
                waiting, size = [], 0
    if waiting:
        yield _columns(waiting, options)


def _columns(batches: list[Array], options: SinkOptions) -> Columns:
    table = pa.Table.from_batches(batches)

    def column(name: str) -> Array | None:
        return table[name].combine_chunks() if name in table.column_names else None

    keys, headers = column("key"), column("headers")
    now_ms = time.time_ns() // 1_000_000
    times_ms = _milliseconds(column("timestamp"))
    return Columns(
        values=as_binary(column("value")),
        keys=None if keys is None else as_binary(keys),
        headers=headers if options.writes_headers else None,
        topics=column("topic") if options.topic is None else None,
        partitions=column("partition"),
        times_ms=None if times_ms is None else times_ms.fill_null(now_ms),
        due_ms=_not_negative(DELIVER_AT, _milliseconds(column(DELIVER_AT))),
        lives_ms=_not_negative(TTL_MS, column(TTL_MS)),
    )


def _milliseconds(times: Array | None) -> Array | None:
    """Spark's microseconds since 1970, rounded down."""
    if times is None:
        return None
    return times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())


def _not_negative(name: str, numbers: Array | None) -> Array | None:
    least = None if numbers is None else pc.min(numbers).as_py()
    if least is not None and least < 0:
        raise UnwritableRow(f"a row has {least} ms in column {name}, expected 0 or more")
    return numbers

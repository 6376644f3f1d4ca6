"""The writers that Spark asks for: one for batch queries, one for streams.

Owns the input from Spark besides rows: the schema, the task and the batch. Spark builds the writer
of a stream twice per batch, once for the tasks and once for the commit, without saying which.
Pickling marks the copy for the tasks, so the batch begins in `__getstate__`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from millstream.spark.errors import InvalidOption
from millstream.spark.options.sink import DELIVER_AT, TTL_MS, Guarantee, SinkOptions
from millstream.spark.read.arrow import Array
from millstream.spark.sentences import with_sentences
from millstream.spark.spark_api import DataSourceStreamArrowWriter
from millstream.spark.worker_memory import exempt_modules
from millstream.spark.write import atomic_batch
from millstream.spark.write.atomic_batch import Plan, Task, Written

_ONLY_BATCH = 0
_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_HEADERS = "array<struct<key:string,value:binary>>"
_BYTES = ("binary", "string")
_TYPES = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": (_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    DELIVER_AT: ("timestamp",),
    TTL_MS: ("bigint", "int"),
}
# Columns that plain Kafka would keep as headers without effect.
_MILLSTREAM_ONLY = (DELIVER_AT, TTL_MS)


@dataclass
class Message(WriterCommitMessage):
    """The message that Spark carries from a task to the driver."""

    written: Written


class _Planned:
    """A writer that plans its batch when it is first asked how, or sent to the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        exempt_modules()
        check_rows(schema, options)
        self._options = options
        self._own_columns = [name for name in schema.names if name in _MILLSTREAM_ONLY]

    @cached_property
    def _plan(self) -> Plan:
        return atomic_batch.open_batch(self._options, own_columns=self._own_columns)

    def __getstate__(self) -> dict[str, object]:
        return {"_options": self._options, "_own_columns": self._own_columns, "_plan": self._plan}


@with_sentences
class BatchWriter(_Planned, DataSourceArrowWriter):
    """Writes a DataFrame; all of it becomes visible at once, or nothing."""

    def write(self, iterator: Iterator[Array]) -> Message:
        task = _task(self._plan.identity.name, self._batch_id)
        return Message(atomic_batch.write(self._plan, task, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        atomic_batch.commit(self._options, _written(messages), self._batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        atomic_batch.abort(self._options, _written(messages), self._batch_id)

    @property
    def _batch_id(self) -> int:
        batch_id = self._options.batch_id
        return _ONLY_BATCH if batch_id is None else batch_id


@with_sentences
class StreamWriter(_Planned, DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each of them once."""

    def write(self, iterator: Iterator[Array]) -> Message:
        return Message(atomic_batch.write(self._plan, _stream_task(), iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name.
        atomic_batch.commit(self._options, _written(messages), batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name.
        atomic_batch.abort(self._options, _written(messages), batchId)


def check_rows(schema: StructType, options: SinkOptions) -> None:
    """Raise unless rows of this schema can be written. Further columns are left out, as ever."""
    kinds = {field.name: field.dataType.simpleString() for field in schema}
    if "value" not in kinds:
        raise InvalidOption("required attribute 'value' not found")
    if "topic" not in kinds and options.topic is None:
        raise InvalidOption(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic"
        )
    for name, allowed in _TYPES.items():
        if name in kinds and kinds[name] not in allowed:
            expected = " or ".join(allowed)
            raise InvalidOption(
                f"unsupported type for column {name}: {kinds[name]}, expected {expected}"
            )
    if DELIVER_AT in kinds and options.guarantee is Guarantee.EXACTLY_ONCE:
        raise InvalidOption(
            f"column {DELIVER_AT} can't be written exactly once: a delayed record is delivered "
            "after its transaction has ended, so brokers take none in a transaction; set "
            "deliveryGuarantee to at_least_once"
        )
    for name in kinds:
        # Misspelt, it would be left out like any other column, and records come at once.
        meant = {known.lower(): known for known in _MILLSTREAM_ONLY}.get(name.lower(), name)
        if meant != name:
            raise InvalidOption(f"there is no column {name}; did you mean {meant}?")


def _stream_task() -> Task:
    context = _context()
    batch_id = context.getLocalProperty(_BATCH_ID)
    query_id = context.getLocalProperty(_QUERY_ID)
    assert batch_id is not None
    assert query_id is not None
    return _task(str(query_id), int(batch_id))


def _task(series: str, batch_id: int) -> Task:
    context = _context()
    return Task(
        series=series,
        batch_id=batch_id,
        partition=context.partitionId(),
        attempt=context.taskAttemptId(),
    )


def _context() -> TaskContext:
    exempt_modules()
    context = TaskContext.get()
    assert context is not None, "rows are written in tasks"
    return context


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written | None]:
    return [message.written if isinstance(message, Message) else None for message in messages]

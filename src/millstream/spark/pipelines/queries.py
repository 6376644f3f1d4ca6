"""Runs the streaming queries of a pipeline: context, sources, sinks, progress.

Starts a set of queries together, watches them, and stops all when one fails or `Context.stop` is
set. Every query has its own checkpoint, named by pipeline and query, so a new name starts from the
beginning.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.names import DLQ_TOPIC_SUFFIX
from millstream.spark.pipelines.failures import PipelineFailed, reason_of, short_reason
from millstream.spark.pipelines.progress import ProgressListener
from millstream.spark.pipelines.summaries import (
    OBSERVED,
    ROWS_QUARANTINED,
    ROWS_WRITTEN,
    Progress,
    Summary,
    add,
    total,
)
from millstream.spark.source_environment import FORMAT
from millstream.spark.write.once import write_once

POLL_SECONDS = 0.1  # Between looks at what the listener was told; Spark is not asked.
LAST_WORDS_SECONDS_MAX = 10  # For Spark to tell the listener all of a query that has ended.


def _ignore(_: Progress) -> None:
    """The default `Context.report`: does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where and how a pipeline runs. Checkpoints live in `<state_dir>/<name>/<query>`."""

    spark: SparkSession
    bootstrap: str
    state_dir: str
    name: str  # Of this run of a pipeline: names the consumer group and the checkpoints.
    is_continuous: bool = False  # False: run over the records that are there now, then end.
    trigger_seconds: float = 1.0  # Only when continuous.
    client_options: Mapping[str, str] = field(default_factory=dict)  # kafka.*, for both ends.
    report: Callable[[Progress], None] = _ignore
    stop: threading.Event = field(default_factory=threading.Event)

    def checkpoint(self, query: str) -> str:
        return f"{self.state_dir.rstrip('/')}/{self.name}/{query}"

    def named(self, name: str) -> "Context":
        return replace(self, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTopic:
    """The exactly-once sink. Without a topic, rows have a column `topic`."""

    topic: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToFiles:
    """Files that Spark's file sink keeps a log of: whole batches or nothing."""

    path: str
    format: str = "parquet"
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToBatches:
    """A function of a batch and its number, which may be called again for the same batch."""

    write: Callable[[DataFrame, int], None]


Sink = ToTopic | ToFiles | ToBatches


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One streaming query, not yet started."""

    name: str
    frame: DataFrame
    sink: Sink
    output_mode: str = "append"
    scans: int = 1  # How often the query reads each row: Spark counts every time.


def source(context: Context, topics: str | Sequence[str], **options: str) -> DataFrame:
    """Topics as a stream, from the beginning unless `startingOffsets` says otherwise."""
    defaults = {"startingOffsets": "earliest", "kafka.group.id": context.name}
    reader = context.spark.readStream.format(FORMAT)
    return reader.options(**_reading(context, topics, defaults, options)).load()


def read(context: Context, topics: str | Sequence[str], **options: str) -> DataFrame:
    """Topics as they are now."""
    reader = context.spark.read.format(FORMAT)
    return reader.options(**_reading(context, topics, {}, options)).load()


def write(context: Context, frame: DataFrame, *, topic: str | None = None, **options: str) -> None:
    """Append a batch of rows; all of them become visible at once, or none."""
    writer = (
        frame.write.format(FORMAT)
        .mode("append")
        .options(**writing_options(context, topic, options))
    )
    try:
        writer.save()
    except PySparkException as problem:
        raise PipelineFailed(context.name, short_reason(str(problem))) from problem


def upserts(context: Context, *, topic: str | None, **options: str) -> ToBatches:
    """The sink of output mode `update`: each batch is written once, however often it is run."""
    chosen = writing_options(context, topic, options)
    return ToBatches(lambda batch, batch_id: write_once(batch, batch_id, options=chosen))


def run_stream(
    context: Context, frame: DataFrame, *, query: str, sink: Sink, output_mode: str = "append"
) -> Summary:
    """Run one query to its end, or until `Context.stop` is set."""
    return run_streams(
        context, [Query(name=query, frame=frame, sink=sink, output_mode=output_mode)]
    )


def run_streams(context: Context, queries: Sequence[Query]) -> Summary:
    """Run queries side by side. The first failure stops all and is raised as one sentence."""
    started = time.monotonic()
    running: list[_Running] = []
    listener = ProgressListener()
    context.spark.streams.addListener(listener)
    try:
        for query in queries:
            running += [_Running(context, query, listener)]
        active = running
        while active and not context.stop.wait(POLL_SECONDS):
            active = [started_query for started_query in active if started_query.look()]
    except PySparkException as problem:
        name = queries[min(len(running), len(queries) - 1)].name
        raise PipelineFailed(f"{context.name}/{name}", short_reason(str(problem))) from problem
    finally:
        for started_query in running:
            started_query.stop()
        context.spark.streams.removeListener(listener)
    summary = total(
        (started_query.so_far for started_query in running), seconds=time.monotonic() - started
    )
    return replace(summary, is_stopped=context.stop.is_set() and not context.is_continuous)


class _Running:
    """A started query, and the summary of its batches so far."""

    def __init__(self, context: Context, query: Query, listener: ProgressListener) -> None:
        self._context = context
        self._name = query.name
        self._scans = query.scans
        self.so_far = Summary()
        self._listener = listener
        self._query: StreamingQuery = _start(context, query)
        self._run_id = str(self._query.runId)

    def look(self) -> bool:
        """Count new progress; return whether the query runs. Raises the error that ended it."""
        is_active = not self._listener.has_ended(self._run_id)
        self._take_in()
        problem = None if is_active else self._query.exception()
        if problem is not None and not self._context.stop.is_set():
            where = f"{self._context.name}/{self._name}"
            raise PipelineFailed(where, reason_of(problem)) from problem
        return is_active

    def stop(self) -> None:
        """Stop the query. The next run repeats the batch under way, and counts it then."""
        if self._query.isActive:
            self._query.stop()
        self._listener.wait_ended(self._run_id, LAST_WORDS_SECONDS_MAX)
        self._take_in()

    def _take_in(self) -> None:
        for progress in self._listener.take(self._run_id):
            progress["numInputRows"] //= self._scans
            self.so_far = add(self.so_far, progress)
            self._context.report(
                Progress(
                    pipeline=self._context.name,
                    query=self._name,
                    batch=progress["batchId"],
                    batch_rows=progress["numInputRows"],
                    batch_seconds=progress.get("batchDuration", 0) / 1000,
                    so_far=self.so_far,
                )
            )


def _start(context: Context, query: Query) -> StreamingQuery:
    observed = query.frame.observe(OBSERVED, *_counts(query))
    writer = observed.writeStream.outputMode(query.output_mode).queryName(
        f"{context.name}/{query.name}"
    )
    if context.is_continuous:
        writer = writer.trigger(processingTime=f"{context.trigger_seconds} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    checkpoint = context.checkpoint(query.name)
    return _to(context, writer, query.sink).option("checkpointLocation", checkpoint).start()


def _to(context: Context, writer: DataStreamWriter, sink: Sink) -> DataStreamWriter:
    match sink:
        case ToTopic():
            options = writing_options(context, sink.topic, sink.options)
            return writer.format(FORMAT).options(**options)
        case ToFiles():
            writer = writer.format(sink.format).option("path", sink.path).options(**sink.options)
            return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
        case ToBatches():
            return writer.foreachBatch(sink.write)


def _counts(query: Query) -> list[Column]:
    """Count rows, and those for dead-letter topics where the column `topic` is the target.

    In files the column is the topic that a record comes from: an archived dead letter is written.
    """
    counts = [F.count(F.lit(1)).alias(ROWS_WRITTEN)]
    names_topics = isinstance(query.sink, ToTopic) and query.sink.topic is None
    if names_topics and "topic" in query.frame.columns:
        quarantined = F.count_if(F.col("topic").endswith(DLQ_TOPIC_SUFFIX))
        counts.append(quarantined.alias(ROWS_QUARANTINED))
    return counts


def _reading(
    context: Context,
    topics: str | Sequence[str],
    defaults: Mapping[str, str],
    options: Mapping[str, str],
) -> dict[str, str]:
    subscribed = topics if isinstance(topics, str) else ",".join(topics)
    # Options that name partitions or a pattern need no list of topics.
    subscription = {"subscribe": subscribed} if subscribed else {}
    return {**_client(context), **defaults, **subscription, **options}


def writing_options(
    context: Context, topic: str | None, options: Mapping[str, str]
) -> dict[str, str]:
    """All options of a sink that writes to `topic`, or to the topics that rows name."""
    where = {} if topic is None else {"topic": topic}
    return {**_client(context), **where, **options}


def _client(context: Context) -> dict[str, str]:
    return {"kafka.bootstrap.servers": context.bootstrap, **context.client_options}

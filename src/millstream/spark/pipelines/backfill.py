"""Runs the flows of a pipeline over the records of a past time, as one batch each.

A backfill reads beside the running pipeline and leaves its checkpoints alone. It is known to the
broker by the pipeline, the flow and the time: run again, it writes nothing a second time.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from millstream.spark.pipelines import sql_flow
from millstream.spark.pipelines.failures import InvalidPipeline, PipelineFailed, short_reason
from millstream.spark.pipelines.queries import Context, read, writing_options
from millstream.spark.pipelines.ready import catalog, records
from millstream.spark.pipelines.spec import Flow, Spec, texts
from millstream.spark.write.once import write_once

_ONLY_BATCH = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From `start` on, before `end`."""

    start: datetime
    end: datetime

    @property
    def options(self) -> dict[str, str]:
        """For the source. A partition without records since `start` has none to read."""
        return {
            "startingTimestamp": str(_milliseconds(self.start)),
            "endingTimestamp": str(_milliseconds(self.end)),
            "startingOffsetsByTimestampStrategy": "latest",
            "includeHeaders": "true",
        }

    @property
    def name(self) -> str:
        return f"{_milliseconds(self.start)}-{_milliseconds(self.end)}"


def parse_span(start: str, end: str) -> Span:
    """Raises `InvalidPipeline` for text that is no time, and for an end before the start."""
    span = Span(start=_time("--from", start), end=_time("--to", end))
    if span.start >= span.end:
        raise InvalidPipeline(f"--from is {start}, which is not before --to {end}")
    return span


def run(spec: Spec, context: Context, span: Span, flow: str | None = None) -> dict[str, int]:
    """Fill the topics of all flows, or of one, in their order; return the rows of each."""
    chosen = [each for each in spec.flows if flow in (None, each.name)]
    if not chosen:
        names = ", ".join(each.name for each in spec.flows)
        raise InvalidPipeline(f"there is no flow {flow}; there are {names}")
    for each in chosen:
        _check(each)
    return {each.name: _fill(spec, context, each, span) for each in chosen}


def _fill(spec: Spec, context: Context, flow: Flow, span: Span) -> int:
    rows = _rows(context, flow, span).cache()
    name = f"{spec.name}.{flow.name}.backfill.{span.name}"
    try:
        count = rows.count()
        topic = None if "topic" in rows.columns else _topics(flow)[0]
        options = {} if flow.sink is None else texts(flow.sink.options)
        chosen = writing_options(context, topic, options)
        write_once(rows, _ONLY_BATCH, name=name, options=chosen)
    except PySparkException as problem:
        raise PipelineFailed(name, short_reason(str(problem))) from problem
    finally:
        rows.unpersist()
    return count


def _rows(context: Context, flow: Flow, span: Span) -> DataFrame:
    if flow.use is None:
        assert flow.source is not None
        own = {
            name: value
            for name, value in flow.source.own_options().items()
            if name not in ("startingOffsets", "maxOffsetsPerTrigger")
        }
        frame = read(context, flow.source.all_topics, **(own | span.options))
        return sql_flow.written(sql_flow.rows(frame, flow), flow)
    ready = catalog.find(flow.use)
    parameters = ready.checked(flow.parameters, f"flow {flow.name}, with")
    assert ready.transform is not None
    topics = {
        topic: read(context, topic, **span.options)
        for text in ready.reads(parameters)
        for topic in records.topics(text)
    }
    return ready.transform(topics, parameters)


def _check(flow: Flow) -> None:
    if flow.use is not None and catalog.find(flow.use).transform is None:
        raise InvalidPipeline(
            f"flow {flow.name} uses {flow.use}, which has no backfill; name another with --flow"
        )
    if not _topics(flow):
        raise InvalidPipeline(
            f"flow {flow.name} writes a table, and only topics are filled: a stream that writes "
            "files would not know the new ones; name another with --flow"
        )


def _topics(flow: Flow) -> list[str]:
    if flow.use is None:
        assert flow.sink is not None
        return [] if flow.sink.topic is None else [flow.sink.topic]
    ready = catalog.find(flow.use)
    return ready.writes(ready.checked(flow.parameters, f"flow {flow.name}, with"))


def _time(flag: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidPipeline(
            f"{flag} is {text!r}, expected a time such as 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)

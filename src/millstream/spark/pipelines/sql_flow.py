"""Builds the DataFrames of a SQL flow: rows of topics, SQL, rows of the sink.

Pure, apart from the temporary view that SQL needs while it is analysed. Each step sees the rows
before it as the table `source`, and only the driver sees that name.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.spark.errors import InvalidOption
from millstream.spark.options.sink import sink_options
from millstream.spark.pipelines.failures import InvalidPipeline, short_reason
from millstream.spark.pipelines.queries import (
    Context,
    Query,
    ToBatches,
    ToFiles,
    ToTopic,
    source,
    upserts,
)
from millstream.spark.pipelines.ready import dlq_report, records
from millstream.spark.pipelines.spec import Flow, Sink, Source, texts
from millstream.spark.write.spark_writers import check_rows

VIEW = "source"
QUERY = "rows"
MALFORMED = "malformed"

_REASON = "schema"  # Of a dead letter, as the pipeline *validate* says it.

_PLACE = ("topic", "partition", "offset")  # Of a record.


def query(context: Context, flow: Flow, directory: str) -> Query:
    """The flow as a streaming query, analysed. Tables lie in `directory` unless they are absolute.

    Raises `InvalidPipeline` for SQL that is wrong and rows that the sink can't take.
    """
    assert flow.source is not None
    assert flow.sink is not None
    frame = source(context, flow.source.all_topics, **flow.source.own_options())
    output = written(rows(frame, flow), flow)
    sink = _sink(context, flow.sink, directory)
    if flow.source.malformed == "dlq":
        assert isinstance(sink, ToTopic)
        output, sink = _with_letters(output, frame, flow), replace(sink, topic=None)
    if isinstance(sink, ToFiles):
        try:
            records.check_files(context, QUERY, sink.path, named="table")
        except InvalidOption as problem:
            raise InvalidPipeline(f"flow {flow.name}, sink: {problem}") from None
    return Query(
        name=QUERY,
        frame=output,
        sink=sink,
        output_mode=flow.sink.output_mode,
        scans=2 if flow.source.malformed == "dlq" else 1,
    )


def rows(frame: DataFrame, flow: Flow) -> DataFrame:
    """The rows of the flow's SQL, before the columns of the sink are built."""
    assert flow.source is not None
    try:
        result = _columns(frame, flow.source)
    except (PySparkException, InvalidOption) as problem:
        why = problem if isinstance(problem, InvalidOption) else short_reason(str(problem))
        raise InvalidPipeline(f"flow {flow.name}, source: {why}") from None
    for number, sql in enumerate(flow.steps, 1):
        place = f"flow {flow.name}, sql" + (f" {number}" if len(flow.steps) > 1 else "")
        result = _step(result, sql, place)
    return result


def written(frame: DataFrame, flow: Flow) -> DataFrame:
    """Rows as the sink takes them."""
    assert flow.sink is not None
    if flow.sink.topic is None:
        _require(frame, flow.sink.partition_by, f"flow {flow.name}, sink.partition_by")
        return frame
    output = frame if flow.sink.format == "raw" else _as_json(frame, flow)
    options = {**flow.sink.writing("localhost:9092"), "checkpointLocation": "here"}
    try:
        check_rows(output.schema, sink_options(options, is_streaming=True))
    except InvalidOption as problem:
        raise InvalidPipeline(f"flow {flow.name}, sink: {problem}") from None
    return output


def _columns(frame: DataFrame, source: Source) -> DataFrame:
    if source.schema is None:
        return frame
    result = records.parsed(frame, source.schema)
    match source.malformed:
        case "skip":
            result = records.readable(result, MALFORMED)
        case "dlq":
            result = result.where(~F.col(records.IS_MALFORMED))
        case "fail":
            where = [F.col(f"{records.RECORD}.{name}").cast("string") for name in _PLACE]
            message = F.concat_ws(
                " ", F.lit("not JSON of the schema: topic, partition, offset"), *where
            )
            is_good = F.when(F.col(records.IS_MALFORMED), F.raise_error(message).cast("boolean"))
            result = result.where(is_good.otherwise(F.lit(True)))
        case "keep":
            pass
    if source.watermark is not None:
        result = records.timed(result, source.watermark.column, source.watermark.delay)
    return result


def _with_letters(output: DataFrame, frame: DataFrame, flow: Flow) -> DataFrame:
    """The rows of the flow and the dead letters of its source, each with its topic."""
    assert flow.source is not None
    assert flow.source.schema is not None
    assert flow.sink is not None
    bad = records.parsed(frame, flow.source.schema).where(F.col(records.IS_MALFORMED))
    error = F.lit(f"the value must be JSON of {flow.source.schema}")
    letters = dlq_report.as_letters(bad, reason=F.lit(_REASON), error=error)
    good = output.withColumn("topic", F.lit(flow.sink.topic))
    for name in ("key", "value"):
        if name in good.columns:
            good = good.withColumn(name, F.col(name).cast("binary"))
    if "headers" not in good.columns:
        good = good.withColumn("headers", F.array().cast(records.HEADERS))
    return good.unionByName(letters, allowMissingColumns=True)


def _step(frame: DataFrame, sql: str, place: str) -> DataFrame:
    spark = frame.sparkSession
    frame.createOrReplaceTempView(VIEW)
    try:
        result = spark.sql(sql)
        columns = result.columns
    except PySparkException as problem:
        raise InvalidPipeline(f"{place}: {short_reason(str(problem))}") from None
    finally:
        spark.catalog.dropTempView(VIEW)
    if not columns:
        raise InvalidPipeline(f"{place}: gives no rows, expected a SELECT")
    return result


def _as_json(frame: DataFrame, flow: Flow) -> DataFrame:
    assert flow.sink is not None
    key = flow.sink.key
    if key is not None:
        _require(frame, [key], f"flow {flow.name}, sink.key")
    keys, value = records.as_json(frame, [key] if key else [], frame.columns)
    return frame.select(keys, value)


def _require(frame: DataFrame, columns: Sequence[str], place: str) -> None:
    for column in columns:
        if column not in frame.columns:
            raise InvalidPipeline(
                f"{place}: there is no column {column}; there are {', '.join(frame.columns)}"
            )


def _sink(context: Context, sink: Sink, directory: str) -> ToTopic | ToFiles | ToBatches:
    topic, options = sink.topic, texts(sink.options)
    if topic is not None and sink.output_mode == "update":
        return upserts(context, topic=topic, **options)
    if topic is not None:
        return ToTopic(topic=topic, options=options)
    assert sink.table is not None
    is_absolute = sink.table.startswith("/") or "://" in sink.table
    return ToFiles(
        path=sink.table if is_absolute else f"{directory}/{sink.table}",
        format=sink.format or "parquet",
        partition_by=sink.partition_by,
        options=options,
    )

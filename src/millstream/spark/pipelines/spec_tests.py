"""Runs the tests of a pipeline file: rows in, expected rows out, on Spark and without a broker.

Owns how rows are written in YAML and how they are compared: as JSON, in any order, by the columns
that the example names. Rows are one finite batch, so windows are final.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.errors import MillstreamError
from millstream.spark.datasource import COLUMNS
from millstream.spark.pipelines import sql_flow
from millstream.spark.pipelines.failures import InvalidPipeline, short_reason
from millstream.spark.pipelines.ready import catalog
from millstream.spark.pipelines.spec import Example, Flow, Spec

# The fields of a row of an example, with their defaults.
_DEFAULTS: dict[str, object] = {
    "key": None,
    "value": None,
    "partition": 0,
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "timestampType": 0,
    "headers": {},
}
_BINARY = ("key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of an example: expected rows that are missing, and rows that were not expected."""

    example: str
    flow: str
    missing: list[dict[str, Any]]
    unexpected: list[dict[str, Any]]
    problem: str | None = None

    @property
    def is_passed(self) -> bool:
        return not (self.missing or self.unexpected or self.problem)


def run(spark: SparkSession, spec: Spec) -> list[Verdict]:
    flows = {flow.name: flow for flow in spec.flows}
    return [_verdict(spark, flows[example.flow], example) for example in spec.tests]


# Rows as YAML and JSON have them: of any type.
def compare(
    expected: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows missing and rows unexpected, each of them once for each time it is."""
    columns = sorted({name for row in expected for name in row})
    left = [_comparable(row) for row in expected]
    extra = []
    for row in rows:
        narrowed = {name: row[name] for name in columns if name in row} if columns else dict(row)
        if narrowed in left:
            left.remove(narrowed)
        else:
            extra.append(narrowed)
    return left, extra


def _verdict(spark: SparkSession, flow: Flow, example: Example) -> Verdict:
    try:
        rows = _rows(_result(spark, flow, example))
    except (PySparkException, MillstreamError) as problem:
        why = short_reason(str(problem))
        return Verdict(example=example.name, flow=flow.name, missing=[], unexpected=[], problem=why)
    missing, unexpected = compare(example.expected, rows)
    return Verdict(example=example.name, flow=flow.name, missing=missing, unexpected=unexpected)


def _result(spark: SparkSession, flow: Flow, example: Example) -> DataFrame:
    frames = {topic: _frame(spark, topic, rows) for topic, rows in example.input.items()}
    if flow.use is None:
        assert flow.source is not None
        unread = sorted(set(frames) - set(flow.source.all_topics))
        if unread:
            raise InvalidPipeline(f"flow {flow.name} does not read topic {unread[0]}")
        rows = _frame(spark, "", [])
        for frame in frames.values():
            rows = rows.union(frame)
        result = sql_flow.rows(rows, flow)
        sql_flow.written(result, flow)
        return result
    ready = catalog.find(flow.use)
    if ready.transform is None:
        raise InvalidPipeline(f"{flow.use} can't be tested without a broker")
    parameters = ready.checked(flow.parameters, f"flow {flow.name}, with")
    for topic in ready.reads(parameters):
        frames.setdefault(topic, _frame(spark, topic, []))
    return ready.transform(frames, parameters)


def _frame(spark: SparkSession, topic: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows as the source gives them."""
    full_rows = []
    for number, row in enumerate(rows):
        unknown = sorted(set(row) - set(COLUMNS))
        if unknown:
            raise InvalidPipeline(
                f"a row of topic {topic} has {unknown[0]}; a row has {', '.join(_DEFAULTS)}"
            )
        full = {**_DEFAULTS, "topic": topic, "offset": number, **row}
        full.update({name: _bytes(full[name]) for name in _BINARY})
        full["headers"] = [(name, _bytes(text)) for name, text in full["headers"].items()]
        full["timestamp"] = _moment(full["timestamp"])
        full_rows.append(tuple(full[name] for name in COLUMNS))
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return spark.createDataFrame(full_rows, schema)


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them, with bytes as text."""
    columns = []
    for field in frame.schema:
        column = F.col(f"`{field.name}`")
        if field.dataType.simpleString() == "binary":
            column = column.cast("string")
        if field.name == "headers":
            column = F.transform(column, _readable_header)
        columns.append(column.alias(field.name))
    text = F.to_json(F.struct(*columns), {"ignoreNullFields": "false", "timeZone": "UTC"})
    return [_opened(json.loads(row[0])) for row in frame.select(text).collect()]


def _readable_header(header: Any) -> Any:  # A column, in and out.
    return F.struct(header["key"].alias("key"), header["value"].cast("string").alias("value"))


def _opened(row: dict[str, Any]) -> dict[str, Any]:
    """A value that is JSON text, and headers, as they are written in examples."""
    if isinstance(row.get("headers"), list):
        row["headers"] = {header["key"]: header["value"] for header in row["headers"]}
    value = row.get("value")
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            row["value"] = json.loads(value)
        except ValueError:
            return row
    return row


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value, default=str)).encode()


def _moment(value: object) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise InvalidPipeline(f"timestamp is {value!r}, expected one such as 2026-01-31 12:00:00")
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """An expected row as JSON has it: times as Spark writes them."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return _comparable(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value

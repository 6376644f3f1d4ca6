"""Validate: rows that meet expectations go on, all others to `<topic>.dlq` with the reason.

One query writes both, so the good and bad rows of a batch become visible together. An absent value
breaks only `not_null` and `expression`: whether a value may be absent and which values are good are
two expectations.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.names import DLQ_TOPIC_SUFFIX
from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.queries import Context, ToTopic, run_stream, source
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.dlq_report import letter_headers
from millstream.spark.pipelines.ready.records import IS_MALFORMED, RECORD, WRITTEN, FromTopic
from millstream.spark.pipelines.summaries import Summary

OBSERVED = "expectations"
MALFORMED = "schema"  # The name of the expectation that a schema is.

# No row may stop the query: what an expression can't compute is null, and the row is bad.
_LENIENT = {"spark.sql.ansi.enabled": "false"}
_FAILED, _BROKEN, _FLAGS, _ROWS = "failed", "broken", "flags", "rows"


class _Named(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    name: str
    action: Literal["quarantine", "count"] = "quarantine"


class NotNull(_Named, tag="not_null"):
    """The field is there."""

    field: str


class OfType(_Named, tag="type"):
    """The field can be read as a type of Spark's SQL."""

    field: str
    type: str


class InRange(_Named, tag="range"):
    """The field lies between two bounds, both included."""

    field: str
    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise InvalidOption(f"expectation {self.name!r} is a range without min and max")


class Matches(_Named, tag="regex"):
    """All of the field's text matches a Java regular expression."""

    field: str
    pattern: str


class Holds(_Named, tag="expression"):
    """The SQL is true; null is not."""

    sql: str


Expectation: TypeAlias = NotNull | OfType | InRange | Matches | Holds


class Parameters(FromTopic, kw_only=True, forbid_unknown_fields=True):
    """Let rows pass that meet expectations; send the others to the dead letters."""

    to: str | None = None  # <topic>.valid
    dlq: str | None = None  # <topic>.dlq
    schema: str | None = None  # DDL of the JSON value. A value that is not of it is bad.
    expectations: list[Expectation] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        records.name(to=self.to, dlq=self.dlq)
        if self.dlq is not None and not self.dlq.endswith(DLQ_TOPIC_SUFFIX):
            raise InvalidOption(
                f"dlq is {self.dlq!r}, expected a name that ends with {DLQ_TOPIC_SUFFIX}"
            )
        names = [expectation.name for expectation in self.expectations]
        taken = {MALFORMED} if self.schema is not None else set()
        for name in names:
            if not name.strip() or name in taken:
                raise InvalidOption(f"expectations has the name {name!r} twice or empty")
            taken.add(name)
        if not taken:
            raise InvalidOption("expectations is empty and there is no schema: nothing is checked")

    @property
    def target(self) -> str:
        return self.to or f"{self.topic}.valid"


def transform(frames: Mapping[str, DataFrame], parameters: Parameters) -> DataFrame:
    return validated(records.subscribed(frames, parameters.topic), parameters)


def validated(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows for the sink: the good ones for the target, the bad ones for the dead letters."""
    return routed(checked(frame, parameters), parameters)


def checked(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows with the names of the expectations that they fail, and what these ask for.

    Counts failures of each expectation, also of those that are only counted.
    """
    rows = records.parsed(frame, parameters.schema)
    checks = _checks(rows, parameters)
    flags = F.struct(*(check.fails.alias(str(at)) for at, check in enumerate(checks)))
    counts = [F.count_if(F.col(_FLAGS)[str(at)]).alias(str(at)) for at in range(len(checks))]
    flagged = rows.select(RECORD, flags.alias(_FLAGS)).observe(
        OBSERVED, F.count(F.lit(1)).alias(_ROWS), *counts
    )
    barring = {at: check for at, check in enumerate(checks) if check.is_barring}
    return flagged.select(
        RECORD,
        _of_failed({at: check.name for at, check in barring.items()}).alias(_FAILED),
        _of_failed({at: check.text for at, check in barring.items()}).alias(_BROKEN),
    )


def routed(frame: DataFrame, parameters: Parameters) -> DataFrame:
    is_bad = F.size(_FAILED) > 0
    headers = F.col(f"{RECORD}.headers")
    letter = letter_headers(F.array_join(_FAILED, ", "), F.array_join(_BROKEN, "; "))
    own = F.concat(f"{RECORD}.topic", F.lit(DLQ_TOPIC_SUFFIX))
    dlq = own if parameters.dlq is None else F.lit(parameters.dlq)
    columns = {
        "topic": F.when(is_bad, dlq).otherwise(F.lit(parameters.target)),
        "key": F.col(f"{RECORD}.key"),
        "value": F.col(f"{RECORD}.value"),
        "headers": F.when(is_bad, letter).otherwise(headers),
    }
    return frame.select(*(columns[name].alias(name) for name in WRITTEN))


def reads(parameters: Parameters) -> list[str]:
    return records.topics(parameters.topic)


def writes(parameters: Parameters) -> list[str]:
    return [parameters.target, *_dead_letters(parameters)]


def run(context: Context, parameters: Parameters) -> Summary:
    own = records.with_settings(context, _LENIENT)
    frame = validated(source(own, parameters.topic, **parameters.options()), parameters)
    summary = run_stream(own, frame, query="validate", sink=ToTopic())
    return summary.with_details(expectations=counted(summary.details, parameters))


def counted(details: Mapping[str, object], parameters: Parameters) -> dict[str, dict[str, int]]:
    """Good and bad rows of each expectation, from what the query observed."""
    observed = records.observed(details, OBSERVED)
    names = [MALFORMED] if parameters.schema is not None else []
    names += [expectation.name for expectation in parameters.expectations]
    counts = {}
    for at, name in enumerate(names):
        bad = observed.get(str(at), 0)
        counts[name] = {"good": observed.get(_ROWS, 0) - bad, "bad": bad}
    return counts


def _dead_letters(parameters: Parameters) -> list[str]:
    if parameters.dlq is not None:
        return [parameters.dlq]
    return [f"{topic}{DLQ_TOPIC_SUFFIX}" for topic in records.topics(parameters.topic)]


class _Check(NamedTuple):
    """`fails` is never null."""

    name: str
    fails: Column
    text: str
    is_barring: bool = True


def _checks(rows: DataFrame, parameters: Parameters) -> list[_Check]:
    checks = []
    if parameters.schema is not None:
        text = f"the value must be JSON of {parameters.schema}"
        checks.append(_Check(MALFORMED, F.col(IS_MALFORMED), text))
    for expectation in parameters.expectations:
        sql = _sql(expectation)
        with records.blaming(f"expectation {expectation.name!r}", sql):
            fails, text = _failure(expectation)
            rows.select(fails)
            if isinstance(expectation, Matches):
                # Spark compiles it in the tasks; here it needs none.
                rows.sparkSession.sql("SELECT '' RLIKE :it", {"it": expectation.pattern}).collect()
        # Of a malformed value nothing more is asked: its fields are null or half of the truth.
        is_checked = ~F.col(IS_MALFORMED)
        checks.append(
            _Check(expectation.name, is_checked & fails, text, expectation.action == "quarantine")
        )
    return checks


def _sql(expectation: Expectation) -> str:
    """The user's SQL, for error messages."""
    match expectation:
        case Holds(sql=sql):
            return sql
        case Matches(pattern=pattern):
            return pattern
        case _:
            return expectation.field


def _of_failed(texts: Mapping[int, str]) -> Column:
    """An array of texts, of the failed ones in order."""
    reasons = [F.when(F.col(_FLAGS)[str(at)], F.lit(text)) for at, text in texts.items()]
    return F.array_compact(F.array(*reasons).cast("array<string>"))


def _failure(expectation: Expectation) -> tuple[Column, str]:
    """When it fails, never null, and what it asks for."""
    match expectation:
        case NotNull(field=field):
            return F.expr(field).isNull(), f"{field} must not be null"
        case OfType(field=field, type=kind):
            sql = f"({field}) is not null and try_cast(({field}) as {kind}) is null"
            return F.expr(sql), f"{field} must be a {kind}"
        case InRange(field=field, min=least, max=most):
            number = F.expr(f"try_cast(({field}) as double)")
            outside = F.expr(field).isNotNull() & number.isNull()
            if least is not None:
                outside = outside | (number < least)
            if most is not None:
                outside = outside | (number > most)
            return F.coalesce(outside, F.lit(False)), f"{field} must be {_bounds(least, most)}"
        case Matches(field=field, pattern=pattern):
            text = F.expr(field).cast("string")
            # Not $, which also matches before a line's end.
            matches = text.rlike(rf"\A(?:{pattern})\z")
            return ~F.coalesce(matches, F.lit(True)), f"{field} must match {pattern}"
        case Holds(sql=sql):
            return ~F.coalesce(F.expr(sql), F.lit(False)), f"must be true: {sql}"


def _bounds(least: float | None, most: float | None) -> str:
    if least is None:
        return f"at most {most:g}"
    return f"at least {least:g}" if most is None else f"{least:g} to {most:g}"

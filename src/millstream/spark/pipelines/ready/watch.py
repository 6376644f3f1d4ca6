"""Watch: a record when a key falls silent, and one when it is back.

Keeps for each key when it was last seen, in Spark's state (`transformWithState`), with a timer of
event time. `changes` is the whole rule, and pure; streams and batches both use it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # As all of Spark's documentation has it.

from millstream.spark.errors import InvalidOption, LibraryMissing
from millstream.spark.pipelines.queries import Context, ToTopic, run_stream, source
from millstream.spark.pipelines.ready import records
from millstream.spark.pipelines.ready.records import EVENT_TIME, FromTopic
from millstream.spark.pipelines.summaries import Summary

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

OBSERVED = "watch"
SILENT, BACK = "silent", "back"

# Timers and lists of state are kept by this store only.
_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
_KEY, _AT = "watched", "at_ms"
_STATE = "last_ms bigint, is_silent boolean"
_CHANGES = f"{_KEY} string, state string, {_AT} bigint, last_ms bigint"
_COLUMNS = ("key", "state", "at", "last_seen", "silent_seconds")
_END = "end_ms"  # Until when a batch was watched.

Frame = Any  # A pandas DataFrame; pandas ships no types.


class Parameters(FromTopic, kw_only=True, forbid_unknown_fields=True):
    """Report keys that fall silent, and those that are back."""

    to: str
    after: str  # A key is silent when it was not seen for longer than this.
    by: list[str] = msgspec.field(default_factory=lambda: ["record.key"])  # SQL, all of it.
    schema: str | None = None  # DDL of the JSON value, if `by` names fields of it.
    time: str | None = None  # SQL of the event time; else the record's own.
    watermark: str = "10 seconds"  # How much later than the latest a row may come.

    def __post_init__(self) -> None:
        super().__post_init__()
        records.name(to=self.to)
        records.interval("watermark", self.watermark)
        records.seconds("after", self.after)
        if not self.by:
            raise InvalidOption("by is empty, expected fields or SQL such as record.key")

    @property
    def after_ms(self) -> int:
        return records.seconds("after", self.after) * 1_000


class Seen(NamedTuple):
    """When a key was last seen, and whether its silence since then was reported."""

    last_ms: int
    is_silent: bool


class Change(NamedTuple):
    state: str
    at_ms: int
    last_ms: int  # When it was last seen before.


def changes(
    seen: Seen | None, times_ms: Iterable[int], now_ms: int, *, after_ms: int
) -> tuple[list[Change], Seen | None]:
    """Follow one key to `now_ms`: what is to be reported, and what is known then.

    Times before the last known one change nothing.
    """
    reported: list[Change] = []
    for at_ms in sorted(times_ms):
        if seen is not None and at_ms <= seen.last_ms:
            continue
        if seen is not None:
            silent = _silence(seen, at_ms, after_ms)
            reported += silent
            if silent or seen.is_silent:
                reported.append(Change(BACK, at_ms, seen.last_ms))
        seen = Seen(at_ms, is_silent=False)
    silent = [] if seen is None else _silence(seen, now_ms, after_ms)
    if seen is not None and silent:
        seen = seen._replace(is_silent=True)
    return [*reported, *silent], seen


def _silence(seen: Seen, until_ms: int, after_ms: int) -> list[Change]:
    due_ms = seen.last_ms + after_ms
    is_due = not seen.is_silent and until_ms > due_ms
    return [Change(SILENT, due_ms, seen.last_ms)] if is_due else []


def transform(frames: Mapping[str, DataFrame], parameters: Parameters) -> DataFrame:
    return watched(records.subscribed(frames, parameters.topic), parameters)


def watched(frame: DataFrame, parameters: Parameters) -> DataFrame:
    """Rows for the sink: the key, and a JSON value for each change."""
    _require_pandas()
    parsed = records.readable(records.parsed(frame, parameters.schema), OBSERVED)
    rows = records.timed(parsed, parameters.time, parameters.watermark)
    keys = []
    for sql in parameters.by:
        with records.blaming("by", sql):
            keys.append(F.expr(sql).cast("string"))
            rows.select(keys[-1])
    key = keys[0] if len(keys) == 1 else F.to_json(F.array(*keys))
    sightings = rows.select(
        key.alias(_KEY), EVENT_TIME, F.unix_millis(EVENT_TIME).alias(_AT)
    ).where(f"{_KEY} is not null and {_AT} is not null")
    follow = _stream if sightings.isStreaming else _batch
    shown = follow(sightings, parameters.after_ms).select(
        F.col(_KEY).alias("key"),
        "state",
        F.timestamp_millis(F.col(_AT)).alias("at"),
        F.timestamp_millis(F.col("last_ms")).alias("last_seen"),
        ((F.col(_AT) - F.col("last_ms")) / 1000).alias("silent_seconds"),
    )
    return shown.select(
        *records.as_json(shown, ["key"], _COLUMNS), F.lit(parameters.to).alias("topic")
    )


def reads(parameters: Parameters) -> list[str]:
    return records.topics(parameters.topic)


def writes(parameters: Parameters) -> list[str]:
    return [parameters.to]


def run(context: Context, parameters: Parameters) -> Summary:
    own = records.with_settings(context, _SETTINGS)
    frame = watched(source(own, parameters.topic, **parameters.options()), parameters)
    summary = run_stream(own, frame, query=OBSERVED, sink=ToTopic())
    return summary.with_details(**records.left_out(summary.details, OBSERVED))


# -- in Spark --------------------------------------------------------------------------------------


def _require_pandas() -> None:
    if find_spec("pandas") is None:  # Spark hands rows of state over as its frames.
        raise LibraryMissing("the pipeline watch", "pandas", "pipelines")


def _stream(sightings: DataFrame, after_ms: int) -> DataFrame:
    return sightings.groupBy(_KEY).transformWithStateInPandas(
        statefulProcessor=_processor(after_ms),
        outputStructType=_CHANGES,
        outputMode="Append",
        timeMode="EventTime",
    )


def _batch(sightings: DataFrame, after_ms: int) -> DataFrame:
    """A batch ends with the latest row of any key, so a key silent since then is reported."""
    end = sightings.agg(F.max(_AT).alias(_END))
    return (
        sightings.crossJoin(end).groupBy(_KEY).applyInPandas(_follower(after_ms), schema=_CHANGES)
    )


def _follower(after_ms: int) -> Callable[[tuple[Any, ...], Frame], Frame]:
    def follow(key: tuple[Any, ...], rows: Frame) -> Frame:
        times_ms = [int(at) for at in rows[_AT]]
        reported, _ = changes(None, times_ms, int(rows[_END].max()), after_ms=after_ms)
        return _frame(key, reported)

    return follow


def _frame(key: Sequence[object], reported: Sequence[Change]) -> Frame:
    rows = [(key[0], change.state, change.at_ms, change.last_ms) for change in reported]
    return import_module("pandas").DataFrame(rows, columns=[_KEY, "state", _AT, "last_ms"])


def _processor(after_ms: int) -> "StatefulProcessor":
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    class Watcher(StatefulProcessor):
        """Spark's names of methods, in every version that has them."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle = handle
            self._state = handle.getValueState("seen", _STATE)

        def handleInputRows(  # noqa: N802
            self,
            key: Any,
            rows: Iterator[Frame],
            timerValues: Any,  # noqa: N803
        ) -> Iterator[Frame]:
            times_ms = [int(at) for part in rows for at in part[_AT]]
            # The timer reports the silence after the last of them, when the watermark is there.
            yield self._follow(key, times_ms, now_ms=0)

        def handleExpiredTimer(  # noqa: N802
            self,
            key: Any,
            timerValues: Any,  # noqa: N803
            expiredTimerInfo: Any,  # noqa: N803
        ) -> Iterator[Frame]:
            yield self._follow(key, [], now_ms=expiredTimerInfo.getExpiryTimeInMs())

        def close(self) -> None:
            pass

        def _follow(self, key: Any, times_ms: list[int], *, now_ms: int) -> Frame:
            stored = self._state.get() if self._state.exists() else None
            before = None if stored is None else Seen(*stored)
            reported, seen = changes(before, times_ms, now_ms, after_ms=after_ms)
            if seen is not None and seen != before:
                self._state.update(tuple(seen))
                for expiry_ms in list(self._handle.listTimers()):
                    self._handle.deleteTimer(expiry_ms)
                if not seen.is_silent:
                    # Silent is later than `after`, and times are whole milliseconds.
                    self._handle.registerTimer(seen.last_ms + after_ms + 1)
            return _frame(key, reported)

    return Watcher()

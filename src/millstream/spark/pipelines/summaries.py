"""Counts the rows, offsets and lag of a pipeline, while it runs and at its end.

Pure, and without Spark: the input is the progress that Spark reports, as plain JSON. Rows are
counted before the sink. A row for a dead-letter topic counts as quarantined, not as out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

# The name of the metrics that every query observes, and their columns; see `queries.run_streams`.
OBSERVED: Final = "millstream"
ROWS_WRITTEN: Final = "rows_written"  # All rows for the sink, the quarantined ones too.
ROWS_QUARANTINED: Final = "rows_quarantined"

Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Rows, offsets and lag of one run.

    `rows_out` leaves out the quarantined rows. `offsets` are the offsets at which reading ended,
    `lag` counts the records that were left to read.
    """

    rows_in: int = 0
    rows_out: int = 0
    rows_quarantined: int = 0
    seconds: float = 0.0
    offsets: Offsets = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    is_stopped: bool = False  # The run was stopped before its end.
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def rows_written(self) -> int:
        return self.rows_out + self.rows_quarantined

    @property
    def rows_per_second(self) -> float:
        return self.rows_in / self.seconds if self.seconds > 0 else 0.0

    def with_details(self, **details: object) -> "Summary":
        return replace(self, details={**self.details, **details})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One micro-batch of one query, and the query's rows so far."""

    pipeline: str
    query: str
    batch: int
    batch_rows: int
    batch_seconds: float
    so_far: Summary


def total(summaries: Iterable[Summary], *, seconds: float | None = None) -> Summary:
    """Add up the summaries. Times add up too, unless the caller passes the elapsed `seconds`."""
    parts = list(summaries)
    details: dict[str, object] = {}
    offsets: dict[str, dict[str, int]] = {}
    lag: dict[str, int] = {}
    for part in parts:
        details.update(part.details)
        lag.update(part.lag)
        for topic, ends in part.offsets.items():
            known = offsets.setdefault(topic, {})
            for partition, end in ends.items():
                known[partition] = max(end, known.get(partition, 0))
    return Summary(
        rows_in=sum(part.rows_in for part in parts),
        rows_out=sum(part.rows_out for part in parts),
        rows_quarantined=sum(part.rows_quarantined for part in parts),
        seconds=sum(part.seconds for part in parts) if seconds is None else seconds,
        offsets=offsets,
        lag=lag,
        is_stopped=any(part.is_stopped for part in parts),
        details=details,
    )


# Any: JSON whose shape Spark decides.
def add(so_far: Summary, progress: Mapping[str, Any]) -> Summary:
    """Add one micro-batch, in the JSON of `StreamingQueryProgress`.

    Metrics that queries observe under other names add up in the detail `observed`, rows later than
    the watermark in the detail `late_rows`.
    """
    observed = dict(progress.get("observedMetrics") or {})
    counts = observed.pop(OBSERVED, None) or {}
    offsets, lag = dict(so_far.offsets), dict(so_far.lag)
    for source in progress.get("sources", ()):
        ends, latest = (positions(source.get(name)) for name in ("endOffset", "latestOffset"))
        offsets.update(ends)
        lag.update(behind(ends, latest))
    operators = progress.get("stateOperators", ())
    late = sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in operators)
    quarantined = int(counts.get(ROWS_QUARANTINED) or 0)
    return replace(
        so_far,
        rows_in=so_far.rows_in + int(progress.get("numInputRows", 0)),
        rows_out=so_far.rows_out + int(counts.get(ROWS_WRITTEN) or 0) - quarantined,
        rows_quarantined=so_far.rows_quarantined + quarantined,
        offsets=offsets,
        lag=lag,
        details=_merged(so_far.details, {"observed": observed, "late_rows": late}),
    )


def _merged(known: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object]:
    """Add up numbers at any depth and replace other values. Empty values are left out."""
    merged = dict(known)
    for key, value in new.items():
        old = merged.get(key)
        if isinstance(value, Mapping):
            merged[key] = _merged(old if isinstance(old, Mapping) else {}, value)
        elif isinstance(value, int) and isinstance(old, int):
            merged[key] = old + value
        else:
            merged[key] = value
        if not merged[key]:
            del merged[key]
    return merged


def positions(offset: object) -> dict[str, dict[str, int]]:
    """Read the JSON of our source's offsets. Offsets of other sources give an empty result."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, dict):
        return {}
    return {
        topic: {str(partition): int(end) for partition, end in ends.items()}
        for topic, ends in offset.items()
        # The source stores ids of topics beside the offsets, as topics without partitions.
        if isinstance(ends, dict) and ends and all(isinstance(end, int) for end in ends.values())
    }


def behind(ends: Offsets, latest: Offsets) -> dict[str, int]:
    """Return how far `ends` is behind `latest`, for each topic whose latest offsets are known."""
    return {
        topic: sum(max(0, last - ends[topic].get(p, last)) for p, last in latest[topic].items())
        for topic in ends
        if topic in latest
    }

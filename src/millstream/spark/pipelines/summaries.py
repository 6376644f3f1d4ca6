"""What a pipeline did: rows, offsets and lag, while it runs and at its end.

Pure, and without Spark: it is made of the progress that Spark reports, as plain JSON. The one thing
to know: rows out are counted before the sink, and a row for a dead-letter topic is quarantined.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

# Observed by every query, under this name; see `base.run_streams`.
OBSERVED: Final = "millstream"

Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What was done. `offsets` are where reading ended; `lag` is what was left to read."""

    rows_in: int = 0
    rows_out: int = 0
    rows_quarantined: int = 0
    seconds: float = 0.0
    offsets: Offsets = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)
    is_stopped: bool = False  # Told to stop before it was done.
    details: Mapping[str, object] = field(default_factory=dict)

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
    """All of them as one. Times add up unless the caller knows how long it took together."""
    found = list(summaries)
    details: dict[str, object] = {}
    offsets: dict[str, dict[str, int]] = {}
    lag: dict[str, int] = {}
    for one in found:
        details.update(one.details)
        lag.update(one.lag)
        for topic, ends in one.offsets.items():
            known = offsets.setdefault(topic, {})
            for partition, end in ends.items():
                known[partition] = max(end, known.get(partition, 0))
    return Summary(
        rows_in=sum(one.rows_in for one in found),
        rows_out=sum(one.rows_out for one in found),
        rows_quarantined=sum(one.rows_quarantined for one in found),
        seconds=sum(one.seconds for one in found) if seconds is None else seconds,
        offsets=offsets,
        lag=lag,
        is_stopped=any(one.is_stopped for one in found),
        details=details,
    )


# JSON of Spark's, whose shape is Spark's business: hence Any.
def add(so_far: Summary, progress: Mapping[str, Any]) -> Summary:
    """Count one micro-batch, as `StreamingQueryProgress` spells it.

    What queries observe under other names is added up in the detail `observed`, rows that came
    after the watermark in the detail `late_rows`.
    """
    observed = dict(progress.get("observedMetrics") or {})
    counts = observed.pop(OBSERVED, None) or {}
    offsets, lag = dict(so_far.offsets), dict(so_far.lag)
    for source in progress.get("sources", ()):
        ends, latest = (positions(source.get(name)) for name in ("endOffset", "latestOffset"))
        offsets.update(ends)
        lag.update(behind(ends, latest))
    operators = progress.get("stateOperators", ())
    late = sum(int(one.get("numRowsDroppedByWatermark", 0)) for one in operators)
    return replace(
        so_far,
        rows_in=so_far.rows_in + int(progress.get("numInputRows", 0)),
        rows_out=so_far.rows_out + int(counts.get("rows_out") or 0),
        rows_quarantined=so_far.rows_quarantined + int(counts.get("rows_quarantined") or 0),
        offsets=offsets,
        lag=lag,
        details=_merged(so_far.details, {"observed": observed, "late_rows": late}),
    )


def _merged(known: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object]:
    """Numbers added up, at any depth; of anything else the newer. Empty things are left out."""
    merged = dict(known)
    for key, found in new.items():
        old = merged.get(key)
        if isinstance(found, Mapping):
            merged[key] = _merged(old if isinstance(old, Mapping) else {}, found)
        elif isinstance(found, int) and isinstance(old, int):
            merged[key] = old + found
        else:
            merged[key] = found
        if not merged[key]:
            del merged[key]
    return merged


def positions(found: object) -> dict[str, dict[str, int]]:
    """Offsets of our source as it spells them; nothing for those of other sources."""
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return {}
    if not isinstance(found, dict):
        return {}
    return {
        topic: {str(partition): int(end) for partition, end in ends.items()}
        for topic, ends in found.items()
        # Ids of topics stand beside the offsets as topics without partitions.
        if isinstance(ends, dict) and ends and all(isinstance(end, int) for end in ends.values())
    }


def behind(ends: Offsets, latest: Offsets) -> dict[str, int]:
    """How many offsets lie between, for each topic of which the latest are known."""
    return {
        topic: sum(max(0, last - ends[topic].get(p, last)) for p, last in latest[topic].items())
        for topic in ends
        if topic in latest
    }

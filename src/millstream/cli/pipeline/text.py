"""Formats the results of `millstream pipeline`: tables for people, JSON for programs. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from millstream.cli.render import table
from millstream.spark.pipelines.summaries import Offsets, Progress, Summary

ROWS_MAX = 50  # Of a table in text; JSON has all rows.
FRACTION_DIGITS = 2


# JSON, of any shape.
def as_json(value: Any) -> str:
    return json.dumps(value, default=str)


def progress_line(progress: Progress) -> str:
    so_far = progress.so_far
    return (
        f"{progress.pipeline}/{progress.query} batch {progress.batch}: "
        f"{progress.batch_rows:,} rows in {progress.batch_seconds:.1f} s; so far "
        f"{so_far.rows_in:,} in, {so_far.rows_out:,} out, {so_far.rows_quarantined:,} quarantined, "
        f"lag {sum(so_far.lag.values()):,}"
    )


def run_json(name: str, flows: Mapping[str, Summary], together: Summary) -> dict[str, Any]:
    return {
        "pipeline": name,
        "flows": {flow: _summary_json(summary) for flow, summary in flows.items()},
        "total": _summary_json(together),
    }


def run_text(name: str, flows: Mapping[str, Summary], together: Summary) -> str:
    rows = [_summary_row(flow, summary) for flow, summary in flows.items()]
    if len(rows) > 1:
        rows.append(_summary_row("all", together))
    ended = "was stopped" if together.is_stopped else "is done"
    parts = [f"pipeline {name} {ended} after {together.seconds:.1f} s", "", table(rows), ""]
    parts += [f"{flow} read up to {offsets_text(s.offsets)}" for flow, s in flows.items()]
    details = [
        _detail(f"{flow} {key.replace('_', ' ')}", detail)
        for flow, summary in flows.items()
        for key, detail in summary.details.items()
        if detail and key != "observed"
    ]
    # Lines first: between tables they would be hard to find.
    parts += [line for lines in sorted(details, key=_is_table) for line in lines]
    return "\n".join(parts).rstrip()


def offsets_text(offsets: Offsets) -> str:
    """`orders 0:12 1:7, others 0:3`, or that nothing was read."""
    topics = [
        f"{topic} {' '.join(f'{partition}:{end}' for partition, end in ends.items())}"
        for topic, ends in offsets.items()
    ]
    return ", ".join(topics) or "nothing new"


def _summary_row(flow: str, summary: Summary) -> dict[str, object]:
    return {
        "flow": flow,
        "rows_in": summary.rows_in,
        "rows_out": summary.rows_out,
        "quarantined": summary.rows_quarantined,
        "seconds": round(summary.seconds, 1),
        "rows_per_second": round(summary.rows_per_second),
        "lag": sum(summary.lag.values()),
    }


def _summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "rows_in": summary.rows_in,
        "rows_out": summary.rows_out,
        "rows_quarantined": summary.rows_quarantined,
        "seconds": round(summary.seconds, 3),
        "rows_per_second": round(summary.rows_per_second, 1),
        "offsets": summary.offsets,
        "lag": summary.lag,
        "is_stopped": summary.is_stopped,
        "details": summary.details,
    }


def _detail(title: str, detail: object) -> list[str]:
    """The lines of a detail: rows are a table under its title, all else stands behind it."""
    if isinstance(detail, Mapping) and all(isinstance(row, Mapping) for row in detail.values()):
        detail = [{"name": name, **row} for name, row in detail.items()]
    if isinstance(detail, list) and all(isinstance(row, Mapping) for row in detail):
        shown = [{name: _cell(value) for name, value in row.items()} for row in detail[:ROWS_MAX]]
        left_out = len(detail) - len(shown)
        more = [f"and {left_out:,} more rows; --output json has all of them"] if left_out else []
        return ["", f"{title}:", table(shown), *more]
    return [f"{title}: {detail if isinstance(detail, str) else as_json(detail)}"]


def _is_table(lines: list[str]) -> bool:
    return len(lines) > 1


def _cell(value: object) -> object:
    if isinstance(value, float):
        return round(value, FRACTION_DIGITS)
    return as_json(value) if isinstance(value, list | dict) else value

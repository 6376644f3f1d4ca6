"""What readers make of the reports of pipelines."""

import msgspec

from millstream.spark.pipelines.status.report import (
    COMMAND_SUFFIX,
    SILENT_MS_MAX,
    CommandRecord,
    FlowReport,
    PipelineReport,
    added,
    command_for,
    reports,
)
from millstream.spark.pipelines.summaries import Progress, Summary

FLOW = FlowReport(name="grams", does="sql", reads=["orders"], writes=["grams"])


def report(**fields: object) -> PipelineReport:
    known: dict[str, object] = {
        "name": "mill",
        "state": "running",
        "flows": [FLOW],
        "is_continuous": True,
        "trigger_ms": 1_000,
        "started_ms": 0,
        "updated_ms": 0,
    }
    return PipelineReport(**(known | fields))  # type: ignore[arg-type]


def states(value: PipelineReport, at_ms: int) -> list[str]:
    values = {value.name: msgspec.json.encode(value), "other": b"no report"}
    return [report.state for report in reports(values, at_ms)]


def test_a_running_pipeline_that_is_silent_is_lost() -> None:
    assert states(report(), SILENT_MS_MAX) == ["running"]
    assert states(report(), SILENT_MS_MAX + 1) == ["lost"]
    assert states(report(trigger_ms=60_000), 180_000) == ["running"]
    assert states(report(state="done"), 10**9) == ["done"]


def test_a_batch_is_added_to_its_flow() -> None:
    so_far = Summary(rows_in=30, rows_out=20, rows_quarantined=5, lag={"orders": 7})
    progress = Progress(
        pipeline="mill.grams",
        query="rows",
        batch=3,
        batch_rows=10,
        batch_seconds=0.5,
        so_far=so_far,
    )

    (flow,) = added(report(), progress).flows

    assert (flow.batch, flow.duration_ms, flow.rows_per_second) == (3, 500, 20.0)
    assert (flow.rows_in, flow.rows_out, flow.dead_letters, flow.lag) == (30, 20, 5, 7)


def test_only_a_command_since_the_start_counts() -> None:
    values = {
        "mill" + COMMAND_SUFFIX: msgspec.json.encode(CommandRecord(command="stop", at_ms=100))
    }

    assert command_for(values, "mill", 100) == "stop"
    assert command_for(values, "mill", 101) is None
    assert command_for(values, "other", 0) is None
    assert command_for({"mill" + COMMAND_SUFFIX: b"?"}, "mill", 0) is None

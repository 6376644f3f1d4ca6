"""The state of a pipeline as it is reported, and what a reader makes of the reports.

Pure. The key of a report is the pipeline's name, its value JSON of `PipelineReport`. Under
`<name>/command` lies the last command for it. Readers leave out fields and keys that they do not
know.
"""

import time
from collections.abc import Mapping
from typing import Literal

import msgspec

from millstream.spark.pipelines.summaries import Progress

TOPIC = "_pipelines"
COMMAND_SUFFIX = "/command"  # Names of pipelines have no slash.
SILENT_TRIGGERS_MAX = 3
SILENT_MS_MAX = 30_000  # Of pipelines whose triggers are shorter than ten seconds.

State = Literal["running", "done", "stopped", "failed", "lost"]
Command = Literal["stop", "restart"]


class FlowReport(msgspec.Struct, kw_only=True):
    """One flow: its place in the graph, and its last batch."""

    name: str
    does: str
    reads: list[str]
    writes: list[str]
    table: str | None = None
    batch: int = -1
    duration_ms: int = 0
    rows_per_second: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    dead_letters: int = 0
    lag: int = 0


class PipelineReport(msgspec.Struct, kw_only=True):
    name: str
    state: State
    flows: list[FlowReport]
    is_continuous: bool
    trigger_ms: int
    started_ms: int
    updated_ms: int
    host: str = ""
    pid: int = 0
    error: str | None = None


class CommandRecord(msgspec.Struct, kw_only=True):
    command: Command
    at_ms: int
    by: str = ""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def added(report: PipelineReport, progress: Progress) -> PipelineReport:
    """The report with one more micro-batch, of the flow that it is of."""
    flow_name = progress.pipeline.removeprefix(f"{report.name}.")
    so_far = progress.so_far
    flows = [
        msgspec.structs.replace(
            flow,
            batch=progress.batch,
            duration_ms=round(progress.batch_seconds * 1000),
            rows_per_second=round(progress.batch_rows / max(progress.batch_seconds, 0.001), 1),
            rows_in=so_far.rows_in,
            rows_out=so_far.rows_out,
            dead_letters=so_far.rows_quarantined,
            lag=sum(so_far.lag.values()),
        )
        if flow.name == flow_name
        else flow
        for flow in report.flows
    ]
    return msgspec.structs.replace(report, flows=flows)


def seen_at(report: PipelineReport, at_ms: int) -> PipelineReport:
    """The report as a reader shows it: a running pipeline that is silent for too long is lost."""
    silent_max = max(SILENT_MS_MAX, SILENT_TRIGGERS_MAX * report.trigger_ms)
    if report.state == "running" and at_ms - report.updated_ms > silent_max:
        return msgspec.structs.replace(report, state="lost")
    return report


def reports(values: Mapping[str, bytes], at_ms: int) -> list[PipelineReport]:
    """All pipelines by name, from the last value of each key; what is no report is left out."""
    known = []
    for key, value in sorted(values.items()):
        if key.endswith(COMMAND_SUFFIX):
            continue
        try:
            known.append(seen_at(msgspec.json.decode(value, type=PipelineReport), at_ms))
        except msgspec.MsgspecError:
            continue
    return known


def command_for(values: Mapping[str, bytes], name: str, since_ms: int) -> Command | None:
    """The last command for a pipeline that was given since then."""
    value = values.get(name + COMMAND_SUFFIX)
    if value is None:
        return None
    try:
        record = msgspec.json.decode(value, type=CommandRecord)
    except msgspec.MsgspecError:
        return None
    return record.command if record.at_ms >= since_ms else None

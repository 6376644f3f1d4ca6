"""Carries out the commands for pipelines that run: top, stop, restart; and backfill.

They know a pipeline by what it reports to the topic `_pipelines`, wherever it runs.
"""

import socket
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.cli.pipeline import text
from millstream.cli.pipeline.surroundings import (
    Flags,
    connection,
    find_file,
    load_spec,
    query_context,
    spark_session,
)
from millstream.cli.render import table

if TYPE_CHECKING:
    from millstream.spark.pipelines.status.report import Command, PipelineReport
    from millstream.spark.pipelines.status.topic import StatusTopic

DONE, FAILED = 0, 1
BOOTSTRAP = "localhost:9092"
REFRESH_SECONDS = 1.0
# How long a pipeline may take to end: a batch under way is not interrupted.
STOP_SECONDS_MAX = 120
POLL_SECONDS = 0.5
_CLEAR = "\x1b[2J\x1b[H"


def top(flags: Flags) -> int:
    """Show all pipelines; on a terminal again every second, until Ctrl-C."""
    is_live = sys.stdout.isatty() and flags["output"] == "text" and not flags["once"]
    with _topic(*_brokers(flags)) as topic:
        while True:
            shown = _reports(topic)
            if flags["output"] == "json":
                import msgspec

                print(text.as_json(msgspec.to_builtins(shown)))
            else:
                print((_CLEAR if is_live else "") + top_text(shown), flush=True)
            if not is_live:
                return DONE
            time.sleep(REFRESH_SECONDS)


def top_text(reports: "Sequence[PipelineReport]") -> str:
    """One line for each flow, and the errors below."""
    rows = [
        {
            "pipeline": report.name,
            "state": report.state,
            "flow": flow.name,
            "batch": flow.batch if flow.batch >= 0 else None,
            "rows_per_second": round(flow.rows_per_second),
            "batch_ms": flow.duration_ms,
            "lag": flow.lag,
            "dead_letters": flow.dead_letters,
            "path": f"{', '.join(flow.reads)} > {', '.join(flow.writes) or flow.table or ''}",
        }
        for report in reports
        for flow in report.flows
    ]
    errors = [f"{report.name}: {report.error}" for report in reports if report.error]
    return "\n".join([table(rows) or "no pipeline has reported yet", *errors])


def send(command: "Command", flags: Flags) -> int:
    """Ask a running pipeline to stop, or to start again; wait until it says so."""
    import msgspec

    from millstream.spark.pipelines.failures import InvalidPipeline
    from millstream.spark.pipelines.status.report import COMMAND_SUFFIX, CommandRecord, now_ms

    spec = load_spec(find_file(flags["path"]), flags)
    with _topic(spec.bootstrap, spec.client_options) as topic:
        before = _find(topic, spec.name)
        if before is None or before.state != "running":
            state = "has not reported yet" if before is None else f"is {before.state}"
            raise InvalidPipeline(
                f"pipeline {spec.name} {state}; start it with: millstream pipeline run --continuous"
            )
        record = CommandRecord(command=command, at_ms=now_ms(), by=socket.gethostname())
        topic.write(spec.name + COMMAND_SUFFIX, msgspec.json.encode(record))
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while time.monotonic() < deadline:
            after = _find(topic, spec.name)
            assert after is not None
            is_again = after.started_ms > before.started_ms and after.state == "running"
            if is_again if command == "restart" else after.state != "running":
                print(f"pipeline {spec.name} {'runs again' if is_again else 'is ' + after.state}")
                return DONE
            time.sleep(POLL_SECONDS)
    print(
        f"millstream: pipeline {spec.name} was asked to {command} and has not answered within "
        f"{STOP_SECONDS_MAX} s; it does so after its batch",
        file=sys.stderr,
    )
    return FAILED


def backfill(flags: Flags) -> int:
    """Run the flows over the records of a time, as one batch each."""
    from millstream.spark.pipelines import backfill as filling
    from millstream.spark.pipelines.topics import Topics

    path = find_file(flags["path"])
    spec = load_spec(path, flags)
    span = filling.parse_span(flags["from_time"], flags["to_time"])
    with Topics(spec.bootstrap, spec.client_options) as topics:
        topics.names()  # Says at once if there is no broker.
    with spark_session(spec.name, flags, path.parent) as spark:
        done = filling.run(spec, query_context(spark, spec, path, flags), span, flags["flow"])
    rows = [{"flow": flow, "rows_written": count} for flow, count in done.items()]
    if flags["output"] == "json":
        print(text.as_json({"pipeline": spec.name, "flows": rows}))
    else:
        print(f"pipeline {spec.name} was filled from {span.start} to {span.end}\n\n{table(rows)}")
    return DONE


def _brokers(flags: Flags) -> tuple[str, dict[str, str]]:
    bootstrap, settings = connection(None, flags)
    return bootstrap or BOOTSTRAP, {f"kafka.{name}": value for name, value in settings.items()}


def _topic(bootstrap: str, client_options: dict[str, str]) -> "StatusTopic":
    from millstream.spark.pipelines.status.topic import StatusTopic

    return StatusTopic(bootstrap, client_options)


def _reports(topic: "StatusTopic") -> "list[PipelineReport]":
    from millstream.spark.pipelines.status.report import now_ms, reports

    return reports(topic.read(), now_ms()) if topic.exists() else []


def _find(topic: "StatusTopic", name: str) -> "PipelineReport | None":
    return next((report for report in _reports(topic) if report.name == name), None)

"""Carries out `millstream pipeline`: reads the pipeline, runs it, prints the result.

Owns exit codes, Ctrl-C, and the one sentence on standard error for any error.
"""

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.pipeline import live, text
from millstream.cli.pipeline.surroundings import (
    Flags,
    connection,
    find_file,
    load_spec,
    query_context,
    spark_session,
    state_dir,
    stopping,
)
from millstream.cli.render import table
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.spark.pipelines.queries import Context
    from millstream.spark.pipelines.runner import Outline
    from millstream.spark.pipelines.spec import Spec
    from millstream.spark.pipelines.status.report import Command
    from millstream.spark.pipelines.summaries import Summary

DONE, FAILED = 0, 1


def perform(name: str, flags: Flags) -> int:
    """Run a command and return its exit code."""
    try:
        return _ACTIONS[name](flags)
    except (MillstreamError, ModuleNotFoundError) as problem:
        print(f"millstream: {_installed(problem)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("millstream: stopped", file=sys.stderr)
        return FAILED


def _init(flags: Flags) -> int:
    from millstream.spark.pipelines import project

    directory = Path(flags["name"])
    for path in project.create(directory, flags["template"]):
        print(f"wrote {path}")
    print(f"next: millstream pipeline dry-run {directory}")
    return DONE


def _adopt(flags: Flags) -> int:
    from millstream.spark.pipelines.adopt import adopt

    checkpoint = Path(flags["checkpoint"])
    into = flags["into"] or checkpoint.with_name(f"{checkpoint.name}-millstream")
    adopted = adopt(checkpoint, Path(into))
    if flags["output"] == "json":
        print(text.as_json({**asdict(adopted), "checkpoint": str(adopted.checkpoint)}))
        return DONE
    rows = [
        {"topic": topic, "partition": partition, "offset": offset}
        for source in adopted.offsets
        for topic, partitions in sorted(source.items())
        for partition, offset in sorted(partitions.items(), key=lambda item: int(item[0]))
    ]
    print(table(rows))
    rerun = "" if adopted.is_committed else "; that batch was not committed, so it is run again"
    print(f"\nthe query goes on behind batch {adopted.batch}{rerun}")
    if adopted.other_sources:
        print(f"sources that are not Kafka's and stay as they are: {adopted.other_sources}")
    print(f'next: format("millstream"), and checkpointLocation {adopted.checkpoint}')
    return DONE


def _run(flags: Flags) -> int:
    path = find_file(flags["path"])
    if path.name.startswith("spark-"):
        return _run_declarative(path, flags, is_dry=False)
    from millstream.spark.pipelines import runner
    from millstream.spark.pipelines.summaries import total
    from millstream.spark.pipelines.topics import Topics

    with ExitStack() as stack:
        spark = None
        while True:
            spec = load_spec(path, flags)
            with Topics(spec.bootstrap, spec.client_options) as topics:
                outlines = runner.check(spec, topics)
                topics.create(topic for outline in outlines for topic in outline.writes)
            if spark is None:
                spark = stack.enter_context(spark_session(spec.name, flags, path.parent))
            started = time.monotonic()
            done, command = _run_once(spec, query_context(spark, spec, path, flags), outlines, path)
            if command != "restart":
                break
            print("starting again ...", file=sys.stderr, flush=True)
        together = total(done.values(), seconds=time.monotonic() - started)
    show = text.run_json if flags["output"] == "json" else text.run_text
    shown = show(spec.name, done, together)
    print(shown if isinstance(shown, str) else text.as_json(shown))
    return FAILED if together.is_stopped else DONE


def _run_once(
    spec: "Spec", context: "Context", outlines: "list[Outline]", path: Path
) -> "tuple[dict[str, Summary], Command | None]":
    """Run all flows until they end or are stopped, and report how they do."""
    from millstream.spark.pipelines import runner
    from millstream.spark.pipelines.status.reporter import Reporter, first_report
    from millstream.spark.pipelines.summaries import Progress

    report = first_report(
        spec.name,
        outlines,
        is_continuous=context.is_continuous,
        trigger_seconds=context.trigger_seconds,
    )
    reporter = Reporter(report, context.stop.set, spec.bootstrap, spec.client_options)

    def tell(progress: Progress) -> None:
        reporter.add(progress)
        context.report(progress)

    with reporter, stopping(context.stop):
        done = runner.run(spec, replace(context, report=tell), path.parent)
        if context.stop.is_set():
            reporter.end("stopped")
    return done, reporter.command


def _dry_run(flags: Flags) -> int:
    path = find_file(flags["path"])
    if path.name.startswith("spark-"):
        return _run_declarative(path, flags, is_dry=True)
    from millstream.spark.pipelines import checkpoints, runner
    from millstream.spark.pipelines.topics import Topics

    spec = load_spec(path, flags)
    with Topics(spec.bootstrap, spec.client_options) as topics:
        outlines = runner.check(spec, topics)
        ends = topics.ends(topic for outline in outlines for topic in outline.reads)
    with spark_session(spec.name, flags, path.parent, is_brief=True) as spark:
        columns = runner.analyse(spec, query_context(spark, spec, path, flags), path.parent)
    rows = []
    for outline in outlines:
        positions = checkpoints.find(state_dir(spec, path, flags) / f"{spec.name}.{outline.flow}")
        rows.append(
            {
                "flow": outline.flow,
                "does": outline.does,
                "reads": ", ".join(f"{t} ({len(ends.get(t, {}))})" for t in outline.reads),
                "writes": ", ".join(outline.writes) or outline.table,
                "goes_on": ", ".join(f"after batch {c.batch}" for c in positions)
                or "from the start",
            }
        )
    if flags["output"] == "json":
        print(text.as_json({"pipeline": spec.name, "flows": rows, "columns": columns}))
        return DONE
    print(f"pipeline {spec.name} is fine; it would run, on {flags['master']}:\n\n{table(rows)}")
    for flow, ddl in columns.items():
        if ddl:
            print(f"\n{flow} writes {ddl}")
    return DONE


def _status(flags: Flags) -> int:
    from millstream.spark.pipelines import runner
    from millstream.spark.pipelines.topics import Topics

    path = find_file(flags["path"])
    if path.name.startswith("spark-"):
        return _status_declarative(path, flags)
    spec = load_spec(path, flags)
    with Topics(spec.bootstrap, spec.client_options) as topics:
        topics.names()  # Says at once if there is no broker, even if nothing ran yet.
        positions = runner.positions(spec, state_dir(spec, path, flags), topics)
    if flags["output"] == "json":
        print(
            text.as_json(
                {"pipeline": spec.name, "queries": [asdict(position) for position in positions]}
            )
        )
        return DONE
    rows = [
        {
            "flow": position.flow,
            "query": position.checkpoint.query,
            "batch": position.checkpoint.batch,
            "state": "committed" if position.checkpoint.is_committed else "to be done again",
            "lag": sum(position.lag.values()),
            "group": position.group,
            "group_lag": sum(position.group_lag.values()) if position.group_lag else None,
            "read_up_to": text.offsets_text(position.checkpoint.offsets),
        }
        for position in positions
    ]
    print(table(rows) or f"pipeline {spec.name} has not run yet")
    return DONE


def _test(flags: Flags) -> int:
    from millstream.spark.pipelines import spec_tests
    from millstream.spark.pipelines.failures import InvalidPipeline

    path = find_file(flags["path"])
    if path.name.startswith("spark-"):
        raise InvalidPipeline(
            "a declarative project has no examples of its own; its functions are Python: test them "
            "with pytest, as docs/pipelines.md shows"
        )
    spec = load_spec(path, flags)
    if not spec.tests:
        raise InvalidPipeline(f"{path.name} has no tests, and there are none in tests/")
    with spark_session(spec.name, flags, path.parent, is_brief=True) as spark:
        verdicts = spec_tests.run(spark, spec)
    if flags["output"] == "json":
        print(
            text.as_json(
                [{**asdict(verdict), "is_passed": verdict.is_passed} for verdict in verdicts]
            )
        )
    else:
        for verdict in verdicts:
            print(f"{'pass' if verdict.is_passed else 'FAIL'}  {verdict.flow}: {verdict.example}")
            print("".join(f"      {line}\n" for line in _why(verdict)), end="")
    return DONE if all(verdict.is_passed for verdict in verdicts) else FAILED


def _why(verdict: Any) -> list[str]:
    lines = [verdict.problem] if verdict.problem else []
    lines += [f"expected, and missing: {text.as_json(row)}" for row in verdict.missing]
    return lines + [f"not expected: {text.as_json(row)}" for row in verdict.unexpected]


def _run_declarative(path: Path, flags: Flags, *, is_dry: bool) -> int:
    from millstream.spark.pipelines import declarative
    from millstream.spark.pipelines.failures import InvalidPipeline
    from millstream.spark.pipelines.topics import Topics

    if flags.get("continuous"):
        raise InvalidPipeline("Spark runs declarative pipelines over what is there, not for ever")
    if flags["conf"] or flags["state_dir"]:
        raise InvalidPipeline("a declarative project says its storage and its settings itself")
    bootstrap, settings = connection(declarative.bootstrap(path), flags)
    if settings:
        raise InvalidPipeline(
            f"{', '.join(settings)}: settings of -X and of a context do not reach the definitions "
            "of a declarative project; write them as options in its Python files"
        )
    if bootstrap is not None:
        with Topics(bootstrap, {}) as topics:
            topics.names()  # Before Spark starts, and waits a minute for each flow.
    is_quiet = flags.get("quiet", False)
    started = time.monotonic()
    with redirect_stdout(sys.stderr):  # Spark says on standard output what it loads.
        outcome = declarative.run(
            path,
            is_dry=is_dry,
            report=(lambda _: None) if is_quiet else print,
            master=flags["master"],
            bootstrap=bootstrap,
        )
    seconds = time.monotonic() - started
    if flags["output"] == "json":
        print(text.as_json({**asdict(outcome), "seconds": round(seconds, 3)}))
        return DONE
    rows = [{"flow": flow, "state": state} for flow, state in outcome.flows.items()]
    done = "is fine" if is_dry else "is done"
    print(f"pipeline {outcome.name} {done} after {seconds:.1f} s\n\n{table(rows)}".rstrip())
    if not is_dry:
        print(f"\nread {outcome.rows_in:,} offsets, up to {text.offsets_text(outcome.offsets)}")
    return DONE


def _status_declarative(path: Path, flags: Flags) -> int:
    from millstream.spark.pipelines import declarative
    from millstream.spark.pipelines.summaries import Offsets, behind
    from millstream.spark.pipelines.topics import Topics

    positions = declarative.positions(path)
    bootstrap, settings = connection(positions.bootstrap, flags)
    ends: Offsets = {}
    if bootstrap is not None:
        options = {f"kafka.{name}": value for name, value in settings.items()}
        with Topics(bootstrap, options) as topics:
            ends = topics.ends(
                topic for checkpoint in positions.checkpoints for topic in checkpoint.offsets
            )
    rows = []
    for checkpoint in positions.checkpoints:
        lag = behind(checkpoint.offsets, ends)
        rows.append(
            {
                "flow": checkpoint.query,
                "batch": checkpoint.batch,
                "state": "committed" if checkpoint.is_committed else "to be done again",
                "lag": sum(lag.values()) if lag else None,
                "read_up_to": text.offsets_text(checkpoint.offsets),
            }
        )
    if flags["output"] == "json":
        print(text.as_json({"pipeline": positions.name, "queries": rows}))
        return DONE
    print(table(rows) or f"pipeline {positions.name} has not run yet")
    return DONE


def _installed(problem: Exception) -> object:
    if isinstance(problem, ModuleNotFoundError) and problem.name is not None:
        return f"pipelines need {problem.name}, run: pip install 'millstream[spark]'"
    return problem


_ACTIONS: dict[str, Callable[[Flags], int]] = {
    "adopt": _adopt,
    "init": _init,
    "run": _run,
    "dry_run": _dry_run,
    "status": _status,
    "test": _test,
    "top": live.top,
    "stop": partial(live.send, "stop"),
    "restart": partial(live.send, "restart"),
    "backfill": live.backfill,
}

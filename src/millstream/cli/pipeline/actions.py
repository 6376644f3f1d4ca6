"""Carries out `millstream pipeline`: reads the pipeline, runs it, prints the result.

Owns exit codes, Ctrl-C, and the one sentence on standard error for any error.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.pipeline import text
from millstream.cli.render import table
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.pipelines.queries import Context
    from millstream.spark.pipelines.spec import Spec

DONE, FAILED = 0, 1
FILES = ("pipeline.yml", "pipeline.yaml", "spark-pipeline.yml", "spark-pipeline.yaml")

Flags = Mapping[str, Any]  # Any: each flag has a type of its own.


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


def _run(flags: Flags) -> int:
    path = _find(flags["path"])
    if path.name.startswith("spark-"):
        return _run_declarative(path, flags, is_dry=False)
    from millstream.spark.pipelines import runner
    from millstream.spark.pipelines.summaries import total
    from millstream.spark.pipelines.topics import Topics

    spec = _spec(path, flags)
    with Topics(spec.bootstrap, spec.client_options) as topics:
        outlines = runner.check(spec, topics)
        topics.create(topic for outline in outlines for topic in outline.writes)
    with _session(spec.name, flags, path.parent) as spark:
        context = _context(spark, spec, path, flags)
        started = time.monotonic()
        with _stopping(context.stop):
            done = runner.run(spec, context, path.parent)
        together = total(done.values(), seconds=time.monotonic() - started)
    show = text.run_json if flags["output"] == "json" else text.run_text
    shown = show(spec.name, done, together)
    print(shown if isinstance(shown, str) else text.as_json(shown))
    return FAILED if together.is_stopped else DONE


def _dry_run(flags: Flags) -> int:
    path = _find(flags["path"])
    if path.name.startswith("spark-"):
        return _run_declarative(path, flags, is_dry=True)
    from millstream.spark.pipelines import checkpoints, runner
    from millstream.spark.pipelines.topics import Topics

    spec = _spec(path, flags)
    with Topics(spec.bootstrap, spec.client_options) as topics:
        outlines = runner.check(spec, topics)
        ends = topics.ends(topic for outline in outlines for topic in outline.reads)
    with _session(spec.name, flags, path.parent, is_brief=True) as spark:
        columns = runner.analyse(spec, _context(spark, spec, path, flags), path.parent)
    rows = []
    for outline in outlines:
        positions = checkpoints.find(_state(spec, path, flags) / f"{spec.name}.{outline.flow}")
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

    path = _find(flags["path"])
    if path.name.startswith("spark-"):
        return _status_declarative(path, flags)
    spec = _spec(path, flags)
    with Topics(spec.bootstrap, spec.client_options) as topics:
        topics.names()  # Says at once if there is no broker, even if nothing ran yet.
        positions = runner.positions(spec, _state(spec, path, flags), topics)
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

    path = _find(flags["path"])
    if path.name.startswith("spark-"):
        raise InvalidPipeline(
            "a declarative project has no examples of its own; its functions are Python: test them "
            "with pytest, as docs/pipelines.md shows"
        )
    spec = _spec(path, flags)
    if not spec.tests:
        raise InvalidPipeline(f"{path.name} has no tests, and there are none in tests/")
    with _session(spec.name, flags, path.parent, is_brief=True) as spark:
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
    bootstrap, settings = _connection(declarative.bootstrap(path), flags)
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
    bootstrap, settings = _connection(positions.bootstrap, flags)
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


# -- what the actions share ------------------------------------------------------------------------


def _find(location: str) -> Path:
    """The pipeline's file. From then on, relative paths start where it lies."""
    from millstream.spark.pipelines.failures import InvalidPipeline

    path = Path(location).resolve()
    if path.is_dir():
        files = [path / name for name in FILES if (path / name).is_file()]
        if not files:
            raise InvalidPipeline(f"there is no {' or '.join(FILES[::2])} in {path}")
        if len(files) > 1:
            raise InvalidPipeline(f"{path} has {' and '.join(f.name for f in files)}: name one")
        path = files[0]
    elif not path.is_file():
        raise InvalidPipeline(f"there is no {location}")
    os.chdir(path.parent)
    return path


def _spec(path: Path, flags: Flags) -> "Spec":
    import msgspec

    from millstream.spark.pipelines.spec import load, parsed_yaml

    spec = load(path)
    content = parsed_yaml(path)
    assert isinstance(content, dict)
    bootstrap, settings = _connection(content.get("bootstrap"), flags)
    return msgspec.structs.replace(
        spec, bootstrap=bootstrap or spec.bootstrap, kafka={**spec.kafka, **settings}
    )


def _connection(file_bootstrap: str | None, flags: Flags) -> tuple[str | None, dict[str, str]]:
    """Address and settings of the brokers: flags and variables win over the pipeline's file.

    The file wins over the context in use: it may name brokers that the context does not mean.
    """
    target = flags.get("target")
    if target is None and not file_bootstrap:
        target = flags.get("target_in_use")
    settings = {**(target.settings if target else {}), **flags.get("client_settings", {})}
    if "sasl.mechanisms" in settings:  # librdkafka has both names, Spark only Java's.
        settings["sasl.mechanism"] = settings.pop("sasl.mechanisms")
    return (target.bootstrap if target else file_bootstrap), settings


def _state(spec: "Spec", path: Path, flags: Flags) -> Path:
    return path.parent / (flags["state_dir"] or spec.state)


@contextmanager
def _session(
    name: str, flags: Flags, directory: Path, *, is_brief: bool = False
) -> "Iterator[SparkSession]":
    """Spark, as long as it is needed; one that runs in this process already is left running."""
    from pyspark.sql import SparkSession

    # What fails is reported by us, as one sentence; Spark's own words are pages.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    spark = _started(name, flags, _settings(flags, directory, is_brief=is_brief))
    try:
        yield spark
    finally:
        spark.stop()


def _settings(flags: Flags, directory: Path, *, is_brief: bool) -> dict[str, str]:
    from millstream.spark.pipelines.failures import InvalidPipeline
    from millstream.spark.session import write_log4j

    conf = {"spark.sql.session.timeZone": "UTC"}
    conf["spark.sql.warehouse.dir"] = str(directory / ".millstream" / "warehouse")
    if is_brief:
        # The second compiler takes longer than it saves in a JVM that hardly reads any rows.
        options = f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=file:{write_log4j()}"
        conf["spark.driver.extraJavaOptions"] = f"-XX:+UseSerialGC {options}"
    for setting in flags["conf"]:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise InvalidPipeline(f"--conf {setting}: expected KEY=VALUE")
        conf[key] = value
    return conf


def _started(name: str, flags: Flags, conf: Mapping[str, str]) -> "SparkSession":
    from millstream.spark.pipelines.failures import InvalidPipeline, short_reason
    from millstream.spark.session import session

    print("starting Spark ...", file=sys.stderr, flush=True)
    try:
        spark = session(name, master=flags["master"], conf=conf)
    except MillstreamError:
        raise
    except Exception as problem:  # Whatever Spark and Java raise when they can't start.
        why = short_reason(str(problem))
        raise InvalidPipeline(f"Spark does not start on {flags['master']}: {why}") from problem
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _context(spark: "SparkSession", spec: "Spec", path: Path, flags: Flags) -> "Context":
    from millstream.spark.pipelines.queries import Context
    from millstream.spark.pipelines.summaries import Progress

    def report(progress: Progress) -> None:
        if progress.batch_rows:
            print(text.progress_line(progress), file=sys.stderr, flush=True)

    return Context(
        spark=spark,
        bootstrap=spec.bootstrap,
        state_dir=str(_state(spec, path, flags)),
        name=spec.name,
        is_continuous=flags.get("continuous", False),
        trigger_seconds=spec.trigger_seconds,
        client_options=spec.client_options,
        report=(lambda _: None) if flags.get("quiet") else report,
    )


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM asks to stop; the next one insists."""

    def ask(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        print("stopping ...", file=sys.stderr, flush=True)
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _installed(problem: Exception) -> object:
    if isinstance(problem, ModuleNotFoundError) and problem.name is not None:
        return f"pipelines need {problem.name}, run: pip install 'millstream[spark]'"
    return problem


_ACTIONS: dict[str, Callable[[Flags], int]] = {
    "init": _init,
    "run": _run,
    "dry_run": _dry_run,
    "status": _status,
    "test": _test,
}

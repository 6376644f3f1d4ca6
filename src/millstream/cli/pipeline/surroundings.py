"""What the commands of `millstream pipeline` share: the file, the brokers, Spark, Ctrl-C."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.pipeline import text
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.pipelines.queries import Context
    from millstream.spark.pipelines.spec import Spec

FILES = ("pipeline.yml", "pipeline.yaml", "spark-pipeline.yml", "spark-pipeline.yaml")

Flags = Mapping[str, Any]  # Any: each flag has a type of its own.


def find_file(location: str) -> Path:
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
        raise InvalidPipeline(
            f"there is no file or directory {location!r} with a pipeline; "
            "`millstream pipeline init` makes one"
        )
    os.chdir(path.parent)
    return path


def load_spec(path: Path, flags: Flags) -> "Spec":
    import msgspec

    from millstream.spark.pipelines.spec import load, parsed_yaml

    spec = load(path)
    content = parsed_yaml(path)
    assert isinstance(content, dict)
    bootstrap, settings = connection(content.get("bootstrap"), flags)
    return msgspec.structs.replace(
        spec, bootstrap=bootstrap or spec.bootstrap, kafka={**spec.kafka, **settings}
    )


def connection(file_bootstrap: str | None, flags: Flags) -> tuple[str | None, dict[str, str]]:
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


def state_dir(spec: "Spec", path: Path, flags: Flags) -> Path:
    return path.parent / (flags["state_dir"] or spec.state)


@contextmanager
def spark_session(
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


def query_context(spark: "SparkSession", spec: "Spec", path: Path, flags: Flags) -> "Context":
    from millstream.spark.pipelines.queries import Context
    from millstream.spark.pipelines.summaries import Progress

    def report(progress: Progress) -> None:
        if progress.batch_rows:
            print(text.progress_line(progress), file=sys.stderr, flush=True)

    return Context(
        spark=spark,
        bootstrap=spec.bootstrap,
        state_dir=str(state_dir(spec, path, flags)),
        name=spec.name,
        is_continuous=flags.get("continuous", False),
        trigger_seconds=spec.trigger_seconds,
        client_options=spec.client_options,
        report=(lambda _: None) if flags.get("quiet") else report,
    )


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
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

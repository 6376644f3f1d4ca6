"""Runs projects of Spark Declarative Pipelines with Spark's own engine, in this process.

Owns their surroundings: a Connect server on the requested master, a catalog that still knows the
tables at the next run, and a quiet log. Spark takes no static settings from the project's file, so
they go into a configuration directory that Spark reads at start.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from millstream.spark.pipelines import checkpoints
from millstream.spark.pipelines.failures import InvalidPipeline, PipelineFailed, short_reason
from millstream.spark.session import (
    MASTER,
    installed_version,
    laptop_settings,
    prepare_environment,
    write_log4j,
)
from millstream.spark.source_environment import add_names

FILE_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
# The setting in which definitions find the brokers: spark.conf.get("spark.millstream.bootstrap").
BOOTSTRAP_KEY = "spark.millstream.bootstrap"

_FLOW = re.compile(r"Flow (?P<flow>\S+) (?:is|has) (?P<state>[A-Z]+)")
_CONNECT = "pip install 'millstream[pipelines]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The final state of each flow, and the offsets in its checkpoints."""

    name: str
    flows: Mapping[str, str]
    offsets: Mapping[str, Mapping[str, int]]
    rows_in: int
    bootstrap: str | None


def run(
    path: Path,
    *,
    is_dry: bool,
    report: Callable[[str], None],
    master: str = MASTER,
    bootstrap: str | None = None,
    refreshes_all: bool = False,
) -> Outcome:
    """Run the project over all that is there now, or only check it. Once in a process.

    Raises `InvalidPipeline` and `PipelineFailed` with one sentence.
    """
    cli = _engine()
    spec = _spec(cli, path)
    if bootstrap is not None:
        spec.configuration[BOOTSTRAP_KEY] = bootstrap
    storage = local_storage(spec.storage, path.parent)
    before = {} if storage is None else _offsets(storage)
    _prepare(path.parent, master)
    flows: dict[str, str] = {}
    try:
        for message in _events(cli, spec, path, is_dry=is_dry, refreshes_all=refreshes_all):
            match = _FLOW.search(message)
            if match is not None:
                flows[match["flow"].removeprefix("spark_catalog.default.")] = match["state"].lower()
            report(message)
    except Exception as problem:  # Definitions and Spark Connect raise many kinds.
        raise PipelineFailed(spec.name, short_reason(str(problem))) from problem
    after = {} if storage is None else _offsets(storage)
    return Outcome(
        name=spec.name,
        flows=flows,
        offsets={topic: ends for offsets in after.values() for topic, ends in offsets.items()},
        rows_in=gained(before, after),
        bootstrap=spec.configuration.get(BOOTSTRAP_KEY),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    name: str
    checkpoints: list[checkpoints.Checkpoint]
    bootstrap: str | None


def bootstrap(path: Path) -> str | None:
    """The brokers, if the project says them where we look."""
    address = _spec(_engine(), path).configuration.get(BOOTSTRAP_KEY)
    return None if address is None else str(address)


def positions(path: Path) -> Positions:
    """Where each flow of the project stands, by its checkpoints and without Spark."""
    spec = _spec(_engine(), path)
    storage = local_storage(spec.storage, path.parent)
    return Positions(
        name=spec.name,
        checkpoints=[] if storage is None else checkpoints.find(storage),
        bootstrap=spec.configuration.get(BOOTSTRAP_KEY),
    )


def gained(before: checkpoints.ByQuery, after: checkpoints.ByQuery) -> int:
    """By how many offsets all flows went on."""
    return sum(
        end - before.get(query, {}).get(topic, {}).get(partition, 0)
        for query, topics in after.items()
        for topic, ends in topics.items()
        for partition, end in ends.items()
    )


def local_storage(storage: str, directory: Path) -> Path | None:
    """The directory of a project's checkpoints, if it is on this machine."""
    parts = urlsplit(storage)
    return directory / parts.path / "_checkpoints" if parts.scheme in ("", "file") else None


def settings(directory: Path, master: str) -> dict[str, str]:
    """The content of `spark-defaults.conf` for a project in this directory.

    Always with a catalog that lasts: only a run tells whether a project keeps tables, and with
    Spark's default catalog its second run fails on the tables of the first.
    """
    state = directory / ".millstream"
    static = laptop_settings(installed_version()) if master.startswith("local") else {}
    static["spark.sql.warehouse.dir"] = str(directory / "spark-warehouse")
    static["spark.sql.session.timeZone"] = "UTC"
    options = f"-XX:+UseSerialGC -Dlog4j2.configurationFile=file:{write_log4j()}"
    # Embedded Derby is one process at a time, and comes with Spark.
    static["spark.sql.catalogImplementation"] = "hive"
    url = f"jdbc:derby:;databaseName={state}/metastore;create=true"
    static["spark.hadoop.javax.jdo.option.ConnectionURL"] = url
    options += f" -Dderby.stream.error.file={state}/derby.log"
    static["spark.driver.extraJavaOptions"] = options
    return static


def _engine() -> Any:  # A module of Spark's that has no types.
    with warnings.catch_warnings():
        # Connect warns of a pandas that is newer than it; nothing here uses pandas.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            from pyspark.pipelines import cli
        except ImportError as problem:
            raise InvalidPipeline(
                f"declarative pipelines need more of Spark ({problem}); run: {_CONNECT}"
            ) from None
    return cli


def _spec(cli: Any, path: Path) -> Any:
    try:
        return cli.load_pipeline_spec(path)
    except Exception as problem:  # Spark passes on errors of the YAML library and its types.
        raise InvalidPipeline(f"{path.name}: {short_reason(str(problem))}") from None


def _prepare(directory: Path, master: str) -> None:
    prepare_environment(is_local=master.startswith("local"))
    conf = directory.resolve() / ".millstream" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    if "SPARK_CONF_DIR" not in os.environ:
        static = settings(directory.resolve(), master)
        lines = [f"{key} {value}\n" for key, value in static.items()]
        (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
        os.environ["SPARK_CONF_DIR"] = str(conf)
    os.environ["SPARK_REMOTE"] = master
    os.environ["SPARK_API_MODE"] = "connect"  # So that a server is started on any master.


def _events(cli: Any, spec: Any, path: Path, *, is_dry: bool, refreshes_all: bool) -> Iterator[str]:
    """Everything that the engine says, in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        builder = cli.SparkSession.builder
        builder = builder.config("spark.sql.connect.serverStacktrace.enabled", "false")
        for key, value in spec.configuration.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    _let_flows_start_together()
    try:
        graph = cli.create_dataflow_graph(
            spark,
            default_catalog=spec.catalog,
            default_database=spec.database,
            sql_conf=spec.configuration,
        )
        registry = cli.SparkConnectGraphElementRegistry(spark, graph)
        cli.register_definitions(path, registry, spec, spark, graph)
        for result in cli.start_run(
            spark,
            graph,
            full_refresh=[],
            full_refresh_all=refreshes_all,
            refresh=[],
            dry=is_dry,
            storage=spec.storage,
        ):
            if "pipeline_event_result" in result:
                yield str(result["pipeline_event_result"].event.message)
    finally:
        spark.stop()


def _let_flows_start_together() -> None:
    """Flows are threads of Connect's server, which runs in the JVM of a session of this process."""
    from pyspark.sql.session import SparkSession

    server = SparkSession._instantiatedSession
    if server is not None:
        add_names(server)


def _offsets(storage: Path) -> checkpoints.ByQuery:
    return {checkpoint.query: checkpoint.offsets for checkpoint in checkpoints.find(storage)}

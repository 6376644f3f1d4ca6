"""Runs, checks or outlines a pipeline file.

Checks everything that needs no Spark first, then analyses every flow, then runs the first one. Over
the records that are there now, flows run one after the other, so a flow sees the rows of the one
before it. Continuous flows run side by side.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines import checkpoints, sql_flow
from millstream.spark.pipelines.checkpoints import Checkpoint
from millstream.spark.pipelines.failures import InvalidPipeline, PipelineFailed, short_reason
from millstream.spark.pipelines.queries import Context, run_streams, source
from millstream.spark.pipelines.ready import catalog
from millstream.spark.pipelines.spec import Flow, Spec
from millstream.spark.pipelines.summaries import Summary, behind
from millstream.spark.pipelines.topics import Topics

WAIT_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A flow's kind, inputs and outputs, as far as they are known without Spark."""

    flow: str
    does: str
    reads: list[str]
    writes: list[str]
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPosition:
    """The position and lag of a flow's query."""

    flow: str
    group: str
    checkpoint: Checkpoint
    lag: Mapping[str, int]
    group_lag: Mapping[str, int]


def outline(spec: Spec) -> list[Outline]:
    """Raises `InvalidPipeline` for ready-made pipelines that are not there or wrongly used."""
    outlines = []
    for flow in spec.flows:
        if flow.use is not None:
            ready, parameters = _ready_made(flow)
            reads, writes = ready.reads(parameters), ready.writes(parameters)
            outlines.append(Outline(flow=flow.name, does=flow.use, reads=reads, writes=writes))
            continue
        assert flow.source is not None
        assert flow.sink is not None
        outlines.append(
            Outline(
                flow=flow.name,
                does="sql" if flow.steps else "copy",
                reads=flow.source.all_topics,
                writes=[flow.sink.topic] if flow.sink.topic is not None else [],
                table=flow.sink.table,
            )
        )
    return outlines


def check(spec: Spec, topics: Topics) -> list[Outline]:
    """Outline the flows, and check their topics on the brokers."""
    outlines = outline(spec)
    topics.require((flow.reads, flow.writes) for flow in outlines)
    return outlines


def run(spec: Spec, context: Context, directory: Path) -> dict[str, Summary]:
    """Run all flows; `context` is the pipeline's, each flow gets one of its own."""
    jobs = {flow.name: _job(flow, _own(spec, context, flow), directory) for flow in spec.flows}
    if context.is_continuous:
        return _side_by_side(jobs, context)
    done: dict[str, Summary] = {}
    for name, job in jobs.items():
        if context.stop.is_set():
            break
        done[name] = job()
    return done


def analyse(spec: Spec, context: Context, directory: Path) -> dict[str, str]:
    """The columns that each flow writes, in DDL; raises what is wrong with its SQL."""
    columns = {}
    for flow in spec.flows:
        own = _own(spec, context, flow)
        frame = _frame(flow, own, directory)
        columns[flow.name] = "" if frame is None else _ddl(frame)
    return columns


def positions(spec: Spec, state_dir: Path, topics: Topics) -> list[FlowPosition]:
    """The position of each flow, by its checkpoints and by its consumer group."""
    positions = []
    for flow in spec.flows:
        name = f"{spec.name}.{flow.name}"
        for checkpoint in checkpoints.find(state_dir / name):
            ends = topics.ends(checkpoint.offsets)
            group = topics.committed(name, checkpoint.offsets)
            positions.append(
                FlowPosition(
                    flow=flow.name,
                    group=name,
                    checkpoint=checkpoint,
                    lag=behind(checkpoint.offsets, ends),
                    group_lag=behind(group, ends),
                )
            )
    return positions


def _own(spec: Spec, context: Context, flow: Flow) -> Context:
    return context.named(f"{spec.name}.{flow.name}")


def _job(flow: Flow, context: Context, directory: Path) -> Callable[[], Summary]:
    """The flow, analysed and ready to run."""
    if flow.use is None:
        query = sql_flow.query(context, flow, str(directory))
        return partial(run_streams, context, [query])
    ready, parameters = _ready_made(flow)

    def run_ready_made() -> Summary:
        try:
            return ready.run(context, parameters)
        except (PySparkException, InvalidOption) as problem:
            raise PipelineFailed(context.name, short_reason(str(problem))) from problem

    return run_ready_made


def _frame(flow: Flow, context: Context, directory: Path) -> DataFrame | None:
    """The rows that the flow writes; None if only a run can tell."""
    if flow.use is None:
        return sql_flow.query(context, flow, str(directory)).frame
    ready, parameters = _ready_made(flow)
    reads = ready.reads(parameters)
    if ready.transform is None or not reads:
        return None
    try:
        frames = {topic: source(context, topic, includeHeaders="true") for topic in reads}
        return ready.transform(frames, parameters)
    except (PySparkException, InvalidOption) as problem:
        raise InvalidPipeline(f"flow {flow.name}: {short_reason(str(problem))}") from None


# Parameters are of the type that the ready-made pipeline says.
def _ready_made(flow: Flow) -> tuple[catalog.ReadyMade, Any]:
    assert flow.use is not None
    ready = catalog.find(flow.use)
    return ready, ready.checked(flow.parameters, f"flow {flow.name}, with")


def _side_by_side(
    jobs: Mapping[str, Callable[[], Summary]], context: Context
) -> dict[str, Summary]:
    """All at once, until `Context.stop` is set or until one fails, which stops the others."""

    def in_thread(job: Callable[[], Summary]) -> Summary:
        # Spark finds data sources by the session of the thread, which this call makes ours.
        context.spark.createDataFrame([], "nothing int")
        return job()

    with ThreadPoolExecutor(max_workers=len(jobs), thread_name_prefix="flow") as pool:
        running: dict[str, Future[Summary]] = {
            name: pool.submit(in_thread, job) for name, job in jobs.items()
        }
        pending = set(running.values())
        while pending and not context.stop.is_set():
            done, pending = wait(pending, WAIT_SECONDS, return_when=FIRST_EXCEPTION)
            if any(future.exception() is not None for future in done):
                context.stop.set()
    return {name: future.result() for name, future in running.items()}


def _ddl(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)

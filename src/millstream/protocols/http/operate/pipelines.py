"""Pipelines as they report themselves in `_pipelines`, and a check of a filter."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from millstream.engine.filters.filter import parse
from millstream.errors import UnknownTopic
from millstream.errors.views import InvalidFilter
from millstream.model import TopicPartition
from millstream.protocols.http.calls import Call, Listing, Page, iso_time
from millstream.protocols.http.paging import name_filter, page
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.reading import bounds_of, read_chunk
from millstream.protocols.http.router import EVENTS_TYPE, Params, Right, Route
from millstream.protocols.http.streams import COMMENT_EVERY_S, Event

TOPIC = "_pipelines"
COMMAND_SUFFIX = "/command"
SILENT_TRIGGERS_MAX = 3
SILENT_MS_MAX = 30_000
PIPELINES_MAX = 10_000
LOOK_S = 1.0
CHECKED_RECORDS = 1_000


class PipelineParams(Params, frozen=True, kw_only=True):
    pipeline: str


class Flow(msgspec.Struct, kw_only=True):
    name: str
    does: str = ""
    reads: list[str] = []
    writes: list[str] = []
    batch: int = -1
    duration_ms: int = 0
    rows_per_second: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    dead_letters: int = 0
    lag: int = 0


class Pipeline(msgspec.Struct, kw_only=True):
    name: str
    state: str  # running, done, stopped, failed or lost.
    flows: list[Flow] = []
    is_continuous: bool = False
    trigger_ms: int = 0
    started_ms: int = 0
    updated_ms: int = 0
    host: str = ""
    error: str | None = None
    started_at: str = ""
    updated_at: str = ""


class FilterCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    filter: str
    topic: str | None = None  # To count on its newest records.


class FilterVerdict(msgspec.Struct, frozen=True, kw_only=True):
    is_valid: bool
    message: str | None = None
    place: int | None = None  # Index in the text, of the mistake.
    looked_at: int = 0
    passed: int = 0


async def list_pipelines(call: Call, params: Listing) -> Page[Pipeline]:
    fits = name_filter(params.name)
    known = [each for each in await _pipelines(call) if fits(each.name)]
    limit = call.limit(params.limit)
    chosen, following = page(known, lambda each: each.name, params.after, limit)
    return Page(items=list(chosen), next=following)


async def describe_pipeline(call: Call, params: PipelineParams) -> Pipeline:
    for pipeline in await _pipelines(call):
        if pipeline.name == params.pipeline:
            return pipeline
    raise HttpProblem(
        HTTPStatus.NOT_FOUND, "unknown_pipeline", f"there is no pipeline {params.pipeline!r}"
    )


async def pipeline_events(call: Call, params: PipelineParams) -> AsyncIterator[Sequence[Event]]:
    last: bytes | None = None
    silent_s = 0.0
    while True:
        pipeline = await describe_pipeline(call, params)
        encoded = msgspec.json.encode(pipeline)
        if encoded != last or silent_s >= COMMENT_EVERY_S:
            cursor = str(pipeline.updated_ms)
            yield [Event("pipeline", pipeline, cursor)] if encoded != last else []
            last, silent_s = encoded, 0.0
        await asyncio.sleep(LOOK_S)
        silent_s += LOOK_S


async def check_filter(call: Call, params: Params, body: FilterCheck) -> FilterVerdict:
    try:
        where = parse(body.filter)
    except InvalidFilter as problem:
        return FilterVerdict(is_valid=False, message=str(problem), place=problem.place)
    if body.topic is None:
        return FilterVerdict(is_valid=True)
    topic = call.services.topics.describe(call.session, body.topic)
    share = max(1, CHECKED_RECORDS // topic.partition_count)
    looked_at = passed = 0
    for partition in range(topic.partition_count):
        target = TopicPartition(body.topic, partition)
        bounds = await bounds_of(call.services, call.session, target)
        at = max(bounds.start, bounds.end - share)
        while at < bounds.end and looked_at < CHECKED_RECORDS:
            chunk = await read_chunk(call.services, call.session, target, at)
            looked_at += len(chunk.records)
            passed += sum(where.matches(record, topic=body.topic) for record in chunk.records)
            if chunk.next_offset <= at:
                break
            at = chunk.next_offset
    return FilterVerdict(is_valid=True, looked_at=looked_at, passed=passed)


async def _pipelines(call: Call) -> list[Pipeline]:
    """All pipelines by name, from the last value of each key; what is no report is left out."""
    values: dict[bytes, bytes | None] = {}
    target = TopicPartition(TOPIC, 0)
    try:
        bounds = await bounds_of(call.services, call.session, target)
    except UnknownTopic:
        return []
    at = bounds.start
    while at < bounds.end:
        chunk = await read_chunk(call.services, call.session, target, at)
        for record in chunk.records:
            if record.key is not None and (record.key in values or len(values) < PIPELINES_MAX):
                values[record.key] = record.value
        if chunk.next_offset <= at:
            break
        at = chunk.next_offset
    now_ms = call.services.clock.now_ms()
    known = []
    for key, value in sorted(values.items()):
        if value is None or key.endswith(COMMAND_SUFFIX.encode()):
            continue
        try:
            known.append(_seen(msgspec.json.decode(value, type=Pipeline), now_ms))
        except msgspec.MsgspecError:
            continue
    return known


def _seen(pipeline: Pipeline, now_ms: int) -> Pipeline:
    """A running pipeline that is silent for too long is lost."""
    silent_max = max(SILENT_MS_MAX, SILENT_TRIGGERS_MAX * pipeline.trigger_ms)
    changes: dict[str, Any] = {
        "started_at": iso_time(max(0, pipeline.started_ms)),
        "updated_at": iso_time(max(0, pipeline.updated_ms)),
    }
    if pipeline.state == "running" and now_ms - pipeline.updated_ms > silent_max:
        changes["state"] = "lost"
    return msgspec.structs.replace(pipeline, **changes)


_READ = (Right("READ", f"topic:{TOPIC}"), Right("DESCRIBE", f"topic:{TOPIC}"))

ROUTES = (
    Route(
        method="GET",
        path="/v1/pipelines",
        handler=list_pipelines,
        summary="Pipelines with their flows, state and lag",
        params=Listing,
        reply=Page[Pipeline],
        rights=_READ,
    ),
    Route(
        method="GET",
        path="/v1/pipelines/{pipeline}",
        handler=describe_pipeline,
        summary="One pipeline",
        params=PipelineParams,
        reply=Pipeline,
        rights=_READ,
    ),
    Route(
        method="GET",
        path="/v1/pipelines/{pipeline}/events",
        handler=pipeline_events,
        summary="A pipeline as it goes on, as server-sent events",
        params=PipelineParams,
        reply=Pipeline,
        sends=EVENTS_TYPE,
        is_stream=True,
        rights=_READ,
    ),
    Route(
        method="POST",
        path="/v1/filters:check",
        handler=check_filter,
        summary="The mistake in a filter, or how many of the newest records pass it",
        body=FilterCheck,
        reply=FilterVerdict,
        rights=(Right("READ", "topic:{topic}"),),
        example={"filter": "$.id > 5", "topic": "orders"},
    ),
)

"""Figures of the node over time, and the stream of changes that a console shows."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from millstream.engine.gate import Operation
from millstream.protocols.http.calls import Call, iso_time
from millstream.protocols.http.operate.history import SERIES
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import EVENTS_TYPE, Params, Right, Route
from millstream.protocols.http.streams import COMMENT_EVERY_S, Event

KINDS = ("figures", "health", "topics")
TURN_S = 1.0


class FiguresParams(Params, frozen=True, kw_only=True):
    step: Literal["second", "minute"] = "second"
    count: Annotated[int, msgspec.Meta(ge=1, le=1_440)] = 900
    series: str = ""  # Names with commas between; empty: all.


class Series(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    unit: str
    values: list[float]  # Oldest first; the last is that of `until`.


class FiguresReply(msgspec.Struct, frozen=True, kw_only=True):
    step_ms: int
    until: str
    until_ms: int
    series: list[Series]


class EventsParams(Params, frozen=True, kw_only=True):
    of: str = ",".join(KINDS)


def figures(call: Call, params: FiguresParams) -> FiguresReply:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    history = call.services.history
    rings = history.by_second if params.step == "second" else history.by_minute
    names = _chosen(params.series, tuple(SERIES), "series")
    return FiguresReply(
        step_ms=1_000 if params.step == "second" else 60_000,
        until=iso_time(history.last_ms),
        until_ms=history.last_ms,
        series=[
            Series(
                name=name,
                unit=SERIES[name],
                values=[round(value, 6) for value in rings[name].last(params.count)],
            )
            for name in names
        ],
    )


async def events(call: Call, params: EventsParams) -> AsyncIterator[Sequence[Event]]:
    """Every second what changed: the figures, a check of health, the topics."""
    services = call.services
    services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    kinds = _chosen(params.of, KINDS, "of")
    statuses: dict[str, str] = {}
    revision = -1
    silent_s = 0.0
    while True:
        changed: list[Event] = []
        history = services.history
        cursor = str(history.last_ms)
        if "figures" in kinds:
            values = {"at_ms": history.last_ms, **history.latest()}
            changed.append(Event("figures", values, cursor))
        if "health" in kinds:
            for verdict, since_ms, _ in services.health():
                if statuses.get(verdict.name) != verdict.status.word:
                    statuses[verdict.name] = verdict.status.word
                    changed.append(
                        Event(
                            "health",
                            {
                                "name": verdict.name,
                                "status": verdict.status.word,
                                "message": verdict.message,
                                "since": iso_time(since_ms),
                            },
                            cursor,
                        )
                    )
        if "topics" in kinds:
            now = services.topics.quorum(call.session).high_watermark
            if now != revision:
                revision = now
                changed.append(Event("topics", {"revision": revision}, cursor))
        silent_s = 0.0 if changed else silent_s + TURN_S
        if changed or silent_s >= COMMENT_EVERY_S:
            yield changed
            silent_s = 0.0
        await asyncio.sleep(TURN_S)


def _chosen(text: str, known: Sequence[str], name: str) -> list[str]:
    chosen = [part.strip() for part in text.split(",") if part.strip()] or list(known)
    unknown = [part for part in chosen if part not in known]
    if unknown:
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST,
            "invalid_request",
            f"{name}: there is no {unknown[0][:60]!r}; there are {', '.join(known)}",
            fields=(name,),
        )
    return chosen


_CLUSTER = (Right("DESCRIBE", "cluster"),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/figures",
        handler=figures,
        summary="The main series: 15 minutes by the second, 24 hours by the minute",
        params=FiguresParams,
        reply=FiguresReply,
        rights=_CLUSTER,
    ),
    Route(
        method="GET",
        path="/v1/events",
        handler=events,
        summary="What changes, as server-sent events: figures, health, topics",
        params=EventsParams,
        reply=FiguresReply,
        sends=EVENTS_TYPE,
        is_stream=True,
        rights=_CLUSTER,
    ),
)

"""Delayed records: list, show when one is due, cancel."""

import msgspec

from millstream.engine.delayed.service import Delayed
from millstream.protocols.http.calls import LIMIT_DEFAULT, Call, Limit, Page, iso_time
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.router import Params, Right, Route

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# Edges of the histogram, from now on.
AHEAD_MS = (
    0,
    1_000,
    10_000,
    MINUTE_MS,
    10 * MINUTE_MS,
    HOUR_MS,
    6 * HOUR_MS,
    DAY_MS,
    7 * DAY_MS,
    30 * DAY_MS,
)


class DelayedParams(Params, frozen=True, kw_only=True):
    id: str


class DelayedListing(Params, frozen=True, kw_only=True):
    topic: str | None = None
    due_before_ms: int | None = None
    limit: Limit = LIMIT_DEFAULT
    after: str = ""


class DelayedView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    topic: str
    partition: int
    due_at: str
    due_at_ms: int
    late_ms: int  # 0 until it is due.


class HistogramParams(Params, frozen=True, kw_only=True):
    topic: str | None = None


class DueBucket(msgspec.Struct, frozen=True, kw_only=True):
    """Records due before this time, and not before that of the bucket above."""

    ahead_ms: int | None  # From now on; 0: late already. Null: all that are due later.
    before_ms: int | None
    count: int


class DueHistogram(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    at_ms: int
    count: int
    items: list[DueBucket]


async def list_delayed(call: Call, params: DelayedListing) -> Page[DelayedView]:
    place = place_of(params.after, str)
    listed = await call.services.delayed.list(
        call.session,
        params.topic,
        after=None if place is None else place[0],
        count=call.limit(params.limit),
        due_before_ms=params.due_before_ms,
    )
    items = [_view(call, record) for record in listed.delayed]
    following = None if listed.next_after is None else cursor_of(listed.next_after)
    return Page(items=items, next=following)


async def histogram(call: Call, params: HistogramParams) -> DueHistogram:
    now_ms = call.services.clock.now_ms()
    edges = [now_ms + ahead_ms for ahead_ms in AHEAD_MS]
    counts = await call.services.delayed.count_by_due(call.session, params.topic, edges)
    return DueHistogram(
        at=iso_time(now_ms),
        at_ms=now_ms,
        count=sum(counts),
        items=[
            DueBucket(ahead_ms=ahead_ms, before_ms=edge, count=count)
            for ahead_ms, edge, count in zip([*AHEAD_MS, None], [*edges, None], counts, strict=True)
        ],
    )


async def describe_delayed(call: Call, params: DelayedParams) -> DelayedView:
    delayed, _ = await call.services.delayed.describe(call.session, params.id)
    return _view(call, delayed)


async def cancel_delayed(call: Call, params: DelayedParams) -> DelayedView:
    return _view(call, await call.services.delayed.cancel(call.session, params.id))


def _view(call: Call, delayed: Delayed) -> DelayedView:
    return DelayedView(
        id=delayed.id,
        topic=delayed.target.topic,
        partition=delayed.target.partition,
        due_at=iso_time(delayed.due_ms),
        due_at_ms=delayed.due_ms,
        late_ms=max(0, call.services.clock.now_ms() - delayed.due_ms),
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/delayed",
        handler=list_delayed,
        summary="List delayed records, of one topic or of all",
        params=DelayedListing,
        reply=Page[DelayedView],
        rights=(Right("DESCRIBE", "topic:{topic}"),),
    ),
    Route(
        method="GET",
        path="/v1/delayed/histogram",
        handler=histogram,
        summary="How many delayed records are due when, of one topic or of all",
        params=HistogramParams,
        reply=DueHistogram,
        rights=(Right("DESCRIBE", "topic:{topic}"),),
    ),
    Route(
        method="GET",
        path="/v1/delayed/{id}",
        handler=describe_delayed,
        summary="Describe a delayed record",
        params=DelayedParams,
        reply=DelayedView,
        rights=(Right("READ", "topic:{topic}"),),
    ),
    Route(
        method="DELETE",
        path="/v1/delayed/{id}",
        handler=cancel_delayed,
        summary="Cancel a delayed record: it is never delivered",
        params=DelayedParams,
        reply=DelayedView,
        rights=(Right("DELETE", "topic:{topic}"),),
    ),
)

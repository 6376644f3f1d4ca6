"""Moves the offsets of a group: a plan of what that repeats and skips, then the reset.

The token of a plan holds its request and a digest of all that it saw. No state is kept for it.
"""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

import msgspec

from millstream.engine.groups.views import Commit, Committed
from millstream.errors.groups import GroupNotEmpty, GroupNotFound
from millstream.model import TopicPartition
from millstream.protocols.http.admin.groups import (
    AssignedPartition,
    GroupDetail,
    GroupParams,
    describe,
)
from millstream.protocols.http.calls import Call
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.pages import resolve
from millstream.protocols.http.records.places import parse_place
from millstream.protocols.http.records.reading import Bounds, bounds_of, offset_at
from millstream.protocols.http.router import Right, Route

PARTITIONS_MAX = 20_000  # In one plan.


class ResetTo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of these."""

    earliest: bool = False
    latest: bool = False
    offset: Annotated[int, msgspec.Meta(ge=0)] | None = None
    time: str | None = None
    age: str | None = None
    shift: int | None = None


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: ResetTo
    topics: list[str] = []  # Empty: all that the group has offsets for.
    partitions: list[AssignedPartition] = []


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    from_offset: int | None = msgspec.field(name="from")
    to_offset: int = msgspec.field(name="to")
    repeated: int  # Records that would be read again.
    skipped: int  # Records that would never be read.


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    items: list[PlannedMove]
    repeated: int
    skipped: int
    token: str


class ResetRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: str


async def plan_reset(call: Call, params: GroupParams, body: PlanRequest) -> Plan:
    """What a reset would move, with a token that stands for exactly this plan."""
    return await _plan(call, params.group, body)


async def reset(call: Call, params: GroupParams, body: ResetRequest) -> Plan:
    """Carry a plan out; 409 if anything has moved since."""
    # The token holds the request and a digest of what the plan saw: no state is kept for it.
    token = place_of(body.token, PlanRequest, str)
    if token is None:
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST, "invalid_request", "$.token: empty", fields=("$.token",)
        )
    plan = await _plan(call, params.group, token[0])
    if plan.token != body.token:
        raise HttpProblem(
            HTTPStatus.CONFLICT,
            "plan_stale",
            "offsets or ends have moved since the plan was made: make another one",
        )
    detail = await _describe_or_none(call, params.group)
    if detail is not None and detail.members:
        raise GroupNotEmpty(params.group)
    commits = {
        TopicPartition(move.topic, move.partition): Commit(move.to_offset) for move in plan.items
    }
    outcomes = await call.services.groups.commit_offsets(call.session, params.group, commits)
    for problem in outcomes.values():
        if problem is not None:
            raise problem
    return plan


# -- parts -----------------------------------------------------------------------------------------


async def _plan(call: Call, group: str, request: PlanRequest) -> Plan:
    committed = {
        target: value
        for target, value in (await call.services.groups.fetch_offsets(call.session, group)).items()
        if isinstance(value, Committed) and value.offset >= 0
    }
    moves = []
    digest = hashlib.blake2b(repr((group, msgspec.json.encode(request))).encode(), digest_size=16)
    for target in await _plan_targets(call, request, committed):
        bounds = await bounds_of(call.services, call.session, target)
        before = committed[target].offset if target in committed else None
        after = await _destination(call, target, request.to, before, bounds)
        current = bounds.start if before is None else before
        moves.append(
            PlannedMove(
                topic=target.topic,
                partition=target.partition,
                from_offset=before,
                to_offset=after,
                repeated=max(0, min(current, bounds.end) - after),
                skipped=max(0, after - max(current, bounds.start)),
            )
        )
        digest.update(repr((target, before, after, bounds)).encode())
    token = cursor_of(request, digest.hexdigest())
    return Plan(
        group=group,
        items=moves,
        repeated=sum(move.repeated for move in moves),
        skipped=sum(move.skipped for move in moves),
        token=token,
    )


async def _plan_targets(
    call: Call, request: PlanRequest, committed: Mapping[TopicPartition, Committed]
) -> list[TopicPartition]:
    if request.partitions:
        chosen = [TopicPartition(each.topic, each.partition) for each in request.partitions]
    elif request.topics:
        chosen = [
            TopicPartition(name, partition)
            for name in dict.fromkeys(request.topics)
            for partition in range(
                call.services.topics.describe(call.session, name).partition_count
            )
        ]
    else:
        chosen = sorted(committed)
    if not chosen:
        raise HttpProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "invalid_request",
            "the group has no offsets: name topics or partitions",
            fields=("$.topics",),
        )
    if len(chosen) > PARTITIONS_MAX:
        raise HttpProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "invalid_request",
            f"{len(chosen)} partitions, at most {PARTITIONS_MAX} in one plan",
        )
    return list(dict.fromkeys(chosen))


async def _destination(
    call: Call, target: TopicPartition, to: ResetTo, before: int | None, bounds: Bounds
) -> int:
    """The new offset, within what there is."""
    chosen = [to.earliest, to.latest, to.offset is not None, to.time is not None]
    chosen += [to.age is not None, to.shift is not None]
    if sum(chosen) != 1:
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST,
            "invalid_request",
            "$.to: expected one of earliest, latest, offset, time, age and shift",
            fields=("$.to",),
        )
    offset = bounds.start
    if to.latest:
        offset = bounds.end
    elif to.offset is not None:
        offset = to.offset
    elif to.shift is not None:
        offset = (bounds.start if before is None else before) + to.shift
    elif to.time is not None or to.age is not None:
        text = to.time if to.time is not None else str(to.age)
        place = parse_place(text, call.services.clock.now_ms(), "$.to")
        if place.timestamp_ms is None:
            return await resolve(call, target, text, "$.to", bounds)
        offset = await offset_at(
            call.services, call.session, target, place.timestamp_ms, bounds.end
        )
    return min(max(offset, bounds.start), bounds.end)


async def _describe_or_none(call: Call, group: str) -> GroupDetail | None:
    try:
        return await describe(call, group)
    except GroupNotFound:
        return None


_GROUP = "group:{group}"

ROUTES = (
    Route(
        method="POST",
        path="/v1/groups/{group}:plan",
        handler=plan_reset,
        summary="What a reset of offsets would repeat and skip, with a token for it",
        params=GroupParams,
        body=PlanRequest,
        reply=Plan,
        rights=(Right("DESCRIBE", _GROUP), Right("DESCRIBE", "topic:{topic}")),
        example={"to": {"earliest": True}, "topics": ["orders"]},
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}:reset",
        handler=reset,
        summary="Reset offsets as a plan says, if nothing has moved since",
        params=GroupParams,
        body=ResetRequest,
        reply=Plan,
        rights=(Right("READ", _GROUP), Right("READ", "topic:{topic}")),
        example={"token": "0123456789abcdef0123456789abcdef"},
    ),
)

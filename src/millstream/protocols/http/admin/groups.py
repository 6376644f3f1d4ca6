"""Consumer groups of both kinds: state, members, offsets and lag."""

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Literal

import msgspec

from millstream.engine.groups.classic.vocabulary import Leaver
from millstream.engine.groups.views import Committed
from millstream.errors import RequestError
from millstream.errors.groups import GroupNotFound
from millstream.model import TopicPartition
from millstream.protocols.http.calls import Call, Listing, Page, iso_time
from millstream.protocols.http.paging import name_filter, page
from millstream.protocols.http.records.reading import bounds_of, read_chunk
from millstream.protocols.http.router import Params, Right, Route
from millstream.protocols.kafka.consumer_metadata import assigned_partitions

LOOKUPS_AT_ONCE = 100  # Of partitions that other nodes lead.


class GroupParams(Params, frozen=True, kw_only=True):
    group: str


class MemberParams(GroupParams, frozen=True, kw_only=True):
    member: str


class GroupListingParams(Listing, frozen=True, kw_only=True):
    state: str = ""


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: Literal["classic", "consumer"]
    state: str
    protocol_type: str
    coordinator: int | None
    members: int
    topics: list[str]
    lag: int  # Records, over all partitions.


class AssignedPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[AssignedPartition]


class PartitionOffset(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    offset: int
    metadata: str
    committed_at: str | None
    low_watermark: int | None
    end_offset: int | None
    lag: int | None


class GroupDetail(GroupSummary, frozen=True, kw_only=True):
    generation: int
    assignor: str | None
    member_list: list[GroupMember]
    offsets: list[PartitionOffset]
    revision: str


class Offsets(msgspec.Struct, frozen=True, kw_only=True):
    items: list[PartitionOffset]


class LagPoint(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    at_ms: int
    records: int
    seconds: float


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    records: int
    seconds: float | None  # Age of the oldest record that is not committed; null if none waits.
    items: list[PartitionOffset]
    history: list[LagPoint]  # Every 15 s of the last hour, on the node that coordinates the group.


class Forget(GroupParams, frozen=True, kw_only=True):
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0)] | None = None


# -- reading ---------------------------------------------------------------------------------------


async def list_groups(call: Call, params: GroupListingParams) -> Page[GroupSummary]:
    fits = name_filter(params.name)
    listings = [
        listing
        for listing in call.services.groups.list(call.session)
        if fits(listing.group_id)
        and (not params.state or _word(listing.state) == params.state.lower())
    ]
    limit = call.limit(params.limit)
    chosen, following = page(listings, lambda each: each.group_id, params.after, limit)
    items = []
    for listing in chosen:
        try:
            items.append(_summary(await describe(call, listing.group_id)))
        except GroupNotFound:
            continue  # Gone since it was listed.
    return Page(items=items, next=following)


async def describe_group(call: Call, params: GroupParams) -> GroupDetail:
    return await describe(call, params.group)


async def group_offsets(call: Call, params: GroupParams) -> Offsets:
    return Offsets(items=await _offsets(call, params.group))


async def group_lag(call: Call, params: GroupParams) -> Lag:
    items = await _offsets(call, params.group)
    oldest_ms: int | None = None
    for item in items:
        if item.lag:
            at_ms = await _time_of(call, TopicPartition(item.topic, item.partition), item.offset)
            if at_ms is not None:
                oldest_ms = at_ms if oldest_ms is None else min(oldest_ms, at_ms)
    now_ms = call.services.clock.now_ms()
    return Lag(
        group=params.group,
        records=sum(item.lag or 0 for item in items),
        seconds=None if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000,
        items=items,
        history=[
            LagPoint(
                at=iso_time(point.at_ms),
                at_ms=point.at_ms,
                records=point.records,
                seconds=point.age_ms / 1000,
            )
            for point in call.services.history.lags.of(params.group)
        ],
    )


# -- changing --------------------------------------------------------------------------------------


async def delete_group(call: Call, params: GroupParams) -> None:
    if call.revision is not None:
        call.check_revision((await describe(call, params.group)).revision)
    await call.services.groups.delete(call.session, params.group)


async def forget_offsets(call: Call, params: Forget) -> Offsets:
    items = await _offsets(call, params.group)
    chosen = [
        item
        for item in items
        if item.topic == params.topic and params.partition in {None, item.partition}
    ]
    targets = [TopicPartition(item.topic, item.partition) for item in chosen]
    outcomes = await call.services.groups.delete_offsets(call.session, params.group, targets)
    for problem in outcomes.values():
        if problem is not None:
            raise problem
    return Offsets(items=chosen)


async def remove_member(call: Call, params: MemberParams) -> None:
    leaver = Leaver(params.member, None)
    groups = call.services.groups
    [problem] = await groups.leave(call.session, params.group, [leaver])
    if isinstance(problem, RequestError):
        raise problem


# -- parts -----------------------------------------------------------------------------------------


async def describe(call: Call, group: str) -> GroupDetail:
    services, session = call.services, call.session
    coordinator = int(await services.groups.coordinator_of(session, group))
    offsets = await _offsets(call, group)
    try:
        consumers = await services.consumer_groups.describe(session, group)
    except GroupNotFound:
        classic = await services.groups.describe(session, group)
        members = [
            GroupMember(
                id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                partitions=_assigned(assigned_partitions(classic.protocol_type, member.assignment)),
            )
            for member in classic.members
        ]
        return _detail(
            group,
            "classic",
            _word(classic.state),
            classic.protocol_type,
            coordinator,
            classic.generation,
            classic.protocol,
            members,
            offsets,
        )
    members = [
        GroupMember(
            id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            host=member.client_host,
            partitions=_assigned(
                TopicPartition(share.topic, partition)
                for share in member.assigned
                for partition in share.partitions
            ),
        )
        for member in consumers.members
    ]
    return _detail(
        group,
        "consumer",
        _word(consumers.state),
        "consumer",
        coordinator,
        consumers.epoch,
        consumers.assignor,
        members,
        offsets,
    )


def _detail(
    group: str,
    kind: Literal["classic", "consumer"],
    state: str,
    protocol_type: str,
    coordinator: int,
    generation: int,
    assignor: str | None,
    members: list[GroupMember],
    offsets: list[PartitionOffset],
) -> GroupDetail:
    places = [(each.topic, each.partition, each.offset) for each in offsets]
    seen = repr((state, generation, [member.id for member in members], places))
    topics = {each.topic for each in offsets}
    topics |= {part.topic for member in members for part in member.partitions}
    return GroupDetail(
        name=group,
        kind=kind,
        state=state,
        protocol_type=protocol_type,
        coordinator=coordinator,
        members=len(members),
        topics=sorted(topics),
        lag=sum(each.lag or 0 for each in offsets),
        generation=generation,
        assignor=assignor,
        member_list=members,
        offsets=offsets,
        revision=hashlib.blake2b(seen.encode(), digest_size=8).hexdigest(),
    )


def _summary(detail: GroupDetail) -> GroupSummary:
    return GroupSummary(**{name: getattr(detail, name) for name in GroupSummary.__struct_fields__})


async def _offsets(call: Call, group: str) -> list[PartitionOffset]:
    stored = await call.services.groups.fetch_offsets(call.session, group)
    committed = [
        (target, value)
        for target, value in sorted(stored.items())
        if isinstance(value, Committed) and value.offset >= 0
    ]
    items: list[PartitionOffset] = []
    for start in range(0, len(committed), LOOKUPS_AT_ONCE):
        some = committed[start : start + LOOKUPS_AT_ONCE]
        items += await asyncio.gather(*(_offset(call, *each) for each in some))
    return items


async def _offset(call: Call, target: TopicPartition, value: Committed) -> PartitionOffset:
    bounds = await _bounds(call, target)
    low, end = (None, None) if bounds is None else bounds
    return PartitionOffset(
        topic=target.topic,
        partition=target.partition,
        offset=value.offset,
        metadata=value.metadata,
        committed_at=iso_time(value.committed_ms) if value.committed_ms > 0 else None,
        low_watermark=low,
        end_offset=end,
        lag=None if low is None or end is None else max(0, end - max(value.offset, low)),
    )


async def _bounds(call: Call, target: TopicPartition) -> tuple[int, int] | None:
    """Where the partition begins and ends; None if it cannot be known now, or is gone."""
    services, session = call.services, call.session
    with suppress(RequestError):  # Perhaps no replica is here.
        health = services.partitions.health(session, target)
        if health.leader == services.config.node_id:
            return health.log.start_offset, health.last_stable_offset
    with suppress(RequestError):
        return await bounds_of(services, session, target)
    return None


async def _time_of(call: Call, target: TopicPartition, offset: int) -> int | None:
    """The time of the first record from `offset` on; None if it cannot be read."""
    try:
        chunk = await read_chunk(call.services, call.session, target, offset, bytes_max=1)
    except RequestError:
        return None
    return chunk.records[0].timestamp if chunk.records else None


def _assigned(targets: Iterable[TopicPartition]) -> list[AssignedPartition]:
    return [AssignedPartition(topic=topic, partition=partition) for topic, partition in targets]


def _word(state: object) -> str:
    return str(getattr(state, "value", state)).lower().replace(" ", "_")


_GROUP = "group:{group}"
_DESCRIBE = (Right("DESCRIBE", _GROUP),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/groups",
        handler=list_groups,
        summary="Consumer groups with state, members, topics and lag",
        params=GroupListingParams,
        reply=Page[GroupSummary],
        gathered_by="name",
        rights=(Right("DESCRIBE", "group:*"),),
    ),
    Route(
        method="GET",
        path="/v1/groups/{group}",
        handler=describe_group,
        summary="One group with members, assignments and offsets",
        params=GroupParams,
        reply=GroupDetail,
        rights=_DESCRIBE,
    ),
    Route(
        method="DELETE",
        path="/v1/groups/{group}",
        handler=delete_group,
        summary="Delete a group without members, with its offsets",
        params=GroupParams,
        takes_revision=True,
        rights=(Right("DELETE", _GROUP),),
    ),
    Route(
        method="GET",
        path="/v1/groups/{group}/lag",
        handler=group_lag,
        summary="Lag in records and seconds",
        params=GroupParams,
        reply=Lag,
        rights=_DESCRIBE,
    ),
    Route(
        method="GET",
        path="/v1/groups/{group}/offsets",
        handler=group_offsets,
        summary="Committed offsets",
        params=GroupParams,
        reply=Offsets,
        rights=_DESCRIBE,
    ),
    Route(
        method="DELETE",
        path="/v1/groups/{group}/offsets",
        handler=forget_offsets,
        summary="Forget the offsets of a topic that the group does not read",
        params=Forget,
        reply=Offsets,
        rights=(Right("DELETE", _GROUP), Right("READ", "topic:{topic}")),
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/members/{member}:remove",
        handler=remove_member,
        summary="Remove a member from a classic group",
        params=MemberParams,
        rights=(Right("READ", _GROUP),),
    ),
)

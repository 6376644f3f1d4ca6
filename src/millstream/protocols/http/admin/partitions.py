"""Partitions of a topic: places, replicas, segments, index, producers; grow and truncate."""

from collections.abc import Generator
from http import HTTPStatus
from typing import Annotated

import msgspec

from millstream.engine.partitions.leaders import Leadership
from millstream.engine.partitions.slices import AtMaxTimestamp
from millstream.errors import RequestError
from millstream.model import TopicPartition
from millstream.protocols.http.admin.topics import TopicDetail, TopicParams, detail, revision_of
from millstream.protocols.http.calls import Call, Listing, Page, iso_time
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.pages import PartitionNumber, resolve
from millstream.protocols.http.records.reading import bounds_of
from millstream.protocols.http.router import Right, Route

STEP_PARTITIONS = 64


class PartitionListing(Listing, frozen=True, kw_only=True):
    topic: str


class PartitionParams(TopicParams, frozen=True, kw_only=True):
    partition: PartitionNumber


class IndexFigures(msgspec.Struct, frozen=True, kw_only=True):
    entries: int
    stretch_bytes: int  # The most bytes that a search may have to read.
    gaps: int  # Sealed segments without an index on disk.
    bytes_per_entry: int


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    low_watermark: int
    high_watermark: int
    last_stable_offset: int
    end_offset: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    segments: int
    bytes: int
    index: IndexFigures
    problem: str | None = None  # Why its log is not usable here.


class SegmentView(msgspec.Struct, frozen=True, kw_only=True):
    base_offset: int
    end_offset: int
    bytes: int
    last_time_ms: int | None  # Of its newest record.
    index_entries: int
    stretch_bytes: int
    has_index: bool  # On disk; the active segment has none.
    problem: str | None  # Why a part of it cannot be read.


class PartitionDetail(PartitionView, frozen=True, kw_only=True):
    last_time: str | None
    last_time_ms: int | None
    segment_list: list[SegmentView]  # The oldest first, the newest `page_max` of them.


class ProducerState(msgspec.Struct, frozen=True, kw_only=True):
    producer_id: int
    epoch: int
    last_sequence: int
    last_time: str
    last_time_ms: int
    open_transaction_offset: int | None


class Growth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    dry_run: bool = False


class Truncation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    before: dict[str, int | str]  # Offset or time by partition.
    dry_run: bool = False


class Truncated(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    low_watermark_before: int
    low_watermark: int
    records: int  # Offsets that are gone, or would be.


class TruncatedTopic(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Truncated]
    dry_run: bool


def list_partitions(
    call: Call, params: PartitionListing
) -> Generator[None, None, Page[PartitionView]]:
    topic = call.services.topics.describe(call.session, params.topic)
    place = place_of(params.after, int)
    start = 0 if place is None else place[0] + 1
    end = min(topic.partition_count, start + call.limit(params.limit))
    leaderships = call.services.partitions.leadership(call.session, topic)
    items = []
    for partition in range(start, end):
        target = TopicPartition(params.topic, partition)
        items.append(_view(call, target, leaderships[partition]))
        if len(items) % STEP_PARTITIONS == 0:
            yield
    return Page(items=items, next=cursor_of(end - 1) if end < topic.partition_count else None)


async def describe_partition(call: Call, params: PartitionParams) -> PartitionDetail:
    target = TopicPartition(params.topic, params.partition)
    topic = call.services.topics.describe(call.session, params.topic)
    topic.log(params.partition)
    leaderships = call.services.partitions.leadership(call.session, topic)
    view = _view(call, target, leaderships[params.partition])
    newest = await call.services.partitions.find(call.session, target, AtMaxTimestamp())
    last_ms = None if newest is None or newest.timestamp_ms < 0 else newest.timestamp_ms
    return PartitionDetail(
        **{name: getattr(view, name) for name in PartitionView.__struct_fields__},
        last_time=None if last_ms is None else iso_time(last_ms),
        last_time_ms=last_ms,
        segment_list=_segments(call, target),
    )


async def list_producers(call: Call, params: PartitionParams) -> Page[ProducerState]:
    target = TopicPartition(params.topic, params.partition)
    most = call.services.config.http.page_max
    views = (await call.services.partitions.producers(call.session, target))[:most]
    return Page(
        items=[
            ProducerState(
                producer_id=view.producer_id,
                epoch=view.epoch,
                last_sequence=view.last_sequence,
                last_time=iso_time(max(0, view.last_timestamp)),
                last_time_ms=view.last_timestamp,
                open_transaction_offset=None
                if view.transaction_first_offset < 0
                else view.transaction_first_offset,
            )
            for view in views
        ]
    )


async def grow_topic(call: Call, params: TopicParams, body: Growth) -> TopicDetail:
    topics = call.services.topics
    call.check_revision(revision_of(topics.describe(call.session, params.topic)))
    if body.dry_run:
        topics.check_add_partitions(call.session, params.topic, total=body.count)
        planned = detail(call, topics.describe(call.session, params.topic))
        return msgspec.structs.replace(planned, partitions=body.count)
    grown = await topics.add_partitions(call.session, params.topic, total=body.count)
    return detail(call, grown)


async def truncate_topic(call: Call, params: TopicParams, body: Truncation) -> TruncatedTopic:
    items = []
    for text, place in body.before.items():
        if not (text.isdigit() and len(text) < 10):
            raise HttpProblem(
                HTTPStatus.BAD_REQUEST,
                "invalid_request",
                f"$.before: {text[:40]!r} is not a partition",
                fields=("$.before",),
            )
        target = TopicPartition(params.topic, int(text))
        bounds = await bounds_of(call.services, call.session, target)
        offset = await resolve(call, target, str(place), f"$.before.{text}", bounds)
        low = max(bounds.start, offset)
        if not body.dry_run:
            low = call.services.partitions.delete_records(call.session, target, offset)
        items.append(
            Truncated(
                partition=target.partition,
                low_watermark_before=bounds.start,
                low_watermark=low,
                records=low - bounds.start,
            )
        )
    return TruncatedTopic(items=items, dry_run=body.dry_run)


def _segments(call: Call, target: TopicPartition) -> list[SegmentView]:
    try:
        segments = call.services.partitions.segments(call.session, target)
    except RequestError:
        return []  # The view says why the log is not usable here.
    return [
        SegmentView(
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            bytes=segment.size,
            last_time_ms=segment.max_timestamp if segment.max_timestamp >= 0 else None,
            index_entries=segment.entry_count if segment.table is None else len(segment.table),
            stretch_bytes=segment.widest if segment.table is None else segment.table.widest,
            has_index=segment.is_proven,
            problem=None if segment.failure is None else str(segment.failure),
        )
        for segment in segments[-call.services.config.http.page_max :]
    ]


def _view(call: Call, target: TopicPartition, leadership: Leadership) -> PartitionView:
    replicas = [int(node) for node in leadership.replicas]
    in_sync = [] if leadership.leader is None else leadership.in_step(call.services.is_up)
    try:
        health = call.services.partitions.health(call.session, target)
    except RequestError as problem:
        is_here = call.services.config.node_id in replicas
        elsewhere = f"no replica is on this node: ask node {' or '.join(map(str, replicas))}"
        return PartitionView(
            topic=target.topic,
            partition=target.partition,
            low_watermark=-1,
            high_watermark=-1,
            last_stable_offset=-1,
            end_offset=-1,
            leader=leadership.leader,
            leader_epoch=int(leadership.epoch),
            replicas=replicas,
            in_sync=in_sync,
            segments=0,
            bytes=0,
            index=IndexFigures(entries=0, stretch_bytes=0, gaps=0, bytes_per_entry=0),
            problem=str(problem) if is_here else elsewhere,
        )
    log = health.log
    return PartitionView(
        topic=target.topic,
        partition=target.partition,
        low_watermark=log.start_offset,
        high_watermark=health.high_watermark,
        last_stable_offset=health.last_stable_offset,
        end_offset=log.end_offset,
        leader=health.leader,
        leader_epoch=int(health.leader_epoch),
        replicas=replicas,
        in_sync=in_sync,
        segments=log.segment_count,
        bytes=log.size_bytes,
        index=IndexFigures(
            entries=log.index_entries,
            stretch_bytes=log.index_bytes_per_entry_max,
            gaps=log.index_gaps,
            bytes_per_entry=log.size_bytes // max(1, log.index_entries),
        ),
    )


_TOPIC = "topic:{topic}"
_DESCRIBE = (Right("DESCRIBE", _TOPIC),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics/{topic}/partitions",
        handler=list_partitions,
        summary="Partitions with watermarks, leader, replicas, segments and index",
        params=PartitionListing,
        reply=Page[PartitionView],
        rights=_DESCRIBE,
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}/partitions/{partition}",
        handler=describe_partition,
        summary="One partition",
        params=PartitionParams,
        reply=PartitionDetail,
        rights=_DESCRIBE,
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}/partitions/{partition}/producers",
        handler=list_producers,
        summary="Idempotent and transactional producers of a partition",
        params=PartitionParams,
        reply=Page[ProducerState],
        rights=(Right("READ", _TOPIC),),
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}:grow",
        handler=grow_topic,
        summary="Grow a topic to `count` partitions",
        params=TopicParams,
        body=Growth,
        reply=TopicDetail,
        takes_revision=True,
        rights=(Right("ALTER", _TOPIC),),
        example={"count": 12},
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}:truncate",
        handler=truncate_topic,
        summary="Delete records before an offset or a time, by partition",
        params=TopicParams,
        body=Truncation,
        reply=TruncatedTopic,
        rights=(Right("DELETE", _TOPIC), Right("DESCRIBE", _TOPIC)),
        example={"before": {"0": 1200, "1": "2026-11-17T00:00:00Z"}},
    ),
)

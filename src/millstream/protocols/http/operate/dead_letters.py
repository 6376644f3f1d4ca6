"""Dead letters: topics that have some, the letters, counts; replay, redrive, purge."""

from http import HTTPStatus
from typing import Annotated

import msgspec

from millstream.engine.dead_letters.service import DeadLetter, RedrivePlan, dead_topic_of
from millstream.engine.dead_letters.service import LetterPlace as Place
from millstream.engine.filters.filter import parse
from millstream.errors import RequestError
from millstream.model import TopicPartition
from millstream.names import DLQ_TOPIC_SUFFIX
from millstream.protocols.http.admin.topics import TopicParams
from millstream.protocols.http.calls import Call, Limit, Listing, Page, iso_time
from millstream.protocols.http.operate.jobs import JobView
from millstream.protocols.http.paging import cursor_of, name_filter, page, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.display import Display, ShownRecord
from millstream.protocols.http.records.pages import PartitionNumber
from millstream.protocols.http.router import Right, Route

VALUE_BYTES = 64 * 1024


class DeadTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic: str  # That the letters come from.
    dead_letter_topic: str
    kept: int  # Letters in the topic, redriven ones too.


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    record: ShownRecord
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group: str
    reason: str
    attempts: int
    error: str


class LetterListing(TopicParams, frozen=True, kw_only=True):
    limit: Limit = 100
    after: str = ""
    reason: str = ""
    group: str = ""
    origin: str = ""  # The topic that the letters come from.
    filter: str = ""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    waiting: int
    by_reason: dict[str, int]
    by_group: dict[str, int]
    oldest: str | None
    newest: str | None
    is_complete: bool


class PurgeParams(TopicParams, frozen=True, kw_only=True):
    expected_count: Annotated[int, msgspec.Meta(ge=0)]


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    count: int


class LetterPlace(TopicParams, frozen=True, kw_only=True):
    partition: PartitionNumber
    offset: Annotated[int, msgspec.Meta(ge=0)]


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    to: str | None = None


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    offset: int


class RedriveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    filter: str | None = None
    group: str | None = None
    to: str | None = None
    rate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None
    dry_run: bool = False


class RedriveResult(msgspec.Struct, frozen=True, kw_only=True):
    sent: int
    skipped: int
    dry_run: bool


def list_topics(call: Call, params: Listing) -> Page[DeadTopic]:
    fits = name_filter(params.name)
    topics = [
        topic
        for topic in call.services.topics.list(call.session)
        if topic.name.endswith(DLQ_TOPIC_SUFFIX) and fits(topic.name)
    ]
    limit = call.limit(params.limit)
    chosen, following = page(topics, lambda topic: topic.name, params.after, limit)
    items = []
    for topic in chosen:
        kept = 0
        for partition in range(topic.partition_count):
            try:
                target = TopicPartition(topic.name, partition)
                health = call.services.partitions.health(call.session, target)
            except RequestError:
                continue
            kept += health.high_watermark - health.log.start_offset
        origin = topic.name.removesuffix(DLQ_TOPIC_SUFFIX)
        items.append(DeadTopic(topic=origin, dead_letter_topic=topic.name, kept=kept))
    return Page(items=items, next=following)


async def list_letters(call: Call, params: LetterListing) -> Page[Letter]:
    place = place_of(params.after, int, int)
    where = parse(params.filter) if params.filter else None

    def takes(letter: DeadLetter) -> bool:
        origin = letter.origin
        return (
            (not params.reason or origin.reason == params.reason)
            and (not params.group or origin.group == params.group)
            and (not params.origin or origin.target.topic == params.origin)
            and (where is None or where.matches(letter.record, topic=origin.target.topic))
        )

    letters, following = await call.services.dead_letters.page(
        call.session,
        params.topic,
        count_max=call.limit(params.limit),
        after=None if place is None else Place(*place),
        takes=takes,
    )
    display = Display(call, "auto", VALUE_BYTES)
    return Page(
        items=[await _letter(display, letter) for letter in letters],
        next=None if following is None else cursor_of(*following),
    )


async def statistics(call: Call, params: TopicParams) -> Statistics:
    counted = await call.services.dead_letters.statistics(call.session, params.topic)
    return Statistics(
        topic=counted.topic,
        waiting=counted.waiting,
        by_reason=dict(counted.by_reason),
        by_group=dict(counted.by_group),
        oldest=None if counted.oldest_ms is None else iso_time(counted.oldest_ms),
        newest=None if counted.newest_ms is None else iso_time(counted.newest_ms),
        is_complete=counted.is_complete,
    )


async def purge(call: Call, params: PurgeParams) -> Purged:
    counted = await call.services.dead_letters.statistics(call.session, params.topic)
    if counted.waiting != params.expected_count:
        raise HttpProblem(
            HTTPStatus.CONFLICT,
            "count_differs",
            f"{counted.waiting} dead letters wait, expected_count is {params.expected_count}",
        )
    return Purged(count=await call.services.dead_letters.purge(call.session, params.topic))


async def replay(call: Call, params: LetterPlace, body: ReplayRequest) -> Replayed:
    place = TopicPartition(params.topic, params.partition)
    target, offset = await call.services.dead_letters.replay(
        call.session, place, params.offset, to=body.to
    )
    return Replayed(topic=target.topic, partition=target.partition, offset=offset)


def redrive(call: Call, params: TopicParams, body: RedriveRequest) -> JobView:
    services = call.services
    services.topics.describe(call.session, dead_topic_of(params.topic))
    if body.filter:
        parse(body.filter)
    plan = RedrivePlan(
        filter=body.filter,
        group=body.group,
        to=body.to,
        rate=body.rate,
        count_max=body.count,
        is_dry_run=body.dry_run,
    )

    async def work() -> RedriveResult:
        done = await services.dead_letters.redrive(call.session, params.topic, plan)
        return RedriveResult(sent=done.sent, skipped=done.skipped, dry_run=body.dry_run)

    return services.jobs.start(call, "redrive", params.topic, work()).view()


async def _letter(display: Display, letter: DeadLetter) -> Letter:
    origin = letter.origin
    return Letter(
        record=await display.row(letter.target, letter.record),
        origin_topic=origin.target.topic,
        origin_partition=origin.target.partition,
        origin_offset=origin.offset,
        group=origin.group,
        reason=origin.reason,
        attempts=origin.attempts,
        error=origin.error,
    )


_READ = (Right("READ", "topic:{topic}"),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/dead-letters",
        handler=list_topics,
        summary="Topics that have dead letters",
        params=Listing,
        reply=Page[DeadTopic],
        rights=(Right("DESCRIBE", "topic:*"),),
    ),
    Route(
        method="GET",
        path="/v1/dead-letters/{topic}",
        handler=list_letters,
        summary="The dead letters of a topic that wait, oldest first",
        params=LetterListing,
        reply=Page[Letter],
        rights=_READ,
    ),
    Route(
        method="DELETE",
        path="/v1/dead-letters/{topic}",
        handler=purge,
        summary="Delete all dead letters of a topic, if as many wait as expected",
        params=PurgeParams,
        reply=Purged,
        rights=(Right("DELETE", "topic:{topic}"), *_READ),
    ),
    Route(
        method="GET",
        path="/v1/dead-letters/{topic}/stats",
        handler=statistics,
        summary="Counts of dead letters by reason and group",
        params=TopicParams,
        reply=Statistics,
        rights=_READ,
    ),
    Route(
        method="POST",
        path="/v1/dead-letters/{topic}/{partition}/{offset}:replay",
        handler=replay,
        summary="Send one dead letter back",
        params=LetterPlace,
        body=ReplayRequest,
        reply=Replayed,
        rights=_READ,
        example={"to": "orders"},
    ),
    Route(
        method="POST",
        path="/v1/dead-letters/{topic}:redrive",
        handler=redrive,
        summary="Send dead letters back, as a job",
        params=TopicParams,
        body=RedriveRequest,
        reply=JobView,
        status=HTTPStatus.ACCEPTED,
        location="/v1/jobs/{id}",
        rights=_READ,
        example={"group": "billing", "rate": 100, "dry_run": True},
    ),
)

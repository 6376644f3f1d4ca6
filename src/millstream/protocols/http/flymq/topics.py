"""Topics, consumer groups and dead letters as FlyMQ's tools ask for them."""

from base64 import b64encode
from collections.abc import Generator
from http import HTTPStatus
from typing import Annotated

import msgspec

from millstream.control.catalog import Topic
from millstream.errors.groups import GroupNotFound
from millstream.model import TopicPartition
from millstream.names import INTERNAL_TOPICS
from millstream.protocols.http.admin.groups import GroupDetail, describe
from millstream.protocols.http.admin.topics import TopicParams, topic_figures
from millstream.protocols.http.calls import Call, iso_time
from millstream.protocols.http.flymq.shapes import Done, route
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.display import Display
from millstream.protocols.http.router import Params, Right

STEP_TOPICS = 20
VALUE_BYTES_MAX = 2**20
LETTERS_MAX = 1_000


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    replica_factor: int
    message_count: int
    retention_bytes: int
    retention_ms: int
    created_at: str


class TopicOptions(msgspec.Struct, frozen=True, kw_only=True):
    partitions: Annotated[int, msgspec.Meta(ge=0)] = 0
    replica_factor: Annotated[int, msgspec.Meta(ge=0)] = 0
    retention_bytes: int = 0
    retention_ms: int = 0


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    options: TopicOptions = TopicOptions()


def list_topics(call: Call, params: Params) -> Generator[None, None, list[TopicView]]:
    views = []
    for topic in call.services.topics.list(call.session):
        if topic.name not in INTERNAL_TOPICS:
            views.append(_topic(call, topic))
        if len(views) % STEP_TOPICS == STEP_TOPICS - 1:
            yield
    return views


async def create_topic(call: Call, params: Params, body: NewTopic) -> None:
    """Zero means what the node has as a default, as in FlyMQ."""
    config, options = call.services.config, body.options
    retention = {
        "retention_bytes": options.retention_bytes,
        "retention_ms": options.retention_ms,
    }
    await call.services.topics.create(
        call.session,
        body.name,
        partitions=options.partitions or config.default_partitions,
        replicas=options.replica_factor or None,
        settings={name: str(value) for name, value in retention.items() if value},
    )


def describe_topic(call: Call, params: TopicParams) -> TopicView:
    return _topic(call, call.services.topics.describe(call.session, params.topic))


async def delete_topic(call: Call, params: TopicParams) -> None:
    await call.services.topics.delete(call.session, params.topic)


def _topic(call: Call, topic: Topic) -> TopicView:
    settings = topic.settings(call.services.resources.defaults.settings)
    return TopicView(
        name=topic.name,
        partitions=topic.partition_count,
        replica_factor=len(topic.placement[0]),
        message_count=topic_figures(call, topic).records,
        retention_bytes=settings.retention_bytes,
        retention_ms=settings.retention_ms,
        created_at=iso_time(topic.created_ms),
    )


# -- groups ----------------------------------------------------------------------------------------


class GroupParams(Params, frozen=True, kw_only=True):
    group: str  # A group, or `topic:group`.


class GroupPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    offset: int
    lag: int


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic: str
    members: int
    state: str
    lag: int
    partitions: list[GroupPartition]


async def list_groups(call: Call, params: Params) -> list[GroupView]:
    """FlyMQ's groups are of one topic: a group of several is listed once for each."""
    views: list[GroupView] = []
    for listing in call.services.groups.list(call.session):
        try:
            views += _groups(await describe(call, listing.group_id))
        except GroupNotFound:
            continue  # Gone since it was listed.
    return views


async def describe_group(call: Call, params: GroupParams) -> GroupView:
    topic, name = _group_name(params.group)
    for view in _groups(await describe(call, name)):
        if topic in {"", view.topic}:
            return view
    raise HttpProblem(
        HTTPStatus.NOT_FOUND, "group_not_found", f"consumer group not found: {params.group}"
    )


async def delete_group(call: Call, params: GroupParams) -> None:
    await call.services.groups.delete(call.session, _group_name(params.group)[1])


def _group_name(text: str) -> tuple[str, str]:
    topic, _, group = text.rpartition(":")
    return topic, group


def _groups(detail: GroupDetail) -> list[GroupView]:
    topics = dict.fromkeys([*detail.topics, *(each.topic for each in detail.offsets)])
    return [
        GroupView(
            name=detail.name,
            topic=topic,
            members=detail.members,
            state="active" if detail.members else "empty",
            lag=sum(each.lag or 0 for each in detail.offsets if each.topic == topic),
            partitions=[
                GroupPartition(partition=each.partition, offset=each.offset, lag=each.lag or 0)
                for each in detail.offsets
                if each.topic == topic
            ],
        )
        for topic in topics
    ]


# -- dead letters ----------------------------------------------------------------------------------


class LettersParams(TopicParams, frozen=True, kw_only=True):
    max_messages: Annotated[int, msgspec.Meta(ge=1, le=LETTERS_MAX)] = 100


class LetterParams(TopicParams, frozen=True, kw_only=True):
    id: str  # Partition and offset: `0-17`.


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    topic: str
    data: str
    error: str
    retries: int
    timestamp: str


async def list_letters(call: Call, params: LettersParams) -> list[Letter]:
    letters = await call.services.dead_letters.list(
        call.session, params.topic, count_max=params.max_messages
    )
    display = Display(call, "base64", VALUE_BYTES_MAX)
    views = []
    for letter in letters:
        value = (await display.row(letter.target, letter.record)).value
        data = None if value is None else value.base64
        if value is not None and data is None:
            data = b64encode((value.text or "").encode()).decode()  # Masked.
        views.append(
            Letter(
                id=f"{letter.target.partition}-{letter.record.offset}",
                topic=letter.origin.target.topic,
                data=data or "",
                error=letter.origin.error or letter.origin.reason,
                retries=letter.origin.attempts,
                timestamp=iso_time(max(0, letter.record.timestamp)),
            )
        )
    return views


async def purge(call: Call, params: TopicParams) -> None:
    await call.services.dead_letters.purge(call.session, params.topic)


async def replay(call: Call, params: LetterParams) -> Done:
    partition, _, offset = params.id.partition("-")
    if not (partition.isdecimal() and offset.isdecimal() and len(params.id) <= 28):
        raise HttpProblem(
            HTTPStatus.NOT_FOUND, "unknown_dead_letter", f"there is no message {params.id[:40]}"
        )
    place = TopicPartition(params.topic, int(partition))
    await call.services.dead_letters.replay(call.session, place, int(offset))
    return Done(message=f"message {params.id} replayed")


_TOPIC, _GROUP = "topic:{topic}", "group:{group}"
_READ = (Right("READ", _TOPIC), Right("DESCRIBE", _TOPIC))

ROUTES = (
    route(
        "GET",
        "/topics",
        list_topics,
        "List topics",
        reply=list[TopicView],
        rights=(Right("DESCRIBE", "topic:*"),),
    ),
    route(
        "POST",
        "/topics",
        create_topic,
        "Create a topic",
        body=NewTopic,
        status=HTTPStatus.CREATED,
        rights=(Right("CREATE", "topic:{name}"),),
        example={"name": "orders", "options": {"partitions": 3}},
    ),
    route(
        "GET",
        "/topics/{topic}",
        describe_topic,
        "Describe a topic",
        params=TopicParams,
        reply=TopicView,
        rights=(Right("DESCRIBE", _TOPIC),),
    ),
    route(
        "DELETE",
        "/topics/{topic}",
        delete_topic,
        "Delete a topic",
        params=TopicParams,
        rights=(Right("DELETE", _TOPIC),),
    ),
    route(
        "GET",
        "/consumer-groups",
        list_groups,
        "List consumer groups",
        reply=list[GroupView],
        rights=(Right("DESCRIBE", "group:*"),),
    ),
    route(
        "GET",
        "/consumer-groups/{group}",
        describe_group,
        "Describe a consumer group",
        params=GroupParams,
        reply=GroupView,
        rights=(Right("DESCRIBE", _GROUP),),
    ),
    route(
        "DELETE",
        "/consumer-groups/{group}",
        delete_group,
        "Delete a consumer group",
        params=GroupParams,
        rights=(Right("DELETE", _GROUP),),
    ),
    route(
        "GET",
        "/dlq/{topic}",
        list_letters,
        "The dead letters of a topic",
        params=LettersParams,
        reply=list[Letter],
        rights=_READ,
    ),
    route(
        "DELETE",
        "/dlq/{topic}",
        purge,
        "Delete the dead letters of a topic",
        params=TopicParams,
        rights=(Right("DELETE", _TOPIC), *_READ),
    ),
    route(
        "POST",
        "/dlq/{topic}/replay/{id}",
        replay,
        "Send a dead letter back",
        params=LetterParams,
        reply=Done,
        rights=_READ,
    ),
)

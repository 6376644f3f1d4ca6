"""Topics: list, create, describe, change, grow, truncate, delete."""

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import fields
from enum import Enum
from http import HTTPStatus
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from millstream.control.catalog import VIEW_OF, VIEW_WHERE, Topic
from millstream.errors import RequestError
from millstream.model import TopicPartition
from millstream.names import DLQ_TOPIC_SUFFIX, INTERNAL_TOPICS
from millstream.protocols.http.calls import Call, Listing, Page, iso_time
from millstream.protocols.http.paging import name_filter, page, sorted_page
from millstream.protocols.http.router import Params, Right, Route
from millstream.settings import STORED_SETTINGS, TopicSettings, meanings

STEP_TOPICS = 32  # Between two turns of the loop.

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
SettingValue = str | int | float | bool | None


class TopicParams(Params, frozen=True, kw_only=True):
    topic: str


class TopicListing(Listing, frozen=True, kw_only=True):
    internal: bool = False  # Whether the broker's own topics are listed too.
    # With `-` the largest first. Sorts by figures look at every topic.
    sort: Literal[
        "name",
        "-name",
        "partitions",
        "-partitions",
        "records",
        "-records",
        "bytes",
        "-bytes",
        "created_at_ms",
        "-created_at_ms",
    ] = "name"


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: str
    kind: str  # log, compacted, view or dead_letters.
    is_internal: bool
    partitions: int
    replicas: int
    records: int  # Between the low and the high watermarks, as far as this node knows.
    bytes: int
    owner: str
    settings: dict[str, str]  # Only those that differ from the defaults.
    created_at: str
    created_at_ms: int


class TopicDetail(TopicSummary, frozen=True, kw_only=True):
    revision: str
    view_of: str | None = None
    view_where: str | None = None


class NewTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    partitions: Count | None = None
    replicas: Count | None = None
    settings: dict[str, SettingValue] = {}
    dry_run: bool = False


class TopicChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    settings: dict[str, SettingValue]
    dry_run: bool = False


class TopicSetting(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str
    default: str
    source: str  # topic, node or default.
    type: str
    meaning: str
    has_effect: bool = True


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    items: list[TopicSetting]
    revision: str


def list_topics(call: Call, params: TopicListing) -> Generator[None, None, Page[TopicSummary]]:
    fits = name_filter(params.name)
    topics = [
        topic
        for topic in call.services.topics.list(call.session)
        if fits(topic.name) and (params.internal or topic.name not in INTERNAL_TOPICS)
    ]
    yield
    limit = call.limit(params.limit)
    chosen: Sequence[Topic] = topics
    following: str | None = None
    if params.sort == "name":
        chosen, following = page(topics, lambda topic: topic.name, params.after, limit)
    items: list[TopicSummary] = []
    for topic in chosen:
        items.append(TopicSummary(**_summary(call, topic)))
        if len(items) % STEP_TOPICS == 0:
            yield
    if params.sort == "name":
        return Page(items=items, next=following)
    shown, following = sorted_page(items, params.sort, params.after, limit)
    return Page(items=list(shown), next=following)


async def create_topic(call: Call, params: Params, body: NewTopic) -> TopicDetail:
    services, config = call.services, call.services.config
    partitions = body.partitions or config.default_partitions
    replicas = body.replicas or services.topics.default_replicas
    settings = {name: text for name, text in _texts(body.settings).items() if text is not None}
    if body.dry_run:
        services.topics.check_create(
            call.session,
            body.name,
            partitions=partitions,
            replicas=replicas,
            settings=settings,
        )
        return _planned(body.name, settings, partitions=partitions, replicas=replicas)
    topic = await services.topics.create(
        call.session,
        body.name,
        partitions=partitions,
        replicas=body.replicas or None,
        settings=settings,
    )
    return detail(call, topic)


def describe_topic(call: Call, params: TopicParams) -> TopicDetail:
    return detail(call, call.services.topics.describe(call.session, params.topic))


async def change_topic(call: Call, params: TopicParams, body: TopicChange) -> TopicDetail:
    topics = call.services.topics
    changes = _texts(body.settings)
    topics.check_alter(call.session, params.topic, changes)
    call.check_revision(revision_of(topics.describe(call.session, params.topic)))
    if body.dry_run:
        topic = topics.describe(call.session, params.topic)
        overrides = {k: v for k, v in {**topic.overrides, **changes}.items() if v is not None}
        return detail(call, msgspec.structs.replace(topic, overrides=overrides))
    return detail(call, await topics.alter(call.session, params.topic, changes))


async def delete_topic(call: Call, params: TopicParams) -> None:
    if call.revision is not None:
        call.check_revision(revision_of(call.services.topics.describe(call.session, params.topic)))
    await call.services.topics.delete(call.session, params.topic)


def topic_settings(call: Call, params: TopicParams) -> Settings:
    topic = call.services.topics.describe_configs(call.session, params.topic)
    defaults = call.services.resources.defaults
    effective, built_in = topic.settings(defaults.settings), TopicSettings()
    meaning = meanings(TopicSettings)
    items = []
    for field in fields(TopicSettings):
        value, default = getattr(effective, field.name), getattr(built_in, field.name)
        is_node = getattr(defaults.settings, field.name) != default
        items.append(
            TopicSetting(
                name=field.name,
                value=_text(value),
                default=_text(default),
                source="topic"
                if field.name in topic.overrides
                else "node"
                if is_node
                else "default",
                type=_type_name(value),
                meaning=meaning.get(field.name, ""),
            )
        )
    for name, stored in STORED_SETTINGS.items():
        items.append(
            TopicSetting(
                name=name,
                value=topic.overrides.get(name, stored.default),
                default=stored.default,
                source="topic" if name in topic.overrides else "default",
                type="string",
                meaning=stored.reason,
                has_effect=False,
            )
        )
    return Settings(items=sorted(items, key=lambda item: item.name), revision=revision_of(topic))


def revision_of(topic: Topic) -> str:
    """Another one whenever the topic's settings or partitions are."""
    state = repr((topic.topic_id, sorted(topic.overrides.items()), topic.placement))
    return hashlib.blake2b(state.encode(), digest_size=8).hexdigest()


def topic_kind(topic: Topic) -> str:
    if topic.is_view:
        return "view"
    if topic.name.endswith(DLQ_TOPIC_SUFFIX):
        return "dead_letters"
    return "compacted" if "compact" in topic.overrides.get("cleanup_policy", "") else "log"


# -- parts -----------------------------------------------------------------------------------------


class TopicFigures(NamedTuple):
    records: int
    size_bytes: int


def topic_figures(call: Call, topic: Topic) -> TopicFigures:
    """Over the partitions that are here and usable."""
    records = size = 0
    for partition in range(0 if topic.is_view else topic.partition_count):
        try:
            health = call.services.partitions.health(
                call.session, TopicPartition(topic.name, partition)
            )
        except RequestError:
            continue  # Not here, or not usable: the list is of what is known.
        records += max(0, health.high_watermark - health.log.start_offset)
        size += health.log.size_bytes
    return TopicFigures(records, size)


# Any: fields of several types, checked by the struct that takes them.
def _summary(call: Call, topic: Topic) -> dict[str, Any]:
    records, size = topic_figures(call, topic)
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "kind": topic_kind(topic),
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": topic.partition_count,
        "replicas": len(topic.placement[0]),
        "records": records,
        "bytes": size,
        "owner": topic.overrides.get("owner", ""),
        "settings": dict(topic.overrides),
        "created_at": iso_time(topic.created_ms),
        "created_at_ms": topic.created_ms,
    }


def detail(call: Call, topic: Topic) -> TopicDetail:
    return TopicDetail(
        **_summary(call, topic),
        revision=revision_of(topic),
        view_of=topic.overrides.get(VIEW_OF),
        view_where=topic.overrides.get(VIEW_WHERE),
    )


def _planned(name: str, settings: dict[str, str], *, partitions: int, replicas: int) -> TopicDetail:
    """The topic that a request would create."""
    return TopicDetail(
        name=name,
        id="",
        kind="view" if settings.get(VIEW_OF) else "log",
        is_internal=False,
        partitions=partitions,
        replicas=replicas,
        records=0,
        bytes=0,
        owner=settings.get("owner", ""),
        settings=settings,
        created_at="",
        created_at_ms=0,
        revision="",
    )


def _texts(settings: dict[str, SettingValue]) -> dict[str, str | None]:
    """Settings as the control log has them; dots in names are Kafka's spelling."""
    return {
        name.replace(".", "_"): None if value is None else _text(value)
        for name, value in settings.items()
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value if isinstance(value, Enum) else value)


def _type_name(value: object) -> str:
    if isinstance(value, Enum):
        return "one of " + ", ".join(str(member.value) for member in type(value))
    return {bool: "boolean", int: "integer", float: "number"}.get(type(value), "string")


_TOPIC = "topic:{topic}"

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics",
        handler=list_topics,
        summary="List topics",
        params=TopicListing,
        reply=Page[TopicSummary],
        rights=(Right("DESCRIBE", "topic:*"),),
    ),
    Route(
        method="POST",
        path="/v1/topics",
        handler=create_topic,
        summary="Create a topic",
        body=NewTopic,
        reply=TopicDetail,
        status=HTTPStatus.CREATED,
        location="/v1/topics/{name}",
        rights=(Right("CREATE", "topic:{name}"),),
        example={"name": "orders", "partitions": 3, "settings": {"retention_ms": 86_400_000}},
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}",
        handler=describe_topic,
        summary="Describe a topic",
        params=TopicParams,
        reply=TopicDetail,
        rights=(Right("DESCRIBE", _TOPIC),),
    ),
    Route(
        method="PATCH",
        path="/v1/topics/{topic}",
        handler=change_topic,
        summary="Change a topic's settings; null takes one back to its default",
        params=TopicParams,
        body=TopicChange,
        reply=TopicDetail,
        takes_revision=True,
        rights=(Right("ALTER_CONFIGS", _TOPIC), Right("DESCRIBE", _TOPIC)),
        example={"settings": {"retention_ms": 3_600_000, "segment_bytes": None}},
    ),
    Route(
        method="DELETE",
        path="/v1/topics/{topic}",
        handler=delete_topic,
        summary="Delete a topic with its records",
        params=TopicParams,
        takes_revision=True,
        rights=(Right("DELETE", _TOPIC),),
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}/settings",
        handler=topic_settings,
        summary="All settings of a topic, with default, source, type and meaning",
        params=TopicParams,
        reply=Settings,
        rights=(Right("DESCRIBE_CONFIGS", _TOPIC),),
    ),
)

"""Views: filtered topics. List, create, change the filter, delete."""

from http import HTTPStatus

import msgspec

from millstream.control.catalog import VIEW_OF, VIEW_WHERE, Topic
from millstream.errors import UnknownTopic
from millstream.protocols.http.calls import Call, Listing, Page
from millstream.protocols.http.paging import name_filter, page
from millstream.protocols.http.router import Params, Right, Route


class ViewParams(Params, frozen=True, kw_only=True):
    view: str


class ViewListing(Listing, frozen=True, kw_only=True):
    topic: str = ""  # Only views of this topic.


class ViewSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topic: str
    filter: str
    partitions: int
    created_at_ms: int


class NewView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    topic: str
    filter: str
    dry_run: bool = False


class ViewPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    filter: str
    dry_run: bool = False


def list_views(call: Call, params: ViewListing) -> Page[ViewSummary]:
    fits = name_filter(params.name)
    views = [
        topic
        for topic in call.services.topics.list(call.session)
        if topic.is_view
        and fits(topic.name)
        and params.topic in {"", topic.overrides.get(VIEW_OF, "")}
    ]
    chosen, following = page(
        views, lambda topic: topic.name, params.after, call.limit(params.limit)
    )
    return Page(items=[_summary(topic) for topic in chosen], next=following)


async def create_view(call: Call, params: Params, body: NewView) -> ViewSummary:
    topics = call.services.topics
    partitions = topics.describe(call.session, body.topic).partition_count
    settings = {VIEW_OF: body.topic, VIEW_WHERE: body.filter}
    replicas = topics.default_replicas
    if body.dry_run:
        topics.check_create(
            call.session, body.name, partitions=partitions, replicas=replicas, settings=settings
        )
        return ViewSummary(
            name=body.name,
            topic=body.topic,
            filter=body.filter,
            partitions=partitions,
            created_at_ms=0,
        )
    topic = await topics.create(
        call.session, body.name, partitions=partitions, replicas=replicas, settings=settings
    )
    return _summary(topic)


def describe_view(call: Call, params: ViewParams) -> ViewSummary:
    return _summary(_view(call, params))


async def change_view(call: Call, params: ViewParams, body: ViewPatch) -> ViewSummary:
    view = _view(call, params)
    topics, changes = call.services.topics, {VIEW_WHERE: body.filter}
    if body.dry_run:
        topics.check_alter(call.session, view.name, changes)
        return msgspec.structs.replace(_summary(view), filter=body.filter)
    return _summary(await topics.alter(call.session, view.name, changes))


async def delete_view(call: Call, params: ViewParams) -> None:
    await call.services.topics.delete(call.session, _view(call, params).name)


def _view(call: Call, params: ViewParams) -> Topic:
    topic = call.services.topics.describe(call.session, params.view)
    if not topic.is_view:
        raise UnknownTopic(params.view)
    return topic


def _summary(topic: Topic) -> ViewSummary:
    return ViewSummary(
        name=topic.name,
        topic=topic.overrides.get(VIEW_OF, ""),
        filter=topic.overrides.get(VIEW_WHERE, ""),
        partitions=topic.partition_count,
        created_at_ms=topic.created_ms,
    )


_VIEW = "topic:{view}"

ROUTES = (
    Route(
        method="GET",
        path="/v1/views",
        handler=list_views,
        summary="List views with their filters",
        params=ViewListing,
        reply=Page[ViewSummary],
        rights=(Right("DESCRIBE", "topic:*"),),
    ),
    Route(
        method="POST",
        path="/v1/views",
        handler=create_view,
        summary="Create a view: a read-only topic of the records that pass a filter",
        body=NewView,
        reply=ViewSummary,
        status=HTTPStatus.CREATED,
        location="/v1/views/{name}",
        rights=(
            Right("CREATE", "topic:{name}"),
            Right("DESCRIBE", "topic:{topic}"),
            Right("READ", "topic:{topic}"),
        ),
        example={"name": "big-orders", "topic": "orders", "filter": "$.total > 500"},
    ),
    Route(
        method="GET",
        path="/v1/views/{view}",
        handler=describe_view,
        summary="Describe a view",
        params=ViewParams,
        reply=ViewSummary,
        rights=(Right("DESCRIBE", _VIEW),),
    ),
    Route(
        method="PATCH",
        path="/v1/views/{view}",
        handler=change_view,
        summary="Change a view's filter",
        params=ViewParams,
        body=ViewPatch,
        reply=ViewSummary,
        rights=(Right("DESCRIBE", _VIEW), Right("ALTER_CONFIGS", _VIEW)),
        example={"filter": "$.total > 1000"},
    ),
    Route(
        method="DELETE",
        path="/v1/views/{view}",
        handler=delete_view,
        summary="Delete a view; its topic stays",
        params=ViewParams,
        rights=(Right("DESCRIBE", _VIEW), Right("DELETE", _VIEW)),
    ),
)

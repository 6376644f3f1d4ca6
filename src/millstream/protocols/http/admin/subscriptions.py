"""Durable subscriptions: list, describe with members and cursors, delete."""

from typing import Any

import msgspec

from millstream.engine.push.values import SubscriptionView as EngineView
from millstream.protocols.http.calls import Call, Listing, Page
from millstream.protocols.http.paging import name_filter, page
from millstream.protocols.http.router import Params, Right, Route


class SubscriptionParams(Params, frozen=True, kw_only=True):
    subscription: str


class SubscriptionSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    topics: list[str]
    pattern: str | None
    filter: str | None
    acks: str
    member_count: int
    in_flight: int  # Delivered, and neither acknowledged nor given back yet.
    is_slow: bool  # One of its members does not keep up.


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """Figures since the member subscribed."""

    delivered: int
    redelivered: int
    acknowledged: int
    dropped: int
    dead_lettered: int
    in_flight: int
    buffered: int
    is_slow: bool


class CursorPlace(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    floor: int  # Every record before it is settled.
    next_offset: int
    unsettled: int


class SubscriptionDetail(SubscriptionSummary, frozen=True, kw_only=True):
    members: list[MemberView]
    cursors: list[CursorPlace]


async def list_subscriptions(call: Call, params: Listing) -> Page[SubscriptionSummary]:
    fits = name_filter(params.name)
    views = [
        view for view in await call.services.deliveries.list(call.session) if fits(_name(view))
    ]
    chosen, following = page(views, _name, params.after, call.limit(params.limit))
    return Page(items=[SubscriptionSummary(**_summary(view)) for view in chosen], next=following)


async def describe_subscription(call: Call, params: SubscriptionParams) -> SubscriptionDetail:
    view = await call.services.deliveries.describe(call.session, params.subscription)
    return SubscriptionDetail(
        **_summary(view),
        members=[
            MemberView(**{name: getattr(member, name) for name in MemberView.__struct_fields__})
            for member in view.members
        ],
        cursors=[
            CursorPlace(topic=target.topic, partition=target.partition, **cursor._asdict())
            for target, cursor in sorted(view.cursors.items())
        ],
    )


async def delete_subscription(call: Call, params: SubscriptionParams) -> None:
    await call.services.deliveries.delete(call.session, params.subscription)


def _name(view: EngineView) -> str:
    return view.spec.name or ""


# Any: fields of several types, checked by the struct that takes them.
def _summary(view: EngineView) -> dict[str, Any]:
    spec = view.spec
    return {
        "name": _name(view),
        "topics": list(spec.topics),
        "pattern": None if spec.pattern is None else spec.pattern.text,
        "filter": spec.filter,
        "acks": spec.acks.value,
        "member_count": len(view.members),
        "in_flight": sum(member.in_flight for member in view.members),
        "is_slow": any(member.is_slow for member in view.members),
    }


_NAME = "group:{subscription}"

ROUTES = (
    Route(
        method="GET",
        path="/v1/subscriptions",
        handler=list_subscriptions,
        summary="List durable subscriptions",
        params=Listing,
        reply=Page[SubscriptionSummary],
        rights=(Right("DESCRIBE", "group:*"),),
    ),
    Route(
        method="GET",
        path="/v1/subscriptions/{subscription}",
        handler=describe_subscription,
        summary="Describe a subscription: its members, and how far it is in each partition",
        params=SubscriptionParams,
        reply=SubscriptionDetail,
        rights=(Right("DESCRIBE", _NAME),),
    ),
    Route(
        method="DELETE",
        path="/v1/subscriptions/{subscription}",
        handler=delete_subscription,
        summary="Forget a subscription; its members get nothing more",
        params=SubscriptionParams,
        rights=(Right("DELETE", _NAME),),
    ),
)

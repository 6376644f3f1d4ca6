"""Quotas of users, client ids and addresses: list, set, delete."""

import msgspec

from millstream.control.quotas import DEFAULT, Entity
from millstream.protocols.http.calls import LIMIT_DEFAULT, Call, Limit, Page
from millstream.protocols.http.paging import page_by
from millstream.protocols.http.router import Params, Right, Route


class Holder(Params, frozen=True, kw_only=True):
    """A user, a client id, both together, or an address. `<default>` is all without their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


class QuotaListing(Params, frozen=True, kw_only=True):
    limit: Limit = LIMIT_DEFAULT
    after: str = ""


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    user: str | None
    client_id: str | None
    ip: str | None
    limits: dict[str, float]  # Such as `producer_byte_rate`, so much a second.


class NewLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limits: dict[str, float | None]  # Null takes a limit away.
    dry_run: bool = False


def list_quotas(call: Call, params: QuotaListing) -> Page[QuotaView]:
    quotas = sorted(call.services.client_quotas.describe(call.session).items(), key=_order)
    limit = call.limit(params.limit)
    chosen, following = page_by(quotas, _order, (str, str, str), params.after, limit)
    return Page(items=[_view(entity, limits) for entity, limits in chosen], next=following)


def _order(quota: tuple[Entity, dict[str, float]]) -> tuple[str, ...]:
    return tuple(name or "" for name in quota[0])


async def put_quota(call: Call, params: Holder, body: NewLimits) -> QuotaView:
    entity = Entity(params.user, params.client_id, params.ip)
    quotas = call.services.client_quotas
    if body.dry_run:
        quotas.check_alter(call.session, entity, body.limits)
    else:
        await quotas.alter(call.session, entity, body.limits)
    limits = {key: rate for key, rate in body.limits.items() if rate is not None}
    return _view(entity, limits if body.dry_run else _limits(call, entity))


async def delete_quota(call: Call, params: Holder) -> None:
    entity = Entity(params.user, params.client_id, params.ip)
    changes = dict.fromkeys(_limits(call, entity))
    if changes:
        await call.services.client_quotas.alter(call.session, entity, changes)
    else:
        call.services.client_quotas.check_alter(call.session, entity, {})


def _limits(call: Call, entity: Entity) -> dict[str, float]:
    return call.services.client_quotas.describe(call.session).get(entity, {})


def _view(entity: Entity, limits: dict[str, float]) -> QuotaView:
    return QuotaView(
        user=entity.user, client_id=entity.client_id, ip=entity.ip, limits=dict(limits)
    )


_CLUSTER = "cluster:kafka-cluster"

ROUTES = (
    Route(
        method="GET",
        path="/v1/quotas",
        handler=list_quotas,
        summary="List quotas",
        params=QuotaListing,
        reply=Page[QuotaView],
        rights=(Right("DESCRIBE_CONFIGS", _CLUSTER),),
    ),
    Route(
        method="PUT",
        path="/v1/quotas",
        handler=put_quota,
        summary=f"Set quotas of the holder in the query; {DEFAULT} is all without their own",
        params=Holder,
        body=NewLimits,
        reply=QuotaView,
        rights=(Right("ALTER_CONFIGS", _CLUSTER), Right("DESCRIBE_CONFIGS", _CLUSTER)),
        example={"limits": {"producer_byte_rate": 1_048_576}},
    ),
    Route(
        method="DELETE",
        path="/v1/quotas",
        handler=delete_quota,
        summary="Take all quotas of the holder in the query away",
        params=Holder,
        rights=(Right("ALTER_CONFIGS", _CLUSTER), Right("DESCRIBE_CONFIGS", _CLUSTER)),
    ),
)

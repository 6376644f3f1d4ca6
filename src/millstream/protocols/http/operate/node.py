"""This node: its configuration, its connections, and sessions of people."""

from dataclasses import fields, is_dataclass
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from millstream.config import Config
from millstream.engine.gate import Operation
from millstream.errors.access import LoginFailed
from millstream.protocols.http.calls import Call, Listing, Page, iso_time
from millstream.protocols.http.identity import COOKIE
from millstream.protocols.http.paging import cursor_of, name_filter, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import (
    JSON_TYPE,
    Needs,
    Params,
    RawReply,
    Right,
    Route,
)
from millstream.security.secrets import Secret
from millstream.settings import meanings

SESSION_S = 12 * 60 * 60
HIDDEN = "•••"


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Any
    default: Any
    origin: str  # default or set.
    meaning: str


class ConfigParams(Params, frozen=True, kw_only=True):
    name: str = ""


class ConfigKeys(msgspec.Struct, frozen=True, kw_only=True):
    items: list[ConfigKey]


class ConnectionListing(Listing, frozen=True, kw_only=True):
    protocol: str = ""
    principal: str = ""


class ConnectionParams(Params, frozen=True, kw_only=True):
    id: Annotated[int, msgspec.Meta(ge=0)]


class ConnectionView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    listener: str
    protocols: list[str]
    principal: str
    client_id: str
    address: str
    opened_at: str
    age_ms: int
    received_bytes: int
    is_throttled: bool


class Credentials(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: str
    password: str


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    principal: str
    roles: list[str]
    is_required: bool  # Whether this listener asks for a login.
    csrf: str | None = None  # For `X-Millstream-Csrf`, with changes made by the cookie.


def config(call: Call, params: ConfigParams) -> ConfigKeys:
    current = call.services.topics.node_config(call.session)
    fits = name_filter(params.name)
    texts = meanings(Config)
    defaults = dict(_leaves(Config()))
    return ConfigKeys(
        items=[
            ConfigKey(
                name=name,
                value=_shown(value),
                default=_shown(defaults.get(name)),
                origin="default" if value == defaults.get(name) else "set",
                meaning=texts.get(name, ""),
            )
            for name, value in _leaves(current)
            if fits(name)
        ]
    )


def list_connections(call: Call, params: ConnectionListing) -> Page[ConnectionView]:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    place = place_of(params.after, int)
    after = -1 if place is None else place[0]
    fits = name_filter(params.name)
    limit = call.limit(params.limit)
    views = [
        view
        for view in _connections(call)
        if view.id > after
        and (not params.protocol or params.protocol in view.protocols)
        and (not params.principal or params.principal == view.principal)
        and (fits(view.client_id) or fits(view.address))
    ]
    more = len(views) > limit
    return Page(items=views[:limit], next=cursor_of(views[limit - 1].id) if more else None)


def one_connection(call: Call, params: ConnectionParams) -> ConnectionView:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    for view in _connections(call):
        if view.id == params.id:
            return view
    raise _unknown(params.id)


def cut_connection(call: Call, params: ConnectionParams) -> None:
    call.services.topics.admit_to_cluster(call.session, Operation.ALTER)
    if not call.services.cut_connection(params.id):
        raise _unknown(params.id)


def session(call: Call, params: Params) -> SessionView:
    token = _cookie(call)
    return SessionView(
        principal=str(call.session.principal),
        roles=list(call.services.users.access.roles_of(call.session)),
        is_required=call.is_login_required,
        csrf=call.services.logins.csrf_token(token) if token else None,
    )


async def log_in(call: Call, params: Params, body: Credentials) -> RawReply:
    """Begin a session; its token is in the cookie and nowhere else."""
    logins, connection = call.services.logins, call.session
    try:
        proved = await logins.by_password(
            body.user,
            body.password,
            connection.address,
            listener=connection.listener,
            is_tls=connection.is_tls,
        )
    except LoginFailed as problem:
        raise HttpProblem(HTTPStatus.UNAUTHORIZED, "login_failed", str(problem)) from None
    token = logins.begin(proved, SESSION_S)
    view = SessionView(
        principal=str(proved.principal),
        roles=list(call.services.users.access.roles_of(proved)),
        is_required=call.is_login_required,
        csrf=logins.csrf_token(token),
    )
    secure = "; Secure" if connection.is_tls else ""
    cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION_S}{secure}"
    return RawReply(
        msgspec.json.encode(view), JSON_TYPE, HTTPStatus.CREATED, {"Set-Cookie": cookie}
    )


def log_out(call: Call, params: Params) -> RawReply:
    token = _cookie(call)
    if token:
        call.services.logins.end(token)
    cookie = f"{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"
    return RawReply(b"", JSON_TYPE, HTTPStatus.NO_CONTENT, {"Set-Cookie": cookie})


# -- parts -----------------------------------------------------------------------------------------


def _connections(call: Call) -> list[ConnectionView]:
    now_ms = call.services.clock.now_ms()
    return [
        ConnectionView(
            id=each.number,
            listener=each.listener,
            protocols=list(each.protocols),
            principal=each.principal,
            client_id=each.client_id,
            address=each.address,
            opened_at=iso_time(max(0, now_ms - each.age_ms)),
            age_ms=each.age_ms,
            received_bytes=each.received_bytes,
            is_throttled=each.is_throttled,
        )
        for each in sorted(call.services.connections(), key=lambda each: each.number)
    ]


def _unknown(number: int) -> HttpProblem:
    return HttpProblem(
        HTTPStatus.NOT_FOUND, "unknown_connection", f"there is no connection {number}"
    )


def _cookie(call: Call) -> str:
    for part in call.extra.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


# Any: settings of every type.
def _leaves(settings: Any, prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value) and not isinstance(value, Secret):
            leaves += _leaves(value, f"{prefix}{field.name}.")
        else:
            leaves.append((prefix + field.name, value))
    return leaves


def _shown(value: Any) -> Any:
    if isinstance(value, Secret):
        return HIDDEN if value else ""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, tuple | list | frozenset):
        return [_shown(each) for each in value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(name): _table(each) for name, each in value.items()}
    return str(getattr(value, "value", value))


def _table(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, Secret):
        return {name: _shown(each) for name, each in _leaves(value)}
    return _shown(value)


_DESCRIBE = (Right("DESCRIBE", "cluster"),)

ROUTES = (
    Route(
        method="GET",
        path="/v1/config",
        handler=config,
        summary="Settings of this node, with default, origin and meaning; secrets are hidden",
        params=ConfigParams,
        reply=ConfigKeys,
        rights=(Right("DESCRIBE_CONFIGS", "cluster"),),
    ),
    Route(
        method="GET",
        path="/v1/connections",
        handler=list_connections,
        summary="Connections of this node",
        params=ConnectionListing,
        reply=Page[ConnectionView],
        rights=_DESCRIBE,
    ),
    Route(
        method="GET",
        path="/v1/connections/{id}",
        handler=one_connection,
        summary="One connection",
        params=ConnectionParams,
        reply=ConnectionView,
        rights=_DESCRIBE,
    ),
    Route(
        method="DELETE",
        path="/v1/connections/{id}",
        handler=cut_connection,
        summary="Cut a connection",
        params=ConnectionParams,
        rights=(Right("ALTER", "cluster"),),
    ),
    Route(
        method="GET",
        path="/v1/session",
        handler=session,
        summary="The session of a browser, with the token for its changes",
        reply=SessionView,
    ),
    Route(
        method="POST",
        path="/v1/session",
        handler=log_in,
        summary="Log in with user and password; answers with a cookie",
        body=Credentials,
        reply=SessionView,
        status=HTTPStatus.CREATED,
        needs=Needs.NOTHING,
        is_raw=True,
        example={"user": "ann", "password": "secret"},
    ),
    Route(
        method="DELETE",
        path="/v1/session",
        handler=log_out,
        summary="Log out",
        is_raw=True,
    ),
)

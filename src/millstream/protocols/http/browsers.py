"""Keeps foreign web pages out: a developer's browser reaches loopback, a page it shows must not.

Pure checks of a request's head: `Host` against DNS rebinding, `Origin` and `Sec-Fetch-Site` against
requests that a page of another site sends, and the types of bodies that no form can send.
"""

from http import HTTPStatus
from ipaddress import ip_address

from millstream.config import Http
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.wire.requests import Request

_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


def check_host(request: Request, settings: Http) -> None:
    """Raise 421 unless `Host` is an address, loopback or in `http.hosts`.

    DNS rebinding needs a name: a page's own name that leads to this address. An address in `Host`
    is the one that was dialled.
    """
    host = host_name(request.headers.get("host", ""))
    if host in {"localhost", ""} or host.endswith(".localhost") or host in settings.hosts:
        return
    try:
        ip_address(host)
    except ValueError:
        raise HttpProblem(
            HTTPStatus.MISDIRECTED_REQUEST,
            "unknown_host",
            f"Host is {host[:100]!r}, which is not in http.hosts = {list(settings.hosts)}",
        ) from None


def check_origin(request: Request, settings: Http, *, is_tls: bool) -> None:
    """Raise 403 for a change that a page of another site asks for."""
    if request.method in _SAFE_METHODS:
        return
    origin = request.headers.get("origin")
    own = ("https://" if is_tls else "http://") + request.headers.get("host", "")
    if origin is not None and origin != own and origin not in settings.cors_origins:
        raise HttpProblem(
            HTTPStatus.FORBIDDEN,
            "foreign_origin",
            f"changes from {origin[:100]} are refused; add it to http.cors_origins to allow them",
        )
    if origin is None and request.headers.get("sec-fetch-site") == "cross-site":
        raise HttpProblem(
            HTTPStatus.FORBIDDEN, "foreign_origin", "changes from other sites are refused"
        )


def cors_headers(request: Request, settings: Http) -> dict[str, str]:
    """The headers that let a page of an allowed origin read the answer; none for others."""
    origin = request.headers.get("origin")
    if origin is None or origin not in settings.cors_origins:
        return {}
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Credentials": "true",
        "Access-Control-Expose-Headers": "ETag, Location, X-Request-Id",
        "Vary": "Origin",
    }


def preflight_headers(request: Request, settings: Http) -> dict[str, str] | None:
    """The answer to a browser that asks before a request; None if the origin is not allowed."""
    allowed = cors_headers(request, settings)
    if not allowed:
        return None
    return allowed | {
        "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
        "Access-Control-Allow-Headers": (
            "Authorization, Content-Type, If-Match, Idempotency-Key, Last-Event-ID, "
            "X-Millstream-Csrf, X-Request-Id"
        ),
        "Access-Control-Max-Age": "600",
    }


def host_name(host: str) -> str:
    """`Host` without its port, and an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()

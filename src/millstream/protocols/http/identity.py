"""Finds out which principal asks: by certificate, `Authorization` or the cookie of a session.

A change that is made with the cookie alone needs the token of `GET /v1/session` in
`X-Millstream-Csrf`: the browser sends the cookie by itself, with requests of any page.
"""

import hmac
from base64 import b64decode
from http import HTTPStatus
from typing import Final

from millstream.engine.access.logins import Logins
from millstream.errors.access import LoginFailed
from millstream.model import Session
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.wire.requests import Request

COOKIE: Final = "ms_session"
CSRF_HEADER: Final = "x-millstream-csrf"
CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="millstream", Bearer'}


async def session_of(
    request: Request, connection: Session, logins: Logins, *, changes: bool
) -> Session:
    """The session of a request, on a listener that asks for a login; raise 401 or 403.

    `connection` is the session of the connection, which a certificate may have proved.
    """
    if connection.mechanism == "TLS":
        return connection
    scheme, _, proof = request.headers.get("authorization", "").partition(" ")
    address = connection.address
    try:
        match scheme.lower():
            case "basic":
                user, _, password = b64decode(proof, validate=True).decode().partition(":")
                return await logins.by_password(
                    user,
                    password,
                    address,
                    listener=connection.listener,
                    is_tls=connection.is_tls,
                )
            case "bearer":
                return await logins.by_bearer(
                    proof, address, listener=connection.listener, is_tls=connection.is_tls
                )
            case "":
                pass
            case _:
                raise _unauthorized(request, f"{scheme[:20]} is not Basic or Bearer")
        token = cookie_of(request)
        if token:
            session = await logins.by_bearer(token, address)
            if changes:
                _check_csrf(request, logins, token)
            return session
    except LoginFailed as problem:
        raise _unauthorized(request, str(problem)) from None
    except ValueError:
        raise _unauthorized(request, "not a Basic login") from None
    raise _unauthorized(request, "authentication required")


def cookie_of(request: Request) -> str:
    """The token of the session in the cookie; empty without one."""
    for part in request.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _check_csrf(request: Request, logins: Logins, token: str) -> None:
    sent = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(sent.encode(), logins.csrf_token(token).encode()):
        raise HttpProblem(
            HTTPStatus.FORBIDDEN,
            "csrf_token_missing",
            "a change with the session's cookie needs X-Millstream-Csrf from GET /v1/session",
        )


def _unauthorized(request: Request, message: str) -> HttpProblem:
    # A browser would open its own window for a challenge to the console's requests.
    is_from_script = request.headers.get("sec-fetch-dest") == "empty"
    return HttpProblem(
        HTTPStatus.UNAUTHORIZED,
        "authentication_required",
        message,
        headers={} if is_from_script else CHALLENGE,
    )

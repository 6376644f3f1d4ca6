"""Encodes HTTP/1.1 responses.

Every response of a known length has it; a stream is sent in chunks. All of them tell a browser to
take the type as it is, to show the page in no frame and to name no referrer.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

TEXT_TYPE = "text/plain; charset=utf-8"
PROBLEM_TYPE = "application/problem+json"
SAFETY = (
    "X-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: frame-ancestors 'none'\r\n"
    "Referrer-Policy: no-referrer\r\n"
)
NO_STORE = "Cache-Control: no-store\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def response(
    status: HTTPStatus,
    body: bytes,
    *,
    kind: str = TEXT_TYPE,
    headers: Mapping[str, str] | None = None,
    is_head: bool = False,
    is_last: bool = False,
) -> bytes:
    """A whole response. `is_head` leaves the body out, as a HEAD request wants; `is_last` says
    that the server closes behind it."""
    own = {} if headers is None else headers
    more = "".join(f"{name}: {value}\r\n" for name, value in own.items())
    if "Cache-Control" not in own:
        more += NO_STORE
    if is_last:
        more += "Connection: close\r\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n{SAFETY}{more}\r\n"
    )
    return head.encode("latin-1") + (b"" if is_head else body)


def stream_head(kind: str, *, headers: Mapping[str, str] | None = None) -> bytes:
    """The head of a response whose length is not known; `chunk`s and `LAST_CHUNK` follow."""
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n"
        f"{SAFETY}{NO_STORE}{more}\r\n"
    )
    return head.encode("latin-1")


def chunk(data: bytes) -> bytes:
    """A piece of a stream; an empty one would end it, so there is none."""
    assert data
    return b"%x\r\n%b\r\n" % (len(data), data)


# Any: a problem carries members of its own kind (RFC 9457, section 3.2).
def problem_body(
    status: HTTPStatus, error: str, message: str, *, retriable: bool = False, **more: Any
) -> bytes:
    """The body of an error, as RFC 9457 has it, with the members that conventions name."""
    members = {
        "type": f"/errors/{error}",
        "title": status.phrase,
        "status": status.value,
        "detail": message,
        "error": error,
        "message": message,
        "retriable": retriable,
        **more,
    }
    return json.dumps(members).encode()

"""What may be said about a record when it is sent: headers, time, and what is not served yet.

Pure. The reserved headers mean something to a broker that carries them out; until this one does,
asking for it is refused, whichever way it is asked: a delay that is ignored is a record too early.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from millstream.client.errors import NotSupported, Refused
from millstream.client.models import Headers, milliseconds

RESERVED = {
    "ms-delay-ms": "delay",
    "ms-deliver-at": "delay",
    "ms-ttl-ms": "ttl",
    "ms-message-id": "message_id",
}
Span = timedelta | float


def refuse_unserved(
    *, delay: Span | None = None, ttl: Span | None = None, message_id: str | None = None
) -> None:
    asked = {"delay": delay, "ttl": ttl, "message_id": message_id}
    for name, value in asked.items():
        if value is not None:
            raise _unserved(name)


def refuse_filter(condition: object) -> None:
    if condition is not None:
        raise _unserved("filter")


def header_list(headers: Headers | None) -> list[tuple[str, bytes | None]]:
    """Headers in their order; text as UTF-8."""
    if headers is None:
        return []
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    for name, _ in pairs:
        if name in RESERVED:
            raise _unserved(RESERVED[name], f"header {name}")
    return [(name, _bytes(name, value)) for name, value in pairs]


def timestamp_ms(when: datetime | int | None) -> int:
    """Zero lets the client take the time of sending."""
    if when is None:
        return 0
    at = when if isinstance(when, int) else milliseconds(when)
    if at <= 0:
        raise Refused(f"the timestamp {at} ms is not after 1970")
    return at


def _bytes(name: str, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise Refused(f"header {name!r} is a {type(value).__name__}; it must be bytes, str or None")


def _unserved(name: str, how: str = "") -> NotSupported:
    return NotSupported(f"{how or f'{name}='} is not supported: no broker carries out {name} yet.")

"""Options of a record that is sent: headers, time, delay, lifetime, message id.

Pure. The reserved headers mean something to a broker that carries them out, as Millstream does; any
other would store them and do nothing, so `asks` says which records need one that does: a delay that
is ignored is a record too early.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from millstream.client.errors import NotSupported, Refused
from millstream.client.models import Headers, milliseconds
from millstream.names import DELAY_HEADER, DELIVER_AT_HEADER, MESSAGE_ID_HEADER, TTL_HEADER

RESERVED = {
    DELAY_HEADER: "delay",
    DELIVER_AT_HEADER: "delay",
    TTL_HEADER: "ttl",
    MESSAGE_ID_HEADER: "message_id",
}
Span = timedelta | float  # Or seconds.
HeaderList = list[tuple[str, bytes | None]]


def header_list(headers: Headers | None) -> HeaderList:
    """Headers in their order; text as UTF-8."""
    if headers is None:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, _bytes(name, value)) for name, value in pairs]


def queue_headers(
    *,
    delay: Span | datetime | None = None,
    ttl: Span | None = None,
    message_id: str | None = None,
) -> HeaderList:
    """The headers for a delay, a lifetime and a message id."""
    headers: HeaderList = []
    if isinstance(delay, datetime):
        # Before 1970 is as long ago as any other past: it is due.
        headers.append((DELIVER_AT_HEADER, b"%d" % max(0, milliseconds(delay))))
    elif delay is not None:
        headers.append((DELAY_HEADER, b"%d" % _span_ms("delay", delay)))
    if ttl is not None:
        headers.append((TTL_HEADER, b"%d" % _span_ms("ttl", ttl)))
    if message_id is not None:
        if not message_id:
            raise Refused("message_id is empty: it must name the record")
        headers.append((MESSAGE_ID_HEADER, utf8(message_id)))
    return headers


def utf8(value: str) -> bytes:
    """The bytes of a text; a shell's undecodable bytes are refused."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Refused(f"{value!r} is not a text that UTF-8 can encode") from None


def asks(headers: Iterable[tuple[str, object]]) -> str | None:
    """The first option that the headers ask for, by its parameter's name; None if there is none."""
    return next((RESERVED[name] for name, _ in headers if name in RESERVED), None)


def is_delayed(headers: Iterable[tuple[str, bytes | None]], *, now_ms: int) -> bool:
    """Whether a broker that carries it out will not write the record at once."""
    for name, value in headers:
        if name in (DELAY_HEADER, DELIVER_AT_HEADER) and value is not None and value.isdigit():
            return int(value) > (0 if name == DELAY_HEADER else now_ms)
    return False


def unserved(name: str, address: str) -> NotSupported:
    return NotSupported(f"{name} is not supported by the broker at {address}; Millstream does it.")


def refused(name: str, said: str) -> Refused:
    """Says why the broker refused a record: its own words do not come through librdkafka."""
    return Refused(
        f"{said} It asks for {name}: a number that is none is refused, and so is a delay in a "
        "transaction or beyond the broker's limits.delay_ms_max.",
        code="INVALID_RECORD",
    )


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
        return utf8(value)
    raise Refused(f"header {name!r} is a {type(value).__name__}; it must be bytes, str or None")


def _span_ms(name: str, span: Span) -> int:
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 0:
        raise Refused(f"{name} is {seconds:g} s: it cannot be negative")
    return round(seconds * 1000)

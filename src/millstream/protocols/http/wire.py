"""Parses request heads of HTTP/1.1, and encodes responses and Prometheus' text format.

Pure. Requests have no body here; a head of more than `HEAD_BYTES_MAX` bytes is refused. Formats:
RFC 9112, and Prometheus' exposition format 0.0.4.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import NamedTuple

from millstream.errors import ProtocolError
from millstream.metrics import Sample

HEAD_BYTES_MAX = 8 * 1024
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"
_END = b"\r\n\r\n"


class Request(NamedTuple):
    method: str
    path: str  # Without the query.


class Heads:
    """Splits a stream into request heads, whatever the pieces in which it arrives."""

    def __init__(self) -> None:
        self._begun = b""  # The part of a head that has arrived.
        self.unfinished_bytes = 0  # Received, and not yet yielded.

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield complete heads; raise `ProtocolError` for one that is too long."""
        data = self._begun + data
        at = 0
        while (end := data.find(_END, at)) >= 0 and end - at <= HEAD_BYTES_MAX:
            head, at = data[at:end], end + len(_END)
            self.unfinished_bytes = len(data) - at
            yield head
        self.unfinished_bytes = len(data) - at
        if end >= 0 or self.unfinished_bytes > HEAD_BYTES_MAX:
            raise ProtocolError(f"a request head of more than {HEAD_BYTES_MAX} bytes")
        self._begun = data[at:]


def parse(head: bytes) -> Request:
    """Read the request line; `ProtocolError` for anything but HTTP/1.x without a body."""
    line, *fields = head.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ProtocolError(f"{line[:100]!r} is not a request of HTTP/1.1")
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "transfer-encoding" or (
            name.lower() == "content-length" and value.strip() != "0"
        ):
            raise ProtocolError("a request with a body; there are none here")
    return Request(words[0], words[1].partition("?")[0])


def response(
    status: HTTPStatus, body: bytes, *, kind: str = TEXT_TYPE, is_head: bool = False
) -> bytes:
    """A whole response; `is_head` leaves the body out, as a HEAD request wants."""
    more = ""
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        more = "Allow: GET, HEAD\r\n"
    elif status is HTTPStatus.BAD_REQUEST:
        more = "Connection: close\r\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n{more}\r\n"
    )
    return head.encode("ascii") + (b"" if is_head else body)


def metric_lines(samples: Iterator[Sample]) -> Iterator[str]:
    """Lines of the exposition format for samples, grouped by metric as it requires."""
    described = None
    for metric, labels, value in samples:
        if metric is not described:
            described = metric
            yield f"# HELP {metric.name} {_escaped(metric.help)}\n"
            yield f"# TYPE {metric.name} {metric.kind.value}\n"
        named = ",".join(
            f'{name}="{_escaped(text, is_label=True)}"'
            for name, text in zip(metric.labels, labels, strict=True)
        )
        yield (
            f"{metric.name}{{{named}}} {value:.17g}\n"
            if named
            else (f"{metric.name} {value:.17g}\n")
        )


def _escaped(text: str, *, is_label: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if is_label else text

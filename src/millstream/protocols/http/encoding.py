"""Encodes what a handler returns: JSON, its revision as `ETag`, its place as `Location`."""

import re
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from millstream.protocols.http.router import RawReply, Route

_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?')
_encoder = msgspec.json.Encoder()


class Encoded(NamedTuple):
    status: HTTPStatus
    kind: str
    body: bytes
    headers: dict[str, str]


# Any: whatever the route declares as its reply.
def encode_reply(route: Route, value: Any, kind: str, *, numbers_as_text: bool) -> Encoded:
    if isinstance(value, RawReply):
        return Encoded(value.status, value.kind, value.body, dict(value.headers))
    headers = _headers(route, value)
    if value is None:
        status = HTTPStatus.NO_CONTENT if route.status is HTTPStatus.OK else route.status
        return Encoded(status, kind, b"", headers)
    body = _encoder.encode(value)
    if numbers_as_text:
        body = with_text_numbers(body)
    return Encoded(route.status, kind, body, headers)


def with_text_numbers(body: bytes) -> bytes:
    """JSON with every whole number as a string: 64 bits do not fit a browser's numbers."""

    def quoted(match: "re.Match[bytes]") -> bytes:
        text = match.group()
        return text if text[:1] == b'"' or not text.lstrip(b"-").isdigit() else b'"%b"' % text

    return _STRING_OR_NUMBER.sub(quoted, body)


def _headers(route: Route, value: Any) -> dict[str, str]:
    headers: dict[str, str] = {}
    revision = getattr(value, "revision", None)
    if isinstance(revision, str) and revision:
        headers["ETag"] = f'"{revision}"'
    if route.location and value is not None:
        headers["Location"] = route.location.format_map(_Quoted(value))
    return headers


class _Quoted:
    """The fields of a reply, as parts of a path."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getitem__(self, name: str) -> str:
        return quote(str(getattr(self._value, name)), safe="")

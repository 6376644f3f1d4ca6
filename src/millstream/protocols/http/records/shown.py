"""Bytes as JSON shows them: `{"json": …}`, `{"text": …}` or `{"base64": …}`, with size and cut.

What is cut or cannot be decoded says so. The same shape is taken for records that are produced.
"""

from base64 import b64decode, b64encode
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from millstream.protocols.http.problems import HttpProblem

Decode = Literal["auto", "json", "text", "base64"]

_ABSENT = msgspec.Raw(b"")  # A union with Raw would take null alone.
_json = msgspec.json.Decoder(msgspec.Raw)
_JSON_STARTS = frozenset(b'{["-0123456789tfn')


class Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of json, text and base64 is there; `size` is that of the whole."""

    size: int
    json: msgspec.Raw | None = None
    text: str | None = None
    base64: str | None = None
    cut: bool = False
    problem: str | None = None
    schema_id: int | None = None
    schema_type: str | None = None
    subject: str | None = None


class Sent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes to be produced: exactly one of these."""

    json: msgspec.Raw = msgspec.field(default_factory=lambda: _ABSENT)
    text: str | None = None
    base64: str | None = None


def show(data: bytes | None, *, bytes_max: int, decode: Decode = "auto") -> Shown | None:
    if data is None:
        return None
    size = len(data)
    is_cut = size > bytes_max
    if decode == "base64":
        return Shown(size=size, base64=_base64(data[:bytes_max]), cut=is_cut)
    try:
        text = data.decode("utf-8") if not is_cut else _cut_text(data, bytes_max)
    except UnicodeDecodeError:
        problem = None if decode == "auto" else "not UTF-8"
        return Shown(size=size, base64=_base64(data[:bytes_max]), cut=is_cut, problem=problem)
    problem = None
    if decode == "json" or (decode == "auto" and data[:1] and data[0] in _JSON_STARTS):
        if not is_cut:
            try:
                _json.decode(data)
                return Shown(size=size, json=msgspec.Raw(data))
            except msgspec.DecodeError as error:
                problem = None if decode == "auto" else f"not JSON: {error}"
            except RecursionError:
                problem = "JSON that is nested too deeply to be read: shown as text"
        else:
            problem = None
    return Shown(size=size, text=text, cut=is_cut, problem=problem)


def show_text(data: bytes, *, bytes_max: int, is_json: bool) -> Shown:
    """UTF-8 that is known to be JSON or not; what is cut is text."""
    if len(data) > bytes_max:
        return Shown(size=len(data), text=_cut_text(data, bytes_max), cut=True)
    if is_json:
        return Shown(size=len(data), json=msgspec.Raw(data))
    return Shown(size=len(data), text=data.decode())


def sent_bytes(sent: Sent | str | None, place: str) -> bytes | None:
    """The bytes that a client means; a plain string is its UTF-8."""
    if sent is None or isinstance(sent, str):
        return None if sent is None else sent.encode()
    has_json = sent.json is not _ABSENT
    if has_json + (sent.text is not None) + (sent.base64 is not None) != 1:
        raise _invalid(f"{place}: expected one of json, text and base64", place)
    if has_json:
        return bytes(sent.json)
    if sent.text is not None:
        return sent.text.encode()
    try:
        return b64decode(sent.base64 or "", validate=True)
    except ValueError:
        raise _invalid(f"{place}.base64: expected base64", place) from None


def json_of(sent: Sent | str, place: str) -> bytes:
    """The JSON that a client means, for a schema; a plain string is one of JSON."""
    if isinstance(sent, str):
        return msgspec.json.encode(sent)
    if sent.json is _ABSENT or sent.text is not None or sent.base64 is not None:
        raise _invalid(f"{place}: expected json, for its schema", place)
    return bytes(sent.json)


SentBytes = Annotated[Sent | str | None, msgspec.Meta(description="Bytes; a string is its UTF-8")]


def _cut_text(data: bytes, bytes_max: int) -> str:
    """A character may be cut at the end: it is left out."""
    text = data[:bytes_max].decode("utf-8", "ignore")
    if len(text.encode()) < bytes_max - 3:
        raise UnicodeDecodeError("utf-8", data, 0, 1, "not UTF-8")
    return text


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _invalid(message: str, place: str) -> HttpProblem:
    return HttpProblem(HTTPStatus.BAD_REQUEST, "invalid_request", message, fields=(place,))

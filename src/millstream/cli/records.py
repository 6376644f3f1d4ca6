r"""Records as people type and read them: encoders, decoders, and the format of a line.

Owns the three codings (`string`, `json`, `binary` as base64), `--format` with its `%` signs, and
the JSON line. Pure: bytes and text in, text and bytes out.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from millstream.cli.options import unescape
from millstream.cli.render import Refused, to_json

if TYPE_CHECKING:
    from millstream.client import Message

CODINGS = ("string", "json", "binary")

# What a `%` sign and the letter behind it stand for.
SIGNS: dict[str, str] = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "k": "key",
    "v": "value",
    "h": "headers",
    "T": "timestamp in milliseconds",
    "d": "time as a date",
    "%": "a percent sign",
}


def encode(text: str, coding: str) -> bytes:
    """The bytes of what was typed; `Refused` if it is not what the coding says."""
    match coding:
        case "json":
            try:
                return json.dumps(json.loads(text), ensure_ascii=False).encode()
            except ValueError as problem:
                raise Refused(
                    f"not JSON: {_short(text)} ({problem}); quote text, as in '\"hi\"'"
                ) from None
        case "binary":
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as problem:
                raise Refused(f"not base64: {_short(text)} ({problem})") from None
    return text.encode(errors="surrogateescape")


def decode(data: bytes | None, coding: str) -> object:
    """Decode bytes as text; bytes that are not UTF-8 stay visible, as `\\xff`."""
    if data is None:
        return None
    match coding:
        case "json":
            try:
                return json.loads(data)
            except ValueError as problem:
                text = _short(data.decode(errors="backslashreplace"))
                raise Refused(f"not JSON: {text} ({problem}); try --decoder string") from None
        case "binary":
            return base64.b64encode(data).decode()
    return data.decode(errors="backslashreplace")


def formatter(form: str, coding: str) -> "Callable[[Message], str]":
    """A function that spells a record by `form`; misuse if `form` has a sign that there is not."""
    template = unescape(form)
    for sign in re.findall(r"%(.|$)", template, re.DOTALL):
        if sign not in SIGNS:
            known = ", ".join(f"%{letter} {meaning}" for letter, meaning in SIGNS.items())
            raise click.UsageError(f"--format knows no %{sign}; there are {known}.")

    def spell(message: "Message") -> str:
        return re.sub(r"%(.)", lambda match: _part(message, match[1], coding), template)

    return spell


def json_line(message: "Message", coding: str) -> str:
    """One record as one line of JSON; the key is text, whatever the value is."""
    return to_json(
        {
            "topic": message.topic,
            "partition": message.partition,
            "offset": message.offset,
            "timestamp": message.timestamp_ms,
            "key": _key(message.key, coding),
            "value": decode(message.value, coding),
            "headers": [[name, decode(value, "string")] for name, value in message.headers],
        }
    )


def _part(message: "Message", sign: str, coding: str) -> str:
    match sign:
        case "t":
            return message.topic
        case "p":
            return str(message.partition)
        case "o":
            return str(message.offset)
        case "k":
            return _text(_key(message.key, coding))
        case "v":
            return _text(decode(message.value, coding))
        case "h":
            return ",".join(f"{k}={_text(decode(v, 'string'))}" for k, v in message.headers)
        case "T":
            return str(message.timestamp_ms)
        case "d":
            return message.timestamp.isoformat(timespec="milliseconds")
    return "%"


def _key(data: bytes | None, coding: str) -> object:
    return decode(data, "binary" if coding == "binary" else "string")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")

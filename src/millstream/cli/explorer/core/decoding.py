"""Shows bytes as JSON, text or hex, whole or in a line.

Pure. Invariants: the display has every digit of a JSON number and every doubled key; no control
character gets through, because a record must not be able to drive the reader's terminal.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

# Of a value that is longer, the beginning is shown, and that there is more.
DETAIL_BYTES_MAX = 64 * 2**10
# A pretty form needs the whole value, and must not hold up paging.
JSON_BYTES_MAX = 128 * 2**10
SUMMARY_CHARACTERS_MAX = 400
HEX_ROW_BYTES = 16
# Text may have a few control characters, such as colours of a log; with more it is no text.
ODD_SHARE_MAX = 0.1

# How Confluent's serializers begin: a zero, then the id of a schema in four bytes.
SCHEMA_PREFIX_BYTES = 5

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT = "  "


class Form(Enum):
    """The decodings, in the order in which a key press goes through them."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"
    HEX = "hex"

    @property
    def next(self) -> "Form":
        forms = list(Form)
        return forms[(forms.index(self) + 1) % len(forms)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`kind` says what the bytes were taken for; `note` what is not shown, or went wrong."""

    kind: str
    text: str
    note: str = ""


def show(data: bytes | None, form: Form) -> Shown:
    """A whole value, pretty; of a very long one the beginning."""
    if data is None:
        return Shown(kind="none", text="", note="no value: a tombstone, which deletes its key")
    match form:
        case Form.AUTO:
            return _guessed(data)
        case Form.JSON:
            is_long = len(data) > JSON_BYTES_MAX
            why = "too long to be laid out as JSON" if is_long else "not JSON"
            text = Shown(kind="text", text=_readable(data), note=_joined(why, _cut(data)))
            return _json(data) or text
        case Form.TEXT:
            return Shown(kind="text", text=_readable(data), note=_cut(data))
    return Shown(kind="hex", text=_hex(data), note=_cut(data))


def summary(data: bytes | None, form: Form) -> str:
    """One line that stands for a value in a list. Never looks at more than its beginning."""
    if data is None:
        return "∅"
    head = data[: SUMMARY_CHARACTERS_MAX + SCHEMA_PREFIX_BYTES]
    if form is Form.AUTO and _has_schema(data):
        head = head[SCHEMA_PREFIX_BYTES:]
    if form is Form.HEX or (form is Form.AUTO and not _is_text(head, is_cut=len(data) > len(head))):
        return head.hex(" ")[:SUMMARY_CHARACTERS_MAX]
    text = head.decode(errors="backslashreplace")
    return visible(" ".join(text.split()))[:SUMMARY_CHARACTERS_MAX]


def visible(text: str) -> str:
    """The text on one line, with whatever could move a cursor or turn the writing spelled out."""
    return "".join(
        character if character.isprintable() else _spelled(character) for character in text
    )


def visible_lines(text: str) -> str:
    """Apply `visible` line by line."""
    return "\n".join(visible(line.expandtabs(4)) for line in text.split("\n"))


def indented(text: str) -> str:
    """JSON with its structure laid out; every literal stays as it was written."""
    out: list[str] = []
    depth = 0
    before = ""
    for token in _TOKEN.findall(text):
        if token in "}]":
            depth -= 1
            # Nothing between the brackets: they stay together.
            out.append(token if before in "{[" and before else _line(depth) + token)
        else:
            if before and before in "{[,":
                out.append(_line(depth))
            out.append(": " if token == ":" else token)
            depth += token in "{["
        before = token
    return "".join(out)


def moment_text(timestamp_ms: int) -> str:
    """A record's time on this machine's clock; records may carry none, or one that is no time."""
    if timestamp_ms < 0:
        return "-"
    try:
        local = datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03}"


def counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def size_text(size_bytes: int) -> str:
    size: float = size_bytes
    for unit in ("B", "KiB", "MiB"):
        if size < 1023.95:  # What would read as 1024.0 is 1.0 of the next.
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _guessed(data: bytes) -> Shown:
    if _has_schema(data):
        body = _guessed(data[SCHEMA_PREFIX_BYTES:])
        number = int.from_bytes(data[1:SCHEMA_PREFIX_BYTES], "big")
        return Shown(kind=f"schema {number}, {body.kind}", text=body.text, note=body.note)
    as_json = _json(data)
    if as_json is not None:
        return as_json
    if _is_text(data[:DETAIL_BYTES_MAX], is_cut=len(data) > DETAIL_BYTES_MAX):
        return Shown(kind="text", text=_readable(data), note=_cut(data))
    return Shown(kind="hex", text=_hex(data), note=_cut(data))


def _json(data: bytes) -> Shown | None:
    """None if it is not JSON, or too long to know."""
    if len(data) > JSON_BYTES_MAX:
        return None
    try:
        text = data.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    pretty = indented(text)
    note = ""
    if len(pretty) > DETAIL_BYTES_MAX:
        pretty, note = pretty[:DETAIL_BYTES_MAX], _cut(data, is_certain=True)
    return Shown(kind="json", text=visible_lines(pretty), note=note)


def _readable(data: bytes) -> str:
    return visible_lines(data[:DETAIL_BYTES_MAX].decode(errors="backslashreplace"))


def _hex(data: bytes) -> str:
    shown = data[:DETAIL_BYTES_MAX]
    rows = (shown[at : at + HEX_ROW_BYTES] for at in range(0, len(shown), HEX_ROW_BYTES))
    width = HEX_ROW_BYTES * 3 - 1
    return "\n".join(
        f"{number * HEX_ROW_BYTES:06x}  {row.hex(' '):<{width}}  {_ascii(row)}"
        for number, row in enumerate(rows)
    )


def _ascii(row: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)


def _cut(data: bytes, *, is_certain: bool = False) -> str:
    if len(data) <= DETAIL_BYTES_MAX and not is_certain:
        return ""
    return f"the beginning of {size_text(len(data))}"


def _joined(*notes: str) -> str:
    return ", ".join(note for note in notes if note)


def _has_schema(data: bytes) -> bool:
    return len(data) > SCHEMA_PREFIX_BYTES and data[0] == 0 and data[1] == 0


def _is_text(data: bytes, *, is_cut: bool) -> bool:
    """Whether it is readable UTF-8; a cut may fall inside of a character."""
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        if not is_cut or problem.start < len(data) - 3:
            return False
        text = data[: problem.start].decode()
    odd = sum(not character.isprintable() and character not in "\n\r\t" for character in text)
    return "\0" not in text and odd <= len(text) * ODD_SHARE_MAX


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _line(depth: int) -> str:
    return "\n" + _INDENT * depth

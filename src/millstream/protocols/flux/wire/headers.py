"""Header blocks: lines `Name: value`, ended by an empty one.

Owns their format on the wire, and the one name that differs between Flux and the broker. Pure.
Invariant: a block is taken whole or refused whole.
"""

from typing import TypeAlias

from millstream.names import MESSAGE_ID_HEADER, SUBJECT_HEADER
from millstream.protocols.flux.wire.commands import Mistake

HeaderList: TypeAlias = tuple[tuple[str, bytes | None], ...]


# Flux names of the headers that every protocol of the broker understands.
_INSIDE = {"msg-id": MESSAGE_ID_HEADER}
_OUTSIDE = {MESSAGE_ID_HEADER: "Msg-ID"}
_END = b"\r\n\r\n"


def read_headers(block: bytes) -> HeaderList | Mistake:
    """Read a block with the empty line that ends it."""
    if block in (b"\r\n", b""):
        return ()
    if not block.endswith(_END):
        return Mistake("the headers do not end with an empty line")
    headers = []
    for line in block[: -len(_END)].split(b"\r\n"):
        name, colon, value = line.partition(b": ")
        if not colon or not name:
            return Mistake("a header is a line 'Name: value'")
        try:
            text = name.decode()
        except UnicodeDecodeError:
            return Mistake("the name of a header is UTF-8")
        if text.lower() == SUBJECT_HEADER:
            return Mistake(f"header {SUBJECT_HEADER} is what the message was published under")
        headers.append((_INSIDE.get(text.lower(), text), value))
    return tuple(headers)


def encode_headers(headers: HeaderList) -> bytes:
    """Encode a record's headers without its subject, which is in the message's line.

    A line break in a value that another protocol wrote becomes a space.
    """
    lines = [
        b"%b: %b\r\n" % (_clean(_OUTSIDE.get(name, name).encode()), _clean(value or b""))
        for name, value in headers
        if name != SUBJECT_HEADER
    ]
    return b"".join(lines) + b"\r\n"


def _clean(text: bytes) -> bytes:
    return text.replace(b"\r", b" ").replace(b"\n", b" ")

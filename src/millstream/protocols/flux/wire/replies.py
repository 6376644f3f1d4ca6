"""Encodes replies and messages for Flux clients.

Pure. Invariant: an answer is one line, whatever its text contains.
"""

import json
import re
from collections.abc import Mapping
from typing import TypeAlias

from millstream.errors import (
    DelayTooLong,
    LeaderNotReady,
    NotLeader,
    RequestError,
    StorageUnavailable,
)
from millstream.model import Buffer
from millstream.protocols.flux.wire.headers import HeaderList, encode_headers

Reply: TypeAlias = list[Buffer]

OK = b"+OK\r\n"
DUPLICATE = b"+OK DUP\r\n"
PONG = b"PONG\r\n"
# A message: subject, sid, bytes, number, payload. A format and no function: there are many.
MESSAGE = b"MSG %b %b %d %d\r\n%b\r\n"

ERROR_LENGTH_MAX = 400
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
# The words that Flux clients know, where the name of the error is another.
_KEPT_WORDS: dict[type[RequestError], str] = {
    LeaderNotReady: "NOT_SETTLED",
    DelayTooLong: "INVALID_BATCH",
}


def ok(text: str) -> bytes:
    return b"+OK %b\r\n" % _line(text)


def error(text: str) -> bytes:
    return b"-ERR %b\r\n" % _line(text[:ERROR_LENGTH_MAX])


def refusal(problem: RequestError) -> bytes:
    """An error of the broker: a word for programs, then a sentence for people."""
    if isinstance(problem, NotLeader):
        return error(f"NOT_LEADER leader={'' if problem.leader is None else problem.leader}")
    if isinstance(problem, StorageUnavailable):
        return error(f"STORAGE {problem}")
    kind = type(problem)
    word = _KEPT_WORDS.get(kind) or _WORD.sub("_", kind.__name__).upper()
    return error(f"{word} {problem}")


def statistics(figures: Mapping[str, object]) -> bytes:
    return b"+STATS %b\r\n" % _json(figures)


def info(facts: Mapping[str, object]) -> bytes:
    return b"INFO %b\r\n" % _json(facts)


def message_with_headers(
    subject: bytes, sid: bytes, sequence: int, value: bytes, headers: HeaderList
) -> bytes:
    """`HMSG subject sid header-bytes total-bytes seq`: as HPUB has it, with the number behind."""
    block = encode_headers(headers)
    size = len(block)
    return b"HMSG %b %b %d %d %d\r\n%b%b\r\n" % (
        subject,
        sid,
        size,
        size + len(value),
        sequence,
        block,
        value,
    )


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _line(text: str) -> bytes:
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace")

"""Kafka's flexible encoding, as far as requests of our own need it: written, and read back.

Owns the bytes, not what they mean. An answer comes from a stranger: one that ends early or makes no
sense is refused as a whole, never guessed at.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from millstream.client.errors import Refused

NO_TAGS = b"\0"

_T = TypeVar("_T")


def text(value: str | None) -> bytes:
    """A string, or the absence of one."""
    if value is None:
        return _varint(0)
    data = utf8(value)
    return _varint(len(data) + 1) + data


def utf8(value: str) -> bytes:
    """The bytes of a text; what a shell made of odd bytes is none."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Refused(f"{value!r} is not a text that UTF-8 can spell") from None


@contextmanager
def understanding(doing: str) -> Iterator[None]:
    """Refuse an answer that cannot be read inside the block."""
    try:
        yield
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise Refused(f"cannot {doing}: the answer makes no sense ({problem})") from None


class Reader:
    """Takes one value after the other. Raises `IndexError` and its kin where there is none."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def number(self, form: str) -> int:
        (value,) = self.numbers(form)
        return value

    def truth(self) -> bool:
        return self.number(">b") != 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 28:
                return value

    def maybe_bytes(self) -> bytes | None:
        size = self.varint() - 1
        return None if size < 0 else self._exactly(size)

    def maybe_text(self) -> str | None:
        data = self.maybe_bytes()
        return None if data is None else data.decode()

    def text(self) -> str:
        return self.maybe_text() or ""

    def array(self, one: Callable[[], _T]) -> list[_T]:
        """What `one` reads, as often as the answer says; each with its tags behind it."""
        return [self._tagged(one) for _ in range(self.varint() - 1)]

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self._exactly(self.varint())

    def _tagged(self, one: Callable[[], _T]) -> _T:
        value = one()
        self.tags()
        return value

    def _exactly(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) != size:
            raise IndexError(f"{size} bytes wanted, {len(piece)} left")
        self._at += size
        return piece


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)

"""Reads and writes bodies by the annotations of their classes.

Owns the kinds of fields and the reader and writer that follow from a class's annotations, so that a
body is declared once and never encoded by hand. A field with a default may be missing at the end of
a request. Values are of the type that the annotation names, which the kinds see as `Any`.
Invariant: no length is believed. A reader raises `ProtocolError` before it looks behind the end of
the buffer, and a list has a bound whatever its count says.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from struct import Struct
from typing import (
    Annotated,
    Any,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from millstream.errors import ProtocolError
from millstream.model import Buffer

LIST_ITEMS_MAX = 10_000  # In a request; replies are ours.

Body = TypeVar("Body", bound=tuple[Any, ...])  # A NamedTuple, whatever its fields.


class Kind(Protocol):
    """One field. Its values are of the type that the annotation names beside it."""

    name: str  # As the layouts in the documents call it.

    def read(self, buffer: Buffer, at: int, /) -> tuple[Any, int]: ...

    def write(self, out: bytearray, value: Any, /) -> None: ...


class Integer:
    def __init__(self, name: str, code: str) -> None:
        self.name = name
        self.code = code
        self._run = _Run(code)

    def read(self, buffer: Buffer, at: int) -> tuple[int, int]:
        (value,), end = self._run.read(buffer, at)
        return value, end

    def write(self, out: bytearray, value: int) -> None:
        self._run.write(out, (value,))


class _Run:
    """Integers side by side, read and written at once."""

    def __init__(self, codes: str) -> None:
        self._form = Struct(f">{codes}")

    def read(self, buffer: Buffer, at: int) -> tuple[tuple[int, ...], int]:
        end = at + self._form.size
        if end > len(buffer):
            raise _too_short(buffer, at, self._form.size)
        return self._form.unpack_from(buffer, at), end

    def write(self, out: bytearray, values: Sequence[int]) -> None:
        out += self._form.pack(*values)


class Flag:
    """One byte; anything but 0 is true."""

    name = "bool"

    def read(self, buffer: Buffer, at: int) -> tuple[bool, int]:
        if at >= len(buffer):
            raise _too_short(buffer, at, 1)
        return buffer[at] != 0, at + 1

    def write(self, out: bytearray, value: bool) -> None:
        out.append(1 if value else 0)


class Bytes:
    """Bytes behind their length."""

    def __init__(self, name: str, length: str) -> None:
        self.name = name
        self._length = Struct(length)
        self._length_bytes = self._length.size
        self._size_max: int = 2 ** (8 * self._length.size) - 1

    def read(self, buffer: Buffer, at: int) -> tuple[bytes, int]:
        start = at + self._length_bytes
        if start > len(buffer):
            raise _too_short(buffer, at, self._length_bytes)
        end = start + self._length.unpack_from(buffer, at)[0]
        if end > len(buffer):
            raise _too_short(buffer, start, end - start)
        return bytes(buffer[start:end]), end

    def write(self, out: bytearray, value: Buffer) -> None:
        assert len(value) <= self._size_max
        out += self._length.pack(len(value))
        out += value


class Text:
    """UTF-8 behind its length. A name is text that must not be empty."""

    def __init__(self, name: str, length: str, *, may_be_empty: bool = True) -> None:
        self.name = name
        self._bytes = Bytes(name, length)
        self._read_bytes = self._bytes.read
        self._may_be_empty = may_be_empty

    def read(self, buffer: Buffer, at: int) -> tuple[str, int]:
        raw, end = self._read_bytes(buffer, at)
        if not (raw or self._may_be_empty):
            raise ProtocolError(f"an empty name at {at}")
        try:
            return raw.decode(), end
        except UnicodeDecodeError:
            raise ProtocolError(f"{len(raw)} bytes at {at} are not UTF-8") from None

    def write(self, out: bytearray, value: str) -> None:
        self._bytes.write(out, value.encode())


class Items:
    """A count of four bytes and that many of a kind."""

    def __init__(self, item: Kind) -> None:
        self.name = f"list4<{item.name}>"
        self._item = item
        self._count = Integer("u32", "I")

    def read(self, buffer: Buffer, at: int) -> tuple[tuple[Any, ...], int]:
        count, at = self._count.read(buffer, at)
        if count > LIST_ITEMS_MAX:
            raise ProtocolError(f"a list of {count} items, at most {LIST_ITEMS_MAX}")
        items = []
        for _ in range(count):
            item, at = self._item.read(buffer, at)
            items.append(item)
        return tuple(items), at

    def write(self, out: bytearray, value: Sequence[Any]) -> None:
        self._count.write(out, len(value))
        for item in value:
            self._item.write(out, item)


class Sized:
    """Marks a body that stands behind its length: `Annotated[Event, Sized]`."""


class Uncounted:
    """Marks a list that goes on to the end: `Annotated[tuple[Record, ...], Uncounted]`."""


class _UncountedItems:
    def __init__(self, item: Kind) -> None:
        self.name = f"{item.name}..."
        self._item = item

    def read(self, buffer: Buffer, at: int) -> tuple[tuple[Any, ...], int]:
        items = []
        while at < len(buffer):
            item, at = self._item.read(buffer, at)
            items.append(item)
        return tuple(items), at

    def write(self, out: bytearray, value: Sequence[Any]) -> None:
        for item in value:
            self._item.write(out, item)


class _SizedBody:
    def __init__(self, body: Kind) -> None:
        self.name = f"bytes4({body.name})"
        self._body = body
        self._bytes = Bytes("bytes4", ">I")

    def read(self, buffer: Buffer, at: int) -> tuple[Any, int]:
        raw, end = self._bytes.read(buffer, at)
        return self._body.read(raw, 0)[0], end

    def write(self, out: bytearray, value: Any) -> None:
        inner = bytearray()
        self._body.write(inner, value)
        self._bytes.write(out, inner)


class Fields:
    """The fields of a class, one after the other."""

    def __init__(self, body: type[tuple[Any, ...]]) -> None:
        hints = get_type_hints(body, include_extras=True)
        named = cast(type[NamedTuple], body)
        self._body = named
        self._kinds = [_kind_of(hints[name]) for name in named._fields]
        # From how many fields on the rest may be missing.
        self._count_min = len(self._kinds) - len(named._field_defaults)
        self._steps = list(self._cut())
        self.name = "{" + self.layout + "}"

    @property
    def layout(self) -> str:
        """The fields in words; those in brackets may be missing at the end."""
        encoded = [
            f"{kind.name} {name}"
            for kind, name in zip(self._kinds, self._body._fields, strict=True)
        ]
        needed, optional = encoded[: self._count_min], encoded[self._count_min :]
        return ", ".join(needed + [f"[{field}]" for field in optional])

    def read(self, buffer: Buffer, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        end = len(buffer)
        for kind, run_count in self._steps:
            if at == end and len(values) >= self._count_min:
                break
            value, at = kind.read(buffer, at)
            if run_count:
                values += value
            else:
                values.append(value)
        return self._body(*values), at

    def write(self, out: bytearray, value: Sequence[Any]) -> None:
        index = 0
        for kind, run_count in self._steps:
            if run_count:
                kind.write(out, value[index : index + run_count])
                index += run_count
            else:
                kind.write(out, value[index])
                index += 1

    def _cut(self) -> Iterator[tuple[Kind | _Run, int]]:
        """Runs of integers with how many they are, and all other fields alone, with 0."""
        needed, optional = self._kinds[: self._count_min], self._kinds[self._count_min :]
        for is_integer, some in groupby(needed, key=lambda kind: isinstance(kind, Integer)):
            kinds = list(some)
            if is_integer:
                codes = "".join(cast(Integer, kind).code for kind in kinds)
                yield _Run(codes), len(kinds)
            else:
                yield from ((kind, 0) for kind in kinds)
        yield from ((kind, 0) for kind in optional)


I32: TypeAlias = Annotated[int, Integer("i32", "i")]
U32: TypeAlias = Annotated[int, Integer("u32", "I")]
I64: TypeAlias = Annotated[int, Integer("i64", "q")]
U64: TypeAlias = Annotated[int, Integer("u64", "Q")]
Bool: TypeAlias = Annotated[bool, Flag()]
Str1: TypeAlias = Annotated[str, Text("str1", ">B")]
Str2: TypeAlias = Annotated[str, Text("str2", ">H")]
Name2: TypeAlias = Annotated[str, Text("str2", ">H", may_be_empty=False)]
Bytes4: TypeAlias = Annotated[bytes, Bytes("bytes4", ">I")]


@cache
def fields_of(body: type[tuple[Any, ...]]) -> Fields:
    """Reads and writes a body."""
    return Fields(body)


def read_body(body: type[Body], payload: Buffer, *, is_exact: bool = False) -> Body:
    """Read a body; bytes behind it are ignored, unless it must end there."""
    value, end = fields_of(body).read(payload, 0)
    if is_exact and end != len(payload):
        raise ProtocolError(f"{len(payload) - end} bytes too many")
    return cast(Body, value)


def _kind_of(annotation: Any) -> Kind:
    # What `get_type_hints` returns has no type of its own.
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, mark = get_args(annotation)[:2]
        if mark is Sized:
            return _SizedBody(fields_of(inner))
        if mark is Uncounted:
            return _UncountedItems(_kind_of(get_args(inner)[0]))
        return cast(Kind, mark)
    if origin is tuple:
        item, ellipsis = get_args(annotation)
        assert ellipsis is Ellipsis, "a list is written tuple[X, ...]"
        return Items(_kind_of(item))
    return fields_of(annotation)


def _too_short(buffer: Buffer, at: int, size: int) -> ProtocolError:
    return ProtocolError(f"{size} bytes at {at}, {len(buffer) - at} are there")

"""Readers of messages: a table and a version in, a function of bytes out.

Nothing that a peer says is believed. A count is held against the bytes that are left before
anything is made, and all the elements of a message against `ELEMENTS_MAX`, because an element of
two bytes becomes an object of a hundred. What runs behind the end of the buffer stops at
`struct.error` or `IndexError`, so the common case pays for no check; `decode` makes both, and
everything else that bytes can do wrong, a `ProtocolError`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from struct import Struct, error, unpack_from
from typing import Never, TypeAlias
from uuid import UUID

from millstream.codec.primitives import read_uvarint
from millstream.errors import ProtocolError
from millstream.kafka_wire.schema import (
    NO_ID,
    Field,
    Kind,
    Message,
    fields_of,
    plain_fields,
    size_min,
    tagged_fields,
)
from millstream.kafka_wire.source import Source
from millstream.model import Buffer

Reader: TypeAlias = Callable[[Buffer, int], tuple[Message, int]]

# Arrays of one message together. A fetch of every partition of a full node needs 20,000.
ELEMENTS_MAX = 250_000
# Tagged fields in one section; Kafka defines fewer than ten for any message.
TAGGED_FIELDS_MAX = 128

_TABLED_COUNT = 16  # Arrays of numbers below this length have a `Struct` at hand.


def decode(reader: Reader, buffer: Buffer, at: int, name: str) -> Message:
    """Read one message of `buffer` from `at`; `name` is for errors.

    Bytes behind the last field are ignored, as Kafka's brokers do: librdkafka leaves three of them
    behind when it asks for the metadata of all topics in a flexible version.
    """
    try:
        message, _ = reader(buffer, at)
    except (error, IndexError):
        raise ProtocolError(
            f"{name} ends before its last field, after {len(buffer)} bytes"
        ) from None
    except UnicodeDecodeError as problem:
        raise ProtocolError(f"{name} has a string that is not UTF-8: {problem}") from None
    except ProtocolError as problem:
        raise ProtocolError(f"{name}: {problem}") from None
    return message


@cache
def reader_of(message: type[Message], version: int, *, is_flexible: bool) -> Reader:
    """Compile the reader of one version of a message."""
    source = reader_source(message, version, is_flexible=is_flexible)
    reader: Reader = source.compile(f"{message.__name__} v{version} reader", _KNOWN)
    return reader


def reader_source(message: type[Message], version: int, *, is_flexible: bool) -> Source:
    """Write the reader of one version of a message, for `reader_of` and for curious people."""
    has_records = _has_records(message)
    source = Source("read(buffer, at)")
    # Slices of bytes decode twice as fast as those of a view, and without records a frame is small.
    source.line(f"buffer = {'memoryview' if has_records else 'bytes'}(buffer)")
    source.line("size, budget = len(buffer), ELEMENTS_MAX")
    writing = _ReaderSource(source, version, is_flexible=is_flexible, is_view=has_records)
    source.line(f"return {writing.message(message)}, at")
    return source


class _ReaderSource:
    """Writes the lines that read values. In them `buffer`, `at`, `size`, `budget` are at hand."""

    def __init__(self, source: Source, version: int, *, is_flexible: bool, is_view: bool) -> None:
        self._source = source
        self._version = version
        self._is_flexible = is_flexible
        self._text = 'str(buffer[at:end], "utf-8")' if is_view else "buffer[at:end].decode()"

    def message(self, message: type[Message]) -> str:
        """Read all fields; return the expression that makes the message of them."""
        values: dict[str, str] = {}
        run: list[tuple[str, Kind]] = []  # Neighbours of a fixed size are unpacked together.
        for field in plain_fields(message, self._version):
            variable = values[field.name] = self._source.fresh(field.name)
            if field.kind.is_fixed and not field.is_array:
                run.append((variable, field.kind))
                continue
            self._run(run)
            run = []
            self.field(field, variable)
        if self._is_flexible:
            values |= self._tagged_section(message, run)
        else:
            self._run(run)
        arguments = ", ".join(f"{name}={variable}" for name, variable in values.items())
        return f"{self._source.bind(message.__name__, message)}({arguments})"

    def field(self, field: Field, variable: str) -> None:
        """Read one field of any kind into `variable`."""
        is_nullable = field.is_nullable(self._version)
        if field.is_array:
            self._length("int32")
            with self._unless_null(variable, is_nullable=is_nullable):
                self._array(field, variable)
        elif field.kind.is_fixed:
            self._run([(variable, field.kind)])
        elif field.message is None:
            self._length("int16" if field.kind is Kind.STRING else "int32")
            with self._unless_null(variable, is_nullable=is_nullable):
                self._slice(field.kind, variable)
        elif is_nullable:
            self._source.line("n, = int8(buffer, at)")
            self._source.line("at += 1")
            with self._unless_null(variable, is_nullable=True):
                self._source.line(f"{variable} = {self.message(field.message)}")
        else:
            self._source.line(f"{variable} = {self.message(field.message)}")

    def _run(self, run: list[tuple[str, Kind]], tag_count: str | None = None) -> None:
        if not run:
            if tag_count:
                self._source.line(f"{tag_count} = buffer[at]")
                self._source.line("at += 1")
            return
        codes = "".join(kind.value for _, kind in run) + ("B" if tag_count else "")
        form = Struct(f">{codes}")
        unpack = self._source.bind("unpack", form.unpack_from)
        variables = [variable for variable, _ in run] + ([tag_count] if tag_count else [])
        self._source.line(f"{', '.join(variables)}, = {unpack}(buffer, at)")
        self._source.line(f"at += {form.size}")
        for variable, kind in run:
            if kind is Kind.UUID:
                self._source.line(f"{variable} = uuid({variable})")

    def _length(self, legacy: str) -> None:
        if self._is_flexible:
            self._source.line("n = buffer[at]")
            self._source.line("at += 1")
            with self._source.block("if n > 127:"):
                self._source.line("n, at = uvarint(buffer, at - 1)")
            self._source.line("n -= 1")
        else:
            self._source.line(f"n, = {legacy}(buffer, at)")
            self._source.line(f"at += {2 if legacy == 'int16' else 4}")

    def _unless_null(self, variable: str, *, is_nullable: bool) -> AbstractContextManager[None]:
        if is_nullable:
            with self._source.block("if n == -1:"):
                self._source.line(f"{variable} = None")
        with self._source.block("elif n < 0:" if is_nullable else "if n < 0:"):
            self._source.line(f"{variable} = no_null(n, at)")
        return self._source.block("else:")

    def _slice(self, kind: Kind, variable: str) -> None:
        self._source.line("end = at + n")
        with self._source.block("if end > size:"):
            self._source.line("too_long(n, at, size)")
        value = {
            Kind.STRING: self._text,
            Kind.BYTES: "bytes(buffer[at:end])",
            Kind.RECORDS: "buffer[at:end]",
            Kind.SPLICE: "[buffer[at:end]]",
        }[kind]
        self._source.line(f"{variable} = {value}")
        self._source.line("at = end")

    def _array(self, field: Field, variable: str) -> None:
        smallest = size_min(field, self._version, is_flexible=self._is_flexible)
        with self._source.block(f"if n * {smallest} > size - at or n > budget:"):
            self._source.line("too_many(n, at, size)")
        self._source.line("budget -= n")
        if field.kind.is_fixed:
            code = field.kind.value
            tabled = self._source.bind("unpacks", _unpackers(code))
            self._source.line(
                f"{variable} = list({tabled}[n](buffer, at) if n < {_TABLED_COUNT} "
                f'else unpack_from(f">{{n}}{code}", buffer, at))'
            )
            self._source.line(f"at += n * {field.kind.size}")
            return
        self._source.line(f"{variable} = []")
        append = self._source.fresh("append")
        self._source.line(f"{append} = {variable}.append")
        with self._source.block("for _ in range(n):"):
            if field.message is not None:
                element = self.message(field.message)
            else:
                element = self._source.fresh(field.name)
                self.field(field._replace(is_array=False, may_be_null=False), element)
            self._source.line(f"{append}({element})")

    def _tagged_section(
        self, message: type[Message], run: list[tuple[str, Kind]]
    ) -> dict[str, str]:
        count = self._source.fresh("tags")
        self._run(run, count)
        tagged = tagged_fields(message, self._version)
        if not tagged:
            with self._source.block(f"if {count}:"):
                self._source.line("_, at = tags(buffer, at - 1)")
            return {}
        values = {field.name: self._source.fresh(field.name) for field in tagged}
        for field in tagged:
            default = "[]" if field.default == [] else self._source.bind("default", field.default)
            self._source.line(f"{values[field.name]} = {default}")
        with self._source.block(f"if {count}:"):
            self._source.line("tagged, at = tags(buffer, at - 1)")
            for field in tagged:
                reader = self._source.bind("read", _tag_reader(field, self._version))
                with self._source.block(f"if {field.versions.tag} in tagged:"):
                    self._source.line(
                        f"{values[field.name]} = whole({reader}, tagged[{field.versions.tag}])"
                    )
        return values


def _tag_reader(field: Field, version: int) -> Callable[[Buffer, int], tuple[object, int]]:
    source = Source("read_tag(buffer, at)")
    source.line("buffer = bytes(buffer)")
    source.line("size, budget = len(buffer), ELEMENTS_MAX")
    _ReaderSource(source, version, is_flexible=True, is_view=False).field(field, "value")
    source.line("return value, at")
    reader: Callable[[Buffer, int], tuple[object, int]] = source.compile(field.name, _KNOWN)
    return reader


def _has_records(message: type[Message]) -> bool:
    return any(
        field.kind in {Kind.RECORDS, Kind.SPLICE}
        or (field.message is not None and _has_records(field.message))
        for field in fields_of(message)
    )


@cache
def _unpackers(code: str) -> tuple[Callable[..., tuple[int, ...]], ...]:
    return tuple(Struct(f">{count}{code}").unpack_from for count in range(_TABLED_COUNT))


# -- what generated code calls ---------------------------------------------------------------------


def _uuid(raw: bytes) -> UUID:
    number = int.from_bytes(raw)
    return UUID(int=number) if number else NO_ID


def _no_null(length: int, at: int) -> Never:
    if length < -1:
        raise ProtocolError(f"length {length} before byte {at}")
    raise ProtocolError(f"null before byte {at}, where a value must be")


def _too_long(length: int, at: int, size: int) -> Never:
    raise ProtocolError(f"{length} bytes at {at}, {size - at} are there")


def _too_many(count: int, at: int, size: int) -> Never:
    raise ProtocolError(
        f"{count} elements at byte {at}, more than {size - at} bytes can hold "
        f"or than {ELEMENTS_MAX} in one message"
    )


def read_tags(buffer: Buffer, at: int) -> tuple[dict[int, Buffer], int]:
    """Read a tagged section into slices, by tag. Unknown tags are for newer readers than us."""
    count, at = read_uvarint(buffer, at)
    if count > TAGGED_FIELDS_MAX:
        raise ProtocolError(f"{count} tagged fields, at most {TAGGED_FIELDS_MAX}")
    tagged: dict[int, Buffer] = {}
    last = -1
    for _ in range(count):
        tag, at = read_uvarint(buffer, at)
        if tag <= last:
            raise ProtocolError(f"tag {tag} behind tag {last}")
        last = tag
        size, at = read_uvarint(buffer, at)
        if size > len(buffer) - at:
            _too_long(size, at, len(buffer))
        tagged[tag] = buffer[at : at + size]
        at += size
    return tagged, at


def _whole(read: Callable[[Buffer, int], tuple[object, int]], buffer: Buffer) -> object:
    value, end = read(buffer, 0)
    if end != len(buffer):
        raise ProtocolError(f"tagged field of {len(buffer)} bytes ends after {end}")
    return value


_KNOWN: dict[str, object] = {
    "ELEMENTS_MAX": ELEMENTS_MAX,
    "int8": Struct(">b").unpack_from,
    "int16": Struct(">h").unpack_from,
    "int32": Struct(">i").unpack_from,
    "no_null": _no_null,
    "tags": read_tags,
    "too_long": _too_long,
    "too_many": _too_many,
    "unpack_from": unpack_from,
    "uuid": _uuid,
    "uvarint": read_uvarint,
    "whole": _whole,
}

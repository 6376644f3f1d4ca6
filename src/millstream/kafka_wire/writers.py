"""Writers of messages: a table and a version in, a function that appends bytes out.

Records are never copied: where they belong, the writer notes the place and goes on, and `splice`
cuts the rest around them. A value that does not fit its field (a null where the version has none,
a number too large) is our own mistake and raises Python's error.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from struct import Struct, pack
from typing import TypeAlias

from millstream.codec.primitives import write_uvarint
from millstream.kafka_wire.schema import Chunk, Field, Kind, Message, plain_fields, tagged_fields
from millstream.kafka_wire.source import Source

# Where chunks belong (what was written before them), their size together, and they themselves.
Splices: TypeAlias = list[tuple[int, int, Sequence[Chunk]]]
Writer: TypeAlias = Callable[[Message, bytearray, Splices], None]

ERROR_MESSAGE_LENGTH_MAX = 1_000
_TABLED_COUNT = 16  # Arrays of numbers below this length have a `Struct` at hand.
_BUFFERS = (bytes, bytearray, memoryview)
_NO_TAGS = ("B", "0")  # An empty tagged section, packed with the fields before it.


def size_of(chunk: Chunk) -> int:
    """Bytes that a chunk takes on the wire."""
    # Not by len alone: a range may well be a tuple.
    return len(chunk) if isinstance(chunk, _BUFFERS) else chunk.size


def splice(out: bytearray, splices: Splices) -> list[Chunk]:
    """Cut `out` where chunks belong, and put them there."""
    if not splices:
        return [out]
    view = memoryview(out)
    whole: list[Chunk] = []
    start = 0
    for at, _, chunks in splices:
        if at > start:
            whole.append(view[start:at])
        whole += chunks
        start = at
    if start < len(out):
        whole.append(view[start:])
    return whole


@cache
def writer_of(message: type[Message], version: int, *, is_flexible: bool) -> Writer:
    """Compile the writer of one version of a message."""
    source = writer_source(message, version, is_flexible=is_flexible)
    writer: Writer = source.compile(f"{message.__name__} v{version} writer", _KNOWN)
    return writer


def writer_source(message: type[Message], version: int, *, is_flexible: bool) -> Source:
    """Write the writer of one version of a message, for `writer_of` and for curious people."""
    source = Source("write(value, out, splices)")
    writing = _WriterSource(source, version, is_flexible=is_flexible)
    writing.message(message, "value")
    source.line("return")
    return source


class _WriterSource:
    """Writes the lines that write values. In them `out` and `splices` are at hand."""

    def __init__(self, source: Source, version: int, *, is_flexible: bool) -> None:
        self._source = source
        self._version = version
        self._is_flexible = is_flexible

    def message(self, message: type[Message], owner: str) -> None:
        """Write all fields of the message that the variable `owner` holds."""
        run: list[tuple[str, str]] = []  # Neighbours of a fixed size are packed together.
        for field in plain_fields(message, self._version):
            value = f"{owner}.{field.name}"
            if field.kind.is_fixed and not field.is_array:
                run.append(_packed(field.kind, value))
                continue
            self._run(run)
            run = []
            self.field(field, value)
        tagged = tagged_fields(message, self._version) if self._is_flexible else []
        if self._is_flexible and not tagged:
            run.append(_NO_TAGS)
        self._run(run)
        if tagged:
            self._tagged_section(tagged, owner)

    def field(self, field: Field, value: str) -> None:
        """Write one field of any kind; `value` is the expression that yields it."""
        if field.kind.is_fixed and not field.is_array:
            self._run([_packed(field.kind, value)])
            return
        variable = self._source.fresh(field.name)
        self._source.line(f"{variable} = {value}")
        if not field.is_nullable(self._version):
            self._present(field, variable)
            return
        with self._source.block(f"if {variable} is None:"):
            self._source.line(f"out += {self._null(field)!r}")
        with self._source.block("else:"):
            if field.message is not None and not field.is_array:
                self._source.line("out.append(1)")
            self._present(field, variable)

    def _present(self, field: Field, variable: str) -> None:
        if field.is_array:
            self._array(field, variable)
        elif field.message is not None:
            self.message(field.message, variable)
        elif field.kind in {Kind.RECORDS, Kind.SPLICE}:
            chunks = f"({variable},)" if field.kind is Kind.RECORDS else variable
            self._source.line(f"n = sum(map(size_of, {chunks}))")
            self._length("int32")
            with self._source.block("if n:"):
                self._source.line(f"splices.append((len(out), n, {chunks}))")
        else:
            if field.kind is Kind.STRING:
                # A refusal may quote a name of 32 KiB, and its length must fit into 16 bits.
                cut = f"[:{ERROR_MESSAGE_LENGTH_MAX}]" if field.name == "error_message" else ""
                self._source.line(f"{variable} = {variable}{cut}.encode()")
            self._source.line(f"n = len({variable})")
            self._length("int16" if field.kind is Kind.STRING else "int32")
            self._source.line(f"out += {variable}")

    def _null(self, field: Field) -> bytes:
        if field.message is not None and not field.is_array:
            return b"\xff"
        if self._is_flexible:
            return b"\0"
        return b"\xff" * (2 if field.kind is Kind.STRING and not field.is_array else 4)

    def _run(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        if run == [_NO_TAGS]:
            self._source.line("out.append(0)")
            return
        form = Struct(">" + "".join(code for code, _ in run))
        name = self._source.bind("pack", form.pack)
        self._source.line(f"out += {name}({', '.join(value for _, value in run)})")

    def _length(self, legacy: str) -> None:
        if not self._is_flexible:
            self._source.line(f"out += {legacy}(n)")
            return
        with self._source.block("if n < 127:"):
            self._source.line("out.append(n + 1)")
        with self._source.block("else:"):
            self._source.line("uvarint(out, n + 1)")

    def _array(self, field: Field, variable: str) -> None:
        self._source.line(f"n = len({variable})")
        if field.kind.is_fixed:
            self._numbers(field.kind.value, variable)
            return
        self._length("int32")
        element = self._source.fresh("element")
        with self._source.block(f"for {element} in {variable}:"):
            if field.message is not None:
                self.message(field.message, element)
            else:
                self.field(field._replace(is_array=False, may_be_null=False), element)

    def _numbers(self, code: str, variable: str) -> None:
        """Write an array of numbers; a short one in one go with its length."""
        length = "B" if self._is_flexible else "i"
        packers = self._source.bind("packs", _packers(length, code))
        with self._source.block(f"if n < {_TABLED_COUNT}:"):
            count = "n + 1" if self._is_flexible else "n"
            self._source.line(f"out += {packers}[n]({count}, *{variable})")
        with self._source.block("else:"):
            self._length("int32")
            self._source.line(f'out += pack(f">{{n}}{code}", *{variable})')

    def _tagged_section(self, tagged: list[Field], owner: str) -> None:
        entries: list[tuple[str, str]] = []
        for field in tagged:
            value = f"{owner}.{field.name}"
            default = self._source.bind("default", field.default)
            writer = self._source.bind("write", _tag_writer(field, self._version))
            is_set = f"{value} is not None" if field.default is None else f"{value} != {default}"
            entries.append((is_set, f"({field.versions.tag}, {writer}, {value}, {is_set}),"))
        with self._source.block(f"if {' or '.join(is_set for is_set, _ in entries)}:"):
            self._source.line(f"write_tags(out, ({' '.join(entry for _, entry in entries)}))")
        with self._source.block("else:"):
            self._source.line("out.append(0)")


def _packed(kind: Kind, value: str) -> tuple[str, str]:
    return (kind.value, f"{value}.int.to_bytes(16)" if kind is Kind.UUID else value)


@cache
def _packers(length: str, code: str) -> tuple[Callable[..., bytes], ...]:
    return tuple(Struct(f">{length}{count}{code}").pack for count in range(_TABLED_COUNT))


def _tag_writer(field: Field, version: int) -> Callable[[object, bytearray], None]:
    assert field.kind not in {Kind.RECORDS, Kind.SPLICE}, "a splice needs its place in the frame"
    source = Source("write_tag(value, out)")
    _WriterSource(source, version, is_flexible=True).field(field, "value")
    writer: Callable[[object, bytearray], None] = source.compile(field.name, _KNOWN)
    return writer


# -- what generated code calls ---------------------------------------------------------------------


def _write_tags(
    out: bytearray,
    entries: Iterable[tuple[int, Callable[[object, bytearray], None], object, bool]],
) -> None:
    present = [(tag, write, value) for tag, write, value, is_set in entries if is_set]
    write_uvarint(out, len(present))
    for tag, write, value in present:
        part = bytearray()
        write(value, part)
        write_uvarint(out, tag)
        write_uvarint(out, len(part))
        out += part


_KNOWN: dict[str, object] = {
    "int16": Struct(">h").pack,
    "int32": Struct(">i").pack,
    "pack": pack,
    "size_of": size_of,
    "uvarint": write_uvarint,
    "write_tags": _write_tags,
}

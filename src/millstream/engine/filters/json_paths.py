"""Reads the values at some paths of a JSON document, without building the other values.

In all but small documents a parser in C skips the values that no path needs, so a document of a
million small lists costs neither their memory nor the time to build them. Skipped values are not
validated either: they may be numbers beyond all bounds, or text in another encoding. A list or an
object at a path exists, and equals nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial

import msgspec
from msgspec import UNSET, Raw, UnsetType

# A larger value has no paths: stepping over this much takes about 30 ms at worst.
JSON_BYTES_MAX = 8 * 2**20
# Up to here it costs less to build the whole document than to choose.
WHOLE_BYTES_MAX = 4 * 2**10
READERS_MAX = 256  # Kept, one for each set of names that filters ask for.

ABSENT = object()
SOMETHING = object()  # No text, number, truth value or null.

_Part = bytes | Raw
_Read = Callable[[_Part, list[object]], None]  # Puts what it finds into the list.
# What stands at each child of a place.
_Reader = Callable[[_Part], Sequence[Raw | UnsetType]]
_PROBLEMS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_WHOLE = msgspec.json.Decoder()
_SCALARS = msgspec.json.Decoder(str | int | float | bool | None)
_ANYTHING = msgspec.json.Decoder(Raw)


class Document:
    """The value of a record, read once however many paths ask."""

    __slots__ = ("_paths", "_read", "_root", "_value", "_values", "_whole")

    def __init__(self) -> None:
        self._paths: list[Sequence[str | int]] = []
        self._root = _Place()
        self._read: _Read | None = None  # Made of all paths when it is first needed.
        self._value: bytes | None = None
        self._whole: object = ABSENT
        self._values: list[object] = []

    def slot(self, steps: Sequence[str | int]) -> int:
        """The number under which `at` knows a path."""
        place = self._root
        for step in steps:
            place = place.child(step)
        if place.slot is None:
            place.slot = len(self._paths)
            self._paths.append(steps)
            self._read = None
        return place.slot

    def at(self, value: bytes | None, slot: int) -> object:
        """The value at a path; `ABSENT` without one, or if the record's value is no JSON."""
        if value is None or len(value) > JSON_BYTES_MAX:
            return ABSENT
        if value is not self._value:
            self._value = value
            self._open(value)
        if self._whole is not ABSENT:
            return _walked(self._whole, self._paths[slot])
        return self._values[slot]

    def _open(self, value: bytes) -> None:
        self._whole = ABSENT
        if len(value) <= WHOLE_BYTES_MAX:
            try:
                self._whole = _WHOLE.decode(value)
            except _PROBLEMS:
                pass  # The problem may be in a value that no path needs.
            else:
                return
        self._values = [ABSENT] * len(self._paths)
        if self._read is None:
            self._read = _checking(self._root)
        with suppress(*_PROBLEMS):
            self._read(value, self._values)


class _Place:
    """A step of paths, and those that go on from there."""

    __slots__ = ("elements", "members", "slot")

    def __init__(self) -> None:
        self.slot: int | None = None
        self.members: dict[str, _Place] = {}
        self.elements: dict[int, _Place] = {}

    def child(self, step: str | int) -> "_Place":
        if isinstance(step, str):
            return self.members.setdefault(step, _Place())
        return self.elements.setdefault(step, _Place())


def _walked(document: object, steps: Sequence[str | int]) -> object:
    for step in steps:
        if isinstance(step, str):
            document = document.get(step, ABSENT) if isinstance(document, dict) else ABSENT
        else:
            elements = document if isinstance(document, list) else []
            document = elements[step] if step < len(elements) else ABSENT
    return SOMETHING if isinstance(document, dict | list) else document


def _checking(root: _Place) -> _Read:
    """Reads the root, after a check that it is JSON: parts were checked with their parent."""
    read = _compiled(root)
    if root.slot is None:
        return read

    def read_checked(value: _Part, values: list[object]) -> None:
        _ANYTHING.decode(value)
        read(value, values)

    return read_checked


def _compiled(place: _Place) -> _Read:
    """One function that reads all values at a place and below it."""
    slot = place.slot
    inner = []
    if place.members:
        inner.append(_inner(_members(tuple(place.members)), place.members.values()))
    if place.elements:
        inner.append(_inner(_elements(tuple(place.elements)), place.elements.values()))

    def read(part: _Part, values: list[object]) -> None:
        if slot is not None:
            values[slot] = _scalar(part)
        for read_inner in inner:
            read_inner(part, values)

    return read if slot is None or inner else partial(_read_scalar, slot)


def _inner(reader: _Reader, children: Iterable[_Place]) -> _Read:
    reads = [_compiled(child) for child in children]

    def read(part: _Part, values: list[object]) -> None:
        try:
            parts = reader(part)
        except _PROBLEMS:
            return  # Another kind of thing stands here, or no JSON.
        for read_child, inner in zip(reads, parts, strict=True):
            if inner is not UNSET:
                read_child(inner, values)

    return read


def _read_scalar(slot: int, part: _Part, values: list[object]) -> None:
    values[slot] = _scalar(part)


def _scalar(part: _Part) -> object:
    try:
        return _SCALARS.decode(part)
    except _PROBLEMS:
        return SOMETHING


@lru_cache(maxsize=READERS_MAX)
def _members(names: tuple[str, ...]) -> _Reader:
    """Read the members of these names, in this order."""
    fields = [f"member_{index}" for index in range(len(names))]
    try:
        struct = msgspec.defstruct(
            "Members",
            [(field, Raw | UnsetType, UNSET) for field in fields],
            rename=dict(zip(fields, names, strict=True)),
        )
    except ValueError:  # The parser has no fields with such names.
        decode_all = msgspec.json.Decoder(dict[str, Raw]).decode

        def look_up(part: _Part) -> Sequence[Raw | UnsetType]:
            members = decode_all(part)
            return [members.get(name, UNSET) for name in names]

        return look_up
    decode = msgspec.json.Decoder(struct).decode
    return lambda part: msgspec.structs.astuple(decode(part))


@lru_cache(maxsize=READERS_MAX)
def _elements(indexes: tuple[int, ...]) -> _Reader:
    """Read the elements at these indexes, in this order."""
    fields = [(f"element_{index}", Raw | UnsetType, UNSET) for index in range(max(indexes) + 1)]
    struct = msgspec.defstruct("Elements", fields, array_like=True)
    decode = msgspec.json.Decoder(struct).decode

    def read(part: _Part) -> Sequence[Raw | UnsetType]:
        elements = msgspec.structs.astuple(decode(part))
        return [elements[index] for index in indexes]

    return read

"""Whether a reader's Protobuf file decodes what a writer's file encoded.

Messages and fields are compared by full name and by number, over descriptors. The names of the
rules are those that registry clients know.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from millstream.schemas.definition import Difference, Nodes

# Descriptors of google.protobuf, which ships no types.
Descriptor = Any

# Every other rule passes: readers skip fields that they do not know.
BREAKS = frozenset(
    {
        "PACKAGE_CHANGED",
        "MESSAGE_REMOVED",
        "FIELD_KIND_CHANGED",
        "FIELD_SCALAR_KIND_CHANGED",
        "FIELD_NAMED_TYPE_CHANGED",
        "FIELD_NUMERIC_LABEL_CHANGED",
        "REQUIRED_FIELD_ADDED",
        "REQUIRED_FIELD_REMOVED",
        "ONEOF_FIELD_REMOVED",
        "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
        "FIELD_MOVED_TO_EXISTING_ONEOF",
    }
)

# Numbers of FieldDescriptorProto.Type, by how their values are encoded.
DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING = range(1, 10)
GROUP, MESSAGE, BYTES, UINT32, ENUM, SFIXED32, SFIXED64, SINT32, SINT64 = range(10, 19)
WIRE_GROUPS = {
    **dict.fromkeys((INT32, INT64, UINT32, UINT64, BOOL, ENUM), "varint"),
    **dict.fromkeys((SINT32, SINT64), "zigzag"),
    **dict.fromkeys((FIXED32, SFIXED32), "fixed32"),
    **dict.fromkeys((FIXED64, SFIXED64), "fixed64"),
    **dict.fromkeys((STRING, BYTES), "bytes"),
    FLOAT: "float",
    DOUBLE: "double",
}
REQUIRED, REPEATED = 2, 3  # Of FieldDescriptorProto.Label.


def incompatibilities(
    reader: Descriptor, writer: Descriptor, *, reads: "Types", writes: "Types"
) -> list[Difference]:
    """All differences between two files, those that pass among them.

    The types are those of a file and of what it imports.
    """
    return list(_Comparison(reads, writes).files(writer, reader))


class Types:
    """Messages and enums by full name, of a file and all that it imports."""

    def __init__(self, files: list[Descriptor]) -> None:
        self.messages: dict[str, Descriptor] = {}
        self.enums: dict[str, Descriptor] = {}
        for file in files:
            prefix = f".{file.package}" if file.package else ""
            self._add(prefix, file.message_type, file.enum_type)

    def _add(self, prefix: str, messages: list[Descriptor], enums: list[Descriptor]) -> None:
        for enum in enums:
            self.enums[f"{prefix}.{enum.name}"] = enum
        for message in messages:
            name = f"{prefix}.{message.name}"
            self.messages[name] = message
            self._add(name, message.nested_type, message.enum_type)

    def is_map(self, field: Descriptor) -> bool:
        message = self.messages.get(field.type_name)
        return message is not None and message.options.map_entry


class _Fields(NamedTuple):
    """The fields of a message by number, and the oneof of each that is in one."""

    by_number: dict[int, Descriptor]
    oneofs: dict[int, str]


class _Comparison:
    def __init__(self, reads: Types, writes: Types) -> None:
        self._reads = reads
        self._writes = writes
        self._compared: set[tuple[str, str]] = set()
        self._nodes = Nodes()

    def files(self, old: Descriptor, new: Descriptor) -> Iterator[Difference]:
        if old.package != new.package:
            yield _difference("PACKAGE_CHANGED", "#/")
        before = f".{old.package}" if old.package else ""
        after = f".{new.package}" if new.package else ""
        yield from self._all(old.message_type, new.message_type, before, after, "#")
        yield from self._enums(old.enum_type, new.enum_type, "#")

    def _all(
        self,
        old: list[Descriptor],
        new: list[Descriptor],
        before: str,
        after: str,
        path: str,
    ) -> Iterator[Difference]:
        written = {message.name: message for message in old if not message.options.map_entry}
        read = {message.name: message for message in new if not message.options.map_entry}
        for name in written:
            at = f"{path}/{name}"
            if name not in read:
                yield _difference("MESSAGE_REMOVED", at)
            else:
                yield from self._messages(f"{before}.{name}", f"{after}.{name}", at)
        for name in read.keys() - written.keys():
            yield _difference("MESSAGE_ADDED", f"{path}/{name}")

    def _messages(self, before: str, after: str, path: str) -> Iterator[Difference]:
        if (before, after) in self._compared:
            return
        self._compared.add((before, after))
        self._nodes.enter(path.count("/"), path)
        old, new = self._writes.messages[before], self._reads.messages[after]
        yield from self._fields(old, new, path)
        yield from self._all(old.nested_type, new.nested_type, before, after, path)
        yield from self._enums(old.enum_type, new.enum_type, path)

    def _fields(self, old: Descriptor, new: Descriptor, path: str) -> Iterator[Difference]:
        before, after = _numbered(old), _numbered(new)
        yield from _oneofs(old, new, before, after, path)
        for number in sorted(before.by_number.keys() | after.by_number.keys()):
            at = f"{path}/{number}"
            if number not in after.by_number:
                yield _removed(before, number, at)
            elif number not in before.by_number:
                yield _added(after, number, at)
            else:
                yield from self._field(before.by_number[number], after.by_number[number], at)

    def _field(self, old: Descriptor, new: Descriptor, path: str) -> Iterator[Difference]:
        if old.name != new.name:
            yield _difference("FIELD_NAME_CHANGED", path)
        if (old.label == REQUIRED) != (new.label == REQUIRED):
            added = new.label == REQUIRED
            yield _difference(f"REQUIRED_FIELD_{'ADDED' if added else 'REMOVED'}", path)
        old_kind, new_kind = self._kind(self._writes, old), self._kind(self._reads, new)
        if old_kind != new_kind:
            yield _difference("FIELD_KIND_CHANGED", path)
            return
        if old_kind == "SCALAR":
            yield from self._scalars(old, new, path)
        elif old_kind == "MAP":
            yield from self._maps(old, new, path)
        else:
            yield from self._named(old, new, path)

    def _kind(self, types: Types, field: Descriptor) -> str:
        if field.type not in {MESSAGE, GROUP}:
            return "SCALAR"
        return "MAP" if types.is_map(field) else "MESSAGE"

    def _scalars(self, old: Descriptor, new: Descriptor, path: str) -> Iterator[Difference]:
        group = WIRE_GROUPS[old.type]
        if group != WIRE_GROUPS[new.type]:
            yield _difference("FIELD_SCALAR_KIND_CHANGED", path)
        if (old.label == REPEATED) != (new.label == REPEATED):
            # A repeated number is packed, a single one is not; texts and bytes look the same.
            kind = "STRING_OR_BYTES" if group == "bytes" else "NUMERIC"
            yield _difference(f"FIELD_{kind}_LABEL_CHANGED", path)

    def _maps(self, old: Descriptor, new: Descriptor, path: str) -> Iterator[Difference]:
        before = self._writes.messages[old.type_name].field
        after = self._reads.messages[new.type_name].field
        for was, now in zip(before, after, strict=True):
            yield from self._field(was, now, f"{path}/{was.name}")

    def _named(self, old: Descriptor, new: Descriptor, path: str) -> Iterator[Difference]:
        before, after = old.type_name, new.type_name
        if before.rpartition(".")[2] != after.rpartition(".")[2]:
            yield _difference("FIELD_NAMED_TYPE_CHANGED", path)
        elif before in self._writes.messages and after in self._reads.messages:
            yield from self._messages(before, after, path)

    def _enums(
        self, old: list[Descriptor], new: list[Descriptor], path: str
    ) -> Iterator[Difference]:
        written = {enum.name: enum for enum in old}
        read = {enum.name: enum for enum in new}
        for name in sorted(written.keys() | read.keys()):
            at = f"{path}/{name}"
            if name not in read:
                yield _difference("ENUM_REMOVED", at)
            elif name not in written:
                yield _difference("ENUM_ADDED", at)
            else:
                yield from _constants(written[name], read[name], at)


def _numbered(message: Descriptor) -> _Fields:
    by_number = {field.number: field for field in message.field}
    # `optional` of proto3 is a oneof of its own making.
    oneofs = {
        field.number: message.oneof_decl[field.oneof_index].name
        for field in message.field
        if field.HasField("oneof_index") and not field.proto3_optional
    }
    return _Fields(by_number, oneofs)


def _oneofs(
    old: Descriptor, new: Descriptor, before: _Fields, after: _Fields, path: str
) -> Iterator[Difference]:
    written = set(before.oneofs.values())
    read = set(after.oneofs.values())
    for name in sorted(read):
        at = f"{path}/{name}"
        moved = [
            number
            for number, oneof in after.oneofs.items()
            if oneof == name and number in before.by_number and before.oneofs.get(number) != name
        ]
        if name not in written:
            yield _difference("ONEOF_ADDED", at)
            if len(moved) > 1:
                yield _difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", at)
        elif moved:
            yield _difference("FIELD_MOVED_TO_EXISTING_ONEOF", at)
    for name in sorted(written - read):
        yield _difference("ONEOF_REMOVED", f"{path}/{name}")


def _removed(before: _Fields, number: int, path: str) -> Difference:
    if number in before.oneofs:
        return _difference("ONEOF_FIELD_REMOVED", path)
    is_required = before.by_number[number].label == REQUIRED
    return _difference("REQUIRED_FIELD_REMOVED" if is_required else "FIELD_REMOVED", path)


def _added(after: _Fields, number: int, path: str) -> Difference:
    if number in after.oneofs:
        return _difference("ONEOF_FIELD_ADDED", path)
    is_required = after.by_number[number].label == REQUIRED
    return _difference("REQUIRED_FIELD_ADDED" if is_required else "FIELD_ADDED", path)


def _constants(old: Descriptor, new: Descriptor, path: str) -> Iterator[Difference]:
    written = {value.number: value.name for value in old.value}
    read = {value.number: value.name for value in new.value}
    for number in sorted(written.keys() | read.keys()):
        at = f"{path}/{number}"
        if number not in read:
            yield _difference("ENUM_CONST_REMOVED", at)
        elif number not in written:
            yield _difference("ENUM_CONST_ADDED", at)
        elif written[number] != read[number]:
            yield _difference("ENUM_CONST_CHANGED", at)


_DESCRIPTIONS = {
    "PACKAGE_CHANGED": "The package of the {reader} schema differs from that of the {writer}",
    "MESSAGE_REMOVED": "The {reader} schema lacks the message at path '%s' of the {writer} schema",
    "REQUIRED_FIELD_ADDED": (
        "The {reader} schema has a required field at path '%s' that the {writer} schema lacks"
    ),
    "REQUIRED_FIELD_REMOVED": (
        "The {reader} schema lacks a required field at path '%s' of the {writer} schema"
    ),
    "ONEOF_FIELD_REMOVED": (
        "The {reader} schema lacks a field of a oneof at path '%s' of the {writer} schema"
    ),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Several fields of the {writer} schema are in one oneof of the {reader} schema at path '%s'"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field of the {writer} schema is in a oneof of the {reader} schema at path '%s' that "
        "existed without it"
    ),
}
_DIFFERS = "The {reader} schema differs at path '%s' from the {writer} schema"


def _difference(rule: str, path: str) -> Difference:
    text = _DESCRIPTIONS.get(rule, _DIFFERS).replace("%s", path)
    return Difference(path, rule, rule in BREAKS, text)

"""The text of a Protobuf file, from its descriptor.

Registries tell schemas apart by this text: comments and spaces do not count. Order is that of the
file, but for `normalize`, which sorts fields by number and options by name.
"""

from collections.abc import Iterator
from typing import Any

from millstream.schemas.protobuf.compatibility import ENUM, GROUP, MESSAGE, REPEATED, REQUIRED

# Descriptors of google.protobuf, which ships no types.
Descriptor = Any

SCALARS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
_INDENT = "  "
_NUMBER_END = 2**29  # Exclusive: the greatest number of a field is one less.
_ENUM_NUMBER_LAST = 2**31 - 1


def file_text(file: Descriptor, *, sort: bool = False) -> str:
    """The text that `protoc` would read back to this descriptor."""
    return "\n".join(_Printer(is_sorted=sort).file(file)) + "\n"


class _Printer:
    def __init__(self, *, is_sorted: bool) -> None:
        self._is_sorted = is_sorted

    def file(self, file: Descriptor) -> Iterator[str]:
        syntax = file.syntax or "proto2"
        yield f'syntax = "{syntax}";'
        if file.package:
            yield f"package {file.package};"
        if file.dependency:
            yield ""
            public = set(file.public_dependency)
            names = list(enumerate(file.dependency))
            for index, name in (
                sorted(names, key=lambda each: each[1]) if self._is_sorted else names
            ):
                yield f'import {"public " if index in public else ""}"{name}";'
        options = list(self._options(file.options))
        if options:
            yield ""
            yield from (f"option {each};" for each in options)
        for message in file.message_type:
            yield ""
            yield from self._message(message, syntax, "")
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum, "")
        for extension in file.extension:
            yield ""
            yield f"extend {extension.extendee.lstrip('.')} {{"
            yield _INDENT + self._field(extension, syntax, {})
            yield "}"
        for service in file.service:
            yield ""
            yield from self._service(service)

    def _message(self, message: Descriptor, syntax: str, indent: str) -> Iterator[str]:
        inner = indent + _INDENT
        maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        yield f"{indent}message {message.name} {{"
        yield from (f"{inner}option {each};" for each in self._options(message.options))
        yield from self._reserved(message, inner, _NUMBER_END - 1)
        for extension in message.extension_range:
            numbers = _range(extension.start, extension.end - 1, _NUMBER_END - 1)
            yield f"{inner}extensions {numbers};"
        yield from self._members(message, syntax, inner, maps)
        for nested in message.nested_type:
            if not nested.options.map_entry:
                yield from self._message(nested, syntax, inner)
        for enum in message.enum_type:
            yield from self._enum(enum, inner)
        yield f"{indent}}}"

    def _members(
        self, message: Descriptor, syntax: str, indent: str, maps: dict[str, Descriptor]
    ) -> Iterator[str]:
        fields = list(message.field)
        if self._is_sorted:
            fields.sort(key=lambda field: field.number)
        printed: set[int] = set()
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield indent + self._field(field, syntax, maps)
            elif field.oneof_index not in printed:
                printed.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                yield f"{indent}oneof {oneof.name} {{"
                for member in fields:
                    is_member = member.HasField("oneof_index") and not member.proto3_optional
                    if is_member and member.oneof_index == field.oneof_index:
                        text = self._field(member, syntax, maps, in_oneof=True)
                        yield indent + _INDENT + text
                yield f"{indent}}}"

    def _field(
        self,
        field: Descriptor,
        syntax: str,
        maps: dict[str, Descriptor],
        *,
        in_oneof: bool = False,
    ) -> str:
        entry = maps.get(field.type_name.rpartition(".")[2]) if field.type == MESSAGE else None
        if entry is not None:
            key, value = (_type(each) for each in entry.field)
            start = f"map<{key}, {value}>"
        else:
            start = f"{'' if in_oneof else _label(field, syntax)}{_type(field)}"
        options = list(self._field_options(field))
        text = f" [{', '.join(options)}]" if options else ""
        return f"{start} {field.name} = {field.number}{text};"

    def _field_options(self, field: Descriptor) -> Iterator[str]:
        if field.HasField("default_value"):
            is_text = SCALARS.get(field.type) in {"string", "bytes"}
            yield f"default = {_quoted(field.default_value) if is_text else field.default_value}"
        if field.HasField("json_name") and field.json_name != _json_name(field.name):
            yield f"json_name = {_quoted(field.json_name)}"
        yield from self._options(field.options)

    def _enum(self, enum: Descriptor, indent: str) -> Iterator[str]:
        inner = indent + _INDENT
        yield f"{indent}enum {enum.name} {{"
        yield from (f"{inner}option {each};" for each in self._options(enum.options))
        yield from self._reserved(enum, inner, _ENUM_NUMBER_LAST)
        for value in enum.value:
            options = list(self._options(value.options))
            text = f" [{', '.join(options)}]" if options else ""
            yield f"{inner}{value.name} = {value.number}{text};"
        yield f"{indent}}}"

    def _reserved(self, declared: Descriptor, indent: str, last: int) -> Iterator[str]:
        # Ranges of messages are exclusive at their end, those of enums inclusive.
        past = 1 if last == _NUMBER_END - 1 else 0
        ranges = [_range(r.start, r.end - past, last) for r in declared.reserved_range]
        if ranges:
            yield f"{indent}reserved {', '.join(ranges)};"
        if declared.reserved_name:
            yield f"{indent}reserved {', '.join(map(_quoted, declared.reserved_name))};"

    def _service(self, service: Descriptor) -> Iterator[str]:
        yield f"service {service.name} {{"
        for method in service.method:
            takes = ("stream " if method.client_streaming else "") + method.input_type
            gives = ("stream " if method.server_streaming else "") + method.output_type
            yield f"{_INDENT}rpc {method.name} ({takes}) returns ({gives});"
        yield "}"

    def _options(self, options: Descriptor) -> Iterator[str]:
        listed = [
            (field, value) for field, value in options.ListFields() if field.name != "map_entry"
        ]
        if self._is_sorted:
            listed.sort(key=lambda each: each[0].name)
        for field, value in listed:
            name = f"({field.full_name})" if field.is_extension else field.name
            for each in value if field.is_repeated else [value]:
                yield f"{name} = {_option_value(field, each)}"


def _label(field: Descriptor, syntax: str) -> str:
    if field.label == REPEATED:
        return "repeated "
    if field.label == REQUIRED:
        return "required "
    return "optional " if field.proto3_optional or syntax == "proto2" else ""


def _type(field: Descriptor) -> str:
    if field.type in {MESSAGE, ENUM, GROUP}:
        return str(field.type_name)
    return SCALARS[field.type]


def _range(start: int, last: int, greatest: int) -> str:
    if start == last:
        return str(start)
    return f"{start} to {'max' if last >= greatest else last}"


def _option_value(field: Descriptor, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case bytes():
            return _quoted(value.decode("latin-1"))
        case int() | float():
            return str(value)
        case _:
            return "{ " + " ".join(str(value).split()) + " }"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _json_name(name: str) -> str:
    head, *others = name.split("_")
    return head + "".join(other[:1].upper() + other[1:] for other in others)

"""Decodes Protobuf values: a message becomes a type of Spark's, values of it become structs.

Pure, apart from the library `protobuf`. A field that knows whether it was set is null if it was
not; all others have the default of their type, as in every language that reads them. Protobuf finds
fields by their numbers, so bytes of another message often can be decoded as well.
"""

import base64
import binascii
from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.spark.errors import InvalidOption, LibraryMissing
from millstream.spark.values.decoding import Decode, struct

# Descriptors and messages, which the library makes at run time.
Descriptor = Any
Message = Any
_Convert = Callable[[Any], object]  # A field's content as Arrow takes it.

_TIMESTAMP = "google.protobuf.Timestamp"
_MICROSECONDS, _NANOSECONDS = 1_000_000, 1_000


def protobuf_type(descriptors: str, message: str) -> str:
    """The DDL of what values of the message are. Raises `InvalidOption`."""
    return _type_of(_message(descriptors, message), message, ())


def protobuf_decode(descriptors: str, message: str) -> Decode:
    from google.protobuf import message_factory

    descriptor = _message(descriptors, message)
    make = message_factory.GetMessageClass(descriptor)
    convert = _converter(descriptor)

    def decode(value: bytes) -> dict[str, object]:
        row: dict[str, object] = convert(make.FromString(value))
        return row

    return decode


def protobuf_path(descriptors: str, message: str) -> list[int]:
    """The indexes that lead to the message in its file."""
    return _path(_message(descriptors, message))


def _path(descriptor: Descriptor) -> list[int]:
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_path(outer), [nested.name for nested in outer.nested_types].index(descriptor.name)]


def _message(descriptors: str, name: str) -> Descriptor:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ModuleNotFoundError:
        raise LibraryMissing("valueFormat protobuf", "protobuf", "protobuf") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        raw = base64.b64decode(descriptors, validate=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(raw).file
        for file in files:
            pool.Add(file)
    except (binascii.Error, message.DecodeError, TypeError, ValueError) as problem:
        raise InvalidOption(
            "valueSchema is no file that there is, and no descriptor set in base64 as protoc "
            f"--include_imports --descriptor_set_out writes it: {problem}"
        ) from None
    try:
        return pool.FindMessageTypeByName(name)
    except (KeyError, TypeError) as problem:
        known = sorted(
            f"{file.package}.{kind.name}".lstrip(".")
            for file in files
            for kind in file.message_type
        )
        raise InvalidOption(
            f"valueMessage is {name!r}: {problem}; the descriptor set has {', '.join(known)}"
        ) from None


# -- types -----------------------------------------------------------------------------------------


def _type_of(descriptor: Descriptor, place: str, inside: tuple[str, ...]) -> str:
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return "timestamp"
    if name in inside:
        raise InvalidOption(f"valueMessage: {place} is a {name} in a {name}, which has no end")
    if not descriptor.fields:
        raise InvalidOption(f"valueMessage: {place} is a message without fields")
    return struct(
        [
            (field.name, _field_type(field, f"{place}.{field.name}", (*inside, name)))
            for field in descriptor.fields
        ]
    )


def _field_type(field: Descriptor, place: str, inside: tuple[str, ...]) -> str:
    if _is_map(field):
        key, value = field.message_type.fields
        return f"map<{_field_type(key, place, inside)},{_field_type(value, place, inside)}>"
    if field.message_type is not None:
        kind = _type_of(field.message_type, place, inside)
    else:
        kind = _scalars(field)[field.cpp_type]
    return f"array<{kind}>" if field.is_repeated else kind


def _scalars(field: Descriptor) -> dict[int, str]:
    """By what holds them in C++. Numbers without a sign get a type that all of them fit in."""
    return {
        field.CPPTYPE_INT32: "int",
        field.CPPTYPE_INT64: "bigint",
        field.CPPTYPE_UINT32: "bigint",
        field.CPPTYPE_UINT64: "decimal(20,0)",
        field.CPPTYPE_DOUBLE: "double",
        field.CPPTYPE_FLOAT: "float",
        field.CPPTYPE_BOOL: "boolean",
        field.CPPTYPE_ENUM: "string",
        field.CPPTYPE_STRING: "binary" if field.type == field.TYPE_BYTES else "string",
    }


def _is_map(field: Descriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


# -- values ----------------------------------------------------------------------------------------


def _converter(descriptor: Descriptor) -> Callable[[Message], Any]:
    if descriptor.full_name == _TIMESTAMP:
        return _microseconds
    parts = [(field.name, _field_converter(field)) for field in descriptor.fields]
    return lambda message: {name: convert(message) for name, convert in parts}


def _field_converter(field: Descriptor) -> _Convert:
    name = field.name
    if _is_map(field):
        key, value = (_content(part) for part in field.message_type.fields)
        return lambda message: {key(k): value(v) for k, v in getattr(message, name).items()}
    content = _content(field)
    if field.is_repeated:
        return lambda message: [content(item) for item in getattr(message, name)]
    if field.has_presence:
        return lambda message: content(getattr(message, name)) if message.HasField(name) else None
    return lambda message: content(getattr(message, name))


def _content(field: Descriptor) -> _Convert:
    if field.message_type is not None:
        return _converter(field.message_type)
    if field.enum_type is not None:
        return partial(_enum_name, field.enum_type)
    return _same


def _enum_name(kind: Descriptor, number: int) -> str:
    """The name of a number; a number of a newer version of the message stays a number."""
    known = kind.values_by_number.get(number)
    return str(number) if known is None else str(known.name)


def _microseconds(stamp: Message) -> int:
    return int(stamp.seconds) * _MICROSECONDS + int(stamp.nanos) // _NANOSECONDS


def _same(content: object) -> object:
    return content

"""Record format of `_schemas`, in the bytes of Confluent's registry.

Schemas can be brought from another registry by copying its topic, and taken away again. Keys are
written with their members in Confluent's order and read in any order; empty bytes count as null, as
Karapace writes it. Key types that are not known here are left alone.
"""

from base64 import b64encode
from collections.abc import Mapping
from enum import Enum
from hashlib import md5
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from millstream.schemas.definition import Reference, SchemaType

# JSON of any shape: metadata, rules and settings of other registries are kept as they are.
Json = Any


class KeyType(Enum):
    SCHEMA = "SCHEMA"
    CONFIG = "CONFIG"
    MODE = "MODE"
    DELETE_SUBJECT = "DELETE_SUBJECT"
    CLEAR_SUBJECT = "CLEAR_SUBJECT"
    CONTEXT = "CONTEXT"
    NOOP = "NOOP"


class Key(NamedTuple):
    """`subject` is None for settings of all subjects; `version` is a schema's."""

    type: KeyType
    subject: str | None = None
    version: int = 0
    context: str = ""


class SchemaText(NamedTuple):
    """A schema without its place. Two equal ones have the same id."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Json = None
    rule_set: Json = None


class SchemaValue(NamedTuple):
    subject: str
    version: int
    id: int
    schema: SchemaText
    is_deleted: bool = False


class DeletedSubject(NamedTuple):
    """All versions of the subject up to this one are soft-deleted."""

    subject: str
    version: int


Value = SchemaValue | DeletedSubject | Mapping[str, Json] | None


def guid(schema: SchemaText) -> UUID:
    """Names a schema wherever it is registered: the MD5 of all that makes it what it is."""
    digest = md5(schema.text.encode(), usedforsecurity=False)
    for reference in schema.references:
        digest.update(reference.name.encode())
        digest.update(reference.subject.encode())
        digest.update(reference.version.to_bytes(4, "big", signed=True))
    for more in (schema.metadata, schema.rule_set):
        if more is not None:
            digest.update(msgspec.json.encode(more, order="sorted"))
    return UUID(bytes=digest.digest())


def encode_key(key: Key) -> bytes:
    members: dict[str, Json] = {"keytype": key.type.value}
    match key.type:
        case KeyType.SCHEMA:
            members |= {"subject": key.subject, "version": key.version, "magic": 1}
        case KeyType.CONTEXT:
            members |= {"tenant": "default", "context": key.context}
        case KeyType.NOOP:
            members |= {"magic": 0}
        case _:
            members |= {"subject": key.subject, "magic": 0}
    return msgspec.json.encode(members)


def decode_key(data: bytes | None) -> Key | None:
    """The key of a record; None for a key of another kind, which is not ours to judge."""
    if not data:
        return None
    members = msgspec.json.decode(data)
    if not isinstance(members, dict):
        return None
    try:
        key_type = KeyType(members.get("keytype"))
    except ValueError:
        return None
    subject, version = members.get("subject"), members.get("version", 0)
    if not isinstance(subject, str | None) or not isinstance(version, int):
        raise ValueError(f"not a key of a registry: {members}")
    return Key(key_type, subject, version, str(members.get("context", "")))


def encode_schema(value: SchemaValue) -> bytes:
    schema = value.schema
    members: dict[str, Json] = {
        "subject": value.subject,
        "version": value.version,
        "id": value.id,
        "md5": b64encode(guid(schema).bytes).decode(),
    }
    if schema.type is not SchemaType.AVRO:
        members["schemaType"] = schema.type.value
    if schema.references:
        members["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        members["metadata"] = schema.metadata
    if schema.rule_set is not None:
        members["ruleSet"] = schema.rule_set
    members |= {"schema": schema.text, "deleted": value.is_deleted}
    return msgspec.json.encode(members)


def encode_settings(members: Mapping[str, Json]) -> bytes:
    """The value of a `CONFIG` or `MODE` record."""
    return msgspec.json.encode(dict(members))


def encode_deleted(value: DeletedSubject) -> bytes:
    return msgspec.json.encode(value._asdict())


def decode_value(key: Key, data: bytes | None) -> Value:
    """The value of a record; `ValueError` or `msgspec.MsgspecError` if it cannot be read."""
    if not data:
        return None
    match key.type:
        case KeyType.SCHEMA:
            return _schema(_schema_decoder.decode(data))
        case KeyType.DELETE_SUBJECT:
            return DeletedSubject(*msgspec.structs.astuple(_deleted_decoder.decode(data)))
        case _:
            return _settings_decoder.decode(data)


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct, rename="camel"):
    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = "AVRO"
    references: list[_Reference] | None = None
    metadata: Json = None
    rule_set: Json = None
    deleted: bool = False


class _DeletedSubject(msgspec.Struct):
    subject: str
    version: int


def _schema(read: _Schema) -> SchemaValue:
    references = tuple(Reference(*msgspec.structs.astuple(each)) for each in read.references or ())
    text = SchemaText(
        SchemaType(read.schema_type), read.schema, references, read.metadata, read.rule_set
    )
    return SchemaValue(read.subject, read.version, read.id, text, read.deleted)


_schema_decoder = msgspec.json.Decoder(_Schema)
_deleted_decoder = msgspec.json.Decoder(_DeletedSubject)
_settings_decoder = msgspec.json.Decoder(dict[str, Json])

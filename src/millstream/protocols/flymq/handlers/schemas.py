"""Handlers of schemas: FlyMQ's requests on top of the registry.

A name is a subject, versions are its versions. A message that is checked is bare, as FlyMQ's
clients send it, or stands behind the frame of a version of its subject.
"""

from contextlib import suppress

from millstream.engine.schemas.changes import SchemaChanges
from millstream.engine.schemas.parsing import LATEST, Draft
from millstream.engine.schemas.service import Listed, Schemas
from millstream.engine.schemas.validation import FRAME_BYTES, GUID_MAGIC, ID_MAGIC, VALUE_HEADER
from millstream.errors import InvalidRequest
from millstream.errors.schemas import SchemaRefused
from millstream.internal_topics.schemas import SchemaValue, guid
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.handlers.records import metadata_of
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode
from millstream.schemas.definition import SchemaType

LISTED_MAX = 10_000  # Versions in one answer.
FIRST_MESSAGE = b"\0"  # Of a Protobuf file: the indexes of a message that stands bare.
_TYPES = {
    "json": SchemaType.JSON,
    "avro": SchemaType.AVRO,
    "protobuf": SchemaType.PROTOBUF,
    "proto": SchemaType.PROTOBUF,
}


async def register(context: Context, request: bodies.RegisterSchema) -> bodies.Schema:
    changes = _changes(context)
    kind = _TYPES.get(request.kind.lower())
    if kind is None:
        raise InvalidRequest(f"unsupported schema type: {request.kind}")
    try:
        draft = Draft(kind, bytes(request.definition).decode())
    except UnicodeDecodeError:
        raise InvalidRequest("the definition of the schema is not UTF-8") from None
    return _schema(await changes.register(context.session, request.name, draft))


async def get(context: Context, request: bodies.SchemaVersion) -> bodies.Schemas:
    number = request.version or LATEST
    value = await _schemas(context).version(context.session, request.name, number)
    return bodies.Schemas((_schema(value),))


async def list_all(context: Context, request: bodies.SchemaNameOrAll) -> bodies.Schemas:
    listed = Listed(limit=LISTED_MAX)
    values = await _schemas(context).schemas(context.session, request.name, listed)
    return bodies.Schemas(
        tuple(_schema(each) for each in values if request.name in {"", each.subject})
    )


async def validate(context: Context, request: bodies.Validate) -> bodies.Validated:
    _, problem = await _checked(context, request.name, bytes(request.message))
    return bodies.Validated(not problem, (problem,) if problem else ())


async def produce(
    context: Context, request: bodies.ProduceWithSchema | bodies.ProduceWithSchemaLast
) -> bodies.RecordMetadata:
    """The bytes as they came; what stands bare names its schema in a header."""
    context.services.partitions.admit_append(context.session, request.topic)
    data = bytes(request.value)
    value, problem = await _checked(context, request.schema, data)
    if problem:
        raise InvalidRequest(f"schema validation failed: [{problem}]")
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if await _framed_version(context, request.schema, data) is None:
        indexes = FIRST_MESSAGE if value.schema.type is SchemaType.PROTOBUF else b""
        name = bytes([GUID_MAGIC]) + guid(value.schema).bytes + indexes
        headers = ((VALUE_HEADER, name),)
    message = (None, data, headers)
    receipt = await context.services.publisher.publish_one(
        context.session, request.topic, message, acks=context.acks
    )
    return metadata_of(receipt, message)


async def delete(context: Context, request: bodies.SchemaVersion) -> bodies.Message:
    changes = _changes(context)
    if request.version:
        await changes.delete_version(context.session, request.name, request.version)
    else:
        await changes.delete_subject(context.session, request.name)
    return bodies.Message(True, "OK")


async def _checked(context: Context, name: str, data: bytes) -> tuple[SchemaValue, str]:
    """The version that a message is checked against, and why the message is none of it."""
    schemas, session = _schemas(context), context.session
    value = await _framed_version(context, name, data)
    if value is not None:
        return value, await schemas.problem(session, value, data[FRAME_BYTES:])
    value = await schemas.version(session, name, LATEST)
    bare = FIRST_MESSAGE + data if value.schema.type is SchemaType.PROTOBUF else data
    return value, await schemas.problem(session, value, bare)


async def _framed_version(context: Context, name: str, data: bytes) -> SchemaValue | None:
    """The version of a subject that a message names in front; None if it stands bare.

    A bare value may begin with a zero too: it is a frame only if the id behind it is the subject's.
    """
    if len(data) < FRAME_BYTES or data[0] != ID_MAGIC:
        return None
    number = int.from_bytes(data[1:FRAME_BYTES], "big")
    latest = await _schemas(context).version(context.session, name, LATEST)
    with suppress(SchemaRefused):
        for value in await _schemas(context).places(context.session, number, name):
            if value.subject == latest.subject:
                return value
    return None


def _schema(value: SchemaValue) -> bodies.Schema:
    return bodies.Schema(value.subject, value.schema.type.value.lower(), value.version)


def _schemas(context: Context) -> Schemas:
    if context.services.schemas is None:
        raise InvalidRequest("schemas are not enabled")
    return context.services.schemas


def _changes(context: Context) -> SchemaChanges:
    if context.services.schema_changes is None:
        raise InvalidRequest("schemas are not enabled")
    return context.services.schema_changes


HANDLERS: dict[Opcode, Handler] = {
    Opcode.REGISTER_SCHEMA: register,
    Opcode.GET_SCHEMA: get,
    Opcode.LIST_SCHEMAS: list_all,
    Opcode.VALIDATE: validate,
    Opcode.PRODUCE_WITH_SCHEMA: produce,
    Opcode.DELETE_SCHEMA: delete,
}

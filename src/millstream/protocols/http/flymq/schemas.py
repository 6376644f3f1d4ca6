"""Schemas as FlyMQ's tools ask for them: the newest version of each subject."""

from http import HTTPStatus

import msgspec

from millstream.engine.schemas.parsing import LATEST, Draft
from millstream.engine.schemas.service import Listed
from millstream.errors import InvalidRequest
from millstream.internal_topics.schemas import SchemaValue
from millstream.protocols.http.calls import Call
from millstream.protocols.http.flymq.shapes import route
from millstream.protocols.http.registry.handlers import changes_of, schemas_of
from millstream.protocols.http.router import Params, Right
from millstream.schemas.definition import SchemaType

_TYPES = {
    "json": SchemaType.JSON,
    "avro": SchemaType.AVRO,
    "protobuf": SchemaType.PROTOBUF,
    "proto": SchemaType.PROTOBUF,
}


class SchemaParams(Params, frozen=True, kw_only=True):
    subject: str


class SchemaView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: int
    type: str
    schema: str


class NewSchema(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    schema: str
    type: str = "json"


async def list_schemas(call: Call, params: Params) -> list[SchemaView]:
    values = await schemas_of(call).schemas(
        call.session,
        "",
        Listed(limit=call.services.config.http.page_max),
        latest_only=True,
    )
    return [_view(value) for value in values]


async def register(call: Call, params: Params, body: NewSchema) -> None:
    kind = _TYPES.get(body.type.lower())
    if kind is None:
        raise InvalidRequest(f"unsupported schema type: {body.type[:40]}")
    await changes_of(call).register(call.session, body.name, Draft(kind, body.schema))


async def describe(call: Call, params: SchemaParams) -> SchemaView:
    return _view(await schemas_of(call).version(call.session, params.subject, LATEST))


async def delete(call: Call, params: SchemaParams) -> None:
    await changes_of(call).delete_subject(call.session, params.subject)


def _view(value: SchemaValue) -> SchemaView:
    return SchemaView(
        name=value.subject,
        version=value.version,
        type=value.schema.type.value.lower(),
        schema=value.schema.text,
    )


_SUBJECT = "topic:{topic of subject}"

ROUTES = (
    route(
        "GET",
        "/schemas",
        list_schemas,
        "List schemas",
        reply=list[SchemaView],
        rights=(Right("DESCRIBE", "topic:*"),),
    ),
    route(
        "POST",
        "/schemas",
        register,
        "Register a schema",
        body=NewSchema,
        status=HTTPStatus.CREATED,
        rights=(Right("WRITE", _SUBJECT),),
        example={"name": "orders-value", "schema": '{"type":"object"}'},
    ),
    route(
        "GET",
        "/schemas/{subject}",
        describe,
        "The newest version of a schema",
        params=SchemaParams,
        reply=SchemaView,
        rights=(Right("DESCRIBE", _SUBJECT),),
    ),
    route(
        "DELETE",
        "/schemas/{subject}",
        delete,
        "Delete all versions of a schema",
        params=SchemaParams,
        rights=(Right("DELETE", _SUBJECT),),
    ),
)

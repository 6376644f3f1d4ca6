"""`POST /v1/schemas:explain`: what each compatibility level says of a schema, and why."""

from http import HTTPStatus

import msgspec

from millstream.engine.schemas.parsing import Draft
from millstream.engine.schemas.service import Explained
from millstream.errors.schemas import invalid_schema
from millstream.protocols.http.calls import Call
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Params, Right, Route
from millstream.schemas.definition import Difference, Reference, SchemaType

# By rule; any other one has the sentence of `OTHERWISE`.
INSTEAD = {
    "READER_FIELD_MISSING_DEFAULT_VALUE": "give the field a default, or keep it in both schemas",
    "TYPE_MISMATCH": "keep the type, widen it (int to long, float, double) or add a new field",
    "NAME_MISMATCH": "keep the name, or name the old one among the aliases",
    "MISSING_ENUM_SYMBOLS": "keep the symbols, or give the reader's enum a default",
    "MISSING_UNION_BRANCH": "keep the branch in the reader's union",
    "FIXED_SIZE_MISMATCH": "keep the size, or add a new field with another fixed type",
    "REQUIRED_ATTRIBUTE_ADDED": "make the property optional, or give it a default",
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "make the property optional",
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "close the object (additionalProperties: false) "
    "before, or set compatibilityPolicy to LENIENT",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "keep the property",
    "PACKAGE_CHANGED": "keep the package",
    "MESSAGE_REMOVED": "keep the message, reserved or unused",
    "FIELD_SCALAR_KIND_CHANGED": "keep the type, or take a new number for the field",
    "FIELD_KIND_CHANGED": "take a new number for the field and reserve the old one",
    "REQUIRED_FIELD_ADDED": "make the field optional",
    "REQUIRED_FIELD_REMOVED": "keep the field",
    "ONEOF_FIELD_REMOVED": "keep the field in its oneof",
    "SCHEMA_TYPE_CHANGED": "register the other format under a subject of its own",
}
OTHERWISE = "keep what the earlier version has there, and add beside it"


class ReferenceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    subject: str
    version: int


class ExplainBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    subject: str
    schema: str
    type: str = "AVRO"
    references: list[ReferenceBody] = []


class ExplainedDifference(msgspec.Struct, frozen=True, kw_only=True):
    version: int  # The earlier version that it is compared with.
    path: str
    rule: str
    breaks: str  # `old readers` or `new readers`.
    description: str
    passes_lenient: bool
    instead: str


class ExplainedLevel(msgspec.Struct, frozen=True, kw_only=True):
    level: str
    is_compatible: bool
    differences: list[ExplainedDifference]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    levels: list[ExplainedLevel]


async def explain(call: Call, params: Params, body: ExplainBody) -> Explanation:
    schemas = call.services.schemas
    if schemas is None:
        raise HttpProblem(
            HTTPStatus.NOT_FOUND, "registry_off", "this node has no registry (registry.enabled)"
        )
    try:
        schema_type = SchemaType(body.type.upper())
    except ValueError:
        raise invalid_schema(f"unknown type {body.type!r}") from None
    references = tuple(Reference(e.name, e.subject, e.version) for e in body.references)
    draft = Draft(schema_type, body.schema, references)
    explained = await schemas.explain(call.session, body.subject, draft)
    return Explanation(subject=body.subject, levels=[_level(each) for each in explained])


def _level(explained: Explained) -> ExplainedLevel:
    differences = [
        _difference(difference, breach.version, are_old=breach.are_old_readers)
        for breach in explained.breaches
        for difference in breach.differences
    ]
    return ExplainedLevel(
        level=explained.level.value, is_compatible=not differences, differences=differences
    )


def _difference(difference: Difference, version: int, *, are_old: bool) -> ExplainedDifference:
    reader, writer = ("old", "new") if are_old else ("new", "old")
    description = difference.description.replace("{reader}", reader).replace("{writer}", writer)
    return ExplainedDifference(
        version=version,
        path=difference.path or "/",
        rule=difference.rule,
        breaks="old readers" if are_old else "new readers",
        description=description,
        passes_lenient=difference.passes_lenient,
        instead=INSTEAD.get(difference.rule, OTHERWISE),
    )


ROUTES = (
    Route(
        method="POST",
        path="/v1/schemas:explain",
        handler=explain,
        summary="What each compatibility level says of a schema, and what to write instead",
        body=ExplainBody,
        reply=Explanation,
        rights=(Right("DESCRIBE", "topic:{topic of subject}"),),
        example={"subject": "orders-value", "schema": '"string"'},
    ),
)

"""The handlers of the registry's REST. Rights are the engine's matter."""

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any

from millstream import __version__
from millstream.engine.schemas.changes import SchemaChanges
from millstream.engine.schemas.service import Identified, Schemas
from millstream.errors.schemas import SchemaErrorCode, SchemaRefused
from millstream.internal_topics.registry import in_context
from millstream.internal_topics.schemas import SchemaValue, guid
from millstream.protocols.http.calls import Call
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.registry.params import (
    CheckParams,
    GuidParams,
    IdParams,
    ListParams,
    ModeBody,
    RegistryParams,
    SchemaBody,
    ScopeParams,
    SubjectParams,
    VersionParams,
    text_members,
    value_members,
)
from millstream.protocols.http.router import RawReply

# JSON of any shape.
Json = Any
JsonObject = dict[str, Any]


# -- the registry itself ---------------------------------------------------------------------------


async def root(call: Call, params: RegistryParams) -> JsonObject | RawReply:
    """An empty object, which clients of a registry expect. A browser is led to the console."""
    if "text/html" in call.extra.get("accept", ""):
        headers = {"Location": "/console/"}
        return RawReply(b"", "text/html", status=HTTPStatus.FOUND, headers=headers)
    return {}


async def types(call: Call, params: RegistryParams) -> list[str]:
    return schemas_of(call).types(call.session)


async def metadata_id(call: Call, params: RegistryParams) -> JsonObject:
    clusters = {
        "kafka-cluster": call.services.cluster_id,
        "schema-registry-cluster": "schema-registry",
    }
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


async def metadata_version(call: Call, params: RegistryParams) -> JsonObject:
    return {"version": __version__, "commitId": ""}


# -- subjects --------------------------------------------------------------------------------------


async def list_subjects(call: Call, params: ListParams) -> list[str]:
    return await schemas_of(call).subjects(call.session, params.prefix, params.listed)


async def list_schemas(call: Call, params: ListParams) -> list[JsonObject]:
    values = await schemas_of(call).schemas(
        call.session, params.prefix, params.listed, latest_only=params.latest_only
    )
    return [value_members(value) for value in values]


async def look_up(call: Call, params: SubjectParams, body: SchemaBody) -> JsonObject:
    value = await schemas_of(call).lookup(
        call.session,
        params.name,
        body.draft(),
        normalize=params.normalize,
        with_deleted=params.deleted,
    )
    return await _version(call, params.format, value)


async def delete_subject(call: Call, params: SubjectParams) -> list[int]:
    return await changes_of(call).delete_subject(
        call.session, params.name, permanent=params.permanent
    )


async def list_versions(call: Call, params: SubjectParams) -> list[int]:
    return await schemas_of(call).versions(call.session, params.name, params.listed)


async def register(call: Call, params: SubjectParams, body: SchemaBody) -> JsonObject:
    value = await changes_of(call).register(
        call.session, params.name, body.draft(), normalize=params.normalize
    )
    # Without the text: confluent-kafka would keep it, where it later asks for another form of it.
    return {"id": value.id, "version": value.version, "guid": str(guid(value.schema))}


async def version(call: Call, params: VersionParams) -> JsonObject:
    return await _version(call, params.format, await _find(call, params))


async def version_schema(call: Call, params: VersionParams) -> RawReply:
    value = await _find(call, params)
    return _bare(call, await schemas_of(call).formatted(call.session, value, params.format))


async def delete_version(call: Call, params: VersionParams) -> int:
    return await changes_of(call).delete_version(
        call.session, params.name, params.number, permanent=params.permanent
    )


async def referenced_by(call: Call, params: VersionParams) -> list[int]:
    return await schemas_of(call).users(call.session, params.name, params.number)


async def with_metadata(call: Call, params: SubjectParams) -> JsonObject:
    keys = [text for name, text in call.query if name == "key"]
    values = [text for name, text in call.query if name == "value"]
    if not keys or len(keys) != len(values):
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST,
            "invalid_request",
            "each key needs a value: ?key=owner&value=ann",
        )
    value = await schemas_of(call).with_metadata(
        call.session,
        params.name,
        dict(zip(keys, values, strict=True)),
        with_deleted=params.deleted,
    )
    return await _version(call, params.format, value)


# -- ids -------------------------------------------------------------------------------------------


def by_id(call: Call, params: IdParams) -> JsonObject | Awaitable[JsonObject]:
    known = schemas_of(call).by_id_now(call.session, params.id, params.name)
    if known is None or params.format:
        return _by_id_later(call, params)
    return _identified_members(params, known, None)


async def _by_id_later(call: Call, params: IdParams) -> JsonObject:
    known = await schemas_of(call).by_id(call.session, params.id, params.name)
    text = await _identified_text(call, params, known) if params.format else None
    return _identified_members(params, known, text)


def _identified_members(params: IdParams, known: Identified, text: str | None) -> JsonObject:
    members = {**text_members(known.schema, text), "guid": str(known.guid)}
    if params.fetch_max_id:
        members["maxId"] = known.id_max
    return members


async def by_id_schema(call: Call, params: IdParams) -> RawReply:
    known = await schemas_of(call).by_id(call.session, params.id, params.name)
    return _bare(call, await _identified_text(call, params, known))


async def id_subjects(call: Call, params: IdParams) -> list[str]:
    return sorted({value.subject for value in await _places(call, params)})


async def id_versions(call: Call, params: IdParams) -> list[JsonObject]:
    places = await _places(call, params)
    return [{"subject": value.subject, "version": value.version} for value in places]


async def by_guid(call: Call, params: GuidParams) -> JsonObject:
    context, known = (await schemas_of(call).by_guid(call.session, params.uuid))[0]
    value = SchemaValue(in_context(context, ""), 0, known.id, known.schema)
    text = await schemas_of(call).formatted(call.session, value, params.format)
    return {**text_members(known.schema, text), "guid": str(known.guid)}


async def guid_ids(call: Call, params: GuidParams) -> list[JsonObject]:
    known = await schemas_of(call).by_guid(call.session, params.uuid)
    return [{"context": context, "id": each.id} for context, each in known]


# -- compatibility, settings, modes ----------------------------------------------------------------


async def check(call: Call, params: CheckParams, body: SchemaBody) -> JsonObject:
    lines = await schemas_of(call).check(
        call.session,
        params.name,
        body.draft(),
        number=params.number,
        normalize=params.normalize,
    )
    answer: JsonObject = {"is_compatible": not lines}
    if params.verbose:
        answer["messages"] = lines
    return answer


async def config(call: Call, params: ScopeParams) -> JsonObject:
    return await schemas_of(call).config(
        call.session, params.scope, default_to_global=params.default_to_global
    )


async def set_config(call: Call, params: ScopeParams, body: JsonObject) -> JsonObject:
    changes = {name: value for name, value in body.items() if name != "compatibility"}
    if "compatibility" in body:
        level = body["compatibility"]
        changes["compatibilityLevel"] = level.upper() if isinstance(level, str) else level
    if not changes:
        raise SchemaRefused(
            SchemaErrorCode.INVALID_COMPATIBILITY, "the body names no setting to change"
        )
    await changes_of(call).set_config(call.session, params.scope, changes)
    return body


async def delete_config(call: Call, params: ScopeParams) -> JsonObject:
    return await changes_of(call).delete_config(call.session, params.scope)


async def mode(call: Call, params: ScopeParams) -> JsonObject:
    name = await schemas_of(call).mode(
        call.session, params.scope, default_to_global=params.default_to_global
    )
    return {"mode": name}


async def set_mode(call: Call, params: ScopeParams, body: ModeBody) -> JsonObject:
    name = body.mode.upper()
    await changes_of(call).set_mode(call.session, params.scope, name, force=params.force)
    return {"mode": name}


async def delete_mode(call: Call, params: ScopeParams) -> JsonObject:
    name = await changes_of(call).delete_mode(
        call.session, params.scope, recursive=params.recursive
    )
    return {"mode": name}


async def contexts(call: Call, params: RegistryParams) -> list[str]:
    return await schemas_of(call).contexts(call.session)


async def delete_context(call: Call, params: RegistryParams) -> JsonObject:
    await changes_of(call).delete_context(call.session, params.whole_context)
    return {}


# -- parts -----------------------------------------------------------------------------------------


def schemas_of(call: Call) -> Schemas:
    schemas = call.services.schemas
    if schemas is None:
        raise _off()
    return schemas


def changes_of(call: Call) -> SchemaChanges:
    changes = call.services.schema_changes
    if changes is None:
        raise _off()
    return changes


def _off() -> HttpProblem:
    return HttpProblem(
        HTTPStatus.NOT_FOUND, "registry_off", "this node has no registry (registry.enabled)"
    )


def _bare(call: Call, text: str) -> RawReply:
    return RawReply(text.encode(), call.accept)


async def _find(call: Call, params: VersionParams) -> SchemaValue:
    return await schemas_of(call).version(
        call.session, params.name, params.number, with_deleted=params.deleted
    )


async def _places(call: Call, params: IdParams) -> list[SchemaValue]:
    return await schemas_of(call).places(
        call.session, params.id, params.name, with_deleted=params.deleted
    )


async def _version(call: Call, form: str, value: SchemaValue) -> JsonObject:
    if not form:
        return value_members(value)
    return value_members(value, await schemas_of(call).formatted(call.session, value, form))


async def _identified_text(call: Call, params: IdParams, known: Identified) -> str:
    if not params.format:
        return known.schema.text
    value = SchemaValue(params.name, 0, known.id, known.schema)
    return await schemas_of(call).formatted(call.session, value, params.format)

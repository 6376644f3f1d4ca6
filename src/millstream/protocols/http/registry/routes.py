"""The routes of the registry's REST: at the root, under `/registry`, and each inside a context."""

from dataclasses import replace
from typing import Any, get_type_hints

from millstream.protocols.http.registry import handlers
from millstream.protocols.http.router import Handler, Needs, RawReply, Right, Route

CONTEXT = "/contexts/{context}"
_ANY, _TOPIC, _CLUSTER = "topic:*", "topic:{topic of subject}", "cluster"


def _route(method: str, path: str, handler: Handler, summary: str, *rights: Right) -> Route:
    """The types are those of the handler."""
    hints: dict[str, Any] = get_type_hints(handler)
    return Route(
        method=method,
        path=path,
        handler=handler,
        summary=summary,
        params=hints["params"],
        body=hints.get("body"),
        reply=hints["return"],
        is_raw=hints["return"] is RawReply,
        rights=rights,
    )


def _routes() -> list[Route]:
    h = handlers
    describe, listed = Right("DESCRIBE", _TOPIC), Right("DESCRIBE", _ANY)
    write, delete = Right("WRITE", _TOPIC), Right("DELETE", _TOPIC)
    subject = "/subjects/{subject}"
    version = f"{subject}/versions/{{version}}"
    ids, guids = "/schemas/ids/{id}", "/schemas/guids/{guid}"
    checks = "/compatibility/subjects/{subject}/versions"
    return [
        _route("GET", "/schemas/types", h.types, "Formats that can be used", listed),
        _route("GET", "/subjects", h.list_subjects, "List subjects", listed),
        _route("GET", "/schemas", h.list_schemas, "List versions of all subjects", listed),
        _route("POST", subject, h.look_up, "Find the version that a schema is", describe),
        _route("DELETE", subject, h.delete_subject, "Delete a subject", delete),
        _route("GET", f"{subject}/versions", h.list_versions, "List versions", describe),
        _route("POST", f"{subject}/versions", h.register, "Register a schema", write),
        _route("GET", f"{subject}/metadata", h.with_metadata, "Find by metadata", describe),
        _route("GET", version, h.version, "A version of a subject", describe),
        _route("DELETE", version, h.delete_version, "Delete a version", delete),
        _route("GET", f"{version}/schema", h.version_schema, "The bare schema", describe),
        _route("GET", f"{version}/referencedby", h.referenced_by, "Users of it", describe),
        _route("GET", ids, h.by_id, "A schema by its id", listed),
        _route("GET", f"{ids}/schema", h.by_id_schema, "The bare schema of an id", listed),
        _route("GET", f"{ids}/subjects", h.id_subjects, "Subjects that have an id", listed),
        _route("GET", f"{ids}/versions", h.id_versions, "Versions that have an id", listed),
        _route("GET", guids, h.by_guid, "A schema by its GUID", listed),
        _route("GET", f"{guids}/ids", h.guid_ids, "Ids of a GUID", listed),
        _route("POST", checks, h.check, "Check a schema against its subject", describe),
        _route("POST", f"{checks}/{{version}}", h.check, "Check against a version", describe),
        *_settings(),
    ]


def _settings() -> list[Route]:
    h = handlers
    routes: list[Route] = []
    for path, resource in (("", _CLUSTER), ("/{subject}", _TOPIC)):
        read, change = Right("DESCRIBE_CONFIGS", resource), Right("ALTER_CONFIGS", resource)
        config, mode = f"/config{path}", f"/mode{path}"
        routes += [
            _route("GET", config, h.config, "Settings of a subject, or of all", read),
            _route("PUT", config, h.set_config, "Change settings", change),
            _route("DELETE", config, h.delete_config, "Take settings back", change),
            _route("GET", mode, h.mode, "The mode of a subject, or of all", read),
            _route("PUT", mode, h.set_mode, "Set the mode", change),
            _route("DELETE", mode, h.delete_mode, "Take the mode back", change),
        ]
    return routes


_OF_ALL = _routes()
ROUTES = (
    replace(
        _route("GET", "/", handlers.root, "The registry is here"),
        needs=Needs.NOTHING,
        is_raw=True,
    ),
    _route("GET", "/v1/metadata/id", handlers.metadata_id, "The id of the cluster"),
    _route("GET", "/v1/metadata/version", handlers.metadata_version, "The version"),
    _route("GET", "/contexts", handlers.contexts, "List contexts", Right("DESCRIBE", _ANY)),
    _route(
        "DELETE",
        CONTEXT,
        handlers.delete_context,
        "Delete an empty context",
        Right("ALTER_CONFIGS", _CLUSTER),
    ),
    *_OF_ALL,
    *(replace(route, path=CONTEXT + route.path, hidden=True) for route in _OF_ALL),
)

"""The index of all routes: for each prefix, the module of each noun.

Nothing here imports a handler. `Router` does that when the first request for a noun comes.
"""

from millstream.protocols.http.problems import (
    flymq_error,
    numbered_error,
    problem_details,
    registry_error,
)
from millstream.protocols.http.router import JSON_TYPE, NDJSON_TYPE, Api

_ADMIN = "millstream.protocols.http.admin."
_OPERATE = "millstream.protocols.http.operate."
_MONITORING = "millstream.protocols.http.monitoring."


def _http(*names: str) -> tuple[str, ...]:
    return tuple(f"millstream.protocols.http.{name}" for name in names)


V1 = Api(
    name="v1",
    prefix=("v1",),
    nouns={
        "acls": _ADMIN + "acls",
        "audit": _ADMIN + "audit",
        "cluster": _http("operate.cluster", "operate.balance"),
        "config": _OPERATE + "node",
        "connections": _OPERATE + "node",
        "dead-letters": _OPERATE + "dead_letters",
        "delayed": _ADMIN + "delayed",
        "diagnostics": _OPERATE + "diagnostics",
        "events": _OPERATE + "figures",
        "figures": _OPERATE + "figures",
        "filters": _OPERATE + "pipelines",
        "groups": _http("admin.groups", "admin.resets"),
        "jobs": _OPERATE + "jobs",
        "leaders": _OPERATE + "balance",
        "metadata": "millstream.protocols.http.registry.routes",
        "nodes": _http("operate.cluster", "operate.moves"),
        "openapi.json": "millstream.protocols.http.operate.openapi",
        "pipelines": _OPERATE + "pipelines",
        "quotas": _ADMIN + "quotas",
        "reassignments": _OPERATE + "moves",
        "roles": _ADMIN + "roles",
        "session": _OPERATE + "node",
        "subscriptions": _ADMIN + "subscriptions",
        "schemas": _ADMIN + "schemas",
        "topics": _http(
            "admin.topics",
            "admin.partitions",
            "records.pages",
            "records.producing",
            "records.tailing",
            "records.timeline",
            "records.jobs",
        ),
        "transactions": _ADMIN + "transactions",
        "users": _ADMIN + "users",
        "views": _ADMIN + "views",
        "whoami": _ADMIN + "whoami",
    },
    shape=problem_details,
    takes=(JSON_TYPE, NDJSON_TYPE),
)
_HEALTH = _MONITORING + "health"
MONITORING = Api(
    name="monitoring",
    prefix=(),
    nouns={
        "metrics": _MONITORING + "metrics",
        "health": _HEALTH,
        "openapi.json": _OPERATE + "openapi",
        "swagger": _OPERATE + "openapi",
        "swagger.json": _OPERATE + "openapi",
        "healthz": _HEALTH,
        "livez": _HEALTH,
        "readyz": _HEALTH,
    },
    shape=problem_details,
)
# The web console. Queries of its addresses are the page's own.
CONSOLE = Api(
    name="console",
    prefix=(),
    nouns={"console": "millstream.protocols.http.operate.console"},
    shape=problem_details,
    is_strict=False,
)
REGISTRY_TYPES = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    JSON_TYPE,
)
# Confluent's schema registry, at the root and under `/registry`.
REGISTRY = Api(
    name="registry",
    prefix=(),
    also_under="registry",
    nouns=dict.fromkeys(
        ("", "v1", "subjects", "schemas", "compatibility", "config", "mode", "contexts"),
        "millstream.protocols.http.registry.routes",
    ),
    shape=registry_error,
    takes=(*REGISTRY_TYPES, "application/octet-stream"),
    sends=REGISTRY_TYPES,
    is_strict=False,
)
# FlyMQ's own REST, for its tools.
_FLYMQ = "millstream.protocols.http.flymq."
FLYMQ = Api(
    name="flymq",
    prefix=("api", "v1"),
    nouns={
        "acls": _FLYMQ + "users",
        "audit": _FLYMQ + "audit",
        "cluster": _FLYMQ + "cluster",
        "consumer-groups": _FLYMQ + "topics",
        "dlq": _FLYMQ + "topics",
        "health": _FLYMQ + "cluster",
        "metrics": _FLYMQ + "cluster",
        "roles": _FLYMQ + "users",
        "schemas": _FLYMQ + "schemas",
        "stats": _FLYMQ + "cluster",
        "swagger": _OPERATE + "openapi",
        "swagger.json": _OPERATE + "openapi",
        "topics": _FLYMQ + "topics",
        "users": _FLYMQ + "users",
    },
    shape=flymq_error,
    is_strict=False,
)
# A part of Confluent's REST proxy.
CONFLUENT = Api(
    name="confluent",
    prefix=("v3",),
    also_under="kafka",
    nouns={"clusters": _http("confluent.clusters", "confluent.records")},
    shape=numbered_error,
    is_strict=False,
)

APIS = (V1, FLYMQ, CONFLUENT, MONITORING, CONSOLE, REGISTRY)

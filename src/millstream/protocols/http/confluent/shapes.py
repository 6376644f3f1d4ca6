"""What the routes of `/v3` share: kinds, links, lists, and the cluster that a path names."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from millstream.protocols.http.calls import Call
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Params, routes_below

# JSON of any shape: Confluent's documents name every member.
JsonObject = dict[str, Any]
PREFIX = "/v3/clusters"

route = routes_below(PREFIX, reply=JsonObject)


class ClusterParams(Params, frozen=True, kw_only=True):
    cluster: str


class TopicParams(ClusterParams, frozen=True, kw_only=True):
    topic: str


class GroupParams(ClusterParams, frozen=True, kw_only=True):
    group: str


def check_cluster(call: Call, params: ClusterParams) -> None:
    """Raise unless the path names this cluster."""
    if params.cluster != call.services.cluster_id:
        raise HttpProblem(
            HTTPStatus.NOT_FOUND,
            "unknown_cluster",
            f"there is no cluster {params.cluster[:60]!r}; /v3/clusters has the one that is",
        )


def path_of(call: Call, *parts: str | int) -> str:
    """The path of something in this cluster."""
    names = [call.services.cluster_id, *map(str, parts)]
    return "/".join([PREFIX, *(quote(name, safe="") for name in names)])


def resource(
    call: Call,
    kind: str,
    *parts: str | int,
    members: Mapping[str, Any],
    related: Iterable[str] = (),
) -> JsonObject:
    """A thing with its kind, its path, its members and the paths below it."""
    own = path_of(call, *parts)
    return {
        "kind": f"Kafka{kind}",
        "metadata": {"self": own},
        "cluster_id": call.services.cluster_id,
        **members,
        **{name.replace("-", "_"): {"related": f"{own}/{name}"} for name in related},
    }


def listing(call: Call, kind: str, items: list[JsonObject], *parts: str | int) -> JsonObject:
    return {
        "kind": f"Kafka{kind}List",
        "metadata": {"self": path_of(call, *parts), "next": None},
        "data": items,
    }

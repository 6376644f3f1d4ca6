"""The cluster and its nodes: what there is, where partitions lie. One node answers for itself."""

from collections.abc import Generator
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from millstream import __version__
from millstream.engine.gate import Operation
from millstream.protocols.http.calls import Call, Listing, Page
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Params, Right, Route

STEP_TOPICS = 32


class NodeParams(Params, frozen=True, kw_only=True):
    node: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class ListenerView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: str
    connections: int


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    is_this: bool
    is_controller: bool
    version: str | None
    state: str
    partitions: int
    leaders: int
    listeners: list[ListenerView]


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    controller: int | None
    controller_epoch: int
    nodes: list[NodeView]
    topics: int
    partitions: int
    version: str


class PlacedPartition(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    leader: int | None
    replicas: list[int]


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    items: list[NodeView]
    next: str | None = None


def cluster(call: Call, params: Params) -> ClusterView:
    services = call.services
    quorum = services.topics.quorum(call.session)
    topics = services.topics.list(call.session)
    return ClusterView(
        id=services.cluster_id,
        controller=quorum.leader,
        controller_epoch=int(quorum.epoch),
        nodes=_nodes(call),
        topics=len(topics),
        partitions=sum(topic.partition_count for topic in topics if not topic.is_view),
        version=__version__,
    )


def nodes(call: Call, params: Params) -> Nodes:
    return Nodes(items=_nodes(call))


def node(call: Call, params: NodeParams) -> NodeView:
    for view in _nodes(call):
        if view.id == params.node:
            return view
    raise HttpProblem(HTTPStatus.NOT_FOUND, "unknown_node", f"there is no node {params.node}")


def partitions(call: Call, params: Listing) -> Generator[None, None, Page[PlacedPartition]]:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    place = place_of(params.after, str, int)
    limit = call.limit(params.limit)
    items: list[PlacedPartition] = []
    topics = [
        topic
        for topic in call.services.topics.list(call.session)
        if not topic.is_view and (place is None or topic.name >= place[0])
    ]
    for count, topic in enumerate(topics):
        if count % STEP_TOPICS == 0:
            yield
        leaderships = call.services.partitions.leadership(call.session, topic)
        for partition, leadership in enumerate(leaderships):
            if place is not None and (topic.name, partition) <= (place[0], place[1]):
                continue
            if len(items) == limit:
                last = items[-1]
                return Page(items=items, next=cursor_of(last.topic, last.partition))
            items.append(
                PlacedPartition(
                    topic=topic.name,
                    partition=partition,
                    leader=leadership.leader,
                    replicas=[int(replica) for replica in leadership.replicas],
                )
            )
    return Page(items=items)


def reassignments(call: Call, params: Params) -> Nodes:
    """None are under way on a single node."""
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    return Nodes(items=[])


# Any: whatever a client sends; nothing of it is carried out.
def refuse(call: Call, params: Params, body: Any = None) -> None:
    call.services.topics.admit_to_cluster(call.session, Operation.ALTER)
    raise HttpProblem(
        HTTPStatus.CONFLICT,
        "single_node",
        "this cluster has a single node: there is nothing to move, drain or join",
    )


def refuse_node(call: Call, params: NodeParams) -> None:
    node(call, params)
    refuse(call, params)


def _nodes(call: Call) -> list[NodeView]:
    services = call.services
    quorum = services.topics.quorum(call.session)
    figures = services.node_figures()
    return [
        NodeView(
            id=int(number),
            is_this=number == services.config.node_id,
            is_controller=number == quorum.leader,
            version=__version__ if number == services.config.node_id else None,
            state=services.state().value if number == services.config.node_id else "unknown",
            partitions=figures.partitions if number == services.config.node_id else 0,
            leaders=figures.leaders if number == services.config.node_id else 0,
            listeners=[
                ListenerView(name=name, address=address, connections=count)
                for name, address, count in figures.listeners
            ]
            if number == services.config.node_id
            else [],
        )
        for number in sorted(services.config.voters)
    ]


_DESCRIBE = (Right("DESCRIBE", "cluster"),)
_DESCRIBE_ALL = (*_DESCRIBE, Right("DESCRIBE", "topic:*"))
_ALTER = (Right("ALTER", "cluster"),)


def _refused(method: str, path: str, summary: str) -> Route:
    is_of_node = "{node}" in path
    return Route(
        method=method,
        path=path,
        handler=refuse_node if is_of_node else refuse,
        summary=summary,
        params=NodeParams if is_of_node else Params,
        rights=_ALTER,
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/cluster",
        handler=cluster,
        summary="The cluster: id, controller, nodes, counts",
        reply=ClusterView,
        rights=_DESCRIBE_ALL,
    ),
    Route(
        method="GET",
        path="/v1/cluster/partitions",
        handler=partitions,
        summary="Every partition with its leader and replicas",
        params=Listing,
        reply=Page[PlacedPartition],
        rights=_DESCRIBE_ALL,
    ),
    Route(
        method="GET",
        path="/v1/nodes",
        handler=nodes,
        summary="The nodes of the cluster",
        reply=Nodes,
        rights=_DESCRIBE,
    ),
    Route(
        method="GET",
        path="/v1/nodes/{node}",
        handler=node,
        summary="One node",
        params=NodeParams,
        reply=NodeView,
        rights=_DESCRIBE,
    ),
    Route(
        method="GET",
        path="/v1/reassignments",
        handler=reassignments,
        summary="Partitions that move between nodes",
        reply=Nodes,
        rights=_DESCRIBE,
    ),
    _refused("POST", "/v1/cluster:rebalance", "Spread partitions anew over the nodes"),
    _refused("POST", "/v1/cluster:upgrade", "Take a new version's features into use"),
    _refused("POST", "/v1/cluster/invitations", "Invite a node"),
    _refused("POST", "/v1/leaders:transfer", "Move leaders to other nodes"),
    _refused("POST", "/v1/nodes/{node}:drain", "Move leaders away from a node"),
    _refused("POST", "/v1/nodes/{node}:undrain", "Let a node lead again"),
    _refused("POST", "/v1/nodes/{node}:decommission", "Move everything away from a node"),
)

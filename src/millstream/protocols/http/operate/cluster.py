"""The cluster and its nodes: what there is, where partitions lie, invitations, draining."""

from collections.abc import Generator
from http import HTTPStatus
from typing import Annotated

import msgspec

from millstream import __version__
from millstream.control.nodes import Invitation, NodeState
from millstream.control.tokens import decode_token, hash_of, name_of
from millstream.engine.cluster.members import NodeView as KnownNode
from millstream.engine.gate import Operation
from millstream.errors.cluster import UnknownInvitation, UnknownNode
from millstream.protocols.http.browsers import host_name
from millstream.protocols.http.calls import Call, Listing, Page, iso_time
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Handler, Params, Right, Route

STEP_TOPICS = 32


class NodeParams(Params, frozen=True, kw_only=True):
    node: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class InvitationParams(Params, frozen=True, kw_only=True):
    id: str


class ListenerView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    address: str
    connections: int  # 0 for other nodes.


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    is_this: bool
    is_controller: bool
    is_voter: bool  # Whether it votes on the control log.
    is_up: bool  # Whether this node reaches it.
    version: str | None
    state: str  # draining, removed, down; else ready, starting or stopping.
    rack: str
    peer_address: str  # Empty for a node alone.
    partitions: int  # 0 of a node that does not answer.
    leaders: int
    behind: int  # Partitions it leads of which a replica is not in step.
    listeners: list[ListenerView]


class InvitationView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    expires_at: str
    expires_at_ms: int


class NewInvitation(InvitationView, frozen=True, kw_only=True):
    token: str  # For `millstream cluster join`; shown this once.


class Invitations(msgspec.Struct, frozen=True, kw_only=True):
    items: list[InvitationView]
    next: str | None = None


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
    in_sync: list[int]


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    items: list[NodeView]
    next: str | None = None


async def cluster(call: Call, params: Params) -> ClusterView:
    services = call.services
    quorum = services.topics.quorum(call.session)
    topics = services.topics.list(call.session)
    return ClusterView(
        id=services.cluster_id,
        controller=quorum.leader,
        controller_epoch=int(quorum.epoch),
        nodes=await _described(call),
        topics=len(topics),
        partitions=sum(topic.partition_count for topic in topics if not topic.is_view),
        version=__version__,
    )


async def nodes(call: Call, params: Params) -> Nodes:
    return Nodes(items=await _described(call))


async def node(call: Call, params: NodeParams) -> NodeView:
    for view in await _described(call):
        if view.id == params.node:
            return view
    raise UnknownNode(params.node)


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
                    in_sync=[]
                    if leadership.leader is None
                    else leadership.in_step(call.services.is_up),
                )
            )
    return Page(items=items)


def list_invitations(call: Call, params: Params) -> Invitations:
    return Invitations(
        items=[_invitation(each) for each in call.services.cluster.invitations(call.session)]
    )


async def invite(call: Call, params: Params) -> NewInvitation:
    """A token for one node, of a node alone the first step to a cluster."""
    host = host_name(call.extra.get("host", "")) or "localhost"
    token = await call.services.cluster.invite_here(call.session, host)
    name = name_of(hash_of(decode_token(token).secret)).hex()
    for view in list_invitations(call, params).items:
        if view.id == name:
            return NewInvitation(token=token, **msgspec.structs.asdict(view))
    raise UnknownInvitation(name)  # Used or taken back within this moment.


async def revoke_invitation(call: Call, params: InvitationParams) -> None:
    await call.services.cluster.revoke(call.session, params.id)


async def drain(call: Call, params: NodeParams) -> NodeView:
    return await _change(call, params, NodeState.DRAINING)


async def undrain(call: Call, params: NodeParams) -> NodeView:
    return await _change(call, params, NodeState.ACTIVE)


def known_nodes(call: Call) -> list[NodeView]:
    """All nodes, without the figures of the others: asks none of them."""
    views = call.services.cluster.known(call.session, call.session.listener, _UNKNOWN)
    return [_view(call, view) for view in views]


# -- parts -----------------------------------------------------------------------------------------

_UNKNOWN = ("", 0)  # This node's own addresses are those of its listeners.


async def _change(call: Call, params: NodeParams, state: NodeState) -> NodeView:
    call.services.topics.admit_to_cluster(call.session, Operation.ALTER)
    await node(call, params)
    if call.services.cluster.is_alone(call.session):
        raise single_node()
    await call.services.cluster.change(call.session, params.node, state)
    return await node(call, params)


def single_node() -> HttpProblem:
    return HttpProblem(
        HTTPStatus.CONFLICT,
        "single_node",
        "this cluster has a single node: there is nothing to move or drain",
    )


def _invitation(invitation: Invitation) -> InvitationView:
    return InvitationView(
        id=name_of(invitation.secret_hash).hex(),
        expires_at=iso_time(invitation.expires_ms),
        expires_at_ms=invitation.expires_ms,
    )


async def _described(call: Call) -> list[NodeView]:
    views = await call.services.cluster.describe(call.session, call.session.listener, _UNKNOWN)
    return [_view(call, view) for view in views]


def _view(call: Call, view: KnownNode) -> NodeView:
    services = call.services
    is_this = view.node_id == services.config.node_id
    own = services.node_figures()
    return NodeView(
        id=int(view.node_id),
        is_this=is_this,
        is_controller=view.is_controller,
        is_voter=view.is_voter,
        is_up=view.is_up,
        version=view.version or None,
        state=_state(call, view, is_this=is_this),
        rack=view.rack,
        peer_address=view.peer_address,
        partitions=own.partitions if is_this else max(0, view.replica_count),
        leaders=own.leaders if is_this else max(0, view.leader_count),
        behind=max(0, view.behind_count),
        listeners=[
            ListenerView(name=name, address=address, connections=count)
            for name, address, count in own.listeners
        ]
        if is_this
        else [
            ListenerView(name=name, address=f"{host}:{port}", connections=0)
            for name, (host, port) in services.cluster.listeners(call.session, view.node_id).items()
        ],
    )


def _state(call: Call, view: KnownNode, *, is_this: bool) -> str:
    if view.state != NodeState.ACTIVE.value:
        return view.state
    if is_this:
        return call.services.state().value
    return "ready" if view.is_up else "down"


_DESCRIBE = (Right("DESCRIBE", "cluster"),)
_DESCRIBE_ALL = (*_DESCRIBE, Right("DESCRIBE", "topic:*"))
_ALTER = (Right("ALTER", "cluster"),)


def _of_node(path: str, handler: Handler, summary: str) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=handler,
        summary=summary,
        params=NodeParams,
        reply=NodeView,
        rights=(*_ALTER, *_DESCRIBE),
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
        path="/v1/cluster/invitations",
        handler=list_invitations,
        summary="Invitations with which a node can join now; without their tokens",
        reply=Invitations,
        rights=_ALTER,
    ),
    Route(
        method="POST",
        path="/v1/cluster/invitations",
        handler=invite,
        summary="Invite a node: a token with which it joins within an hour",
        reply=NewInvitation,
        status=HTTPStatus.CREATED,
        location="/v1/cluster/invitations/{id}",
        rights=_ALTER,
    ),
    Route(
        method="DELETE",
        path="/v1/cluster/invitations/{id}",
        handler=revoke_invitation,
        summary="Take an invitation back",
        params=InvitationParams,
        rights=_ALTER,
    ),
    _of_node("/v1/nodes/{node}:drain", drain, "Move leaders away from a node"),
    _of_node("/v1/nodes/{node}:undrain", undrain, "Let a node lead again"),
)

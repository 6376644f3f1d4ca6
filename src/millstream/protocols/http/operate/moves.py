"""Partitions that move between nodes: begun, watched and taken back; and nodes that leave."""

from http import HTTPStatus
from typing import Annotated

import msgspec

from millstream.control.assignments import Assignment, nodes_of
from millstream.control.commands import Replicas
from millstream.model import NodeId
from millstream.protocols.http.calls import Call, Listing, Page
from millstream.protocols.http.operate.cluster import NodeParams, NodeView, node, single_node
from millstream.protocols.http.paging import name_filter, page_by
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.pages import PartitionNumber
from millstream.protocols.http.router import Params, Right, Route

PARTITIONS_MAX = 10_000  # In one request.

NodeNumber = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class Reassignment(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    replicas: list[int]  # The nodes that are to hold it; the first is preferred as leader.
    adding: list[int]
    removing: list[int]


class Reassignments(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Reassignment]
    dry_run: bool


class Moves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str
    # Nodes by partition.
    partitions: Annotated[
        dict[str, Annotated[list[NodeNumber], msgspec.Meta(min_length=1, max_length=100)]],
        msgspec.Meta(min_length=1, max_length=PARTITIONS_MAX),
    ]
    dry_run: bool = False


class TakenBack(Params, frozen=True, kw_only=True):
    topic: str
    partition: PartitionNumber


class LeavingParams(NodeParams, frozen=True, kw_only=True):
    successor: NodeNumber | None = None  # Gets all replicas; by default they are spread.


def list_moves(call: Call, params: Listing) -> Page[Reassignment]:
    fits = name_filter(params.name)
    views = [
        _view(topic.name, partition, assignment)
        for topic, partition, assignment in call.services.cluster.moves(call.session)
        if fits(topic.name)
    ]
    chosen, following = page_by(
        views,
        lambda view: (view.topic, view.partition),
        (str, int),
        params.after,
        call.limit(params.limit),
    )
    return Page(items=list(chosen), next=following)


async def move(call: Call, params: Params, body: Moves) -> Reassignments:
    """Begin to move partitions: new replicas catch up and vote, then the others are given up."""
    cluster = call.services.cluster
    targets: dict[int, Replicas | None] = {}
    for text, nodes in body.partitions.items():
        if not (text.isdigit() and len(text) < 10):
            raise HttpProblem(
                HTTPStatus.BAD_REQUEST,
                "invalid_request",
                f"$.partitions: {text[:40]!r} is not a partition",
                fields=("$.partitions",),
            )
        partition, replicas = int(text), tuple(map(NodeId, nodes))
        cluster.check_move(call.session, body.topic, partition, replicas)
        targets[partition] = replicas
    placement = call.services.topics.describe(call.session, body.topic).placement
    items = [
        Reassignment(
            topic=body.topic,
            partition=partition,
            replicas=list(replicas or ()),
            adding=[each for each in replicas or () if each not in placement[partition]],
            removing=[each for each in placement[partition] if each not in (replicas or ())],
        )
        for partition, replicas in sorted(targets.items())
    ]
    if not body.dry_run:
        await cluster.move(call.session, body.topic, targets)
    return Reassignments(items=items, dry_run=body.dry_run)


async def take_back(call: Call, params: TakenBack) -> None:
    """Take a move back that is not done yet."""
    cluster = call.services.cluster
    cluster.check_move(call.session, params.topic, params.partition, None)
    await cluster.move(call.session, params.topic, {params.partition: None})


async def decommission(call: Call, params: LeavingParams) -> NodeView:
    """Move all replicas away from a node, then remove it; `:undrain` takes it back until then."""
    await node(call, params)
    if call.services.cluster.is_alone(call.session):
        raise single_node()
    await call.services.cluster.decommission(call.session, params.node, params.successor)
    return await node(call, params)


def _view(topic: str, partition: int, assignment: Assignment) -> Reassignment:
    return Reassignment(
        topic=topic,
        partition=partition,
        replicas=list(assignment.nodes),
        adding=list(assignment.adding),
        removing=list(nodes_of(assignment.leaving)),
    )


_DESCRIBE, _ALTER = Right("DESCRIBE", "cluster"), Right("ALTER", "cluster")
_PATH = "/v1/reassignments"

ROUTES = (
    Route(
        method="GET",
        path=_PATH,
        handler=list_moves,
        summary="Partitions that move between nodes",
        params=Listing,
        reply=Page[Reassignment],
        rights=(_DESCRIBE,),
    ),
    Route(
        method="POST",
        path=_PATH,
        handler=move,
        summary="Move partitions of a topic to other nodes",
        body=Moves,
        reply=Reassignments,
        status=HTTPStatus.ACCEPTED,
        rights=(_ALTER, Right("DESCRIBE", "topic:{topic}")),
        example={"topic": "orders", "partitions": {"0": [2, 3, 4]}},
    ),
    Route(
        method="DELETE",
        path=_PATH,
        handler=take_back,
        summary="Take a move back that is not done yet",
        params=TakenBack,
        rights=(_ALTER,),
    ),
    Route(
        method="POST",
        path="/v1/nodes/{node}:decommission",
        handler=decommission,
        summary="Move everything away from a node, then remove it",
        params=LeavingParams,
        reply=NodeView,
        status=HTTPStatus.ACCEPTED,
        rights=(_ALTER, _DESCRIBE),
    ),
)

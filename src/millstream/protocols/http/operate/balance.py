"""Work on the whole cluster: replicas spread anew, leaders moved, a level of features finished."""

import asyncio
from http import HTTPStatus
from typing import Annotated

import msgspec

from millstream.control.commands import Replicas
from millstream.engine.gate import Operation
from millstream.errors import RequestError
from millstream.model import NodeId
from millstream.protocols.http.calls import Call
from millstream.protocols.http.operate.cluster import single_node
from millstream.protocols.http.operate.moves import NodeNumber, Reassignment, Reassignments
from millstream.protocols.http.problems import HttpProblem, problem_of
from millstream.protocols.http.records.pages import PartitionNumber
from millstream.protocols.http.router import Params, Right, Route

PARTITIONS_MAX = 1_000  # In one request.
TRANSFERS_AT_ONCE = 20


class Rebalance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partitions_max: Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)] = 100
    dry_run: bool = True  # The plan alone; false begins it.


class Transfer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str | None = None  # All topics, if none is named.
    partition: PartitionNumber | None = None
    node: NodeNumber | None = None  # That is to lead; each partition's preferred one by default.
    dry_run: bool = False


class TransferredLeader(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    from_node: int | None = msgspec.field(name="from")
    to: int
    error: str | None = None  # Why the leader stayed where it was.
    message: str | None = None


class TransferredLeaders(msgspec.Struct, frozen=True, kw_only=True):
    items: list[TransferredLeader]
    dry_run: bool


class Upgrade(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Of `cluster.version`; the highest that a node knows by default.
    level: Annotated[int, msgspec.Meta(ge=1, le=2**15 - 1)] | None = None
    dry_run: bool = False


class Upgraded(msgspec.Struct, frozen=True, kw_only=True):
    level_before: int
    level: int
    dry_run: bool


async def rebalance(call: Call, params: Params, body: Rebalance) -> Reassignments:
    """Plan which partitions move so that all nodes hold and lead about as many, or begin it."""
    cluster = call.services.cluster
    _check_grown(call)
    plan = await cluster.plan_rebalance(call.session, count_max=body.partitions_max)
    items = [
        Reassignment(
            topic=topic.name,
            partition=partition,
            replicas=list(nodes),
            adding=[node for node in nodes if node not in topic.placement[partition]],
            removing=[node for node in topic.placement[partition] if node not in nodes],
        )
        for topic, partition, nodes in plan
    ]
    if not body.dry_run:
        targets: dict[str, dict[int, Replicas | None]] = {}
        for topic, partition, nodes in plan:
            targets.setdefault(topic.name, {})[partition] = nodes
        for name, moves in targets.items():
            await cluster.move(call.session, name, moves)
    return Reassignments(items=items, dry_run=body.dry_run)


async def transfer(call: Call, params: Params, body: Transfer) -> TransferredLeaders:
    """Have other replicas lead. What cannot be handed over is listed with the reason."""
    _check_grown(call)
    waiting = _transfers(call, body)
    if body.dry_run:
        return TransferredLeaders(items=waiting, dry_run=True)
    items: list[TransferredLeader] = []
    for start in range(0, len(waiting), TRANSFERS_AT_ONCE):
        some = waiting[start : start + TRANSFERS_AT_ONCE]
        items += await asyncio.gather(*(_transferred(call, each) for each in some))
    return TransferredLeaders(items=items, dry_run=False)


async def upgrade(call: Call, params: Params, body: Upgrade) -> Upgraded:
    """Finish a rolling upgrade: nodes write what only the newer version knows, for ever."""
    cluster = call.services.cluster
    before = cluster.features(call.session).level
    if body.dry_run:
        level = cluster.check_upgrade(call.session, body.level)
    else:
        level = await cluster.upgrade(call.session, body.level)
    return Upgraded(level_before=before, level=level, dry_run=body.dry_run)


# -- parts -----------------------------------------------------------------------------------------


def _check_grown(call: Call) -> None:
    call.services.topics.admit_to_cluster(call.session, Operation.ALTER)
    if call.services.cluster.is_alone(call.session):
        raise single_node()


def _transfers(call: Call, body: Transfer) -> list[TransferredLeader]:
    """The partitions that are to be led elsewhere; 422 if those are too many."""
    topics, session = call.services.topics, call.session
    if body.partition is not None and body.topic is None:
        raise _invalid("a partition without a topic", "$.partition")
    chosen = topics.list(session) if body.topic is None else [topics.describe(session, body.topic)]
    items: list[TransferredLeader] = []
    for topic in chosen:
        if topic.is_view:
            continue
        leaderships = call.services.partitions.leadership(session, topic)
        for number, (replicas, leadership) in enumerate(
            zip(topic.placement, leaderships, strict=True)
        ):
            node = replicas[0] if body.node is None else body.node
            if body.partition not in (None, number) or leadership.leader == node:
                continue
            if node in replicas:
                items.append(
                    TransferredLeader(
                        topic=topic.name, partition=number, from_node=leadership.leader, to=node
                    )
                )
    if len(items) > PARTITIONS_MAX:
        raise _invalid(
            f"{len(items)} partitions, at most {PARTITIONS_MAX} at once: name a topic", "$.topic"
        )
    return items


async def _transferred(call: Call, item: TransferredLeader) -> TransferredLeader:
    try:
        await call.services.cluster.elect(call.session, item.topic, item.partition, NodeId(item.to))
    except RequestError as refusal:
        problem = problem_of(refusal)
        return msgspec.structs.replace(item, error=problem.error, message=problem.message)
    return item


def _invalid(message: str, place: str) -> HttpProblem:
    return HttpProblem(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_request", f"{place}: {message}", fields=(place,)
    )


_CHANGE = (Right("ALTER", "cluster"), Right("DESCRIBE", "cluster"))

ROUTES = (
    Route(
        method="POST",
        path="/v1/cluster:rebalance",
        handler=rebalance,
        summary="Spread partitions anew over the nodes: the plan, or with dry_run=false the moves",
        body=Rebalance,
        reply=Reassignments,
        status=HTTPStatus.ACCEPTED,
        rights=_CHANGE,
        example={"dry_run": True, "partitions_max": 100},
    ),
    Route(
        method="POST",
        path="/v1/cluster:upgrade",
        handler=upgrade,
        summary="Take a new version's features into use, once every node knows them",
        body=Upgrade,
        reply=Upgraded,
        rights=_CHANGE,
        example={"dry_run": True},
    ),
    Route(
        method="POST",
        path="/v1/leaders:transfer",
        handler=transfer,
        summary="Move leaders to their preferred nodes, or to one node",
        body=Transfer,
        reply=TransferredLeaders,
        rights=(*_CHANGE, Right("DESCRIBE", "topic:{topic}")),
        example={"topic": "orders", "partition": 0, "node": 2},
    ),
)

"""The cluster, its figures and its health as FlyMQ's tools ask for them."""

import sys
from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from http import HTTPStatus

import msgspec

from millstream import __version__
from millstream.engine.gate import Operation
from millstream.protocols.http.calls import Call, iso_time
from millstream.protocols.http.flymq.shapes import CLUSTER, route
from millstream.protocols.http.flymq.topics import GroupView, TopicView, list_groups, list_topics
from millstream.protocols.http.monitoring.metrics import ROUTES as METRICS
from millstream.protocols.http.operate.cluster import NodeView, known_nodes
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Needs, Params, Right

STEP_TOPICS = 20


class Health(msgspec.Struct, frozen=True, kw_only=True):
    status: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    address: str
    cluster_addr: str
    state: str
    raft_state: str
    is_leader: bool
    last_seen: str


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    version: str
    node_count: int
    leader_id: str
    raft_term: int
    raft_commit_index: int
    topic_count: int
    total_messages: int
    message_rate: float
    uptime: str
    nodes: list[Node]


class TopicQuery(Params, frozen=True, kw_only=True):
    topic: str = ""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    leader_id: str
    leader_addr: str
    epoch: int
    state: str
    replicas: list[str]
    isr: list[str]


class PlacedTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partitions: list[Placed]


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    topics: list[PlacedTopic]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    leader: str
    leader_addr: str
    replicas: list[str]
    isr: list[str]
    epoch: int
    state: str


class Assignments(msgspec.Struct, frozen=True, kw_only=True):
    assignments: list[Assignment]
    count: int


class Leaders(msgspec.Struct, frozen=True, kw_only=True):
    distribution: dict[str, int]
    total_leaders: int
    node_count: int
    max_per_node: int
    min_per_node: int
    balanced: bool


class Rebalanced(msgspec.Struct, frozen=True, kw_only=True):
    success: bool
    message: str
    moves: list[str]
    old_leaders: dict[str, int]
    new_leaders: dict[str, int]


class PartitionParams(Params, frozen=True, kw_only=True):
    topic: str
    partition: int


class Reassign(msgspec.Struct, frozen=True, kw_only=True):
    new_leader: str
    new_replicas: list[str] = []


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    cluster: dict[str, float]
    nodes: list[Node]
    topics: list[TopicView]
    consumer_groups: list[dict[str, str | int]]
    system: dict[str, str | float]


def health(call: Call, params: Params) -> Health:
    return Health(status="healthy" if call.services.state().value == "ready" else "unhealthy")


def list_nodes(call: Call, params: Params) -> list[Node]:
    return [_node(call, each) for each in known_nodes(call)]


def cluster(call: Call, params: Params) -> Generator[None, None, Cluster]:
    quorum = call.services.topics.quorum(call.session)
    topics = yield from list_topics(call, params)
    members = list_nodes(call, params)
    return Cluster(
        cluster_id=call.services.cluster_id,
        version=__version__,
        node_count=len(members),
        leader_id="" if quorum.leader is None else str(quorum.leader),
        raft_term=int(quorum.epoch),
        raft_commit_index=quorum.high_watermark,
        topic_count=len(topics),
        total_messages=sum(topic.message_count for topic in topics),
        message_rate=call.services.history.latest()["appended_records"],
        uptime=_duration(_uptime_s(call)),
        nodes=members,
    )


def metadata(call: Call, params: TopicQuery) -> Generator[None, None, Metadata]:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    topics = yield from _placed(call, params.topic)
    return Metadata(cluster_id=call.services.cluster_id, topics=topics)


def assignments(call: Call, params: TopicQuery) -> Generator[None, None, Assignments]:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    placed = yield from _placed(call, params.topic)
    rows = [
        Assignment(
            topic=topic.topic,
            partition=each.partition,
            leader=each.leader_id,
            leader_addr=each.leader_addr,
            replicas=each.replicas,
            isr=each.isr,
            epoch=each.epoch,
            state=each.state,
        )
        for topic in placed
        for each in topic.partitions
    ]
    return Assignments(assignments=rows, count=len(rows))


def leaders(call: Call, params: Params) -> Generator[None, None, Leaders]:
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    placed = yield from _placed(call, "")
    counts = {node.id: 0 for node in list_nodes(call, params)}
    counts |= Counter(each.leader_id for topic in placed for each in topic.partitions)
    counts.pop("", None)
    most, fewest = max(counts.values(), default=0), min(counts.values(), default=0)
    return Leaders(
        distribution=counts,
        total_leaders=sum(counts.values()),
        node_count=len(counts),
        max_per_node=most,
        min_per_node=fewest,
        balanced=most - fewest <= 1,
    )


def rebalance(call: Call, params: Params) -> Generator[None, None, Rebalanced]:
    """FlyMQ answers 200 where there is nothing to move."""
    call.services.topics.admit_to_cluster(call.session, Operation.ALTER)
    distribution = (yield from leaders(call, params)).distribution
    return Rebalanced(
        success=False,
        message="nothing was moved: leaders are placed by the cluster itself",
        moves=[],
        old_leaders=distribution,
        new_leaders=distribution,
    )


def reassign(call: Call, params: PartitionParams, body: Reassign) -> None:
    call.services.topics.admit_to_cluster(call.session, Operation.ALTER)
    raise HttpProblem(
        HTTPStatus.CONFLICT,
        "single_node",
        "partitions are moved with Kafka's tools: kafka-reassign-partitions.sh",
    )


async def stats(call: Call, params: Params) -> "Generator[None, None, Stats]":
    call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    return _stats(call, params, await list_groups(call, params))


def _stats(call: Call, params: Params, groups: list[GroupView]) -> Generator[None, None, Stats]:
    topics = yield from list_topics(call, params)
    members = list_nodes(call, params)
    latest = call.services.history.latest()
    uptime_s = _uptime_s(call)
    return Stats(
        cluster={
            "node_count": len(members),
            "healthy_nodes": sum(node.state == "alive" for node in members),
            "topic_count": len(topics),
            "total_partitions": sum(topic.partitions for topic in topics),
            "total_messages": sum(topic.message_count for topic in topics),
            "messages_per_second": latest["appended_records"],
            "bytes_per_second": latest["appended_bytes"],
            "active_connections": latest["connections"],
            "consumer_group_count": len({group.name for group in groups}),
        },
        nodes=members,
        topics=topics,
        consumer_groups=[
            {
                "group_id": group.name,
                "topic": group.topic,
                "members": group.members,
                "state": group.state,
                "total_lag": group.lag,
            }
            for group in groups
        ],
        system={
            "uptime_seconds": uptime_s,
            "start_time": iso_time(call.services.started_ms),
            "python_version": sys.version.split()[0],
        },
    )


# -- parts -----------------------------------------------------------------------------------------


def _placed(call: Call, only: str) -> Generator[None, None, list[PlacedTopic]]:
    addresses = {node.id: node.address for node in list_nodes(call, Params())}
    placed = []
    for count, topic in enumerate(call.services.topics.list(call.session)):
        if count % STEP_TOPICS == STEP_TOPICS - 1:
            yield
        if topic.is_view or only not in {"", topic.name}:
            continue
        partitions = []
        for partition, at in enumerate(call.services.partitions.leadership(call.session, topic)):
            leader = "" if at.leader is None else str(at.leader)
            replicas = [str(replica) for replica in at.replicas]
            partitions.append(
                Placed(
                    partition=partition,
                    leader_id=leader,
                    leader_addr=addresses.get(leader, ""),
                    epoch=int(at.epoch),
                    state="online" if leader else "offline",
                    replicas=replicas,
                    isr=[str(replica) for replica in at.in_step(call.services.is_up)],
                )
            )
        placed.append(PlacedTopic(topic=topic.name, partitions=partitions))
    return placed


def _node(call: Call, view: NodeView) -> Node:
    addresses = {listener.name: listener.address for listener in view.listeners}
    is_alone = len(call.services.config.voters) == 1
    return Node(
        id=str(view.id),
        address=addresses.get("flymq") or next(iter(addresses.values()), ""),
        cluster_addr=addresses.get("peers", ""),
        state="alive" if view.state in {"ready", "unknown"} else view.state,
        raft_state="standalone" if is_alone else "leader" if view.is_controller else "follower",
        is_leader=view.is_controller,
        last_seen=iso_time(call.services.clock.now_ms()),
    )


def _uptime_s(call: Call) -> float:
    return max(0, call.services.clock.now_ms() - call.services.started_ms) / 1000


def _duration(seconds: float) -> str:
    """As Go prints it: `26h3m9s`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minute}m{second}s"
    return f"{minute}m{second}s" if minute else f"{second}s"


_DESCRIBE = (Right("DESCRIBE", CLUSTER), Right("DESCRIBE", "topic:*"))
_ALTER = (Right("ALTER", CLUSTER), *_DESCRIBE)

ROUTES = (
    route("GET", "/health", health, "Whether the node serves", reply=Health, needs=Needs.NOTHING),
    route("GET", "/cluster", cluster, "The cluster", reply=Cluster, rights=_DESCRIBE),
    *(
        route("GET", path, list_nodes, "The nodes", reply=list[Node], rights=_DESCRIBE[:1])
        for path in ("/cluster/nodes", "/cluster/members")
    ),
    route(
        "GET",
        "/cluster/metadata",
        metadata,
        "Where partitions are",
        params=TopicQuery,
        reply=Metadata,
        rights=_DESCRIBE,
    ),
    route(
        "GET",
        "/cluster/partitions",
        assignments,
        "Where partitions are, as a list",
        params=TopicQuery,
        reply=Assignments,
        rights=_DESCRIBE,
    ),
    route(
        "POST",
        "/cluster/partitions/{topic}/{partition}",
        reassign,
        "Move a partition",
        params=PartitionParams,
        body=Reassign,
        rights=(Right("ALTER", CLUSTER),),
        example={"new_leader": "1"},
    ),
    route("GET", "/cluster/leaders", leaders, "Leaders by node", reply=Leaders, rights=_DESCRIBE),
    route(
        "POST",
        "/cluster/rebalance",
        rebalance,
        "Spread leaders",
        reply=Rebalanced,
        rights=_ALTER,
    ),
    route(
        "GET",
        "/stats",
        stats,
        "Figures of all",
        reply=Stats,
        rights=(*_DESCRIBE, Right("DESCRIBE", "group:*")),
    ),
    *(
        replace(each, path="/api/v1" + each.path, hidden=True)
        for each in METRICS
        if each.path == "/metrics"
    ),
)

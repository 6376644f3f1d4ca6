"""The control log of a cluster, rewritten for one node: the same topics and users, one replica."""

from uuid import UUID

from millstream.control.alone import NOTHING, rewritten
from millstream.control.commands import (
    AddPartitions,
    AddReplicas,
    AlterTopic,
    AnyCommand,
    ChangeNode,
    CreateTopic,
    DeleteTopic,
    FinalizeLevel,
    InviteNode,
    MoveReplicas,
    PutRole,
    RegisterNode,
    ReserveProducerIds,
    encode,
)
from millstream.control.state import State
from millstream.model import CLUSTER_LEVELS, FIRST_LEVELS, LevelRange, NodeId

NODE = NodeId(1)
ORDERS, OTHER = UUID(int=1), UUID(int=2)


def registered(number: int, levels: LevelRange) -> RegisterNode:
    return RegisterNode(
        node_id=number,
        directory_id=UUID(int=100 + number),
        peer=("127.0.0.1", 9_000 + number),
        listeners={"kafka": ("127.0.0.1", 9_100 + number)},
        roles=("broker", "controller"),
        version="0.1.0",
        joined_ms=1,
        machine=f"machine-{number}",
        invitation=bytes([number]) * 32,
        levels=levels,
    )


def joined(number: int, levels: LevelRange = CLUSTER_LEVELS) -> list[AnyCommand]:
    secret = bytes([number]) * 32
    invitation = InviteNode(secret_hash=secret, made_ms=0, expires_ms=10**9)
    return [invitation, registered(number, levels)]


def created(topic_id: UUID, *placement: tuple[int, ...], name: str = "orders") -> CreateTopic:
    return CreateTopic(
        name=name,
        topic_id=topic_id,
        placement=tuple(tuple(map(NodeId, nodes)) for nodes in placement),
        overrides={},
        created_ms=1,
    )


COMMANDS: list[AnyCommand] = [
    *joined(1, FIRST_LEVELS),
    *joined(2),
    *joined(3),
    created(ORDERS, (2, 3), (3, 1)),
    created(OTHER, (1,)),  # Refused: there is a topic of that name.
    AddReplicas(
        name="orders",
        topic_id=ORDERS,
        count_before=2,
        added=((NodeId(1),), (NodeId(2),)),
    ),
    AddPartitions(name="orders", count_before=2, placement=((NodeId(3), NodeId(2), NodeId(1)),)),
    AlterTopic(name="orders", changes={"retention_ms": "5000"}),
    MoveReplicas(name="orders", topic_id=ORDERS, targets={0: (NodeId(3), NodeId(1), NodeId(2))}),
    created(OTHER, (3,), name="single"),
    created(UUID(int=3), (2,), name="gone"),
    DeleteTopic(name="gone"),
    PutRole(name="auditors"),
    ReserveProducerIds(count=1_000),
    ChangeNode(node_id=3, state="draining"),
    registered(1, CLUSTER_LEVELS),
    FinalizeLevel(level=CLUSTER_LEVELS.highest),
]


def test_one_node_has_the_topics_roles_and_ids_of_the_cluster() -> None:
    cluster, alone = State(), State()
    log = [(offset, encode(command)) for offset, command in enumerate(COMMANDS)]

    commands = list(rewritten(log, cluster, NODE))

    assert [offset for offset, _ in commands] == list(range(len(COMMANDS)))
    for offset, command in commands:
        alone.apply(offset, command)  # None of them is refused.
    assert len(cluster.nodes.all()) == 3
    assert (cluster.nodes.level, alone.nodes.level) == (CLUSTER_LEVELS.highest, 0)
    assert alone.nodes.all() == []
    assert alone.applied_offset == cluster.applied_offset
    topics = {topic.name: topic for topic in alone.catalog.topics()}
    for theirs in cluster.catalog.topics():
        ours = topics.pop(theirs.name)
        assert (ours.topic_id, ours.overrides) == (theirs.topic_id, theirs.overrides)
        assert ours.placement == ((NODE,),) * theirs.partition_count
        assert not ours.assignments
    assert topics == {}
    assert alone.catalog.find("orders").follows_cluster
    assert not alone.catalog.find("single").follows_cluster
    assert alone.apply(99, ReserveProducerIds(count=1)) == range(1_000, 1_001)


def test_commands_that_were_refused_or_left_out_change_nothing() -> None:
    state = State()
    log = [
        (0, encode(created(ORDERS, (2,)))),
        (1, encode(created(OTHER, (1,)))),
        (2, None),
    ]

    commands = [command for _, command in rewritten(log, state, NODE)]

    assert commands == [created(ORDERS, (1,)), NOTHING, NOTHING]
    assert [topic.topic_id for topic in state.catalog.topics()] == [ORDERS]

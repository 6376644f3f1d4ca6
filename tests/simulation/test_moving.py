"""Replicas that move between nodes: under writes, under lost power, cancelled, and back again."""

import asyncio
from contextlib import suppress

import pytest

from millstream.config import Config, Limits
from millstream.control.nodes import NodeState
from millstream.errors import InvalidPlacement, RequestError, StartupError
from millstream.errors.cluster import NodeRefused, NoMove
from millstream.kafka_wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import LogId, NodeId, TopicPartition, incarnation_of, node_of
from millstream.server.node import Node, build_node
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.grown_topics import append, replicas_of, values_of, with_cluster
from tests.support.tiers import sized
from tests.unit.protocols.kafka.asking import ask

ORDERS = TopicPartition("orders", 0)


def node_ids(*ids: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, ids))


def log_of(cluster: GrownCluster) -> LogId:
    return cluster.all()[0].topics.describe(SESSION, "orders").log(0)


def is_moved(cluster: GrownCluster, *nodes: int) -> bool:
    """Whether the partition is on these nodes only, by every catalog, disk and voter."""
    log_id = log_of(cluster)
    for node in cluster.all():
        topic = node.topics.describe(SESSION, "orders")
        is_here = node.config.node_id in nodes
        if topic.assignment(0).is_moving or set(topic.assigned(0)) != set(nodes):
            return False
        if (log_id in node.hub.logs_on_disk()) != is_here:
            return False
        if (log_id in node.hub.replicas) != is_here:
            return False
    replicas = replicas_of(cluster, "orders")
    voters = [{node_of(each) for each in replica.core.voters} for replica in replicas]
    return any(each.is_leader for each in replicas) and voters == [set(nodes)] * len(replicas)


async def made(cluster: GrownCluster, *nodes: int) -> None:
    await cluster.all()[0].topics.create(SESSION, "orders", placement=[node_ids(*nodes)])
    await until(lambda: all(_has_topic(node) for node in cluster.all()))


def _has_topic(node: Node) -> bool:
    return bool(node.topics.list(SESSION))


async def move(cluster: GrownCluster, *nodes: int, through: int = 0) -> None:
    async with asyncio.timeout(30):
        while True:
            with suppress(RequestError):  # The control log elects anew.
                node = cluster.all()[through % len(cluster.nodes)]
                await node.cluster.move(SESSION, "orders", {0: node_ids(*nodes)})
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1,), (2,)),
        ((1, 2, 3), (1, 2, 4)),
        ((1, 2, 3), (2, 3, 4)),
        ((1, 2), (3, 4)),
        ((1, 2, 3), (4,)),
        ((4,), (1, 2, 3)),
        ((1, 2, 3, 4), (2, 3)),
    ],
)
def test_replicas_move_to_other_nodes_and_nothing_stays_behind(
    before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, *before)
        for number in range(5):
            await append(cluster, ORDERS, b"%d" % number)

        await move(cluster, *after, through=2)
        for number in range(5, 10):
            await append(cluster, ORDERS, b"%d" % number)

        await until(lambda: is_moved(cluster, *after))
        await append(cluster, ORDERS, b"10")
        assert await values_of(cluster, "orders", 0) == [b"%d" % at for at in range(11)]
        for node in cluster.all():
            topic = node.topics.describe(SESSION, "orders")
            assert topic.placement[0] == after
            leader = node.partitions.leadership(SESSION, topic)[0].leader
            assert leader in after, f"node {node.config.node_id} believes in {leader}"

    with_cluster(4, live)


def test_a_replica_that_comes_back_is_another_one_and_begins_anew() -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        await append(cluster, ORDERS, b"0")
        await move(cluster, 1, 2, 4)
        await until(lambda: is_moved(cluster, 1, 2, 4))
        await append(cluster, ORDERS, b"1")
        await move(cluster, 1, 2, 3)
        await until(lambda: is_moved(cluster, 1, 2, 3))
        await append(cluster, ORDERS, b"2")

        again = cluster.nodes[NodeId(3)].hub.replicas[log_of(cluster)]
        assert incarnation_of(again.me) > 0
        cluster.lose_power(3)
        node = await cluster.start(NodeId(3))
        await until(lambda: log_of(cluster) in node.hub.replicas)
        assert node.hub.replicas[log_of(cluster)].me == again.me
        assert await values_of(cluster, "orders", 0) == [b"0", b"1", b"2"]

    with_cluster(4, live)


def test_a_node_that_was_down_while_its_replica_moved_away_and_back_begins_anew() -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        await append(cluster, ORDERS, b"0")
        cluster.lose_power(3)
        await move(cluster, 1, 2, 4)
        await until(lambda: is_moved(cluster, 1, 2, 4))
        await append(cluster, ORDERS, b"1")
        await move(cluster, 1, 2, 3)
        await asyncio.sleep(1)
        await cluster.start(NodeId(3))

        await until(lambda: is_moved(cluster, 1, 2, 3))
        again = cluster.nodes[NodeId(3)].hub.replicas[log_of(cluster)]
        assert incarnation_of(again.me) > 0
        assert await values_of(cluster, "orders", 0) == [b"0", b"1"]

    with_cluster(4, live)


def test_a_node_that_was_down_drops_what_has_moved_away_when_it_is_back() -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        await append(cluster, ORDERS, b"0")
        cluster.lose_power(3)
        await move(cluster, 1, 2, 4)
        await until(lambda: is_moved(cluster, 1, 2, 4))
        await cluster.start(NodeId(3))

        await until(lambda: is_moved(cluster, 1, 2, 4))

    with_cluster(4, live)


def test_a_cancelled_move_goes_back_and_the_newcomer_is_dropped() -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        await append(cluster, ORDERS, b"0")
        admin = cluster.nodes[NodeId(2)].cluster
        with pytest.raises(NoMove):
            await admin.move(SESSION, "orders", {0: None})
        cluster.lose_power(4)  # So the move cannot end.
        await move(cluster, 1, 2, 4, through=1)
        (_, _, assignment), *_ = admin.moves(SESSION)
        assert (assignment.nodes, assignment.adding) == ((1, 2, 4), (4,))
        assert list(map(node_of, assignment.leaving)) == [3]
        await asyncio.sleep(1)
        assert len(admin.moves(SESSION)) == 1

        await admin.move(SESSION, "orders", {0: None})
        await until(lambda: not admin.moves(SESSION))
        await cluster.start(NodeId(4))

        await until(lambda: is_moved(cluster, 1, 2, 3))
        await append(cluster, ORDERS, b"1")
        assert await values_of(cluster, "orders", 0) == [b"0", b"1"]
        assert all(incarnation_of(each.me) == 0 for each in replicas_of(cluster, "orders"))

    with_cluster(4, live)


def test_a_move_to_what_takes_no_replicas_is_refused() -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        admin = cluster.nodes[NodeId(2)].cluster
        await admin.change(SESSION, 4, NodeState.DRAINING)
        for target, claim in (
            ((1, 2, 9), "node 9 is no node of this cluster"),
            ((1, 2, 4), "node 4 takes no replicas: it is draining"),
            ((1, 1, 2), "distinct replicas"),
            ((), "distinct replicas"),
        ):
            with pytest.raises(InvalidPlacement, match=claim):
                await admin.move(SESSION, "orders", {0: node_ids(*target)})
        with pytest.raises(RequestError):
            await admin.move(SESSION, "orders", {1: node_ids(1)})
        assert admin.moves(SESSION) == []

    with_cluster(4, live)


def test_kafkas_tools_move_list_and_cancel() -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        await append(cluster, ORDERS, b"0")
        node = cluster.nodes[NodeId(2)]
        topic = AlterPartitionReassignmentsRequest.Topic
        listing = ListPartitionReassignmentsRequest(topics=None)

        async def alter(replicas: list[int] | None, *, may_resize: bool = True) -> int:
            part = topic.Partition(partition_index=0, replicas=replicas)
            answer = await ask(
                node,
                AlterPartitionReassignmentsRequest(
                    topics=[topic(name="orders", partitions=[part])],
                    allow_replication_factor_change=may_resize,
                ),
                AlterPartitionReassignmentsResponse,
            )
            code: int = answer.responses[0].partitions[0].error_code
            return code

        assert await alter([1, 2], may_resize=False) == ErrorCode.INVALID_REPLICATION_FACTOR
        cluster.lose_power(4)
        assert await alter([4, 2, 1]) == ErrorCode.NONE
        (moving,) = (await ask(node, listing, ListPartitionReassignmentsResponse)).topics
        (part,) = moving.partitions
        assert (part.replicas, part.adding_replicas, part.removing_replicas) == (
            [4, 2, 1, 3],
            [4],
            [3],
        )
        assert await alter(None) == ErrorCode.NONE
        await until(lambda: not node.cluster.moves(SESSION))
        assert await alter(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        await cluster.start(NodeId(4))
        assert await alter([4, 2]) == ErrorCode.NONE
        await until(lambda: is_moved(cluster, 4, 2))
        assert (await ask(node, listing, ListPartitionReassignmentsResponse)).topics == []

    with_cluster(4, live)


def test_preferred_replicas_lead_when_an_operator_asks_or_after_some_time() -> None:
    async def live(cluster: GrownCluster) -> None:
        cluster.leader_balance_ms = 5_000
        await cluster.grow_to(4)
        await made(cluster, 3, 1, 2)
        await append(cluster, ORDERS, b"0")

        async def elect(through: int) -> int:
            request = ElectLeadersRequest(
                topic_partitions=[
                    ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0])
                ]
            )
            node = cluster.nodes[NodeId(through)]
            answer = await ask(node, request, ElectLeadersResponse)
            code: int = answer.replica_election_results[0].partition_result[0].error_code
            return code

        cluster.lose_power(3)
        assert await append(cluster, ORDERS, b"1") != 3
        assert await elect(4) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        await cluster.start(NodeId(3))
        await until(lambda: replicas_of(cluster, "orders")[-1].high_watermark == 2)
        assert await elect(4) == ErrorCode.NONE
        assert await append(cluster, ORDERS, b"2") == 3
        assert await elect(1) == ErrorCode.ELECTION_NOT_NEEDED

        cluster.lose_power(3)
        assert await append(cluster, ORDERS, b"3") != 3
        await cluster.start(NodeId(3))
        await asyncio.sleep(12)
        assert await append(cluster, ORDERS, b"4") == 3
        assert await values_of(cluster, "orders", 0) == [b"%d" % at for at in range(5)]

    with_cluster(0, live)


@pytest.mark.parametrize("seed", range(1, sized(60) + 1))
def test_replicas_move_though_nodes_lose_power_meanwhile(seed: int) -> None:
    """Each life moves a partition around while nodes lose power: nothing acknowledged is lost."""

    async def live(cluster: GrownCluster) -> None:
        random = cluster.random
        values: list[bytes] = []

        async def write(count: int) -> None:
            for _ in range(count):
                value = b"%d" % len(values)
                await append(cluster, ORDERS, value)
                values.append(value)

        await made(cluster, 1, 2, 3)
        await write(3)
        target = [1, 2, 3]
        for _ in range(random.randint(2, 5)):
            target = random.sample([1, 2, 3, 4], random.choice((2, 3, 3)))
            await move(cluster, *target, through=random.randrange(4))
            await asyncio.sleep(random.random() * 0.6)
            victim = NodeId(random.randint(1, 4))
            cluster.lose_power(victim)
            await asyncio.sleep(random.random() * 0.8)
            await cluster.start(victim)
            await write(2)
        await until(lambda: is_moved(cluster, *target))
        await write(2)
        held = await values_of(cluster, "orders", 0)
        assert list(dict.fromkeys(held)) == values  # One without an answer is sent again.

    with_cluster(4, live, seed=seed)


def test_a_newcomer_catches_up_no_faster_than_the_limit_and_writers_do_not_wait() -> None:
    async def live(cluster: GrownCluster) -> None:
        cluster.limits = Limits(catchup_bytes_per_second=20_000, replica_fetch_bytes_max=4_096)
        await cluster.grow_to(4)
        await made(cluster, 1, 2, 3)
        for number in range(25):
            await append(cluster, ORDERS, b"%04d" % number * 500)
        loop = asyncio.get_running_loop()
        began = loop.time()

        await move(cluster, 1, 2, 4)
        slowest = 0.0
        while not is_moved(cluster, 1, 2, 4):
            sent = loop.time()
            await append(cluster, ORDERS, b"")
            slowest = max(slowest, loop.time() - sent)
            await asyncio.sleep(0.2)
            assert loop.time() < began + 60

        assert loop.time() - began > 50_000 / 20_000 * 0.8
        assert slowest < 1  # A change of voters, not the newcomer.

    with_cluster(0, live)


# -- nodes that leave ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_decommissioned_node_is_emptied_and_removed(is_dead: bool) -> None:
    async def live(cluster: GrownCluster) -> None:
        first = cluster.nodes[NodeId(1)]
        await made(cluster, 3, 1, 2)
        await first.topics.create(SESSION, "bills", partitions=4, replicas=3)
        await append(cluster, ORDERS, b"0")
        if is_dead:
            cluster.lose_power(3)

        await first.cluster.decommission(SESSION, 3)
        await append(cluster, ORDERS, b"1")
        await until(lambda: first.members.find(NodeId(3)).state is NodeState.REMOVED)  # type: ignore[union-attr]

        voters = first.topics.quorum(SESSION).voters
        assert voters == (1, 2, 4)
        for topic in first.topics.list(SESSION):
            assert all(3 not in topic.assigned(at) for at in range(topic.partition_count))
        if not is_dead:
            cluster.lose_power(3)
        assert await values_of(cluster, "orders", 0) == [b"0", b"1"]
        with pytest.raises(NodeRefused, match="removed"):
            await first.cluster.change(SESSION, 3, NodeState.ACTIVE)

    with_cluster(4, live)


def test_a_node_whose_replicas_fit_nowhere_is_not_decommissioned() -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        admin = cluster.nodes[NodeId(2)].cluster
        with pytest.raises(NodeRefused, match=r"node 3 cannot leave: orders-0: 3 replicas need"):
            await admin.decommission(SESSION, 3)
        with pytest.raises(NodeRefused, match="node 3 holds 1 partitions"):
            await admin.change(SESSION, 3, NodeState.REMOVED)
        assert cluster.nodes[NodeId(2)].members.find(NodeId(3)).state is NodeState.ACTIVE  # type: ignore[union-attr]

    with_cluster(3, live)


def test_a_successor_takes_all_replicas_of_a_node() -> None:
    async def live(cluster: GrownCluster) -> None:
        first = cluster.nodes[NodeId(1)]
        await first.topics.create(SESSION, "bills", placement=[node_ids(1, 2, 3)] * 4)
        cluster.lose_power(3)

        await first.cluster.decommission(SESSION, 3, successor=5)
        await until(lambda: first.members.find(NodeId(3)).state is NodeState.REMOVED)  # type: ignore[union-attr]

        topic = first.topics.describe(SESSION, "bills")
        assert topic.placement == (node_ids(1, 2, 5),) * 4

    with_cluster(5, live)


@pytest.mark.parametrize("lost", [("millstream.json",), ("journal", "logs"), ()])
def test_a_directory_that_lost_its_records_is_refused_under_its_old_id(
    lost: tuple[str, ...],
) -> None:
    """Without names: all but the membership is lost."""

    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        await append(cluster, ORDERS, b"0")
        cluster.lose_power(3)
        machine = cluster.machines[NodeId(3)]
        kept = ("cluster.json", "cluster.key")
        for name in lost or set(machine.files.list("")).difference(kept):
            if name == "logs":
                for log in machine.files.list(name):
                    machine.files.remove_directory(f"logs/{log}")
            else:
                machine.files.remove(name)

        with pytest.raises(StartupError, match=r"lost its records: .* cluster replace 3 NEW"):
            build_node(Config(), machine.ports())

    with_cluster(3, live)


def test_a_node_that_leaves_can_be_taken_back() -> None:
    async def live(cluster: GrownCluster) -> None:
        await made(cluster, 1, 2, 3)
        first = cluster.nodes[NodeId(1)]
        await first.cluster.decommission(SESSION, 3)
        await first.cluster.change(SESSION, 3, NodeState.ACTIVE)
        await until(lambda: not first.cluster.moves(SESSION))
        node = first.members.find(NodeId(3))
        assert node is not None
        assert node.state is NodeState.ACTIVE
        await append(cluster, ORDERS, b"0")

    with_cluster(4, live)

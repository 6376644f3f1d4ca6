"""A leader that was cut off answers nothing that may be old; errors name the current leader."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from unittest.mock import patch

import pytest

from millstream.engine.partitions.slices import Latest
from millstream.errors import RequestError
from millstream.kafka_wire.apis.data import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode
from millstream.model import NodeId, TopicPartition, node_of
from millstream.replication.peering.node_links import NodeLinks
from millstream.replication.replica import Replica
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.grown_topics import append, batch, with_cluster
from tests.simulation.test_any_node import create, leaders
from tests.unit.protocols.kafka.asking import ask

ORDERS = TopicPartition("orders", 0)
SLOW = NodeId(3)  # It notices late that it hears nothing.
SLOW_MS = 4_000


async def lead_by_slow_node(cluster: GrownCluster) -> None:
    """Have a node lead that goes on for seconds after it was cut off."""
    cluster.lose_power(SLOW)
    await cluster.start(SLOW, election_timeout_ms=SLOW_MS)
    [leader] = leaders(cluster.nodes[SLOW], 1) or [SLOW]
    if leader != SLOW:
        log_id = cluster.nodes[leader].topics.describe(SESSION, "orders").log(0)
        replica = cluster.nodes[leader].hub.replicas[log_id]
        successor = next(each for each in replica.core.voters if node_of(each) == SLOW)
        await until(lambda: replica.core.lags().get(successor, 1) == 0)
        cluster.nodes[leader].hub.leadership.transfer(log_id, successor)
    await until(lambda: all(leaders(node, 1) == [SLOW] for node in cluster.all()))
    await append(cluster, ORDERS, b"before")


async def look_up_behind_a_cut(cluster: GrownCluster) -> None:
    """Raise if the node that was cut off answers with less than what was acknowledged."""
    await create(cluster, partitions=1)
    await lead_by_slow_node(cluster)
    others = [node_id for node_id in cluster.nodes if node_id != SLOW]
    cluster.network.cut = {(SLOW, other) for other in others} | {(other, SLOW) for other in others}
    slow = cluster.nodes.pop(SLOW)
    acknowledged = 1
    for number in range(20):
        await append(cluster, ORDERS, b"%d" % number)
        acknowledged += 1
        try:
            async with asyncio.timeout(0.05):
                place = await slow.partitions.find(SESSION, ORDERS, Latest())
        except (RequestError, TimeoutError):
            continue
        assert place is not None
        assert place.offset >= acknowledged, "ConfirmedIsCurrent"
    cluster.nodes[SLOW] = slow
    cluster.network.cut = set()


def answer_unconfirmed_reads() -> AbstractContextManager[object]:
    """A planted bug: a leader answers from what it knows, whether or not it still leads."""

    async def confirm(self: NodeLinks, replica: Replica) -> None:
        pass

    return patch.object(NodeLinks, "confirm", confirm)


@pytest.mark.parametrize("has_bug", [False, True], ids=["as it is", "with a planted bug"])
def test_a_lookup_is_confirmed_by_a_majority(has_bug: bool) -> None:
    """Without the confirmation the same life breaks the promise."""
    with answer_unconfirmed_reads() if has_bug else nullcontext():
        if not has_bug:
            with_cluster(3, look_up_behind_a_cut)
            return
        with pytest.raises(BaseExceptionGroup) as caught:
            with_cluster(3, look_up_behind_a_cut)
    assert caught.group_contains(AssertionError, match="ConfirmedIsCurrent")


def test_errors_of_produce_and_fetch_name_the_leader_and_its_address() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=1)
        [leader] = leaders(cluster.all()[0], 1) or []
        node = next(each for number, each in cluster.nodes.items() if number != leader)
        part = ProduceRequest.Topic.Partition(index=0, records=batch(b"a"))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            topic_data=[ProduceRequest.Topic(name="orders", partition_data=[part])],
        )
        session = replace(SESSION, listener="kafka")
        produced = await ask(node, request, ProduceResponse, version=10, session=session)
        [refused] = produced.responses[0].partition_responses
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader is not None
        assert refused.current_leader.leader_id == leader
        assert refused.current_leader.leader_epoch > 0
        [endpoint] = produced.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (leader, f"node-{leader}", 9092)

        topic = node.topics.describe(SESSION, "orders")
        part_to_read = FetchRequest.Topic.Partition(
            partition=0, fetch_offset=0, partition_max_bytes=1_000
        )
        fetch = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[FetchRequest.Topic(topic_id=topic.topic_id, partitions=[part_to_read])],
        )
        fetched = await ask(node, fetch, FetchResponse, version=16, session=session)
        [unread] = fetched.responses[0].partitions
        assert unread.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert unread.current_leader is not None
        assert unread.current_leader.leader_id == leader
        assert [endpoint.node_id for endpoint in fetched.node_endpoints] == [leader]

    with_cluster(3, live)

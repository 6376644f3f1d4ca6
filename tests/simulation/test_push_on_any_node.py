"""Push subscriptions in a cluster: one owner for each name, members on every node."""

import asyncio
from collections.abc import Sequence
from itertools import chain

import pytest

from millstream.engine.partitions.slices import Earliest, Latest
from millstream.engine.push import AckMode, Delivered, FlowPolicy, Member, SubscriptionSpec
from millstream.engine.push.remote.messages import RECORDS_AHEAD_MAX
from millstream.errors.deliveries import SubscriptionExists, UnknownSubscription
from millstream.model import NodeId, TopicPartition
from millstream.names import DELIVERIES_TOPIC, DLQ_TOPIC_SUFFIX
from millstream.server.node import Node
from tests.simulation.grown_cluster import SESSION, GrownCluster, until
from tests.simulation.grown_topics import with_cluster
from tests.simulation.test_any_node import CLIENT, create, publish


class Client:
    """Notes what it gets, and acknowledges it if it is told to."""

    def __init__(self, *, acks: bool = True) -> None:
        self.values: list[bytes] = []
        self.held: list[Delivered] = []
        self.member: Member | None = None
        self.has_room = True
        self._acks = acks

    def send(self, records: Sequence[Delivered]) -> bool:
        if not self.has_room:
            return False
        self.values += [each.record.value or b"" for each in records]
        self.held += records
        if self._acks:
            asyncio.get_running_loop().call_soon(self.ack_all)
        return True

    def ack_all(self) -> None:
        if self.member is not None:
            for each in self.held:
                self.member.ack(each.target, each.record.offset)
            self.held.clear()

    async def subscribe(self, node: Node, spec: SubscriptionSpec) -> "Client":
        self.member = await node.deliveries.subscribe(CLIENT, spec, self.send)
        return self


def spec(name: str | None, *, is_durable: bool = True, window: int = 1_000) -> SubscriptionSpec:
    return SubscriptionSpec(
        name=name,
        is_durable=is_durable,
        topics=("orders",),
        start=Earliest(),
        acks=AckMode.EXPLICIT,
        flow=FlowPolicy(window=window),
    )


def owner_of(cluster: GrownCluster) -> NodeId:
    """The leader of the deliveries topic, which has one partition in these clusters."""
    node = cluster.all()[0]
    topic = node.topics.describe(SESSION, DELIVERIES_TOPIC)
    leader = node.partitions.leadership(SESSION, topic)[0].leader
    assert leader is not None
    return leader


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "shared"])
def test_members_on_all_nodes_share_the_records_of_a_group(is_durable: bool) -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=3)
        clients = [
            await Client().subscribe(node, spec("workers", is_durable=is_durable, window=5))
            for node in cluster.all()
        ]
        values = [b"%d" % number for number in range(90)]
        for at, value in enumerate(values):
            await publish(cluster.all()[at % 3], [value], at % 3)
        await until(lambda: sum(len(client.values) for client in clients) >= 90)
        assert sorted(chain(*(client.values for client in clients))) == sorted(values)
        assert all(client.values for client in clients)

    with_cluster(3, live)


def test_a_subscription_without_a_name_gets_all_on_every_node() -> None:
    async def live(cluster: GrownCluster) -> None:
        await cluster.all()[0].topics.create(SESSION, "orders", placement=[(NodeId(2),)])
        clients = [await Client().subscribe(node, spec(None)) for node in cluster.all()]
        for number in range(20):
            await publish(cluster.all()[number % 3], [b"%d" % number], 0)
        for client in clients:
            await until(lambda client=client: len(client.values) >= 20)  # type: ignore[misc]
            assert client.values == [b"%d" % number for number in range(20)]

    with_cluster(3, live)


def test_a_member_stays_when_the_owner_is_lost() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=1)
        node = cluster.all()[0]
        await node.deliveries.create(CLIENT, spec("workers"))
        owner = owner_of(cluster)
        host = next(each for number, each in cluster.nodes.items() if number != owner)
        client = await Client().subscribe(host, spec("workers"))
        await publish(host, [b"before"], 0)
        await until(lambda: client.values == [b"before"])
        cluster.lose_power(owner)
        await publish(host, [b"after"], 0)
        await until(lambda: b"after" in client.values)

    with_cluster(3, live)


def test_what_a_lost_node_did_not_acknowledge_goes_to_another_member() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=1)
        await cluster.all()[0].deliveries.create(CLIENT, spec("workers"))
        owner = owner_of(cluster)
        lost, other = [number for number in cluster.nodes if number != owner]
        first = await Client(acks=False).subscribe(cluster.nodes[lost], spec("workers"))
        await publish(cluster.nodes[owner], [b"a", b"b"], 0)
        await until(lambda: sorted(first.values) == [b"a", b"b"])
        second = await Client().subscribe(cluster.nodes[other], spec("workers"))
        cluster.lose_power(lost)
        await until(lambda: sorted(second.values) == [b"a", b"b"])

    with_cluster(3, live)


def test_a_client_without_room_is_sent_no_more_than_it_may_be_ahead() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=1)
        await cluster.all()[0].deliveries.create(CLIENT, spec("workers"))
        owner = owner_of(cluster)
        host = next(each for number, each in cluster.nodes.items() if number != owner)
        client = Client()
        client.has_room = False
        await client.subscribe(host, spec("workers", window=5_000))
        values = [b"%d" % number for number in range(3_000)]
        await publish(host, values, 0)
        assert client.member is not None
        await until(lambda: client.member is not None and client.member.statistics().buffered > 0)
        await asyncio.sleep(1)
        assert client.member.statistics().buffered <= 2 * RECORDS_AHEAD_MAX
        client.has_room = True
        client.member.resume()
        await until(lambda: len(client.values) == 3_000)
        assert client.values == values

    with_cluster(3, live)


def test_subscriptions_are_made_shown_and_deleted_through_any_node() -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=1)
        first, second, third = cluster.all()
        await first.deliveries.create(CLIENT, spec("workers"))
        with pytest.raises(SubscriptionExists):
            await second.deliveries.create(CLIENT, spec("workers"))
        for node in cluster.all():
            assert [view.spec.name for view in await node.deliveries.list(CLIENT)] == ["workers"]
            view = await node.deliveries.describe(CLIENT, "workers")
            assert view.spec.topics == ("orders",)
            joined = await node.deliveries.join(CLIENT, "workers", Client().send)
            joined.close()
        ended = asyncio.Event()
        client = await Client().subscribe(second, spec("workers"))
        assert client.member is not None
        client.member.on_end = ended.set
        await third.deliveries.delete(CLIENT, "workers")
        await ended.wait()
        with pytest.raises(UnknownSubscription):
            await first.deliveries.describe(CLIENT, "workers")

    with_cluster(3, live)


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "shared"])
def test_a_dead_letter_is_written_once_where_its_topic_is_led(is_durable: bool) -> None:
    async def live(cluster: GrownCluster) -> None:
        await create(cluster, partitions=1)
        node = cluster.all()[0]
        await node.deliveries.create(CLIENT, spec("others"))
        owner = owner_of(cluster)
        letters = TopicPartition(f"orders{DLQ_TOPIC_SUFFIX}", 0)
        for number in cluster.nodes:  # Led by another node than the owner.
            if number != owner:
                await node.topics.create(SESSION, letters.topic, placement=[(number,)])
                break
        client = await Client(acks=False).subscribe(node, spec("workers", is_durable=is_durable))
        await publish(node, [b"bad"], 0)
        await until(lambda: client.values == [b"bad"])
        assert client.member is not None
        assert client.member.reject(TopicPartition("orders", 0), 0)

        async def letter_count() -> int:
            place = await node.partitions.find(CLIENT, letters, Latest())
            return 0 if place is None else place.offset

        async with asyncio.timeout(30):
            while await letter_count() < 1:
                await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        assert await letter_count() == 1

    with_cluster(3, live)

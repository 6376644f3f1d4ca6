"""A durable subscription ends when its node no longer leads its shard."""

import pytest

from millstream.engine.partitions.slices import Earliest
from millstream.engine.push import SubscriptionSpec
from millstream.errors import DiskFailed, RequestError
from tests.support.deliveries import Subscriber, make_topic, pause, publish, until
from tests.support.nodes import SESSION, running_node
from tests.support.virtual_loop import run

BILLING = SubscriptionSpec(name="billing", topics=("orders",), start=Earliest())


def test_members_are_told_when_the_books_are_lost() -> None:
    async def story() -> None:
        async with running_node() as node:
            await make_topic(node)
            subscriber = await Subscriber().subscribe(node, BILLING)
            passing = await Subscriber().subscribe(node, SubscriptionSpec(topics=("orders",)))
            assert subscriber.member is not None
            ended: list[bool] = []
            subscriber.member.on_end = lambda: ended.append(True)
            for shard in node._engine.push.shards.all_here():
                shard._replica.fail(DiskFailed("a test"))
            await pause(2)
            await publish(node, b"a")
            await until(lambda: len(passing.got) == 1)

            assert ended == [True]
            assert subscriber.got == []
            with pytest.raises(RequestError):
                await node.deliveries.describe(SESSION, "billing")

    run(story())

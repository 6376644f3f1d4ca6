"""Views as topics: made, shown, kept in step with their base, and never written to."""

import asyncio

import pytest

from millstream.config import Config, Limits
from millstream.control.catalog import Topic
from millstream.engine.delivery import SubscriptionSpec
from millstream.engine.gate import Operation
from millstream.engine.reading import Earliest, Latest, Want
from millstream.errors import Denied, InvalidSetting, TopicExists
from millstream.errors.deliveries import InvalidSubscription
from millstream.errors.views import HasViews, InvalidFilter, ReadOnlyView
from millstream.model import Acks, Session, TopicPartition
from millstream.server.node import Node
from millstream.storage.memory import MemoryFiles
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.sifted import shown
from tests.support.virtual_loop import run

ERRORS = TopicPartition("errors", 0)
WHERE = {"view_of": "orders", "view_where": "value contains 'bad'"}


async def base_and_view(node: Node, *, partitions: int = 1) -> Topic:
    await node.topics.create(SESSION, "orders", partitions=partitions)
    return await node.topics.create(SESSION, "errors", settings=WHERE)


async def read(node: Node, target: TopicPartition = ERRORS) -> list[bytes | None]:
    (part,) = await node.partitions.read(SESSION, [Want(target, 0, 2**20)])
    return [value for _, value in shown(part)]


def test_a_view_shows_what_its_filter_takes_at_the_offsets_of_its_base() -> None:
    async def story() -> None:
        async with running_node() as node:
            view = await base_and_view(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"good", b"bad 1"), Acks.ALL)
            await node.partitions.append(SESSION, ORDERS, batch(b"bad 2", b"good"), Acks.ALL)

            shown = await read(node)
            start = await node.partitions.find(SESSION, ERRORS, Earliest())
            end = await node.partitions.find(SESSION, ERRORS, Latest())

            assert view.is_view
            assert shown == [b"bad 1", b"bad 2"]
            assert (start and start.offset, end and end.offset) == (0, 4)

    run(story())


def test_a_view_has_an_id_of_its_own_and_the_leaders_of_its_base() -> None:
    async def story() -> None:
        async with running_node() as node:
            view = await base_and_view(node, partitions=3)
            base = node.topics.describe(SESSION, "orders")

            assert view.topic_id != base.topic_id
            assert node.topics.describe_id(SESSION, view.topic_id) == view
            leaders = node.partitions.leadership(SESSION, base)
            assert node.partitions.leadership(SESSION, view) == leaders
            assert len(leaders) == 3

    run(story())


def test_nothing_can_be_written_to_or_deleted_from_a_view() -> None:
    async def story() -> None:
        async with running_node() as node:
            await base_and_view(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"bad"), Acks.ALL)

            with pytest.raises(ReadOnlyView, match="view of 'orders'"):
                node.partitions.append(SESSION, ERRORS, batch(b"bad"), Acks.ALL)
            with pytest.raises(ReadOnlyView):
                node.partitions.delete_records(SESSION, ERRORS)
            with pytest.raises(ReadOnlyView):
                await node.topics.add_partitions(SESSION, "errors", total=2)

            assert await read(node) == [b"bad"]

    run(story())


def test_partitions_that_the_base_is_given_show_in_the_view() -> None:
    async def story() -> None:
        async with running_node() as node:
            await base_and_view(node)

            await node.topics.add_partitions(SESSION, "orders", total=2)
            added = TopicPartition("orders", 1)
            await node.partitions.append(SESSION, added, batch(b"bad"), Acks.ALL)

            assert node.topics.describe(SESSION, "errors").partition_count == 2
            assert await read(node, TopicPartition("errors", 1)) == [b"bad"]

    run(story())


def test_a_base_stays_until_its_views_are_gone_and_a_view_goes_without_its_base() -> None:
    async def story() -> None:
        async with running_node() as node:
            await base_and_view(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"bad"), Acks.ALL)

            with pytest.raises(HasViews, match="errors"):
                await node.topics.delete(SESSION, "orders")
            await node.topics.delete(SESSION, "errors")

            assert await read(node, ORDERS) == [b"bad"]
            await node.topics.delete(SESSION, "orders")
            assert node.topics.list(SESSION) == []

    run(story())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"view_of": "nowhere", "view_where": "key"}, InvalidSetting),
        ({"view_of": "errors", "view_where": "key"}, InvalidSetting),
        ({"view_of": "orders"}, InvalidSetting),
        ({"view_where": "key"}, InvalidSetting),
        ({"view_of": "orders", "view_where": "colour == red"}, InvalidFilter),
        ({"view_of": "orders", "view_where": "key", "retention_ms": "1"}, InvalidSetting),
    ],
)
def test_half_a_view_a_view_of_a_view_and_a_bad_filter_are_refused(
    settings: dict[str, str], problem: type[Exception]
) -> None:
    async def story() -> None:
        async with running_node() as node:
            await base_and_view(node)

            with pytest.raises(problem):
                await node.topics.create(SESSION, "other", settings=settings)

            assert len(node.topics.list(SESSION)) == 2

    run(story())


@pytest.mark.parametrize("changes", [{"view_of": "orders"}, WHERE, {"view_where": "key"}])
def test_a_topic_does_not_become_a_view(changes: dict[str, str | None]) -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await node.topics.create(SESSION, "other")

            with pytest.raises(InvalidSetting):
                await node.topics.alter(SESSION, "other", changes)

    run(story())


def test_what_a_view_shows_can_be_changed_but_not_of_whom() -> None:
    async def story() -> None:
        async with running_node() as node:
            await base_and_view(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"bad", b"good"), Acks.ALL)

            await node.topics.alter(SESSION, "errors", {"view_where": "value contains 'good'"})
            with pytest.raises(InvalidSetting, match="stays"):
                await node.topics.alter(SESSION, "errors", {"view_of": None, "view_where": None})
            with pytest.raises(InvalidFilter):
                await node.topics.alter(SESSION, "errors", {"view_where": "("})

            assert await read(node) == [b"good"]

    run(story())


def test_who_waits_at_a_view_is_shown_what_it_was_told_to_show_meanwhile() -> None:
    async def story() -> None:
        async with running_node() as node:
            await base_and_view(node)
            deadline = asyncio.get_running_loop().time() + 60
            waiting = asyncio.ensure_future(
                node.partitions.read(
                    SESSION, [Want(ERRORS, 0, 2**20)], min_bytes=1, deadline=deadline
                )
            )
            await asyncio.sleep(1)

            await node.topics.alter(SESSION, "errors", {"view_where": "value contains 'ugly'"})
            await node.partitions.append(SESSION, ORDERS, batch(b"bad", b"ugly"), Acks.ALL)

            (part,) = await waiting
            assert shown(part) == [(1, b"ugly")]

    run(story())


def test_a_subscription_does_not_name_two_topics_of_one_log() -> None:
    async def story() -> None:
        async with running_node() as node:
            await base_and_view(node)
            spec = SubscriptionSpec(name="billing", topics=("errors", "orders"), is_durable=True)

            with pytest.raises(InvalidSubscription, match="the same records"):
                await node.deliveries.create(SESSION, spec)

    run(story())


def test_names_of_views_and_topics_are_one_and_the_same_list() -> None:
    async def story() -> None:
        async with running_node() as node:
            await base_and_view(node)

            with pytest.raises(TopicExists):
                await node.topics.create(SESSION, "errors", settings=WHERE)

    run(story())


def test_views_count_as_topics_where_partitions_are_counted() -> None:
    async def story() -> None:
        config = Config(limits=Limits(node_partitions_max=5))
        async with running_node(config) as node:
            await node.topics.create(SESSION, "orders", partitions=3)

            with pytest.raises(Exception, match="at most 5"):
                await node.topics.create(SESSION, "errors", settings=WHERE)

    run(story())


class NotOrders:
    """Everything is allowed but to read the topic `orders`."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        is_theirs = session.principal == "eve" and operation is Operation.READ
        return not (is_theirs and resource == "topic:orders")


def test_who_may_not_read_a_topic_cannot_make_a_view_of_it() -> None:
    async def story() -> None:
        async with running_node(policy=NotOrders()) as node:
            await node.topics.create(SESSION, "orders")

            with pytest.raises(Denied):
                await node.topics.create(Session(principal="eve"), "errors", settings=WHERE)

            await node.topics.create(SESSION, "errors", settings=WHERE)

    run(story())


def test_a_view_and_its_base_are_there_after_a_restart() -> None:
    files = MemoryFiles()

    async def before() -> None:
        async with running_node(files=files) as node:
            await base_and_view(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"bad", b"good"), Acks.ALL)

    async def after() -> None:
        async with running_node(files=files) as node:
            assert await read(node) == [b"bad"]
            assert await read(node, ORDERS) == [b"bad", b"good"]

    run(before())
    run(after())


def test_deleting_a_view_is_folded_again_without_touching_the_base() -> None:
    files = MemoryFiles()

    async def before() -> None:
        async with running_node(files=files) as node:
            await base_and_view(node)
            await node.partitions.append(SESSION, ORDERS, batch(b"kept"), Acks.ALL)
            await node.topics.delete(SESSION, "errors")

    async def after() -> None:
        async with running_node(files=files) as node:
            assert await read(node, ORDERS) == [b"kept"]

    run(before())
    run(after())

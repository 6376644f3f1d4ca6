"""Views as topics: made, shown, kept in step with their base, and never written to."""

import asyncio
from uuid import UUID

import pytest

from millstream.config import Config, Limits
from millstream.control.catalog import Topic
from millstream.engine.gate import Everyone, Operation
from millstream.engine.groups.coordinators import ORPHANED_MS_MIN
from millstream.engine.groups.views import Commit
from millstream.engine.partitions.slices import Earliest, Latest, Want
from millstream.engine.push import SubscriptionSpec
from millstream.errors import Denied, InvalidSetting, TopicExists, UnknownTopic
from millstream.errors.deliveries import InvalidSubscription
from millstream.errors.views import HasViews, InvalidFilter, ReadOnlyView
from millstream.model import CONTROL_LOG, Acks, Session, TopicPartition, user_principal
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.filtered_slices import shown
from tests.support.nodes import ORDERS, SESSION, batch, running_node
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


class NotOrders(Everyone):
    """Everything is allowed but to read the topic `orders`."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        is_theirs = session.principal.name == "eve" and operation is Operation.READ
        return not (is_theirs and resource == "topic:orders")


def test_who_may_not_read_a_topic_cannot_make_a_view_of_it() -> None:
    async def story() -> None:
        async with running_node(policy=NotOrders()) as node:
            await node.topics.create(SESSION, "orders")

            with pytest.raises(Denied):
                await node.topics.create(
                    Session(principal=user_principal("eve")), "errors", settings=WHERE
                )

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


# -- filtered names --------------------------------------------------------------------------------


def test_a_filtered_name_is_a_topic_to_its_readers_and_nothing_to_the_control_log() -> None:
    files = MemoryFiles()
    name = "orders where value contains 'b'"
    target = TopicPartition(name, 0)

    async def story() -> tuple[UUID, list[bytes | None]]:
        async with running_node(files=files) as node:
            if not node.topics.list(SESSION):
                await node.topics.create(SESSION, "orders")
                await node.partitions.append(SESSION, ORDERS, batch(b"a", b"b", b"ab"), Acks.ALL)
                commit = Commit(offset=2, leader_epoch=-1, metadata="")
                await node.groups.commit_offsets(SESSION, "g", {target: commit})
            before = node.hub.replicas[CONTROL_LOG].log.end_offset
            described = node.topics.describe(SESSION, name)
            assert node.topics.describe_id(SESSION, described.topic_id) is described
            [part] = await node.partitions.read(SESSION, [Want(target, 0, 2**20)])
            # Long enough that offsets of a topic which is gone would have been dropped.
            await asyncio.sleep(2 * ORPHANED_MS_MIN / 1000)
            committed = await node.groups.fetch_offsets(SESSION, "g", [target])
            assert committed[target].offset == 2  # type: ignore[union-attr]
            with pytest.raises(ReadOnlyView):
                await node.partitions.append(SESSION, target, batch(b"x"), Acks.ALL)
            with pytest.raises(UnknownTopic):
                await node.topics.delete(SESSION, name)
            with pytest.raises(UnknownTopic):
                await node.topics.alter(SESSION, name, {"view_where": "key"})
            with pytest.raises(InvalidFilter, match="at character 1"):
                node.topics.describe(SESSION, "orders where colour")
            with pytest.raises(UnknownTopic):
                node.topics.describe(SESSION, "gone where key")
            assert [t.name for t in node.topics.list(SESSION) if "orders" in t.name] == ["orders"]
            assert node.hub.replicas[CONTROL_LOG].log.end_offset == before
            return described.topic_id, [value for _, value in shown(part)]

    first, again = run(story()), run(story())

    assert first == again  # The id as well: groups keep their place over a restart.
    assert first[1] == [b"b", b"ab"]


def test_a_filtered_name_follows_its_topic_and_goes_with_it() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            name = "orders where key"
            before = node.topics.describe(SESSION, name)

            await node.topics.add_partitions(SESSION, "orders", total=3)
            grown = node.topics.describe(SESSION, name)
            await node.topics.delete(SESSION, "orders")
            with pytest.raises(UnknownTopic):
                node.topics.describe(SESSION, name)
            with pytest.raises(UnknownTopic):
                node.topics.describe_id(SESSION, before.topic_id)
            await node.topics.create(SESSION, "orders")
            recreated = node.topics.describe(SESSION, name)

            assert (before.partition_count, grown.partition_count) == (1, 3)
            assert before.topic_id == grown.topic_id != recreated.topic_id

    run(story())


def test_filtered_names_are_forgotten_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.control.catalog.FILTERED_MAX", 10)

    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            ids = [
                node.topics.describe(SESSION, f"orders where key == 'k{number}'").topic_id
                for number in range(30)
            ]
            filtered = node._controller.state.catalog._filtered

            assert len(filtered._by_name) == len(filtered._names) == 10
            assert node.topics.describe_id(SESSION, ids[-1]).topic_id == ids[-1]
            with pytest.raises(UnknownTopic):
                node.topics.describe_id(SESSION, ids[0])
            assert node.topics.describe(SESSION, "orders where key == 'k0'").topic_id == ids[0]

    run(story())


def test_reading_through_a_filter_takes_the_right_to_read_the_topic() -> None:
    class NoOrders(Everyone):
        def allows(self, session: Session, operation: Operation, resource: str) -> bool:
            return operation is not Operation.READ or resource != "topic:orders"

    async def story() -> None:
        async with running_node(policy=NoOrders()) as node:
            await node.topics.create(SESSION, "orders")
            target = TopicPartition("orders where key", 0)
            [part] = await node.partitions.read(SESSION, [Want(target, 0, 2**20)])

            assert isinstance(part.error, Denied)

    run(story())


def test_a_view_can_be_read_through_a_filter() -> None:
    async def story() -> None:
        async with running_node() as node:
            await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a", b"b", b"ab"), Acks.ALL)
            view = {"view_of": "orders", "view_where": "value contains 'b'"}
            await node.topics.create(SESSION, "bees", settings=view)
            target = TopicPartition("bees where value contains 'a'", 0)
            [part] = await node.partitions.read(SESSION, [Want(target, 0, 2**20)])

            assert [value for _, value in shown(part)] == [b"ab"]

    run(story())

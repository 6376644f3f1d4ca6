"""Batch groups through the engine: one batch is seen whole and once, however often it is sent."""

import asyncio

import pytest

from millstream.config import Config, Limits, Timing
from millstream.engine.gate import Everyone, Operation
from millstream.errors import (
    Denied,
    InvalidRequest,
    InvalidTransactionState,
    Overloaded,
    ProducerFenced,
    RequestError,
    UnknownProducer,
)
from millstream.internal_topics.batch_groups import NO_BATCH, Ending
from millstream.model import NodeId, Producer, Session
from millstream.names import BATCH_MEMBER_MARK
from millstream.server.node import Node
from millstream.storage.files.memory import MemoryFiles
from tests.support.batches import GROUP, SERIES, Driver
from tests.support.nodes import ORDERS, SESSION
from tests.support.transactions import PAYMENTS, Writer, committed, running_transactions, stable
from tests.support.virtual_loop import run


async def settled(node: Node) -> None:
    """Wait until every transaction of the group is over and forgotten."""
    await stable(node)
    await stable(node, PAYMENTS)
    async with asyncio.timeout(60):
        while node.transactions.list(SESSION):
            await asyncio.sleep(0.01)


# -- what readers see ------------------------------------------------------------------------------


def test_a_batch_is_seen_when_it_is_committed_and_the_rest_never() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            first = await driver.wrote(b"a", name="0.0")
            second = await driver.wrote(b"b", name="1.1", target=PAYMENTS)
            await driver.wrote(b"loser", name="0.2")
            assert (await committed(node), await committed(node, PAYMENTS)) == ([], [])

            await driver.commit(0, first, second)
            await settled(node)

            assert (await committed(node), await committed(node, PAYMENTS)) == ([b"a"], [b"b"])

    run(story())


def test_an_aborted_batch_is_never_seen() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            task = await driver.wrote(b"a")

            await driver.abort(0, task)
            await settled(node)

            assert await committed(node) == []

    run(story())


def test_batches_follow_each_other() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            for batch_id in range(5):
                opened = await driver.begin()
                assert opened.last_committed_batch == batch_id - 1
                await driver.commit(batch_id, await driver.wrote(b"%d" % batch_id))
            await settled(node)

            assert await committed(node) == [b"%d" % batch_id for batch_id in range(5)]

    run(story())


def test_a_batch_without_rows_is_remembered_too() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            idle = driver.task()
            await idle.init()
            await driver.commit(0, idle)

            assert (await driver.begin()).last_committed_batch == 0
            await settled(node)

    run(story())


# -- asked again -----------------------------------------------------------------------------------


def test_a_commit_may_be_asked_again() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            task = await driver.wrote(b"a")

            await asyncio.gather(driver.commit(0, task), driver.commit(0, task))
            await settled(node)
            await driver.commit(0, task)

            assert await committed(node) == [b"a"]

    run(story())


def test_an_abort_after_the_commit_is_refused_and_changes_nothing() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            task = await driver.wrote(b"a")
            await driver.commit(0, task)

            with pytest.raises(InvalidTransactionState):
                await driver.abort(0, task)

            await settled(node)
            assert await committed(node) == [b"a"]

    run(story())


def test_a_batch_that_is_run_again_is_not_written_again() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            await driver.commit(0, await driver.wrote(b"a"))

            opened = await driver.begin()
            again = await driver.wrote(b"a", name="again")
            await driver.commit(0, again)
            await settled(node)

            assert (opened.series, opened.last_committed_batch) == (SERIES, 0)
            assert await committed(node) == [b"a"]

    run(story())


def test_a_query_that_starts_over_is_another_series() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            first, other = Driver(node), Driver(node, series="after the checkpoint was deleted")
            for driver in (first, other):
                await driver.begin()
                await driver.commit(0, await driver.wrote(driver.series.encode()))
            await settled(node)

            assert await committed(node) == [b"query", b"after the checkpoint was deleted"]

    run(story())


# -- who was too late ------------------------------------------------------------------------------


def test_a_second_driver_fences_the_first_and_its_tasks() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            first, second = Driver(node), Driver(node)
            await first.begin()
            task, idle = await first.wrote(b"first"), first.task("1.1")
            await idle.init()

            await second.begin()
            for ended in (first.commit(0, task), first.abort(0, task)):
                with pytest.raises(ProducerFenced):
                    await ended
            with pytest.raises(RequestError):
                await task.write(ORDERS, b"more")
            with pytest.raises((ProducerFenced, UnknownProducer)):
                await idle.add(ORDERS)
            with pytest.raises(ProducerFenced):
                await first.task("2.2").init()

            await second.commit(0, await second.wrote(b"second"))
            await settled(node)
            assert await committed(node) == [b"second"]

    run(story())


def test_an_ended_batch_takes_no_members() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            late = driver.task("1.9")
            await late.init()
            await driver.commit(0, await driver.wrote(b"a"))

            with pytest.raises(UnknownProducer):
                await late.add(ORDERS)
            with pytest.raises(ProducerFenced):
                await driver.task("1.10").init()

    run(story())


def test_a_task_that_took_too_long_has_the_whole_batch_refused() -> None:
    async def story() -> None:
        config = Config(timing=Timing(transaction_check_ms=1_000))
        async with running_transactions(config) as node:
            driver = Driver(node)
            await driver.begin()
            quick = await driver.wrote(b"quick", name="0.0")
            slow = driver.task("1.1", timeout_ms=5_000)
            await slow.init()
            await slow.write(PAYMENTS, b"slow")
            await stable(node, PAYMENTS)

            with pytest.raises((InvalidTransactionState, ProducerFenced)):
                await driver.commit(0, quick, slow)
            assert await committed(node) == []

            await driver.abort(0, quick, slow)
            await settled(node)
            assert (await committed(node), await committed(node, PAYMENTS)) == ([], [])

    run(story())


def test_a_batch_lives_as_long_as_one_of_its_tasks_renews_it() -> None:
    async def story() -> None:
        config = Config(timing=Timing(transaction_check_ms=1_000))
        async with running_transactions(config) as node:
            driver = Driver(node)
            await driver.begin()
            done = await driver.wrote(b"done", name="0.0")
            slow = await driver.wrote(b"slow", name="1.1", target=PAYMENTS)
            for _ in range(240):  # Two hours, and the timeout is a minute.
                await asyncio.sleep(30)
                await driver.renew(slow)

            await driver.commit(0, done, slow)
            await settled(node)

            assert (await committed(node), await committed(node, PAYMENTS)) == (
                [b"done"],
                [b"slow"],
            )

    run(story())


def test_a_batch_that_nobody_renews_is_aborted_as_one_and_its_tasks_learn_of_it() -> None:
    async def story() -> None:
        config = Config(timing=Timing(transaction_check_ms=1_000))
        async with running_transactions(config) as node:
            driver = Driver(node)
            await driver.begin()
            task = await driver.wrote(b"a")
            await asyncio.sleep(62)

            with pytest.raises(InvalidTransactionState, match="is over: ABORTED"):
                await driver.renew(task)
            with pytest.raises(ProducerFenced):
                await driver.task("1.1").init()
            with pytest.raises(InvalidTransactionState):
                await driver.commit(0, task)
            await settled(node)
            assert await committed(node) == []

    run(story())


def test_a_task_whose_transaction_is_gone_learns_of_it_when_it_renews() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            task = await driver.wrote(b"a")
            await task.abort()

            with pytest.raises(ProducerFenced):
                await driver.renew(task)

            with pytest.raises(InvalidRequest):
                await driver.renew(Writer(node, transactional_id="billing"))
            await driver.begin()
            driver.term -= 1
            with pytest.raises(ProducerFenced):
                await driver.renew(task)

    run(story())


def test_a_member_does_not_commit_by_itself_but_may_give_up() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver = Driver(node)
            await driver.begin()
            task = await driver.wrote(b"a")

            with pytest.raises(InvalidTransactionState):
                await task.commit()
            await task.abort()
            await settled(node)

            assert await committed(node) == []

    run(story())


# -- what is kept ----------------------------------------------------------------------------------


def test_a_group_and_its_members_have_one_coordinator_and_no_member_is_left() -> None:
    async def story() -> None:
        async with running_transactions(Config(transaction_partitions=8)) as node:
            driver = Driver(node)
            for batch_id in range(3):
                await driver.begin()
                tasks = [await driver.wrote(b"x", name=str(at)) for at in range(4)]
                for task in tasks:
                    name = task.transactional_id
                    assert await node.transactions.coordinator_of(SESSION, name) == NodeId(1)
                await driver.commit(batch_id, *tasks)
            await settled(node)

            assert node.transactions.list(SESSION) == []

    run(story())


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_restart_forgets_nothing(is_committed: bool) -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_transactions(files=files) as node:
            driver = Driver(node)
            await driver.begin()
            task = await driver.wrote(b"a")
            if is_committed:
                await driver.commit(0, task)  # Its markers are not waited for.

        async with running_transactions(files=files) as node:
            driver.node = task.node = node
            await driver.commit(0, task)
            await settled(node)

            assert await committed(node) == [b"a"]
            assert (await driver.begin()).last_committed_batch == 0

    run(story())


def test_what_a_dead_driver_left_open_is_aborted_by_the_next_one_after_a_restart() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_transactions(files=files) as node:
            driver = Driver(node)
            await driver.begin()
            await driver.wrote(b"orphan")

        async with running_transactions(files=files) as node:
            successor = Driver(node)
            await successor.begin()
            await successor.commit(0, await successor.wrote(b"again"))
            await settled(node)

            assert await committed(node) == [b"again"]

    run(story())


def test_an_unused_group_is_forgotten() -> None:
    async def story() -> None:
        timing = Timing(transaction_check_ms=1_000, transactional_id_expiration_ms=60_000)
        async with running_transactions(Config(timing=timing)) as node:
            driver = Driver(node)
            await driver.begin()
            await driver.commit(3, await driver.wrote(b"a"))
            await asyncio.sleep(30)
            assert (await driver.begin()).last_committed_batch == 3

            await asyncio.sleep(70)

            opened = await driver.begin()
            assert (opened.term, opened.last_committed_batch) == (1, NO_BATCH)

    run(story())


# -- the gate --------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["", f"a{BATCH_MEMBER_MARK}b"])
def test_a_group_has_a_name_of_its_own(group: str) -> None:
    async def story() -> None:
        async with running_transactions() as node:
            with pytest.raises(InvalidRequest):
                await node.batch_groups.begin(SESSION, group)

    run(story())


def test_what_is_no_batch_of_the_group_is_refused() -> None:
    async def story() -> None:
        config = Config(limits=Limits(batch_members_max=2))
        async with running_transactions(config) as node:
            driver = Driver(node)
            await driver.begin()
            names = [driver.task(str(at)).transactional_id for at in range(3)]
            for batch_id, members in ((-1, []), (0, ["billing"]), (0, names)):
                ending = Ending(
                    driver.term, SERIES, batch_id, dict.fromkeys(members, Producer(1, 0))
                )
                with pytest.raises(InvalidRequest):
                    await node.batch_groups.end(SESSION, GROUP, ending, commits=True)

    run(story())


def test_a_batch_has_room_for_so_many_and_a_node_for_so_many_groups() -> None:
    async def story() -> None:
        config = Config(limits=Limits(batch_members_max=2, transactional_ids_max=2))
        async with running_transactions(config) as node:
            driver = Driver(node)
            await driver.begin()
            for at in range(2):
                await driver.task(str(at)).init()
            with pytest.raises(Overloaded):
                await driver.task("2").init()

            await Driver(node, group="other").begin()
            with pytest.raises(Overloaded):
                await Driver(node, group="third").begin()
            await driver.begin()

    run(story())


class NotTheGroup(Everyone):
    """Denies writing in transactions of the group; allows everything else."""

    def allows(self, session: Session, operation: Operation, resource: str) -> bool:
        return not (operation is Operation.TRANSACT and GROUP in resource)


def test_a_group_is_for_those_who_may_write_in_its_transactions() -> None:
    async def story() -> None:
        async with running_transactions(policy=NotTheGroup()) as node:
            driver = Driver(node)
            with pytest.raises(Denied):
                await driver.begin()
            with pytest.raises(Denied):
                await driver.commit(0)
            with pytest.raises(Denied):
                await driver.task().init()

    run(story())


def test_an_ordinary_transaction_of_the_same_name_is_left_alone() -> None:
    async def story() -> None:
        async with running_transactions() as node:
            driver, other = Driver(node), Writer(node, transactional_id=GROUP)
            await other.init()
            await other.write(ORDERS, b"other")
            await driver.begin()
            await driver.commit(0, await driver.wrote(b"batch", target=PAYMENTS))
            await driver.begin()

            await other.commit()
            await stable(node)

            assert await committed(node) == [b"other"]

    run(story())

"""Delayed records on their way into their partition: planned before their time, appended at it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

import pytest

from millstream.config import Config
from millstream.engine.delayed import deliverer
from millstream.engine.delayed.deliverer import SPACING_MS, Deliverer
from millstream.engine.delayed.scheduler import LEAD_MS
from millstream.engine.delayed.shard import DelayedShard
from millstream.errors import CoordinatorLoading, Overloaded, StorageUnavailable, TopicExists
from millstream.errors.delayed import UnknownDelayedRecord
from millstream.internal_topics.outbound_sequences import OutboundSequence
from millstream.model import Acks, Offset
from millstream.replication.replica import Replica
from millstream.server.node import Node, build_node
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import NOW_MS, ORDERS, SESSION, FixedClock, fake_ports, running
from tests.support.queues import Message, batch_of, found_in, message, until, until_count, values_in
from tests.support.virtual_loop import run

SYNC_MS = 20

T = TypeVar("T")


class SlowThreads:
    """A disk that takes its time."""

    async def run(self, work: Callable[[], T]) -> T:
        result = work()
        await asyncio.sleep(SYNC_MS / 1000)
        return result


class Stage(NamedTuple):
    node: Node
    clock: FixedClock

    @property
    def shard(self) -> DelayedShard:
        return self.node._engine.delayed_scheduler.find_now("orders")

    @property
    def replica(self) -> Replica:
        return self.node.hub.find(self.node.topics.describe(SESSION, "orders").log(0))

    async def delay(self, *messages: Message) -> list[str]:
        sent = batch_of(*messages)
        appended = await self.node.partitions.append(SESSION, ORDERS, sent, Acks.ALL)
        return [appended.delayed[at] for at in range(len(messages))]

    async def until_ms(self, time_ms: int) -> None:
        await asyncio.sleep((time_ms - self.clock.now_ms()) / 1000)


@asynccontextmanager
async def stage(files: MemoryFiles | None = None, now_ms: int = NOW_MS) -> AsyncIterator[Stage]:
    clock = FixedClock(now_ms)
    ports = replace(fake_ports(files, clock), threads=SlowThreads(), sync_threads=SlowThreads())
    async with running(build_node(Config(), ports)) as node:
        with suppress(TopicExists):
            await node.topics.create(SESSION, "orders")
        yield Stage(node, clock)


def due_at(*times_ms: int) -> list[Message]:
    """Each has its time, counted from the start, as its value."""
    return [message(b"%d" % ms, deliver_at=NOW_MS + ms) for ms in times_ms]


def refusing(real: Callable[..., T], count: int) -> Callable[..., T]:
    """The same, after so many failures."""
    failures = iter(range(count))

    def attempt(*arguments: object) -> T:
        if next(failures, None) is not None:
            raise StorageUnavailable("the disk is full")
        return real(*arguments)

    return attempt


def failing_later(
    real: Callable[[], "asyncio.Future[None]"], count: int
) -> Callable[[], "asyncio.Future[None]"]:
    """The same, after so many that end with a failure."""
    failures = iter(range(count))

    def attempt() -> "asyncio.Future[None]":
        if next(failures, None) is None:
            return real()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_exception(Overloaded("too many wait"))
        return done

    return attempt


def test_what_is_due_is_late_by_the_sync_under_way_and_its_own_at_most() -> None:
    async def story() -> None:
        async with stage() as here:
            times_ms = range(5_000, 8_000, 3)
            await here.delay(*due_at(*times_ms))
            seen: list[tuple[int, Offset]] = []
            replica = here.replica
            replica.watch(lambda: seen.append((here.clock.now_ms(), replica.high_watermark)))

            records = await until_count(here.node, len(times_ms))

            arrived_ms = [
                min(now_ms for now_ms, end in seen if end > record.offset) for record in records
            ]
            late_ms = [
                now - record.timestamp for now, record in zip(arrived_ms, records, strict=True)
            ]
            assert min(late_ms) >= 0
            assert max(late_ms) <= 2 * SYNC_MS + 2 * SPACING_MS

    run(story())


def test_one_can_be_cancelled_until_its_time_and_the_others_go_on() -> None:
    async def story() -> None:
        async with stage() as here:
            ids = await here.delay(*due_at(1_000, 1_001, 1_002, 1_100))
            await here.until_ms(NOW_MS + 999)

            cancelled = await here.node.delayed.cancel(SESSION, ids[1])

            assert cancelled.due_ms == NOW_MS + 1_001
            records = await until_count(here.node, 3)
            assert [record.value for record in records] == [b"1000", b"1002", b"1100"]
            for name in ids:
                with pytest.raises(UnknownDelayedRecord):
                    await here.node.delayed.cancel(SESSION, name)

    run(story())


def test_a_cancelled_record_does_not_hold_up_others() -> None:
    async def story() -> None:
        async with stage() as here:
            ids = await here.delay(*due_at(1_000, 1_001))
            await here.until_ms(NOW_MS + 950)
            cancelling = asyncio.ensure_future(here.node.delayed.cancel(SESSION, ids[0]))
            while len(here.shard.due_heap) > 1:
                await asyncio.sleep(0)
                here.shard.gaps.clear()
            await cancelling

            assert [record.value for record in await until_count(here.node, 1)] == [b"1001"]

    run(story())


def test_the_deliverer_is_idle_after_the_next_record_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = 0
    real = Deliverer._step

    async def step(self: Deliverer) -> bool:
        nonlocal steps
        steps += 1
        return await real(self)

    monkeypatch.setattr(Deliverer, "_step", step)

    async def story() -> None:
        async with stage() as here:
            ids = await here.delay(*due_at(1_000, 1_001, 1_002))
            await here.until_ms(NOW_MS + 990)
            cancelling = [here.node.delayed.cancel(SESSION, name) for name in ids[:2]]
            await asyncio.gather(*cancelling)
            await until_count(here.node, 1)

    run(story())
    assert steps < 100


def test_one_that_is_due_before_those_that_are_planned_overtakes_them() -> None:
    async def story() -> None:
        async with stage() as here:
            await here.delay(*due_at(1_000, 1_150))
            await here.until_ms(NOW_MS + 1_000 - LEAD_MS // 2)
            await here.delay(*due_at(990, 1_010))

            records = await until_count(here.node, 4)

            assert [record.value for record in records] == [b"990", b"1000", b"1010", b"1150"]

    run(story())


def test_one_that_is_due_at_once_does_not_wait_for_the_next_look_at_the_clock() -> None:
    async def story() -> None:
        async with stage() as here:
            await here.delay(*due_at(1_000, 60_000))
            await until_count(here.node, 1)
            now_ms = here.clock.now_ms() - NOW_MS
            await here.delay(*due_at(now_ms + 50))

            await until(lambda: here.replica.high_watermark == 2)

            assert here.clock.now_ms() - NOW_MS - now_ms - 50 <= 5 * SYNC_MS

    run(story())


def test_a_clock_that_steps_back_behind_a_plan_makes_nothing_early() -> None:
    async def story() -> None:
        async with stage() as here:
            ids = await here.delay(*due_at(1_000, 1_001))
            await here.until_ms(NOW_MS + 990)
            here.clock.start_ms -= 60_000
            await asyncio.sleep(59)
            assert await values_in(here.node) == []
            assert len((await here.node.delayed.list(SESSION, "orders")).delayed) == 2

            await here.delay(*due_at(500))
            await here.node.delayed.cancel(SESSION, ids[0])

            records = await until_count(here.node, 2)
            assert [record.value for record in records] == [b"500", b"1001"]

    run(story())


def test_trouble_at_the_target_is_waited_out() -> None:
    async def story() -> None:
        async with stage() as here:
            ids = await here.delay(*due_at(*range(1_000, 1_100)))
            here.replica.append = refusing(here.replica.append, 5)  # type: ignore[method-assign]
            await here.until_ms(NOW_MS + 1_050)
            await here.node.delayed.cancel(SESSION, ids[0])  # It is late, and not decided yet.

            records = await until_count(here.node, 99)

            assert [record.value for record in records] == [
                b"%d" % at for at in range(1_001, 1_100)
            ]
            assert len(here.shard.due_heap) == 0

    run(story())


def test_one_that_its_topic_has_become_too_small_for_waits_and_can_be_cancelled() -> None:
    async def story() -> None:
        async with stage() as here:
            large = message(b"x" * 5_000, deliver_at=NOW_MS + 1_000)
            ids = await here.delay(large, *due_at(1_001))
            await here.node.topics.alter(SESSION, "orders", {"segment_bytes": "1024"})
            await here.until_ms(NOW_MS + 30_000)
            assert await values_in(here.node) == []

            await here.node.delayed.cancel(SESSION, ids[0])

            assert [record.value for record in await until_count(here.node, 1)] == [b"1001"]

    run(story())


def test_trouble_with_the_books_is_waited_out() -> None:
    async def story() -> None:
        async with stage() as here:
            await here.delay(*due_at(*range(1_000, 1_100)))
            ledger = here.shard.ledger
            ledger.write = refusing(ledger.write, 5)  # type: ignore[method-assign]

            records = await until_count(here.node, 100)

            assert [record.value for record in records] == [
                b"%d" % at for at in range(1_000, 1_100)
            ]

    run(story())


def test_a_plan_whose_commit_cannot_be_waited_for_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with stage() as here:
            await here.delay(*due_at(1_000, 1_001))
            monkeypatch.setattr(
                here.shard, "all_committed", failing_later(here.shard.all_committed, 3)
            )

            assert [record.value for record in await until_count(here.node, 2)] == [
                b"1000",
                b"1001",
            ]

    run(story())


def test_what_is_planned_for_a_topic_goes_with_it() -> None:
    async def story() -> None:
        async with stage() as here:
            await here.delay(*due_at(1_000, 1_100, 2_000))
            await here.until_ms(NOW_MS + 990)
            shard = here.shard

            await here.node.topics.delete(SESSION, "orders")

            await until(lambda: len(shard.due_heap) == 1)
            await until(lambda: len(shard.due_heap) == 0)
            assert shard.waiting == []
            assert shard.writer.unfinished == {}

    run(story())


def test_what_was_only_planned_before_a_restart_can_be_cancelled_after_it() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with stage(files) as here:
            ids = await here.delay(*due_at(1_000, 1_001, 1_002))
            await here.until_ms(NOW_MS + 1_000 - SYNC_MS)
            assert here.shard.writer.unfinished
        async with stage(files, NOW_MS + 950) as here:
            await here.node.delayed.cancel(SESSION, ids[1])
            records = await until_count(here.node, 2)
            assert [record.value for record in records] == [b"1000", b"1002"]

    run(story())


def test_what_an_earlier_life_may_have_delivered_cannot_be_cancelled_before_that_is_known() -> None:
    async def story() -> None:
        async with stage() as here:
            (name,) = await here.delay(*due_at(60_000))
            (delayed,) = (await here.node.delayed.list(SESSION, "orders")).delayed
            number = int(delayed.id.rpartition("~")[2])
            here.shard._undecided[0] = {number}

            with pytest.raises(CoordinatorLoading):
                await here.node.delayed.cancel(SESSION, name)

            here.shard.all_decided(0)
            await here.node.delayed.cancel(SESSION, name)

    run(story())


def test_many_that_are_due_at_once_go_in_batches_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliverer, "PLANNED_MAX", 50)
    monkeypatch.setattr(deliverer, "BATCH_BYTES_MAX", 2_000)

    async def story() -> None:
        async with stage() as here:
            times_ms = [1_000 + at % 7 for at in range(500)]
            await here.delay(*due_at(*times_ms))

            records = await until_count(here.node, 500)

            assert [int(record.value or b"") for record in records] == sorted(times_ms)
            assert {record.timestamp - NOW_MS for record in records} == set(times_ms)
            await until(lambda: not here.node._engine.delayed_scheduler._deliverers)
            assert here.shard.writer.unfinished == {}

    run(story())


def test_a_log_that_lost_its_past_gets_records_by_another_producer() -> None:
    async def story() -> None:
        async with stage() as here:
            await here.delay(*due_at(1_000))
            await until_count(here.node, 1)
            writer, target = here.shard.writer, here.replica.id
            outbound = writer._outbound[target]
            writer._record(target, OutboundSequence(outbound.producer_id, 90))
            await here.delay(*due_at(here.clock.now_ms() - NOW_MS + 500))

            await until(lambda: here.replica.high_watermark == 2)

            assert writer._outbound[target].producer_id != outbound.producer_id
            assert len(await found_in(here.node)) == 2

    run(story())

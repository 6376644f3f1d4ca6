"""A crash while a dead letter is written, at every step."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from random import Random

import pytest

from millstream.config import Config
from millstream.engine.ledgers.exactly_once import ExactlyOnceWriter
from millstream.engine.partitions.slices import Earliest
from millstream.engine.push import RetryPolicy, SubscriptionSpec
from millstream.engine.push.shard import DeliveryShard
from millstream.errors import DamagedLog, OutOfResources, StorageError
from millstream.model import ReplicaId, TopicPartition
from millstream.replication.opening import Opening, Recovery
from millstream.server.node import Node, build_node
from millstream.settings import TopicSettings
from millstream.storage.log.log import Log
from tests.support.crashing_files import CrashingFiles
from tests.support.deliveries import Subscriber, make_topic, pause, publish, until, values_in
from tests.support.nodes import ORDERS, SESSION, fake_ports
from tests.support.virtual_loop import run

BILLING = SubscriptionSpec(
    name="billing",
    topics=("orders",),
    start=Earliest(),
    retry=RetryPolicy(max_retries=0, ack_timeout_ms=60_000),
)
CONFIG = Config(delivery_partitions=1)


@asynccontextmanager
async def life(files: CrashingFiles) -> AsyncIterator[Node]:
    node = build_node(CONFIG, fake_ports(files))
    task = asyncio.ensure_future(node.run())
    await node.ready.wait()
    try:
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def stop_after_the_intent(shard: DeliveryShard, reached: asyncio.Event) -> None:
    async def deliver(*arguments: object) -> int:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    shard.writer._append_and_commit = deliver  # type: ignore[assignment, method-assign]


def stop_after_the_append(shard: DeliveryShard, reached: asyncio.Event) -> None:
    writer = shard.writer
    deliver = writer._append_and_commit

    async def deliver_and_stop(*arguments: object) -> int:
        await deliver(*arguments)  # type: ignore[arg-type]
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    writer._append_and_commit = deliver_and_stop  # type: ignore[assignment, method-assign]


def stop_after_the_end(shard: DeliveryShard, reached: asyncio.Event) -> None:
    write = shard.writer._record

    def write_and_tell(target: object, outbound: object, others: object = ()) -> int:
        offset = write(target, outbound, others)  # type: ignore[arg-type]
        if others:
            asyncio.get_running_loop().call_soon(reached.set)
        return offset

    shard.writer._record = write_and_tell  # type: ignore[method-assign]


@pytest.mark.parametrize("stop", [stop_after_the_intent, stop_after_the_append, stop_after_the_end])
@pytest.mark.parametrize("seed", range(3))
def test_a_dead_letter_that_was_cut_short_is_written_once(
    stop: Callable[[DeliveryShard, asyncio.Event], None], seed: int
) -> None:
    files = CrashingFiles()

    async def first_life() -> None:
        async with life(files) as node:
            await make_topic(node)
            await publish(node, b"good", b"bad")
            subscriber = await Subscriber().subscribe(node, BILLING)
            await until(lambda: len(subscriber.got) == 2)
            assert subscriber.ack(subscriber.got[0])
            await pause()
            (shard,) = node._engine.push.shards.all_here()
            reached = asyncio.Event()
            stop(shard, reached)
            assert subscriber.member is not None
            assert subscriber.member.reject(ORDERS, 1, "bad", "why")
            await reached.wait()
            files.power_cut(Random(seed), reorder=seed % 2 == 1)

    async def second_life() -> None:
        async with life(files) as node:
            subscriber = await Subscriber(acks=True).subscribe(node, BILLING)
            await publish(node, b"new")
            await until(lambda: bool(subscriber.got))
            await pause(5)

            assert subscriber.values == [b"new"]
            assert await values_in(node, "orders.dlq") == [b"bad"]
            (letter,) = await node.dead_letters.list(SESSION, "orders")
            assert letter.origin == (TopicPartition("orders", 0), 1, "billing", 1, "bad", "why")
            view = await node.deliveries.describe(SESSION, "billing")
            assert view.cursors[ORDERS].floor == 3
            (shard,) = node._engine.push.shards.all_here()
            assert not shard.writer.unfinished
            await pause()
            assert shard.stored.settled("billing") == {}, "marks are taken back"

    run(first_life())
    run(second_life())


def test_a_dead_letter_that_cannot_be_written_holds_up_only_its_own_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = CrashingFiles()
    other = replace(BILLING, name="other")

    async def first_life() -> None:
        async with life(files) as node:
            await make_topic(node)
            await publish(node, b"bad")
            subscriber = await Subscriber().subscribe(node, BILLING)
            await until(lambda: len(subscriber.got) == 1)
            (shard,) = node._engine.push.shards.all_here()
            reached = asyncio.Event()
            stop_after_the_intent(shard, reached)
            assert subscriber.member is not None
            assert subscriber.member.reject(ORDERS, 0, "bad", "why")
            await reached.wait()
            files.power_cut(Random(1), reorder=False)

    async def second_life() -> None:
        gate, deliver = asyncio.Event(), ExactlyOnceWriter._append_and_commit

        async def deliver_later(writer: ExactlyOnceWriter, *arguments: object) -> int:
            await gate.wait()
            return await deliver(writer, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(ExactlyOnceWriter, "_append_and_commit", deliver_later)
        async with life(files) as node:
            working = await Subscriber(acks=True).subscribe(node, other)
            waiting = asyncio.ensure_future(Subscriber(acks=True).subscribe(node, BILLING))
            await publish(node, b"new")
            await until(lambda: working.values == [b"bad", b"new"])
            await pause(30)
            assert not waiting.done()

            gate.set()
            subscriber = await waiting
            await until(lambda: subscriber.values == [b"new"])
            await pause()
            assert await values_in(node, "orders.dlq") == [b"bad"]

    run(first_life())
    run(second_life())


@pytest.mark.parametrize(
    "refusal",
    [OutOfResources("no free descriptor"), DamagedLog("a bad sector")],
    ids=["no_descriptor", "damaged"],
)
def test_a_record_whose_log_is_not_open_is_waited_for_and_not_taken_for_lost(
    refusal: StorageError, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CrashingFiles()

    async def first_life() -> None:
        async with life(files) as node:
            await make_topic(node)
            await publish(node, b"bad")
            subscriber = await Subscriber().subscribe(node, BILLING)
            await until(lambda: len(subscriber.got) == 1)
            (shard,) = node._engine.push.shards.all_here()
            reached = asyncio.Event()
            stop_after_the_intent(shard, reached)
            assert subscriber.member is not None
            assert subscriber.member.reject(ORDERS, 0, "bad", "why")
            await reached.wait()
            files.power_cut(Random(1), reorder=False)

    async def second_life() -> None:
        recover, is_refused = Recovery.recover, True

        def recover_if_possible(recovery: Recovery, opening: Opening) -> Log:
            if is_refused and opening.name == "orders-0":
                raise refusal
            return recover(recovery, opening)

        monkeypatch.setattr(Recovery, "recover", recover_if_possible)
        async with life(files) as node:
            log_id = node.topics.describe(SESSION, "orders").log(0)
            await until(lambda: log_id in node.hub.damaged)
            await asyncio.sleep(10)
            assert "orders.dlq" not in [topic.name for topic in node.topics.list(SESSION)] or (
                await values_in(node, "orders.dlq") == []
            )

            is_refused = False
            node.hub.keep(log_id, frozenset({ReplicaId(1)}), TopicSettings(), name="orders-0")
            await asyncio.sleep(10)

            assert await values_in(node, "orders.dlq") == [b"bad"]

    run(first_life())
    run(second_life())


@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize(
    ("kind", "error"),
    [("write", errno.ENOSPC), ("write", errno.EIO), ("sync", errno.EIO)],
    ids=["full", "failing", "not_syncing"],
)
def test_a_disk_that_refuses_once_makes_no_dead_letter_twice_and_loses_none(
    kind: str, error: int, nth: int
) -> None:
    files = CrashingFiles()
    patient = replace(BILLING, retry=RetryPolicy(max_retries=0, ack_timeout_ms=10**9))

    async def first_life() -> None:
        async with life(files) as node:
            await make_topic(node)
            await publish(node, b"a", b"bad", b"c")
            subscriber = await Subscriber().subscribe(node, patient)
            await until(lambda: len(subscriber.got) == 3)
            refuse = files.fail_write if kind == "write" else files.fail_sync
            refuse(nth, error=error)
            assert subscriber.member is not None
            assert subscriber.member.reject(ORDERS, 1, "bad", "why")
            await pause(30)
            files.heal()
            await pause(60)
            files.power_cut(Random(nth), reorder=nth % 2 == 1)

    async def second_life() -> None:
        async with life(files) as node:
            subscriber = await Subscriber(acks=True).subscribe(node, patient)
            await until(lambda: len(subscriber.got) >= 2)
            await pause(60)
            letters = await node.dead_letters.list(SESSION, "orders")
            together = [delivery.record.value or b"" for delivery in (*subscriber.got, *letters)]  # type: ignore[attr-defined]

            assert sorted(together) == [b"a", b"bad", b"c"]

    run(first_life())
    run(second_life())

"""Handing records over from a ledger of ours to a partition, whatever happens in between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from millstream.codec.records import Record
from millstream.engine.delayed.shard import DelayedShard
from millstream.engine.ledgers.exactly_once import ExactlyOnceWriter
from millstream.engine.ledgers.ledger import Entry
from millstream.errors import (
    NotLeader,
    OutOfOrderSequence,
    Overloaded,
    StorageUnavailable,
    UnknownTopic,
)
from millstream.internal_topics.outbound_sequences import OutboundSequence
from millstream.model import Acks, LogId, Offset
from millstream.replication.replica import Replica
from millstream.server.node import Node
from tests.support.nodes import NOW_MS, ORDERS, SESSION, batch
from tests.support.queues import batch_of, message, running_orders, values_in
from tests.support.virtual_loop import run


class Stage(NamedTuple):
    node: Node
    shard: DelayedShard  # Any shard will do.
    target: LogId
    replica: Replica  # Of the target.

    @property
    def writer(self) -> ExactlyOnceWriter:
        return self.shard.writer

    async def write(self, *values: bytes, done: tuple[Entry, ...] = ()) -> Offset:
        records = [Record(0, NOW_MS, None, value) for value in values]
        return await self.writer.write(self.target, values, records, done=done)

    def after_a_crash(self) -> ExactlyOnceWriter:
        """A writer that knows only what the ledger says."""
        writer = ExactlyOnceWriter(self.shard.ledger, self.node._engine.writer_context)
        fold = DelayedShard(self.shard._replica, self.node._engine.writer_context, lambda: None)
        fold.writer = writer
        while not fold.is_loaded:
            fold.load_some()
        return writer


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with running_orders() as node:
        far = batch_of(message(b"far", delay_ms=600_000))
        await node.partitions.append(SESSION, ORDERS, far, Acks.ALL)
        target = node.topics.describe(SESSION, "orders").log(0)
        yield Stage(
            node, node._engine.delayed_scheduler.find_now("orders"), target, node.hub.find(target)
        )


def test_records_arrive_as_one_batch_and_the_end_is_written_with_what_goes_with_it() -> None:
    async def story() -> None:
        async with stage() as here:
            await here.node.partitions.append(SESSION, ORDERS, batch(b"0"), Acks.ALL)
            mark = Entry(b"mark", b"1")

            assert await here.write(b"a", b"b", done=(mark,)) == 1
            assert await here.write(b"c") == 3

            assert await values_in(here.node) == [b"0", b"a", b"b", b"c"]
            await here.shard.all_committed()
            assert here.shard.skipped_count == 1  # The mark, which means nothing to this shard.
            assert here.writer.unfinished == {}
            assert here.after_a_crash().unfinished == {}

    run(story())


def test_what_was_delivered_before_a_crash_is_not_delivered_again() -> None:
    async def story() -> None:
        async with stage() as here:
            offset = await here.write(b"a", b"b")
            begun = here.writer._outbound[here.target]
            here.writer._record(here.target, OutboundSequence(begun.producer_id, 0, (b"a", b"b")))
            await here.shard.all_committed()

            writer = here.after_a_crash()
            assert writer.unfinished == {here.target: (b"a", b"b")}
            records = [Record(0, NOW_MS, None, value) for value in (b"a", b"b")]
            again = await writer.write(here.target, [b"a", b"b"], records)

            assert again == offset
            assert await values_in(here.node) == [b"a", b"b"]

    run(story())


def test_what_was_only_intended_before_a_crash_is_delivered_after_it() -> None:
    async def story() -> None:
        async with stage() as here:
            here.writer._record(here.target, OutboundSequence(7, 0, (b"a",)))
            await here.shard.all_committed()

            writer = here.after_a_crash()
            with pytest.raises(Overloaded, match="unfinished"):
                await writer.write(here.target, [b"b"], [Record(0, NOW_MS, None, b"b")])
            await writer.write(here.target, [b"a"], [Record(0, NOW_MS, None, b"a")])
            await writer.write(here.target, [b"b"], [Record(0, NOW_MS, None, b"b")])

            assert await values_in(here.node) == [b"a", b"b"]

    run(story())


def test_calls_take_turns_also_if_one_in_the_middle_goes_away() -> None:
    async def story() -> None:
        async with stage() as here:
            calls = [asyncio.ensure_future(here.write(b"%d" % at)) for at in range(4)]
            await asyncio.sleep(0)
            calls[1].cancel()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)

            assert isinstance(outcomes[1], asyncio.CancelledError)
            assert await values_in(here.node) == [b"0", b"2", b"3"]

    run(story())


def test_trouble_at_the_target_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with stage() as here:
            real, failures = here.replica.append, iter([True] * 5)

            def append(*arguments: object) -> object:
                if next(failures, False):
                    raise StorageUnavailable("the disk is full")
                return real(*arguments)  # type: ignore[arg-type]

            monkeypatch.setattr(here.replica, "append", append)
            await here.write(b"a")

            assert await values_in(here.node) == [b"a"]

    run(story())


def test_a_target_that_lost_its_past_gets_records_by_another_producer() -> None:
    async def story() -> None:
        async with stage() as here:
            await here.write(b"a", b"b")
            before = here.writer._outbound[here.target].producer_id
            # The log has one batch of this producer, but not the latest: it expects another one.
            here.writer._record(here.target, OutboundSequence(before, 90))
            await here.write(b"c")

            assert here.writer._outbound[here.target].producer_id != before
            assert await values_in(here.node) == [b"a", b"b", b"c"]

    run(story())


def test_a_deleted_target_is_told_and_forgotten() -> None:
    async def story() -> None:
        async with stage() as here:
            await here.write(b"a")
            await here.node.topics.delete(SESSION, "orders")

            with pytest.raises(UnknownTopic):
                await here.write(b"b")

            await here.shard.all_committed()
            assert here.after_a_crash().unfinished == {}

    run(story())


def test_an_intent_is_committed_again_where_only_the_waiting_for_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with stage() as here:
            real = here.shard.ledger.outcome

            async def outcome(end_offset: Offset) -> None:
                monkeypatch.setattr(here.shard.ledger, "outcome", real)
                raise Overloaded("too many wait")

            monkeypatch.setattr(here.shard.ledger, "outcome", outcome)
            with pytest.raises(Overloaded):
                await here.write(b"a")
            written = here.shard.ledger.written_offset
            await here.write(b"a")

            assert here.shard.ledger.written_offset == written + 2  # The intent, and its end.
            assert await values_in(here.node) == [b"a"]

    run(story())


def test_what_is_planned_is_appended_in_parts_and_a_crash_finds_how_far_it_came() -> None:
    async def story() -> None:
        async with stage() as here:
            writer, target = here.writer, here.target
            assert await writer.open(target) == ()
            writer.plan(target, [b"a", b"b", b"c"], ended_count=0, kept_count=0)
            await here.shard.all_committed()
            writer.append(target, [Record(0, NOW_MS, None, b"a")])
            writer.append(target, [Record(0, NOW_MS, None, b"b")])

            assert writer.begun_count(target) == 2
            after = here.after_a_crash()
            assert await after.open(target) == (b"a", b"b", b"c")
            assert after.begun_count(target) == 2
            mark = Entry(b"mark", b"1")
            after.plan(target, [b"d"], ended_count=1, kept_count=2, done=[mark])
            await here.shard.all_committed()
            appended = after.append(target, [Record(0, NOW_MS, None, b"d")])
            await here.replica.committed(appended.end_offset, None)

            assert after.unfinished == {target: (b"b", b"d")}
            assert after.begun_count(target) == 2
            assert await values_in(here.node) == [b"a", b"b", b"d"]

    run(story())


def test_a_log_that_has_not_what_a_lane_says_is_told_apart() -> None:
    async def story() -> None:
        async with stage() as here:
            writer, target = here.writer, here.target
            await here.write(b"a", b"b")
            writer._record(
                target, OutboundSequence(writer._outbound[target].producer_id, 9, (b"c",))
            )

            with pytest.raises(OutOfOrderSequence):
                writer.begun_count(target)
            await writer.replace_producer(target)

            assert writer.begun_count(target) == 0
            writer.append(target, [Record(0, NOW_MS, None, b"c")])
            assert writer.begun_count(target) == 1

    run(story())


def test_a_log_that_is_led_elsewhere_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with stage() as here:
            await here.writer.open(here.target)
            monkeypatch.setattr(type(here.replica), "is_ready", False)
            with pytest.raises(NotLeader):
                here.writer.begun_count(here.target)

    run(story())


def test_a_shard_holds_its_log_until_it_has_folded_it() -> None:
    async def story() -> None:
        async with stage() as here:
            records = here.shard._replica.log
            assert not records.is_held

            fold = DelayedShard(here.shard._replica, here.node._engine.writer_context, lambda: None)
            assert records.is_held
            while not fold.is_loaded:
                fold.load_some()
            assert not records.is_held

            left = DelayedShard(here.shard._replica, here.node._engine.writer_context, lambda: None)
            left._forget()
            assert not records.is_held

    run(story())

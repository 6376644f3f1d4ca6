"""When sync rounds begin: at once for a waiter, together without one. What they do then."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import pytest

from millstream.config import Config
from millstream.engine.partitions.slices import Want
from millstream.errors import DamagedLog, OutOfResources, StorageError, StorageUnavailable
from millstream.metrics import SYNC_ROUNDS
from millstream.model import Acks, Appended, Epoch, HardState, LogId, Position, TopicPartition
from millstream.ports import Files
from millstream.raft.member import Effects
from millstream.replication.group_commit import LANES_MAX, LINGER_S
from millstream.replication.replica import Replica
from millstream.server.node import Node, build_node, running
from millstream.storage.files.memory import MemoryFiles
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import ORDERS, SESSION, batch, fake_ports, running_node
from tests.support.virtual_loop import run

COUNT = 100
PARTITIONS = 2 * LANES_MAX

T = TypeVar("T")


class CountedThreads:
    """Each job takes longer than the one that began before it, and is done at its end."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_work = 0
        self.at_work_most = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.begun += 1
        self.at_work += 1
        self.at_work_most = max(self.at_work_most, self.at_work)
        try:
            await asyncio.sleep(0.001 * self.at_work)
            return work()
        finally:
            self.at_work -= 1


def counted_node(threads: CountedThreads, files: Files | None = None) -> Node:
    ports = replace(fake_ports(files or MemoryFiles()), threads=threads, sync_threads=threads)
    return build_node(Config(), ports)


def append_to_all(node: Node) -> "list[asyncio.Future[Appended]]":
    return [
        node.partitions.append(SESSION, TopicPartition("orders", at), batch(b"a"), Acks.ALL)
        for at in range(PARTITIONS)
    ]


async def orders(node: Node) -> None:
    await node.topics.create(SESSION, "orders")
    await asyncio.sleep(1)


def end(node: Node) -> int:
    return node.partitions.health(SESSION, ORDERS).high_watermark


def test_writes_without_waiters_share_a_round() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            before = node.metrics.value(SYNC_ROUNDS)
            for _ in range(COUNT):
                await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)
                await asyncio.sleep(LINGER_S / COUNT)

            assert node.metrics.value(SYNC_ROUNDS) - before <= 2
            await asyncio.sleep(2 * LINGER_S)
            assert end(node) == COUNT

    run(story())


def test_who_waits_for_the_disk_waits_for_nothing_else() -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            loop = asyncio.get_running_loop()
            started = loop.time()

            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            assert loop.time() - started < LINGER_S

    run(story())


@pytest.mark.parametrize("is_reader_first", [True, False])
def test_a_waiting_reader_sees_an_unacknowledged_write_without_delay(is_reader_first: bool) -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            loop = asyncio.get_running_loop()
            started = loop.time()
            if not is_reader_first:
                node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(
                    node.partitions.read(
                        SESSION, [Want(ORDERS, 0, 2**20)], min_bytes=1, deadline=started + 60
                    )
                )
                await asyncio.sleep(0)
                if is_reader_first:
                    node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.LEADER)

            assert reading.result()[0].size > 0
            assert loop.time() - started < LINGER_S

    run(story())


def test_with_durability_write_the_system_is_trusted_at_once_and_synced_later() -> None:
    async def story() -> None:
        async with running_node(Config(durability="write")) as node:
            await orders(node)
            before = node.metrics.value(SYNC_ROUNDS)
            loop = asyncio.get_running_loop()
            started = loop.time()

            waiting = [
                node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL) for _ in range(COUNT)
            ]
            await asyncio.gather(*waiting)

            assert loop.time() == started
            assert end(node) == COUNT
            assert node.metrics.value(SYNC_ROUNDS) == before
            await asyncio.sleep(2 * node.config.timing.flush_interval_ms / 1000)
            assert node.metrics.value(SYNC_ROUNDS) == before + 1

    run(story())


def test_with_durability_write_an_append_is_committed_in_the_turn_of_its_request() -> None:
    async def story() -> None:
        async with running_node(Config(durability="write")) as node:
            await orders(node)

            appended = node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            assert appended.done()
            assert end(node) == 1

    run(story())


def test_with_durability_write_a_dirty_journal_is_synced_before_records_are_committed() -> None:
    async def story() -> None:
        async with running_node(Config(durability="write")) as node:
            await orders(node)
            node.hub._journal.vote(LogId(UUID(int=9), 0), HardState(Epoch(1), None))
            before = node.metrics.value(SYNC_ROUNDS)
            loop = asyncio.get_running_loop()
            started = loop.time()

            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)

            assert loop.time() - started < node.config.timing.flush_interval_ms / 1000
            assert node.metrics.value(SYNC_ROUNDS) == before + 1

    run(story())


def test_the_logs_of_a_round_are_synced_side_by_side_but_not_all_at_once() -> None:
    async def story() -> None:
        threads = CountedThreads()
        async with running(counted_node(threads)) as node:
            await node.topics.create(SESSION, "orders", partitions=PARTITIONS)
            await asyncio.sleep(1)
            threads.at_work_most = 0
            rounds = node.metrics.value(SYNC_ROUNDS)

            await asyncio.gather(*append_to_all(node))

            assert threads.at_work_most == LANES_MAX
            assert node.metrics.value(SYNC_ROUNDS) == rounds + 1

    run(story())


def test_a_failed_round_ends_when_no_thread_is_at_it_any_more() -> None:
    async def story() -> None:
        threads, files = CountedThreads(), CrashingFiles()
        async with running(counted_node(threads, files)) as node:
            await node.topics.create(SESSION, "orders", partitions=PARTITIONS)
            await asyncio.sleep(1)
            written = append_to_all(node)
            files.fail_sync()  # One sync: the first that is tried.

            await asyncio.wait(written, return_when=asyncio.FIRST_EXCEPTION)

            assert threads.at_work == 0
            assert all(isinstance(future.exception(), StorageUnavailable) for future in written)

    run(story())


def test_a_reader_who_comes_while_a_round_is_under_way_begins_no_round_of_its_own() -> None:
    async def story() -> None:
        threads = CountedThreads()
        async with running(counted_node(threads)) as node:
            await orders(node)
            written = node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            while not threads.at_work:
                await asyncio.sleep(0)
            begun = threads.begun
            deadline = asyncio.get_running_loop().time() + 60

            records = await node.partitions.read(
                SESSION, [Want(ORDERS, 0, 2**20)], min_bytes=1, deadline=deadline
            )
            await written
            await asyncio.sleep(2 * LINGER_S)

            assert records[0].size > 0
            assert threads.begun == begun

    run(story())


@pytest.mark.parametrize("is_for_good", [True, False])
def test_a_report_that_needs_a_disk_that_refuses_does_not_end_the_node(is_for_good: bool) -> None:
    async def story() -> None:
        async with running_node() as node:
            await orders(node)
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            problem = DamagedLog("a bad sector") if is_for_good else OutOfResources("no file")
            refuse_once(replica, problem)

            written = node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            (outcome,) = await asyncio.gather(written, return_exceptions=True)

            if is_for_good:
                assert isinstance(outcome, StorageUnavailable)
                assert not replica.is_leader
            else:
                assert not isinstance(outcome, BaseException)
                assert end(node) == 1
            await node.topics.create(SESSION, "other")

    run(story())


def refuse_once(replica: Replica, problem: StorageError) -> None:
    def durable(position: Position) -> Effects:
        replica.core.durable = original  # type: ignore[method-assign]
        raise problem

    original = replica.core.durable
    replica.core.durable = durable  # type: ignore[method-assign]

"""Long work of a node's storage is cut into steps: no turn of the event loop takes over 20 ms."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.codec.batch import read_header
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config, Timing
from millstream.embedding.partitions import Partitions as EmbeddedPartitions
from millstream.engine.partitions.slices import AtMaxTimestamp, AtTime, LastRecords, Place, Want
from millstream.errors import NotLeader
from millstream.model import Acks, ReplicaId, TopicPartition
from millstream.ports import Ports
from millstream.server.node import Node, build_node, running
from millstream.server.system.real_ports import real_ports
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log.aborted import Aborted
from millstream.storage.log.producers import Producers
from tests.support.logs import append
from tests.support.logs import batch as stamped_batch
from tests.support.loop_turns import run_timed, timed_loop
from tests.support.nodes import ORDERS, SESSION, batch

TURN_S_MAX = 0.020


@asynccontextmanager
async def real_node(config: Config, ports: Ports | None = None) -> AsyncIterator[Node]:
    async with running(build_node(config, ports or real_ports(config))) as node:
        yield node


def test_retention_looks_at_many_partitions_in_many_turns() -> None:
    partitions = 3_000  # Far more than fits into one turn.

    async def story() -> None:
        timing = Timing(retention_check_ms=300)
        async with real_node(Config(storage="memory", timing=timing, durability="write")) as node:
            await node.topics.create(SESSION, "orders", partitions=partitions)
            for partition in range(partitions):
                target = TopicPartition("orders", partition)
                await node.partitions.append(SESSION, target, batch(b"old"), Acks.LEADER)
            async with timed_loop().turns_at_most(TURN_S_MAX):
                await asyncio.sleep(1)

    run_timed(story())


def test_logs_that_are_written_at_the_same_time_are_synced_in_many_turns() -> None:
    partitions = 3_000  # In one round the loop was held up for 45 ms before it and after it.

    async def story() -> None:
        async with real_node(Config(storage="memory")) as node:
            await node.topics.create(SESSION, "orders", partitions=partitions)
            written = [
                node.partitions.append(
                    SESSION, TopicPartition("orders", partition), batch(b"a"), Acks.ALL
                )
                for partition in range(partitions)
            ]
            async with timed_loop().turns_at_most(TURN_S_MAX):
                await asyncio.gather(*written)

    run_timed(story())


def test_producers_are_folded_in_many_turns_after_a_truncation() -> None:
    count = 40_000  # Far more than fits into one turn.

    async def story() -> None:
        async with real_node(Config(storage="memory")) as node:
            await node.topics.create(SESSION, "orders")
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            records = replica.log
            for at in range(count + 1):
                batch = stamped_batch(at, producer_id=9, sequence=at, epoch=replica.core.epoch)
                append(records, batch, now_ms=0)
            async with timed_loop().turns_at_most(TURN_S_MAX):
                records.truncate(count)
                node.hub._folding.follow(replica)
                assert not replica.is_ready
                await until(lambda: replica.is_ready)
            assert records.producers.next_sequence(9, 0) == count

    run_timed(story())


def many_producers() -> Producers:
    """As many as a log may remember, and a million transactions that were rolled back."""
    producers = Producers()
    for producer_id in range(100_000):
        for sequence in range(2):
            offset = 2 * producer_id + sequence
            batch = stamped_batch(offset, producer_id=producer_id, sequence=sequence)
            producers.apply(read_header(batch))
    for at in range(1_000_000):
        producers._aborted.append(Aborted(at, at, at), stable_offset=at)
    return producers


@pytest.mark.slow
def test_a_snapshot_of_many_producers_is_taken_and_read_without_holding_up_the_loop() -> None:
    producers = many_producers()
    expected = producers.encode()

    async def story() -> None:
        async with real_node(Config(storage="memory")) as node:
            await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            log = replica.log
            log.producers = producers
            async with timed_loop().turns_at_most(TURN_S_MAX):
                log.roll()
                for _ in range(2):
                    await node.partitions.append(SESSION, ORDERS, batch(b"b"), Acks.ALL)
                    log.producers.apply(
                        read_header(stamped_batch(9, producer_id=7, sequence=2)), None
                    )
                await until(lambda: not log._chain.snapshots.due)
                log.truncate(1)
                node.hub._folding.follow(replica)
                assert not replica.is_ready
                await until(lambda: replica.is_ready)

            assert log.producers.encode() == expected

    run_timed(story())


@pytest.mark.slow
def test_a_log_of_many_producers_is_compacted_without_holding_up_the_loop() -> None:
    producers = many_producers()

    async def story() -> None:
        async with real_node(Config(storage="memory")) as node:
            compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
            await node.topics.create(SESSION, "orders", settings=compacted)
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            keyed = encode_batch([Record(0, 0, b"key", b"value")])
            for _ in range(2):
                await node.partitions.append(SESSION, ORDERS, keyed, Acks.ALL)
            replica.log.roll()
            await node.partitions.append(SESSION, ORDERS, keyed, Acks.ALL)
            await until(lambda: bool(replica.log.sealed()))
            for at in range(len(producers._aborted)):
                producers._aborted._first_offsets[at] = 0  # Each is in question.
            replica.log.producers = producers
            size = replica.log.health().size_bytes
            async with timed_loop().turns_at_most(TURN_S_MAX):
                await node.hub.upkeep.compact(replica)
            assert replica.log.health().size_bytes < size

    run_timed(story())


def test_a_lost_index_is_built_again_without_holding_up_the_loop() -> None:
    count = 40_000  # Far more than fits into one turn.

    async def story() -> None:
        files = MemoryFiles()
        config = Config(storage="memory")
        ports = replace(real_ports(config), files=files)
        async with running(build_node(config, ports)) as node:
            await node.topics.create(SESSION, "orders")
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            records = replica.log
            for at in range(count):
                append(records, stamped_batch(at, epoch=replica.core.epoch), now_ms=0)
            records.roll()
            await node.partitions.append(SESSION, ORDERS, batch(b"end"), Acks.ALL)
            await until(lambda: bool(records.sealed()))
            (segment,) = records.sealed()
            files.remove(segment.index_path)
            node.hub._cache.forget(segment)

            async with timed_loop().turns_at_most(TURN_S_MAX):
                (part,) = await node.partitions.read(SESSION, [Want(ORDERS, count // 2, 100)])

            assert part.error is None
            assert part.records is not None
            assert part.records.base_offset == count // 2

    run_timed(story())


@pytest.mark.parametrize(
    "place",
    [AtTime(10**12 + 1), AtMaxTimestamp(), LastRecords(30_000)],
    ids=["time", "newest", "tail"],
)
def test_an_offset_is_looked_up_behind_a_lost_index_in_many_turns(place: Place) -> None:
    count = 40_000  # Far more than fits into one turn.

    async def story() -> None:
        files = MemoryFiles()
        config = Config(storage="memory")
        ports = replace(real_ports(config), files=files)
        async with running(build_node(config, ports)) as node:
            await node.topics.create(SESSION, "orders")
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            records = replica.log
            for at in range(count):
                timestamp = 10**12 + (at == count - 10)
                timed_batch = stamped_batch(at, timestamp=timestamp, epoch=replica.core.epoch)
                append(records, timed_batch, now_ms=0)
            records.roll()
            await node.partitions.append(SESSION, ORDERS, batch(b"end"), Acks.ALL)
            await until(lambda: bool(records.sealed()))
            node.partitions.delete_records(SESSION, ORDERS, 1)  # Now every header is looked at.
            (segment,) = records.sealed()
            files.remove(segment.index_path)
            node.hub._cache.forget(segment)

            async with timed_loop().turns_at_most(TURN_S_MAX):
                position = await node.partitions.find(SESSION, ORDERS, place)

            assert position is not None
            expected = {AtTime: count - 10, AtMaxTimestamp: count, LastRecords: count + 1 - 30_000}
            assert position.offset == expected[type(place)]

    run_timed(story())


def bomb(base_offset: int = 0) -> bytes:
    """2 KiB that unpack to 16 MiB."""
    old = Record(base_offset, 1, None, bytes(16 * 2**20 - 100))
    new = Record(base_offset + 1, 2, None, b"new")
    return encode_batch([old, new], codec=Codec.ZSTD)


def test_records_are_found_by_time_and_fetched_from_bombs_without_holding_up_the_loop() -> None:
    async def story() -> None:
        config = Config(storage="memory")
        async with real_node(config) as node:
            await node.topics.create(SESSION, "orders")
            embedded = EmbeddedPartitions(SESSION, node, clock=node.clock)
            await node.partitions.append(SESSION, ORDERS, bomb(), Acks.ALL)

            async with timed_loop().turns_at_most(TURN_S_MAX):
                by_time = await node.partitions.find(SESSION, ORDERS, AtTime(2))
                newest = await node.partitions.find(SESSION, ORDERS, AtMaxTimestamp())
                fetched = await embedded.fetch("orders", 0, 0)

            assert by_time == newest
            assert by_time is not None
            assert by_time.offset == 1
            assert [record.offset for record in fetched.records] == [0, 1]

    run_timed(story())


def test_an_embedded_fetch_ends_before_many_bombs_fill_the_memory() -> None:
    async def story() -> None:
        async with real_node(Config(storage="memory")) as node:
            await node.topics.create(SESSION, "orders")
            embedded = EmbeddedPartitions(SESSION, node, clock=node.clock)
            for _ in range(10):
                await node.partitions.append(SESSION, ORDERS, bomb(), Acks.ALL)

            offsets: list[int] = []
            fetches = offset = 0
            while offset < 20:
                fetched = await embedded.fetch("orders", 0, offset)
                offsets += [record.offset for record in fetched.records]
                offset, fetches = fetched.next_offset, fetches + 1

            assert offsets == list(range(20))
            assert fetches > 1  # 64 MiB and one batch at most in each.

    run_timed(story())


def test_a_compacted_segment_is_read_until_the_swap_without_building_its_index_again() -> None:
    count = 40_000  # Far more than fits into one turn.

    async def story() -> None:
        async with real_node(Config(storage="memory")) as node:
            compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
            await node.topics.create(SESSION, "orders", settings=compacted)
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            for at in range(count):
                append(replica.log, stamped_batch(at, epoch=replica.core.epoch), now_ms=0)
            replica.log.roll()
            keyed = Record(0, 0, b"key", b"end")
            await node.partitions.append(SESSION, ORDERS, encode_batch([keyed]), Acks.ALL)
            await until(lambda: bool(replica.log.sealed()))
            (segment,) = replica.log.sealed()

            async with timed_loop().turns_at_most(TURN_S_MAX):
                replica.log.begin_replace([segment])()
                node.hub._cache.forget_table(segment)
                (part,) = await node.partitions.read(SESSION, [Want(ORDERS, count // 2, 100)])

            assert part.error is None
            assert part.records is not None
            assert part.records.base_offset == count // 2
            assert not node.hub._work._queue

    run_timed(story())


def test_the_window_of_message_ids_is_found_in_many_turns() -> None:
    count = 40_000  # Far more than fits into one turn.

    async def story() -> None:
        async with real_node(Config(storage="memory")) as node:
            await node.topics.create(SESSION, "orders")
            replica = node.hub.find(node.topics.describe(SESSION, "orders").log(0))
            now_ms = node.clock.now_ms()
            for at in range(count):
                batch = stamped_batch(at, timestamp=now_ms, epoch=replica.core.epoch)
                append(replica.log, batch, now_ms=now_ms)
            with_id = Record(0, now_ms, None, b"a", (("ms-message-id", b"1"),))
            async with timed_loop().turns_at_most(TURN_S_MAX):
                await node.partitions.append(SESSION, ORDERS, encode_batch([with_id]), Acks.ALL)

    run_timed(story())


def test_a_log_is_recovered_without_holding_up_the_loop() -> None:
    count = 40_000  # Far more than fits into one turn.

    async def story() -> None:
        files = MemoryFiles()
        config = Config(storage="memory")
        ports = replace(real_ports(config), files=files)
        async with real_node(config, ports) as node:
            await node.topics.create(SESSION, "orders")
            log_id = node.topics.describe(SESSION, "orders").log(0)
            replica = node.hub.find(log_id)
            for at in range(count):
                batch = stamped_batch(at, producer_id=9, sequence=at, epoch=replica.core.epoch)
                append(replica.log, batch, now_ms=0)
            # As a power cut would leave it: without an index.
            del node.hub.replicas[log_id]
            settings = replica.log.settings
            replica.leave()
            replica.log.abandon()
            async with timed_loop().turns_at_most(TURN_S_MAX):
                node.hub.keep(log_id, frozenset({ReplicaId(node.config.node_id)}), settings)
                with pytest.raises(NotLeader):
                    node.hub.find(log_id)
                await node.hub.led(log_id)
            again = node.hub.find(log_id)
            assert again.log.end_offset == count
            assert again.log.producers.next_sequence(9, 0) == count

    run_timed(story())


def test_a_topic_of_many_partitions_comes_and_goes_in_many_turns() -> None:
    partitions = 3_000  # Far more than fits into one turn.

    async def story() -> None:
        async with real_node(Config(storage="memory")) as node:
            async with timed_loop().turns_at_most(TURN_S_MAX):
                topic = await node.topics.create(SESSION, "orders", partitions=partitions)
            assert all(node.hub.find(topic.log(at)).is_ready for at in range(partitions))
            async with timed_loop().turns_at_most(TURN_S_MAX):
                await node.topics.delete(SESSION, "orders")
                await until(lambda: len(node.hub.replicas) == 1)

    run_timed(story())


def test_the_files_of_a_deleted_topic_go_without_holding_up_the_loop(tmp_path: Path) -> None:
    async def story() -> None:
        config = Config(data_dir=str(tmp_path), durability="write")
        async with real_node(config) as node:
            await node.topics.create(SESSION, "orders")
            await node.partitions.append(SESSION, ORDERS, batch(b"a"), Acks.ALL)
            directory = tmp_path / f"logs/{node.topics.describe(SESSION, 'orders').log(0)}"
            await asyncio.to_thread(fill, directory)
            async with timed_loop().turns_at_most(TURN_S_MAX):
                await node.topics.delete(SESSION, "orders")
                await until(lambda: not directory.exists())

    run_timed(story())


def fill(directory: Path) -> None:
    for number in range(5_000):  # Far more than fits into one turn.
        (directory / f"{number:020d}.index").touch()


async def until(is_true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)

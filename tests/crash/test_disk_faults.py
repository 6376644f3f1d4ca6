"""What a whole node does when its disk is full, refuses a sync, or lies."""

import asyncio

import pytest

from millstream.config import Config
from millstream.engine.partitions.slices import Want
from millstream.errors import DamagedRecords, StorageUnavailable
from millstream.metrics import DISK_FULL, DISK_USABLE
from millstream.model import Acks, LogId
from millstream.server.node import Node
from millstream.settings import TopicSettings
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import ORDERS, SESSION, batch, running_node, values_of
from tests.support.virtual_loop import run

SMALL_SEGMENTS = Config(topic_defaults=TopicSettings(segment_bytes=1024))


async def append(node: Node, *values: bytes) -> int:
    appended = await node.partitions.append(SESSION, ORDERS, batch(*values), Acks.ALL)
    return appended.base_offset


async def append_often(node: Node, value: bytes, *, count: int) -> None:
    for _ in range(count):
        await append(node, value)


async def read_all(node: Node) -> list[bytes | None]:
    values: list[bytes | None] = []
    while True:
        (part,) = await node.partitions.read(SESSION, [Want(ORDERS, len(values), 2**20)])
        assert part.error is None, part.error
        if part.records is None:
            return values
        values += values_of(part)


def segment(files: CrashingFiles, log: LogId, number: int = 0) -> str:
    names = [n for n in files.list(f"logs/{log}") if n.endswith(".log")]
    return f"logs/{log}/{names[number]}"


def test_a_full_disk_refuses_appends_serves_reads_and_recovers_by_itself() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_node(SMALL_SEGMENTS, files=files) as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"before")

            files.space_left = 10
            for _ in range(3):
                with pytest.raises(StorageUnavailable):
                    await append(node, b"refused" * 20)
            seen_while_full = await read_all(node)
            files.space_left = None
            offset = await append(node, b"after")

            assert seen_while_full == [b"before"]
            assert offset == 1
            assert await read_all(node) == [b"before", b"after"]

    run(story())


def test_a_full_disk_is_named_as_a_problem_until_there_is_space() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_node(SMALL_SEGMENTS, files=files) as node:
            await node.topics.create(SESSION, "orders")

            files.space_left = 10
            with pytest.raises(StorageUnavailable):
                await append(node, b"refused" * 20)
            await asyncio.sleep(5)
            (problem,) = node.partitions.storage_problems(SESSION)
            was_full = node.metrics.value(DISK_FULL)
            files.space_left = None
            await asyncio.sleep(5)

            assert (problem.target, problem.is_disk_full) == (ORDERS, True)
            assert was_full == 1
            assert node.partitions.storage_problems(SESSION) == []
            assert node.metrics.value(DISK_FULL) == 0

    run(story())


def test_a_full_disk_while_rolling_loses_nothing() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_node(SMALL_SEGMENTS, files=files) as node:
            await node.topics.create(SESSION, "orders")
            written = []
            for number in range(60):
                value = b"%d" % number * 100
                files.space_left = 400 if number % 3 else None
                try:
                    await append(node, value)
                except StorageUnavailable:
                    continue
                written.append(value)

            files.space_left = None
            await append(node, b"last")

            assert await read_all(node) == [*written, b"last"]

        files.power_cut(worst=True)
        async with running_node(SMALL_SEGMENTS, files=files) as node:
            assert await read_all(node) == [*written, b"last"]

    run(story())


def test_a_node_starts_on_a_full_disk_and_serves_reads() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"a")
        files.power_cut(worst=True)

        files.space_left = 0
        async with running_node(files=files) as node:
            assert await read_all(node) == [b"a"]
            # What was set aside for starting is room for little more.
            with pytest.raises(StorageUnavailable):
                await append_often(node, b"b" * 100_000, count=30)

    run(story())


def test_a_failed_sync_is_never_trusted_again_but_reads_go_on() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"safe")

            files.fail_sync()
            with pytest.raises(StorageUnavailable):
                await append(node, b"lost in the cache")
            for acks in Acks:  # The disk would take it now. The log does not try again.
                with pytest.raises(StorageUnavailable):
                    await node.partitions.append(SESSION, ORDERS, batch(b"late"), acks)

            assert await read_all(node) == [b"safe"]
            assert node.metrics.value(DISK_USABLE) == 0

        async with running_node(files=files) as node:
            assert await read_all(node) == [b"safe"]
            assert await append(node, b"again") == 1

    run(story())


def test_a_failed_sync_answers_everyone_who_waits() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders")

            files.fail_sync()
            outcomes = await asyncio.gather(
                *(append(node, b"%d" % n) for n in range(20)), return_exceptions=True
            )

            assert all(isinstance(outcome, StorageUnavailable) for outcome in outcomes)

    run(story())


def test_a_bit_flip_in_a_synced_segment_is_refused_to_readers_and_nothing_else_is() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_node(SMALL_SEGMENTS, files=files) as node:
            topic = await node.topics.create(SESSION, "orders")
            await node.topics.create(SESSION, "others")
            for number in range(30):
                await append(node, b"%d" % number * 100)
        log = topic.log(0)
        names = files.list(f"logs/{log}")
        # Without its index the segment must be read, and then the flip shows.
        files.flip_bit(segment(files, log, 1), 200)
        files.remove(segment(files, log, 1).replace(".log", ".index"))

        async with running_node(SMALL_SEGMENTS, files=files) as node:
            await append(node, b"more")
            (bad,) = node.hub.replicas[log].log.damage()
            for offset in range(31):
                want = Want(ORDERS, offset, 1)
                (part,) = await node.partitions.read(SESSION, [want])
                if offset == bad.base_offset:
                    assert isinstance(part.error, DamagedRecords)
                    assert f"repair --skip orders/0@{offset}" in str(part.error)
                else:
                    assert part.records is not None
                    assert part.records.base_offset == offset
            assert [t.name for t in node.topics.list(SESSION)] == ["orders", "others"]
            assert {*names} <= {*files.list(f"logs/{log}")}

    run(story())


def test_one_round_of_syncs_serves_everyone_who_waits() -> None:
    async def story() -> None:
        files = CrashingFiles()
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "orders")
            await append(node, b"first")
            syncs: list[str] = []
            files.on_operation = lambda kind, path: syncs.append(path) if kind == "sync" else None

            await asyncio.gather(*(append(node, b"%d" % n) for n in range(100)))

            assert len([path for path in syncs if path.endswith(".log")]) <= 2

    run(story())


def test_with_durability_write_acks_do_not_wait_for_the_disk() -> None:
    async def story() -> None:
        files = CrashingFiles()
        config = Config(durability="write")
        async with running_node(config, files=files) as node:
            await node.topics.create(SESSION, "orders")
            await asyncio.sleep(1)
            syncs: list[str] = []
            files.on_operation = lambda kind, path: syncs.append(path) if kind == "sync" else None

            await append(node, b"a")
            synced_at_once = list(syncs)
            await asyncio.sleep(config.timing.flush_interval_ms / 1000 + 0.1)

            assert synced_at_once == []
            assert any(path.endswith(".log") for path in syncs)

    run(story())

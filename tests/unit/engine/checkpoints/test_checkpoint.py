"""A checkpoint holds all logs as they were at one moment, while they are written and cleaned."""

import asyncio
import json
from functools import partial

import pytest

from millstream.config import Config
from millstream.engine.checkpoints.checkpoint import (
    CHECKPOINT,
    LOCK,
    MANIFEST,
    make_checkpoint,
    remove_checkpoint,
)
from millstream.engine.partitions.slices import Want
from millstream.errors import InvalidRequest
from millstream.model import Acks, TopicPartition
from millstream.server.node import Node
from millstream.storage.files.directory import JOURNAL
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import SESSION, batch, fake_ports, running_node, values_of
from tests.support.virtual_loop import run

FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 0)


def copied(files: MemoryFiles) -> MemoryFiles:
    """The data directory that a backup of the checkpoint would restore."""
    manifest = files.open(f"{CHECKPOINT}/{MANIFEST}")
    sizes = json.loads(manifest.read(0, manifest.size()))["files"]
    copy = MemoryFiles()
    for path, size in sizes.items():
        source = files.open(f"{CHECKPOINT}/{path}")
        data = source.read(0, size)
        assert len(data) == size, path
        copy.make_directory(path.rpartition("/")[0])
        copy.open(path, create=True).write(0, [data])
    return copy


async def read_all(node: Node, target: TopicPartition) -> list[bytes | None]:
    """All values; small segments make it several reads."""
    values: list[bytes | None] = []
    health = node.partitions.health(SESSION, target)
    start = offset = health.log.start_offset
    while offset < health.high_watermark:
        (part,) = await node.partitions.read(SESSION, [Want(target, offset, 2**20)])
        if part.error is not None:
            raise part.error
        values += values_of(part)
        offset = start + len(values)
    return values


async def write_pairs(node: Node, numbers: range) -> None:
    """Each number to the first topic, and once that is acknowledged to the second."""
    for number in numbers:
        for target in (FIRST, SECOND):
            await node.partitions.append(SESSION, target, batch(b"%d" % number), Acks.ALL)


@pytest.mark.parametrize("before", [0, 3, 40])
def test_a_checkpoint_under_load_is_one_moment(before: int) -> None:
    async def story() -> None:
        files = MemoryFiles()
        settings = {"segment_bytes": "1024"}
        async with running_node(files=files) as node:
            for target in (FIRST, SECOND):
                await node.topics.create(SESSION, target.topic, settings=settings)
            await write_pairs(node, range(before))
            writing = asyncio.create_task(write_pairs(node, range(before, before + 60)))
            await asyncio.sleep(0.02)
            made = await make_checkpoint(node.hub, fake_ports(files))
            await writing
        assert made.log_count >= 2

        async with running_node(files=copied(files)) as node:
            first, second = await read_all(node, FIRST), await read_all(node, SECOND)

        assert len(first) - len(second) in (0, 1)
        assert len(second) >= before
        assert first == [b"%d" % number for number in range(len(first))]
        assert second == first[: len(second)]

    run(story())


def test_logs_that_rest_are_in_a_checkpoint() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(files=files) as node:
            for target in (FIRST, SECOND):
                await node.topics.create(SESSION, target.topic)
            await write_pairs(node, range(3))
        async with running_node(Config(opens_logs_on_use=True), files=files) as node:
            assert len(node.hub.resting) >= 2
            await make_checkpoint(node.hub, fake_ports(files))

        async with running_node(files=copied(files)) as node:
            assert await read_all(node, SECOND) == [b"0", b"1", b"2"]

    run(story())


class Rolling(MemoryFiles):
    """Replaces a log's segment while its files are linked, as compaction may."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[object] = []

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        if self.meanwhile and source.endswith(".log"):
            work = self.meanwhile.pop()
            assert callable(work)
            work()


def test_a_log_that_retention_shortens_meanwhile_begins_the_checkpoint_again() -> None:
    async def story() -> None:
        files = Rolling()
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, FIRST.topic, settings={"segment_bytes": "1024"})
            await node.topics.create(SESSION, SECOND.topic)
            await write_pairs(node, range(60))
            log_id = next(
                each for each, log in node.hub.replicas.items() if len(log.log.segments()) > 2
            )
            replica = node.hub.replicas[log_id]
            files.meanwhile.append(lambda: replica.advance_start(50))
            await make_checkpoint(node.hub, fake_ports(files))
            assert not files.meanwhile

        async with running_node(files=copied(files)) as node:
            values = await read_all(node, FIRST)
            assert values == [b"%d" % number for number in range(50, 60)]

    run(story())


def test_a_checkpoint_is_removed_and_one_that_is_copied_from_is_not() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(Config(), files=files) as node:
            await make_checkpoint(node.hub, fake_ports(files))
            assert files.exists(f"{CHECKPOINT}/{JOURNAL}")
            lock = files.lock(LOCK)
            with pytest.raises(InvalidRequest, match="another backup"):
                await make_checkpoint(node.hub, fake_ports(files))
            lock.close()
            remove_checkpoint(files)
            assert not files.exists(CHECKPOINT)
            await make_checkpoint(node.hub, fake_ports(files))
        async with running_node(Config(), files=files):
            await asyncio.sleep(1)
            assert not files.exists(CHECKPOINT)  # A start removes the one of a killed backup.

    run(story())


def test_files_of_the_checkpoint_are_read_and_no_others() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(Config(), files=files) as node:
            await node.topics.create(SESSION, FIRST.topic)
            await node.partitions.append(SESSION, FIRST, batch(b"1"), Acks.ALL)
            _, made = await node.checkpoints.make(SESSION)

            read = partial(node.checkpoints.read, SESSION)
            body = json.loads(await read(made.id, MANIFEST, 0))
            for path, size in body["files"].items():
                assert len(await read(made.id, path, 0)) >= size
                assert await read(made.id, path, 2**40) == b""
            led = {name.split("/")[1] for name in body["files"] if name.startswith("logs/")}
            assert led == set(body["led"])
            for path in (f"../{JOURNAL}", f"/{JOURNAL}", "logs/nothing", "logs", ""):
                with pytest.raises(InvalidRequest, match="no file"):
                    await read(made.id, path, 0)
            with pytest.raises(InvalidRequest, match="no position"):
                await read(made.id, JOURNAL, -1)
            with pytest.raises(InvalidRequest, match="is gone"):
                await read("another", JOURNAL, 0)
            await node.checkpoints.remove(SESSION)
            with pytest.raises(InvalidRequest, match="is gone"):
                await read(made.id, JOURNAL, 0)

    run(story())

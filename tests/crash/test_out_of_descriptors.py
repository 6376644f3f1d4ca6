"""What a whole node does while its process can open no more files, and afterwards."""

import asyncio
import errno
import logging

import pytest

from millstream.config import Config, Limits
from millstream.engine.partitions.slices import Want
from millstream.errors import StorageUnavailable
from millstream.metrics import DISK_USABLE
from millstream.model import Acks, TopicPartition
from millstream.ports import File
from millstream.server.node import Node
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from tests.support.nodes import SESSION, batch, running_node, values_of
from tests.support.virtual_loop import run

OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)
SMALL_SEGMENTS = Config(topic_defaults=TopicSettings(segment_bytes=1024))


class DryFiles(MemoryFiles):
    """Files of a process that has no descriptor left while `is_dry`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_dry = False
        self.error = errno.EMFILE

    def open(self, path: str, *, create: bool = False) -> File:  # type: ignore[override]
        self._refuse(path)
        return super().open(path, create=create)

    def sync_directory(self, path: str) -> None:
        self._refuse(path)
        super().sync_directory(path)

    def _refuse(self, path: str) -> None:
        if self.is_dry:
            raise OSError(self.error, "Too many open files", path)


async def append(node: Node, target: TopicPartition, value: bytes) -> None:
    async with asyncio.timeout(30):
        await node.partitions.append(SESSION, target, batch(value), Acks.ALL)


async def values(node: Node, target: TopicPartition) -> list[bytes | None]:
    read: list[bytes | None] = []
    while True:
        (part,) = await node.partitions.read(SESSION, [Want(target, len(read), 2**20)])
        assert part.error is None
        if part.records is None:
            return read
        read += values_of(part)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_new_topic_is_usable_once_descriptors_are_free_and_others_are_served(error: int) -> None:
    async def story() -> None:
        files = DryFiles()
        files.error = error
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "old")
            await node.topics.create(SESSION, "new")
            await append(node, OLD, b"before")

            files.is_dry = True
            with pytest.raises(StorageUnavailable):
                await append(node, NEW, b"refused")
            await append(node, OLD, b"meanwhile")
            files.is_dry = False
            await append(node, NEW, b"after")

            assert await values(node, OLD) == [b"before", b"meanwhile"]
            assert await values(node, NEW) == [b"after"]
            assert node.metrics.value(DISK_USABLE) == 1

    run(story())


def test_a_sync_round_that_finds_no_descriptor_is_tried_again_until_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        files = DryFiles()
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "new")
            # The segment is created; the round must open its directory and finds no descriptor.
            appended = node.partitions.append(SESSION, NEW, batch(b"waits"), Acks.ALL)
            files.is_dry = True
            await asyncio.sleep(2)
            is_answered_while_dry = appended.done()
            files.is_dry = False
            async with asyncio.timeout(5):
                await appended

            assert not is_answered_while_dry
            assert await values(node, NEW) == [b"waits"]
            assert node.metrics.value(DISK_USABLE) == 1
            assert all(replica.failure is None for replica in node.hub.replicas.values())

    with caplog.at_level(logging.WARNING):
        run(story())
    assert sum("a sync waits" in line for line in caplog.messages) == 1


def test_a_segment_rolled_without_descriptors_is_proven_later() -> None:
    async def story() -> None:
        files = DryFiles()
        async with running_node(SMALL_SEGMENTS, files=files) as node:
            await node.topics.create(SESSION, "old")
            written = []
            for number in range(40):
                value = b"%d" % number * 100
                appended = None
                try:
                    appended = node.partitions.append(SESSION, OLD, batch(value), Acks.ALL)
                except StorageUnavailable:
                    assert files.is_dry
                files.is_dry = number % 3 == 1
                await asyncio.sleep(0.05)
                files.is_dry = number % 3 == 0
                if appended is not None:
                    written.append((value, appended))
            files.is_dry = False
            for _, appended in written:
                await appended

            assert await values(node, OLD) == [value for value, _ in written]

        async with running_node(SMALL_SEGMENTS, files=files) as node:
            assert await values(node, OLD) == [value for value, _ in written]

    run(story())


def test_a_topic_created_without_descriptors_opens_by_itself() -> None:
    async def story() -> None:
        files = DryFiles()
        async with running_node(files=files) as node:
            await node.topics.create(SESSION, "new")
            await append(node, NEW, b"kept")
        async with running_node(files=files) as node:
            log_id = node.topics.describe(SESSION, "new").log(0)
            node.hub.find(log_id).log.abandon()
            del node.hub.replicas[log_id]

            files.is_dry = True
            node.hub.keep(log_id, frozenset({node.config.node_id}), TopicSettings())  # type: ignore[arg-type]
            await node.hub.opened([log_id])
            with pytest.raises(StorageUnavailable):
                await append(node, NEW, b"refused")
            files.is_dry = False
            await asyncio.sleep(5)

            await append(node, NEW, b"taken")
            assert await values(node, NEW) == [b"kept", b"taken"]

    run(story())


def test_open_files_are_bounded_with_active_segments_counted() -> None:
    bound, partitions = 10, 50

    async def story() -> None:
        config = Config(limits=Limits(open_files_max=bound))
        async with running_node(config) as node:
            await node.topics.create(SESSION, "wide", partitions=partitions)
            for turn in (b"one", b"two"):
                for partition in range(partitions):
                    await append(node, TopicPartition("wide", partition), turn)

            assert node.hub.open_file_count <= bound
            for partition in range(partitions):
                assert await values(node, TopicPartition("wide", partition)) == [b"one", b"two"]
            assert node.hub.open_file_count <= bound

    run(story())

"""Topics that ask for it get an index of keys and headers, in the background and for little."""

import asyncio

from millstream.config import Config
from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import Want
from millstream.metrics import FILTER_READ_BYTES, INDEX_BUILT_BYTES
from millstream.model import Acks
from millstream.server.node import Node
from millstream.settings import TopicSettings
from millstream.storage.files.memory import MemoryFiles
from tests.support.filtered_slices import shown
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.virtual_loop import run

SMALL = Config(topic_defaults=TopicSettings(segment_bytes=1024))
BUILT_S = 30.0  # Long enough for all of these logs.


async def fill(node: Node, count: int = 60) -> None:
    for number in range(count):
        data = batch(b"v" * 100, key=b"%d" % (number % 30))
        await node.partitions.append(SESSION, ORDERS, data, Acks.ALL)


async def offsets_of(node: Node, where: str) -> list[int]:
    (part,) = await node.partitions.read(SESSION, [Want(ORDERS, 0, 2**20)], filter=parse(where))
    return [offset for offset, _ in shown(part)]


def names(files: MemoryFiles, directory: str) -> list[str]:
    return [name for name in files.list(directory) if ".terms" in name]


def test_an_index_that_is_asked_for_later_is_built_and_one_that_is_not_goes() -> None:
    async def story() -> None:
        files = MemoryFiles()
        async with running_node(SMALL, files=files) as node:
            topic = await node.topics.create(SESSION, "orders")
            directory = f"logs/{topic.log(0)}"
            await fill(node)
            await asyncio.sleep(BUILT_S)
            assert names(files, directory) == []

            await node.topics.alter(SESSION, "orders", {"index_key": "true"})
            await asyncio.sleep(BUILT_S)

            assert len(names(files, directory)) >= 5
            assert await offsets_of(node, "key == '7'") == [7, 37]
            assert node.metrics.value(FILTER_READ_BYTES) < 2_000  # Of 10,000.

            await node.topics.alter(SESSION, "orders", {"index_key": None})
            await asyncio.sleep(BUILT_S)

            assert names(files, directory) == []
            assert await offsets_of(node, "key == '7'") == [7, 37]

    run(story())


def test_records_are_found_after_compaction_has_rewritten_the_log() -> None:
    async def story() -> None:
        async with running_node(SMALL) as node:
            compacted = {
                "index_key": "true",
                "cleanup_policy": "compact",
                "min_cleanable_dirty_ratio": "0.01",
            }
            await node.topics.create(SESSION, "orders", settings=compacted)
            await fill(node, 120)
            await asyncio.sleep(BUILT_S)
            await fill(node, 120)
            await asyncio.sleep(3 * BUILT_S)
            before = node.metrics.value(FILTER_READ_BYTES)

            offsets = await offsets_of(node, "key == '7'")

            assert offsets[-1] == 217
            assert len(offsets) < 8
            assert node.metrics.value(FILTER_READ_BYTES) - before < 2_000

    run(story())


def test_a_node_without_such_topics_builds_nothing() -> None:
    async def story() -> None:
        async with running_node(SMALL) as node:
            await node.topics.create(SESSION, "orders")
            await fill(node)

            await asyncio.sleep(BUILT_S)

            assert node.metrics.value(INDEX_BUILT_BYTES) == 0
            assert node.hub.upkeep.indexer.is_idle

    run(story())


def test_a_log_that_does_not_change_is_not_read_again() -> None:
    async def story() -> None:
        async with running_node(SMALL) as node:
            await node.topics.create(SESSION, "orders", settings={"index_key": "true"})
            await fill(node)
            await asyncio.sleep(BUILT_S)
            built = node.metrics.value(INDEX_BUILT_BYTES)

            await asyncio.sleep(10 * BUILT_S)

            assert built > 0
            assert node.metrics.value(INDEX_BUILT_BYTES) == built

    run(story())


def test_its_size_and_what_it_misses_are_metrics() -> None:
    async def story() -> None:
        async with running_node(SMALL) as node:
            await node.topics.create(SESSION, "orders", settings={"index_key": "true"})
            await fill(node)
            await asyncio.sleep(BUILT_S)

            samples = {
                sample.metric.name: sample.value
                for sample in node.metrics.samples()
                if sample.labels == ("orders", "0")
            }

            assert samples["millstream_partition_terms_bytes"] > 60 * 8
            assert samples["millstream_partition_terms_missing_bytes"] == 0

    run(story())

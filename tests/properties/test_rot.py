"""Rot: any byte of any file of a stopped node changes. Afterwards every record is right or named.

The node has plain, compacted and transactional topics, offsets of a group and a delayed record, and
was stopped in order or killed. What is allowed after a flip: a refusal to start that names the
file, for the files without which nothing can be told; damage that is listed, with every other
record as it was; and, after a kill only, a log that ends one batch earlier, because a torn write
looks the same.
"""

import asyncio
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.batch import PREFIX_BYTES, read_header
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config
from millstream.engine.groups.service import Commit, Committed
from millstream.engine.partitions.slices import Want
from millstream.errors import DamagedRecords, MillstreamError, RequestError, StorageUnavailable
from millstream.model import CONTROL_LOG, Acks, TopicPartition
from millstream.server.node import Node
from millstream.settings import TopicSettings
from millstream.storage.files.reserve import RESERVE
from millstream.storage.log.segment import LOG
from millstream.storage.sealing.batches import batch_headers
from tests.support.crashing_files import CrashingFiles, Snapshot
from tests.support.nodes import NOW_MS, ORDERS, SESSION, batch, running_node
from tests.support.queues import batch_of, message
from tests.support.sealed import is_sealing
from tests.support.tiers import sized
from tests.support.transactions import Writer, stable
from tests.support.virtual_loop import run

TABLE, MOVES = TopicPartition("table", 0), TopicPartition("moves", 0)
CONFIG = Config(
    topic_defaults=TopicSettings(segment_bytes=1024, index_interval_bytes=256),
    offsets_partitions=1,
    transaction_partitions=1,
    delayed_partitions=1,
    delivery_partitions=1,
)
GROUP = "readers"
# Without these nothing of the node can be told, so it may refuse to start.
NEEDED = ("millstream.json", "journal", "keyring", f"logs/{CONTROL_LOG}/")
# The reserve is a MiB of zeros that is never read, 99 % of the disk: a few of its bytes stand for
# all, or nearly every flip would land there.
RESERVE_BYTES_FLIPPED = 64
BITS = range(8)


class Batch(NamedTuple):
    end_offset: int
    data: bytes


class World(NamedTuple):
    """A disk, and what a node told of it before it rotted."""

    disk: Snapshot
    is_clean: bool
    is_sealed: bool
    batches: dict[TopicPartition, dict[int, Batch]]
    paths: list[tuple[str, int]]  # Every file with its size.


async def fill(node: Node) -> None:
    await node.topics.create(SESSION, "orders")
    await node.topics.create(SESSION, "moves")
    compacted = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
    await node.topics.create(SESSION, "table", settings=compacted)
    for number in range(12):
        await node.partitions.append(SESSION, ORDERS, batch(b"%d" % number * 60), Acks.ALL)
    for number in range(24):
        record = Record(0, NOW_MS, b"key%d" % (number % 3), b"%d" % number * 50)
        await node.partitions.append(SESSION, TABLE, encode_batch([record]), Acks.ALL)
    table = node.hub.replicas[node.topics.describe(SESSION, "table").log(0)]
    await node.hub.upkeep.compact(table)
    delayed = message(b"later", delay_ms=60 * 60 * 1000)
    await node.partitions.append(SESSION, ORDERS, batch_of(delayed), Acks.ALL)
    writer = Writer(node)
    await writer.init()
    for commits in (True, False):
        await writer.add(MOVES)
        await writer.write(MOVES, b"moved", b"again")
        await writer.end(commits=commits)
        await stable(node, MOVES)
    await node.groups.commit_offsets(SESSION, GROUP, {ORDERS: Commit(5)})
    await node.groups.commit_offsets(SESSION, GROUP, {ORDERS: Commit(7)})


async def read(node: Node, target: TopicPartition) -> tuple[dict[int, Batch], list[range]]:
    """All batches of a partition, by base offset, and the offsets that were refused by name."""
    collected: dict[int, Batch] = {}
    refused: list[range] = []
    end = node.partitions.health(SESSION, target).high_watermark
    offset = node.partitions.health(SESSION, target).log.start_offset
    while offset < end:
        (part,) = await node.partitions.read(SESSION, [Want(target, offset, 1)])
        if isinstance(part.error, DamagedRecords):
            report = await node.repairs.list(SESSION)
            ranges = [
                range(b.base_offset, b.end_offset) for at, b in report.damaged if at == target
            ]
            skipped = next(gap for gap in ranges if gap.stop > offset)  # Behind a gap, maybe.
            refused.append(skipped)
            offset = skipped.stop
            continue
        if isinstance(part.error, StorageUnavailable):
            raise part.error  # A log that rested is opened by this read.
        assert part.error is None, part.error
        assert part.records is not None
        data = part.records.read()
        header = read_header(data)
        collected[header.base_offset] = Batch(header.end_offset, data[: header.size])
        offset = header.end_offset
    return collected, refused


def world(is_clean: bool) -> World:
    return _world(is_clean, is_sealing())


@cache
def _world(is_clean: bool, is_sealed: bool) -> World:
    files = CrashingFiles()
    batches: dict[TopicPartition, dict[int, Batch]] = {}
    disks: list[Snapshot] = []

    async def story() -> None:
        async with running_node(CONFIG, files=files) as node:
            await fill(node)
            for topic in node.topics.list(SESSION):
                at = TopicPartition(topic.name, 0)
                batches[at] = (await read(node, at))[0]
            await asyncio.sleep(1)
            if not is_clean:
                disks.append(files.snapshot())
        if is_clean:
            disks.append(files.snapshot())

    run(story())
    files.restore(disks[0])
    return World(disks[0], is_clean, is_sealed, batches, list(sizes(files, "")))


def sizes(files: CrashingFiles, directory: str) -> list[tuple[str, int]]:
    collected: list[tuple[str, int]] = []
    for name in files.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            size = files.open(path).size()
        except (IsADirectoryError, FileNotFoundError):
            collected += sizes(files, path)
            continue
        durable = size - files.unsynced_bytes(path)  # Only what is on the disk can rot there.
        if path == RESERVE:
            durable = min(durable, RESERVE_BYTES_FLIPPED)
        if durable > 0:
            collected.append((path, durable))
    return collected


async def check(node: Node, it: World) -> None:
    names = {topic.name for topic in node.topics.list(SESSION)}
    for target, batches in it.batches.items():
        if target.topic not in names:
            # The command that created it could as well be torn. Its records are still there.
            report = await node.repairs.list(SESSION)
            assert not it.is_clean
            assert any("knows no such topic" in why for _, why in report.closed)
            continue
        try:
            readable, refused = await read(node, target)
        except StorageUnavailable:
            report = await node.repairs.list(SESSION)
            assert target in [at for at, _ in report.closed], "a refusal that is not listed"
            continue
        for base_offset, data in readable.items():
            is_known = batches.get(base_offset) == data or is_own(node, target, data)
            assert is_known or is_last_behind_a_gap(it, target, data), "a wrong record"
        missing = [at for at in batches if at not in readable]
        silent = [at for at in missing if not any(at in bad for bad in refused)]
        if silent:
            # Only a kill explains it, and only at the end of a log.
            assert not it.is_clean, (target, silent)
            assert silent == [max(batches)], (target, silent)


def is_last_behind_a_gap(it: World, target: TopicPartition, batch: Batch) -> bool:
    """The one change that cannot be noticed: the base offset of the last batch of a log that is
    rewritten, after a kill. Such logs have gaps, and no batch behind it says where it belongs. An
    encrypted batch says so itself.
    """
    last = it.batches[target][max(it.batches[target])]
    is_rewritten = target.topic.startswith("__") or target == TABLE
    is_explained = is_rewritten and not it.is_clean and not it.is_sealed
    return is_explained and batch.data[8:] == last.data[8:]


def is_own(node: Node, target: TopicPartition, batch: Batch) -> bool:
    """Whether the node has written it since: internal topics go on."""
    return target.topic.startswith("__") and read_header(batch.data).epoch > 1


async def check_services(node: Node, it: World) -> None:
    """Offsets are what they were, or an error says why not."""
    if any("knows no such topic" in why for _, why in (await node.repairs.list(SESSION)).closed):
        return
    try:
        committed = await node.groups.fetch_offsets(SESSION, GROUP, [ORDERS])
        value = committed[ORDERS]
        if isinstance(value, Committed):
            assert value.offset == 7 or (not it.is_clean and value.offset == 5)
    except RequestError:
        pass


def rot(it: World, path: str, position: int, mask: int) -> None:
    files = CrashingFiles()
    files.restore(it.disk)
    for bit in BITS:
        if mask & 1 << bit:
            files.flip_bit(path, position, bit=bit)

    async def story() -> None:
        try:
            async with running_node(CONFIG, files=files) as node:
                async with asyncio.timeout(30):
                    await check(node, it)
                    await check_services(node, it)
        except MillstreamError as problem:
            if not path.startswith(NEEDED):
                raise AssertionError(f"no start for a flip in {path}") from problem

    run(story())


def place(it: World, share: int) -> tuple[str, int]:
    """A file, and a byte in it: each byte of the disk is as likely as any other."""
    left = share % sum(size for _, size in it.paths)
    for path, size in it.paths:
        if left < size:
            return path, left
        left -= size
    raise AssertionError(share)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_any_flipped_byte_is_named_or_harmless(is_clean: bool) -> None:
    it = world(is_clean)

    @settings(max_examples=sized(1_500), deadline=None)
    @given(st.integers(0, 2**32), st.integers(1, 255))
    def flips(share: int, mask: int) -> None:
        rot(it, *place(it, share), mask)

    flips()


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_what_no_checksum_covers_is_named_or_harmless(is_clean: bool) -> None:
    it = world(is_clean)
    positions = list(uncovered(it))

    @settings(max_examples=sized(100), deadline=None)
    @given(st.sampled_from(positions), st.integers(1, 255))
    def flips(place: tuple[str, int], mask: int) -> None:
        rot(it, *place, mask)

    flips()


def uncovered(it: World) -> Iterator[tuple[str, int]]:
    """Base offset, length and epoch of the last batch of each segment."""
    files = CrashingFiles()
    files.restore(it.disk)
    for path, size in it.paths:
        if path.endswith(LOG):
            *_, (last, _) = batch_headers(files.open(path), size)
            for position in range(last, last + PREFIX_BYTES):
                yield path, position


@pytest.mark.soak
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_every_bit_of_every_file_in_turn(is_clean: bool) -> None:
    it = world(is_clean)
    for path, size in it.paths:
        for position in range(size):
            for mask in {*(1 << bit for bit in BITS), 1 + position * 37 % 255}:
                rot(it, path, position, mask)

"""A power cut at every operation of a repair: the damage is still named, or given up as asked."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from millstream.cli.repair.data_keys import read_keyring
from millstream.cli.repair.offline import skip_in
from millstream.codec.batch import read_header
from millstream.config import Config
from millstream.engine.partitions.slices import Want
from millstream.errors import DamagedRecords
from millstream.model import Acks, LogId, NodeId, TopicPartition
from millstream.server.node import Node
from millstream.settings import TopicSettings
from millstream.storage.log.segment import LOG
from millstream.storage.sealing.batches import batch_headers
from tests.support.crashing_files import CrashingFiles, Snapshot
from tests.support.nodes import ORDERS, SESSION, batch, running_node
from tests.support.sealed import ENCRYPTED, is_sealing
from tests.support.virtual_loop import run

Cut = Callable[[CrashingFiles], None]

CUTS: dict[str, Cut] = {
    "nothing unsynced survives": lambda files: files.power_cut(worst=True),
    "everything survives": lambda files: files.power_cut(kept_bytes=2**30),
    "some of it survives": lambda files: files.power_cut(Random(files.operation_count)),
    "any sectors survive": lambda files: files.power_cut(
        Random(files.operation_count), reorder=True
    ),
}
SMALL = Config(topic_defaults=TopicSettings(segment_bytes=1024))
OTHER = TopicPartition("other", 0)
BATCHES, BATCH = 20, 5
PLACES = {"in a sealed segment": 4, "in the active segment": BATCHES - 2, "at the end": BATCHES - 1}


class Disk(NamedTuple):
    """A node that was stopped in order, with one batch of `ORDERS` changed since."""

    files: CrashingFiles
    log_id: LogId
    bad: range  # Its offsets.
    damaged: bytes  # Its bytes, as they are now.
    batches: dict[int, bytes]  # All others of `ORDERS`, by base offset.
    others: dict[int, bytes]  # Those of `OTHER`.


def numbers(at: int) -> list[bytes]:
    return [b"%010d" % number for number in range(at * BATCH, (at + 1) * BATCH)]


def damaged_disk(bad_batch: int) -> Disk:
    files = CrashingFiles()

    async def story() -> tuple[LogId, dict[int, bytes], dict[int, bytes]]:
        async with running_node(SMALL, files=files) as node:
            topic = await node.topics.create(SESSION, "orders")
            await node.topics.create(SESSION, "other")
            for at in range(BATCHES):
                await node.partitions.append(SESSION, ORDERS, batch(*numbers(at)), Acks.ALL)
            await node.partitions.append(SESSION, OTHER, batch(b"kept"), Acks.ALL)
            batches, others = (await read(node, ORDERS))[0], (await read(node, OTHER))[0]
        return topic.log(0), batches, others

    log_id, batches, others = run(story())
    bad = range(bad_batch * BATCH, (bad_batch + 1) * BATCH)
    del batches[bad.start]
    for name in files.list(f"logs/{log_id}"):
        path = f"logs/{log_id}/{name}"
        if not name.endswith(LOG):
            continue
        for at, header in batch_headers(files.open(path), files.open(path).size()):
            if header.base_offset == bad.start:
                files.flip_bit(path, at + header.size - 3)
                damaged = files.open(path).read(at, header.size)
                return Disk(files, log_id, bad, bytes(damaged), batches, others)
    raise AssertionError("the batch is not on disk")


async def read(node: Node, target: TopicPartition) -> tuple[dict[int, bytes], list[range]]:
    """All batches by base offset, and the damaged ranges that the node refuses by name."""
    batches: dict[int, bytes] = {}
    refused: list[range] = []
    end = node.partitions.health(SESSION, target).high_watermark
    offset = 0
    while offset < end:
        (part,) = await node.partitions.read(SESSION, [Want(target, offset, 1)])
        if isinstance(part.error, DamagedRecords):
            report = await node.repairs.list(SESSION)
            (bad,) = [bad for at, bad in report.damaged if at == target]
            refused.append(range(bad.base_offset, bad.end_offset))
            offset = bad.end_offset
            continue
        assert part.error is None, part.error
        assert part.records is not None
        data = part.records.read()
        header = read_header(data)
        batches[header.base_offset] = data[: header.size]
        offset = header.end_offset
    return batches, refused


async def repair_online(disk: Disk, moments: list[Snapshot]) -> None:
    files = disk.files
    async with running_node(SMALL, files=files) as node:
        assert (await read(node, ORDERS))[1] == [disk.bad]
        files.on_operation = lambda *_: moments.append(files.snapshot())
        await node.repairs.skip(SESSION, ORDERS, disk.bad.start)
        files.on_operation = None
        moments.append(files.snapshot())


async def repair_offline(disk: Disk, moments: list[Snapshot]) -> None:
    files = disk.files
    files.on_operation = lambda *_: moments.append(files.snapshot())
    keyring = read_keyring(files, "data", ENCRYPTED.key) if is_sealing() else None
    sealer = None if keyring is None else keyring.sealer(disk.log_id)
    skip_in(files, "data", disk.log_id, "orders", disk.bad.start, node_id=NodeId(1), sealer=sealer)
    files.on_operation = None
    moments.append(files.snapshot())


REPAIRS = {"running": repair_online, "stopped": repair_offline}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("state", REPAIRS)
def test_a_power_cut_leaves_damage_that_is_named_or_given_up(
    state: str, place: str, cut: Cut
) -> None:
    disk = damaged_disk(PLACES[place])
    files, moments = disk.files, list[Snapshot]()
    run(REPAIRS[state](disk, moments))
    assert len(moments) > 10
    given_up = []

    for number, moment in enumerate(moments):
        files.restore(moment)
        files.operation_count = number  # Seeds the cut.
        cut(files)
        given_up.append(run(is_given_up(disk, is_torn_tail=place == "at the end")))

    assert given_up[-1]  # The operator was told so.
    assert not given_up[0]
    assert state == "running" or place == "at the end" or not all(given_up)


async def is_given_up(disk: Disk, *, is_torn_tail: bool) -> bool:
    """Check what a node finds on the disk; whether it is without the damaged batch."""
    async with running_node(SMALL, files=disk.files) as node:
        batches, refused = await read(node, ORDERS)
        report = await node.repairs.list(SESSION)
        others, _ = await read(node, OTHER)
        filler = batches.pop(disk.bad.start, None)
        end = node.partitions.health(SESSION, ORDERS).high_watermark
        assert batches == {at: data for at, data in disk.batches.items() if at in batches}
        assert len(batches) == BATCHES - 1
        assert others == disk.others
        assert report.closed == []
        skipped = [
            range(skipped_range.base_offset, skipped_range.end_offset)
            for _, skipped_range in report.skipped
        ]
        if refused:
            assert refused == [disk.bad]
            assert skipped == []  # Not given up before it is.
            await node.repairs.skip(SESSION, ORDERS, disk.bad.start)  # It can be done again.
            assert (await read(node, ORDERS))[1] == []
            return False
        if is_torn_tail and end == disk.bad.start:
            return False  # A torn write looks the same: the log is cut before it.
        assert skipped == [disk.bad]
        assert filler is not None
        assert read_header(filler).is_control
        assert read_header(filler).end_offset == disk.bad.stop
        kept = disk.files.open(report.skipped[0][1].kept_in)
        assert kept.read(0, kept.size()) == disk.damaged
        return True

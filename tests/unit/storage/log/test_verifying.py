"""Every flipped bit of a sealed segment is noticed before its bytes are read, and named."""

import pytest

from millstream.codec.batch import read_header
from millstream.errors import DamagedBatch
from millstream.model import Boundary, Epoch, ReplicaId
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log.cache import NotVerified
from millstream.storage.log.log import Log
from millstream.storage.log.verifying import SPANS_MAX, Unverified
from tests.support.logs import DIRECTORY, append, batch, open_small, read_all, sync

VOTERS = frozenset({ReplicaId(1)})
EPOCHS = (Boundary(Epoch(1), 0, VOTERS),)
SEGMENT = f"{DIRECTORY}/{0:020d}.log"


def closed_log(files: MemoryFiles, *offsets: int) -> list[bytes]:
    """A log of one sealed segment, with a batch at each of `offsets`."""
    log = open_small(files, boundaries=EPOCHS)
    added = [batch(offset, epoch=1, fill=offset % 200) for offset in offsets]
    for written in added:
        append(log, written)
    log.close()
    return added


def flip(files: MemoryFiles, at: int, mask: int, path: str = SEGMENT) -> None:
    file = files.open(path)
    (byte,) = file.read(at, 1)
    file.write(at, [bytes([byte ^ mask])])


def served(log: Log, end_offset: int) -> tuple[list[bytes], list[tuple[int, int]]]:
    """All batches that a reader gets who is led around damage, and the offsets it is refused."""
    batches, refused, offset = [], [], 0
    while offset < end_offset:
        try:
            part = log.read(offset, bytes_max=1, end_offset=end_offset)
        except DamagedBatch as problem:
            refused.append((problem.base_offset, problem.end_offset))
            offset = problem.end_offset
            continue
        assert part is not None
        batches.append(part.read())
        offset = part.end_offset
    return batches, refused


@pytest.mark.parametrize(
    "offsets",
    [range(12), [0, 1, 5, 6, 40, 41, 42, 90, 91, 99]],
    ids=["dense", "with gaps, as compaction leaves them"],
)
def test_every_flipped_bit_of_a_sealed_segment_is_refused_and_no_other_batch_is_lost(
    offsets: list[int],
) -> None:
    files = MemoryFiles()
    added = closed_log(files, *offsets)
    size = sum(map(len, added))
    end_offset = offsets[-1] + 1

    for at in range(size):
        mask = 1 << at * 5 % 8
        flip(files, at, mask)
        log = open_small(files, boundaries=EPOCHS, was_clean=True)

        batches, refused = served(log, end_offset)

        assert refused, at
        assert all(batch in added for batch in batches), at
        lost = [batch for batch in added if batch not in batches]
        for data in lost:
            offset = read_header(data).base_offset
            assert any(start <= offset < end for start, end in refused), at
        assert [(bad.base_offset, bad.end_offset) for bad in log.damage()] == refused
        log.abandon()
        flip(files, at, mask)


def test_one_flipped_byte_in_a_record_costs_its_batch_and_names_its_place() -> None:
    files = MemoryFiles()
    added = closed_log(files, *range(12))
    size = len(added[0])
    flip(files, 5 * size + 70, 1)
    log = open_small(files, boundaries=EPOCHS)

    with pytest.raises(DamagedBatch) as caught:
        log.read(5, bytes_max=10_000, end_offset=12)
    part = log.read(0, bytes_max=10_000, end_offset=12)

    assert f"offsets 5 to 5 are damaged in {SEGMENT} at position {5 * size}" in str(caught.value)
    assert part is not None
    assert part.end_offset == 5
    assert served(log, 12)[0] == added[:5] + added[6:]


def test_what_this_process_wrote_or_verified_is_not_read_twice() -> None:
    files = MemoryFiles()
    added = closed_log(files, *range(6))
    log = open_small(files, boundaries=EPOCHS)
    append(log, batch(6, epoch=1))
    active = log.active
    assert active is not None
    assert active.unverified is not None

    assert len(read_all(log)) == len(added) + 1

    assert active.unverified is None


def test_a_long_cold_range_is_left_to_a_thread() -> None:
    files = MemoryFiles()
    closed_log(files, *range(12))
    log = open_small(files, boundaries=EPOCHS)

    with pytest.raises(NotVerified) as caught:
        log.read(0, bytes_max=2**20, end_offset=12, verified_bytes_max=100)
    caught.value.work.run()
    caught.value.work.finish()

    part = log.read(0, bytes_max=2**20, end_offset=12, verified_bytes_max=100)
    assert part is not None
    assert part.end_offset == 12


def test_a_damaged_segment_takes_more_records_and_truncation() -> None:
    files = MemoryFiles()
    added = closed_log(files, *range(12))
    flip(files, 3 * len(added[0]) + 70, 1)
    log = open_small(files, boundaries=EPOCHS)
    append(log, batch(12, epoch=1))
    sync(log)
    assert served(log, 13)[1] == [(3, 4)]

    log.truncate(8)
    append(log, batch(8, epoch=1))
    sync(log)
    log.close()

    log = open_small(files, boundaries=EPOCHS)
    assert served(log, 9) == ([*added[:3], *added[4:8], batch(8, epoch=1)], [(3, 4)])


def test_the_spans_that_are_remembered_are_bounded_and_merge() -> None:
    unverified = Unverified(10_000, 100, ())
    for at in range(0, 2 * SPANS_MAX + 10, 2):
        unverified.add(at * 10, at * 10 + 10)
    assert len(unverified._starts) == SPANS_MAX

    unverified.add(0, 10_000)

    assert unverified.is_done
    assert unverified.covers(0, 10_000)

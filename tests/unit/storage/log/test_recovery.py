import logging
from random import Random

import pytest

from millstream.codec.batch import read_header
from millstream.errors import DamagedBatch, DamagedLog
from millstream.model import Boundary, CleanEnd, Epoch, ReplicaId
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log.index import PROOF_BYTES
from millstream.storage.log.log import Log
from tests.support.crashing_files import CrashingFiles
from tests.support.logs import DIRECTORY, append, batch, fill, open_small, read_all, searched, sync

VOTERS = frozenset({ReplicaId(1)})


def boundaries(*pairs: tuple[int, int]) -> tuple[Boundary, ...]:
    return tuple(Boundary(Epoch(epoch), start, VOTERS) for epoch, start in pairs)


def path(offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{offset:020d}{suffix}"


def names(files: MemoryFiles | CrashingFiles, suffix: str = "") -> list[str]:
    return [name for name in files.list(DIRECTORY) if name.endswith(suffix)]


def image(files: MemoryFiles | CrashingFiles) -> dict[str, bytes]:
    collected = {}
    for name in files.list(DIRECTORY):
        file = files.open(f"{DIRECTORY}/{name}")
        collected[name] = file.read(0, file.size())
    return collected


def synced_log(files: MemoryFiles | CrashingFiles, count: int = 40) -> tuple[Log, list[bytes]]:
    """Twelve batches a segment: 0, 12 and 24 are sealed and proven, 36 is active."""
    log = open_small(files)
    added = fill(log, count)
    sync(log)
    return log, added


# -- what a clean stop left unsealed --------------------------------------------------------------


def stopped_log(files: MemoryFiles) -> tuple[CleanEnd, list[bytes]]:
    """Closed in order, with the last segment not sealed."""
    log, added = synced_log(files)
    end = CleanEnd(log.end_offset, 36, files.open(path(36)).size())
    log.close(scanned_bytes_max=2**20)
    assert not files.exists(path(36, ".index"))
    return end, added


def test_a_clean_stop_leaves_a_short_segment_unsealed_and_nothing_is_lost() -> None:
    files = MemoryFiles()
    end, added = stopped_log(files)

    log = open_small(files, was_clean=True, clean_end=end)

    assert read_all(log) == added
    assert log.damage() == []


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("lost_bytes", [1, len(batch(39)), 2 * len(batch(39))])
def test_bytes_that_are_gone_since_a_clean_stop_are_damage(
    lost_bytes: int, was_clean: bool
) -> None:
    """Whole batches too: without the end that was noted they would not be missed."""
    files = MemoryFiles()
    end, _ = stopped_log(files)
    active = files.open(path(36))
    active.truncate(active.size() - lost_bytes)

    with pytest.raises(DamagedLog, match="good order"):
        open_small(files, was_clean=was_clean, clean_end=end, may_have_gaps=False)


def test_files_that_are_gone_since_a_clean_stop_are_damage() -> None:
    files = MemoryFiles()
    end, _ = stopped_log(files)
    files.remove_directory(DIRECTORY)

    with pytest.raises(DamagedLog, match="good order"):
        open_small(files, was_clean=True, clean_end=end)


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("number", range(36, 40))
def test_a_batch_that_changed_since_a_clean_stop_costs_its_own_records_only(
    number: int, was_clean: bool
) -> None:
    """Also if the node was started since, and killed."""
    files = MemoryFiles()
    end, added = stopped_log(files)
    at = sum(map(len, added[36:number])) + len(added[number]) - 1
    files.open(path(36)).write(at, [b"?"])

    log = open_small(files, was_clean=was_clean, clean_end=end)

    assert [(bad.base_offset, bad.end_offset) for bad in log.damage()] == [(number, number + 1)]
    assert log.end_offset == end.end_offset


def test_a_torn_tail_behind_what_a_clean_stop_left_is_cut() -> None:
    files = MemoryFiles()
    end, added = stopped_log(files)
    log = open_small(files, was_clean=True, clean_end=end)
    fill(log, 2)
    active = files.open(path(36))
    active.truncate(active.size() - 1)

    again = open_small(files, clean_end=end)

    assert len(read_all(again)) == len(added) + 1
    assert again.damage() == []


# -- torn tails ------------------------------------------------------------------------------------


def test_a_torn_tail_is_cut_at_the_last_whole_batch(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    active = files.open(path(36))
    kept = active.size()
    active.write(kept, [batch(40)[:-1]])

    with caplog.at_level(logging.INFO):
        log = open_small(files)

    assert read_all(log) == added
    assert active.size() == kept
    assert f"kept_bytes={kept} cut_bytes={len(batch(40)) - 1}" in caplog.text


def test_the_log_goes_on_where_the_tail_was_cut() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    files.open(path(36)).write(files.open(path(36)).size(), [b"garbage"])

    log = open_small(files)
    added += fill(log, 30)
    log.close()

    assert read_all(open_small(files)) == added


def test_whole_segments_behind_a_torn_one_are_dropped_if_they_were_never_synced() -> None:
    files = MemoryFiles()
    log, added = synced_log(files, 14)
    fill(log, 40)  # No round since: 12 lost its end, though later files have theirs.
    files.open(path(12)).truncate(files.open(path(12)).size() - 1)

    log = open_small(files)

    assert log.end_offset == 23
    assert read_all(log)[:14] == added
    assert names(files, ".log") == [f"{0:020d}.log", f"{12:020d}.log"]


def test_zeros_and_repeated_batches_are_no_batches() -> None:
    for garbage in (bytes(500), batch(39), batch(3)):
        files = MemoryFiles()
        _, added = synced_log(files)
        files.open(path(36)).write(files.open(path(36)).size(), [garbage])

        assert read_all(open_small(files)) == added


def test_what_is_behind_a_proven_end_is_ignored_if_the_log_goes_on_there() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    size = files.open(path(12)).size()
    files.open(path(12)).write(size, [batch(24, fill=1)])

    assert read_all(open_small(files)) == added


# -- what is trusted -------------------------------------------------------------------------------


def test_proven_segments_are_not_scanned() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    files.open(path(12)).write(100, [b"\xff"])

    log = open_small(files)

    assert log.end_offset == 40
    assert added
    with pytest.raises(DamagedLog):
        log.verify()


@pytest.mark.parametrize("damage", ["missing", "empty", "flipped", "too long", "of another"])
def test_a_segment_without_a_valid_index_is_scanned_and_gets_one(damage: str) -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    index = files.open(path(12, ".index"))
    whole = index.read(0, index.size())
    match damage:
        case "missing":
            files.remove(path(12, ".index"))
        case "empty":
            index.truncate(0)
        case "flipped":
            index.write(20, [bytes([whole[20] ^ 1])])
        case "too long":
            index.write(len(whole), [b"x"])
        case _:
            other = files.open(path(24, ".index"))
            index.write(0, [other.read(0, other.size())])

    log = open_small(files)

    assert read_all(log) == added
    index = files.open(path(12, ".index"))
    assert index.read(PROOF_BYTES, index.size()) == whole[PROOF_BYTES:]
    assert len(log.sealed()) == 3


def test_every_flipped_bit_in_an_index_is_harmless() -> None:
    files = MemoryFiles()
    log, added = synced_log(files)
    log.close()
    for offset in (12, 36):
        size = files.open(path(offset, ".index")).size()
        for at in range(size):
            index = files.open(path(offset, ".index"))
            byte = index.read(at, 1)[0]
            index.write(at, [bytes([byte ^ 1 << at % 8])])

            log = open_small(files)
            assert log.end_offset == 40
            assert read_all(log) == added
            assert searched(log.offset_for_time(15, end_offset=40)) == (15, 15)
            assert searched(log.offset_for_time(38, end_offset=40)) == (38, 38)
            log.close()


@pytest.mark.parametrize("missing", [1, 84])
def test_a_segment_that_is_shorter_than_its_index_proves_has_lost_synced_bytes(
    missing: int,
) -> None:
    files = MemoryFiles()
    log, _ = synced_log(files)
    log.close()
    before = names(files, "")
    files.open(path(36)).truncate(files.open(path(36)).size() - missing)

    with pytest.raises(DamagedLog, match="were synced"):
        open_small(files)
    assert names(files, "") == before


def test_bytes_that_are_not_those_of_the_index_are_damage_when_they_are_read() -> None:
    files = MemoryFiles()
    log = open_small(files)
    for size in (100, 150, 300, 50):
        append(log, batch(log.end_offset, size=size))
    log.close()
    index = files.open(path(0, ".index"))
    old = index.read(0, index.size())
    log = open_small(files)
    log.reset(0)
    others = [batch(at, size=size, fill=1) for at, size in enumerate((300, 150, 100, 50))]
    append(log, *others)
    log.close()
    index = files.open(path(0, ".index"))
    assert index.size() == len(old)
    index.write(0, [old])

    with pytest.raises(DamagedBatch, match="offsets 0 to 0 are damaged"):
        read_all(open_small(files), bytes_max=1)


def test_an_index_that_speaks_of_fewer_bytes_is_right_about_those() -> None:
    files = MemoryFiles()
    log, added = synced_log(files, 38)
    log.close()
    log = open_small(files)
    added += fill(log, 4)
    log.abandon()
    files.open(path(36)).write(80, [b"\xff"])  # In what the index vouches for: not looked at.

    log = open_small(files)

    assert log.end_offset == 42
    assert searched(log.offset_for_time(41, end_offset=42)) == (41, 41)


def test_an_index_of_fewer_bytes_with_broken_entries_still_leads_to_all_batches() -> None:
    files = MemoryFiles()
    log, added = synced_log(files, 38)
    log.close()
    log = open_small(files)
    added += fill(log, 4)
    log.abandon()
    index = files.open(path(36, ".index"))
    index.write(100, [bytes([index.read(100, 1)[0] ^ 8])])

    assert read_all(open_small(files)) == added


def test_what_a_kill_left_in_the_page_cache_is_made_durable() -> None:
    files = CrashingFiles()
    log = open_small(files)
    added = fill(log, 40)
    files.kill()

    assert read_all(open_small(files)) == added
    files.power_cut(worst=True)

    assert read_all(open_small(files)) == added


# -- damage ----------------------------------------------------------------------------------------


def test_a_bad_batch_before_synced_segments_is_damage_and_all_others_are_kept() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    files.remove(path(12, ".index"))
    files.open(path(12)).write(100, [b"\xff"])

    log = open_small(files)

    (bad,) = log.damage()
    assert (bad.path, bad.position) == (path(12), len(added[12]))
    with pytest.raises(DamagedBatch, match="offsets 13 to 13 are damaged"):
        log.read(13, bytes_max=1, end_offset=log.end_offset)
    for offset, data in enumerate(added):
        if not bad.base_offset <= offset < bad.end_offset:
            part = log.read(offset, bytes_max=1, end_offset=log.end_offset)
            assert part is not None
            assert part.read() == data


@pytest.mark.parametrize("gone", [0, 12])
def test_a_missing_segment_before_synced_ones_is_damage(gone: int) -> None:
    files = MemoryFiles()
    synced_log(files)
    files.remove(path(gone))
    before = image(files)

    with pytest.raises(DamagedLog, match="missing"):
        open_small(files)

    assert image(files) == before


def test_damage_that_shows_only_when_read_is_told_then() -> None:
    files = MemoryFiles()
    synced_log(files)
    files.open(path(12)).write(16, [b"\xff"])  # The magic byte of its first header.

    log = open_small(files)

    with pytest.raises(DamagedLog):
        list(log.batches(0, 40))


# -- leftovers -------------------------------------------------------------------------------------


def test_leftovers_are_removed_and_strangers_stay() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    for name in (f"{12:020d}.index.tmp", f"{0:020d}.cleaned", f"{900:020d}.producers"):
        files.open(f"{DIRECTORY}/{name}", create=True)
    files.open(path(500, ".index"), create=True)
    files.open(f"{DIRECTORY}/notes.txt", create=True)

    log = open_small(files)

    assert read_all(log) == added
    left = [name for name in names(files) if not name.endswith((".log", ".index"))]
    assert left == [f"{24:020d}.producers", f"{36:020d}.producers", "notes.txt"]
    assert f"{500:020d}.index" not in names(files)


def test_segments_that_compaction_merged_are_removed() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    files.remove(path(0, ".index"))
    merged = files.open(path(0))
    merged.write(merged.size(), [files.open(path(12)).read(0, 10_000)])

    log = open_small(files)

    assert read_all(log) == added
    assert names(files, ".log") == [f"{at:020d}.log" for at in (0, 24, 36)]


def test_an_empty_segment_behind_the_end_is_removed() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    files.open(path(40), create=True)

    assert read_all(open_small(files)) == added
    assert names(files, ".log")[-1] == f"{36:020d}.log"


# -- the journal's word ----------------------------------------------------------------------------


def test_segments_below_the_start_are_removed() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)

    log = open_small(files, start_offset=26)

    assert names(files, ".log") == [f"{at:020d}.log" for at in (24, 36)]
    assert read_all(log) == added[26:]


def test_a_hole_below_the_start_is_no_damage() -> None:
    files = MemoryFiles()
    _, added = synced_log(files)
    files.remove(path(12))

    assert read_all(open_small(files, start_offset=25)) == added[25:]


def test_a_torn_segment_below_the_start_is_no_damage_and_takes_nothing_with_it() -> None:
    for is_proven in (True, False):
        files = MemoryFiles()
        _, added = synced_log(files)
        files.remove(path(0, ".index"))
        files.open(path(0)).truncate(100)
        if not is_proven:
            for offset in (12, 24):
                files.remove(path(offset, ".index"))

        assert read_all(open_small(files, start_offset=13)) == added[13:]
        assert names(files, ".log")[0] == f"{12:020d}.log"


def test_a_log_that_ends_before_its_start_is_empty() -> None:
    files = MemoryFiles()
    synced_log(files)

    log = open_small(files, start_offset=100)

    assert (log.start_offset, log.end_offset) == (100, 100)
    assert names(files, ".log") == []
    assert read_all(log) + fill(log, 3) == read_all(log)


def epochs_log(files: MemoryFiles | CrashingFiles, *, is_closed: bool) -> list[bytes]:
    """Twelve batches a segment, ten an epoch, from epoch 1 on."""
    log = open_small(files)
    added = []
    for epoch in range(1, 5):
        added += fill(log, 10, epoch=epoch)
    if is_closed:
        log.close()
    return added


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize(
    ("known", "end"),
    [
        ([(1, 0), (2, 10), (3, 20), (4, 30)], 40),
        ([(1, 0), (2, 10), (3, 20)], 30),
        ([(1, 0), (2, 10), (3, 20), (5, 30)], 30),
        ([(1, 0), (2, 10), (3, 20), (5, 34)], 30),
        ([(1, 0), (2, 10), (4, 20)], 20),
        ([(1, 0)], 10),
        ([(1, 0), (7, 10)], 10),
        ([(1, 0), (2, 5), (3, 5)], 5),
        ([(7, 0)], 0),
    ],
)
def test_the_log_is_cut_at_the_first_batch_of_an_epoch_that_is_not_in_force(
    known: list[tuple[int, int]], end: int, is_closed: bool
) -> None:
    files = MemoryFiles()
    added = epochs_log(files, is_closed=is_closed)

    log = open_small(files, boundaries=boundaries(*known))

    assert log.end_offset == end
    assert read_all(log) == added[:end]
    added = added[:end] + fill(log, 20, epoch=9)
    log.close()
    log = open_small(files, boundaries=boundaries(*[b for b in known if b[1] <= end], (9, end)))
    assert read_all(log) == added
    log.verify()


def test_a_power_cut_while_other_epochs_are_cut_does_not_look_like_damage() -> None:
    files = CrashingFiles()
    added = epochs_log(files, is_closed=True)
    known = boundaries((1, 0), (7, 5))
    moments = []
    operations: list[tuple[str, str]] = []

    def note(kind: str, name: str) -> None:
        moments.append(files.snapshot())
        operations.append((kind, name))

    files.on_operation = note
    open_small(files, boundaries=known)
    files.on_operation = None

    index_removed = operations.index(("remove", path(0, ".index")))
    cut = operations.index(("truncate", path(0)))
    assert ("sync_directory", DIRECTORY) in operations[index_removed:cut]
    for moment in moments:
        for seed in range(6):
            files.restore(moment)
            files.power_cut(Random(seed))
            assert read_all(open_small(files, boundaries=known)) == added[:5]


def test_epochs_below_the_log_start_are_not_asked_for() -> None:
    files = MemoryFiles()
    added = epochs_log(files, is_closed=False)

    log = open_small(files, start_offset=22, boundaries=boundaries((3, 20), (4, 30)))

    assert read_all(log) == added[22:]


def test_synced_segments_are_not_cut_because_the_journal_is_lost() -> None:
    files = MemoryFiles()
    epochs_log(files, is_closed=True)
    before = image(files)

    with pytest.raises(DamagedLog, match="journal"):
        open_small(files, boundaries=())

    assert image(files) == before


def test_unsynced_batches_of_an_epoch_that_the_journal_lost_are_cut() -> None:
    files = MemoryFiles()
    log = open_small(files)
    fill(log, 5, epoch=1)
    log.abandon()

    assert open_small(files, boundaries=()).end_offset == 0


def test_the_batch_that_contains_the_start_must_be_of_the_epoch_in_force() -> None:
    files = MemoryFiles()
    log = open_small(files)
    append(log, batch(0, 10, epoch=1))
    log.abandon()

    log = open_small(files, start_offset=5, boundaries=boundaries((2, 0)))

    assert (log.start_offset, log.end_offset) == (5, 5)


def test_opening_again_and_again_changes_nothing() -> None:
    files = CrashingFiles()
    log = open_small(files)
    added = fill(log, 40)
    files.kill()
    open_small(files).abandon()
    before = image(files)

    for _ in range(3):
        log = open_small(files)
        assert read_all(log) == added
        log.abandon()

    assert image(files) == before
    assert read_header(added[0]).base_offset == 0

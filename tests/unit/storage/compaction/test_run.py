"""Runs of compaction on a log: what is rewritten, when a run gives up, and what is remembered."""

from dataclasses import replace
from errno import ENOSPC

import pytest

from millstream.codec.markers import ControlKind
from millstream.errors import DamagedLog, NoSpace
from millstream.storage.compaction.driver import MEMORY
from millstream.storage.compaction.rules import KEY_ENTRY_BYTES
from millstream.storage.files.memory import MemoryFiles
from tests.support.compacted_log import DIRECTORY, RETENTION_MS, SETTINGS, CompactedLog, sync
from tests.support.crashing_files import CrashingFiles

LARGE = "x" * 700  # Two of these fit into a segment, three do not.


def sealed(*contents: list[tuple[str | None, str | None]]) -> CompactedLog:
    """A log with one sealed segment for each list, and another record behind them."""
    it = CompactedLog(CrashingFiles())
    for pairs in contents:
        it.produce(*pairs)
        it.seal()
    it.produce(("behind", "all"))
    return it


def values(it: CompactedLog) -> list[tuple[int, str]]:
    return [
        (record.offset, (record.key or b"").decode())
        for record in it.read_committed(it.start_offset)
    ]


def leftovers(it: CompactedLog) -> list[str]:
    return [name for name in it.files.list(DIRECTORY) if name.endswith((".cleaned", ".tmp"))]


# -- rewriting -------------------------------------------------------------------------------------


def test_of_each_key_the_newest_record_stays_at_its_offset() -> None:
    it = sealed([("a", "1"), ("b", "1")], [("a", "2"), ("c", "1")], [("b", "2")])

    assert it.compact()

    assert values(it) == [(2, "a"), (3, "c"), (4, "b"), (5, "behind")]
    it.check()


def test_the_active_segment_is_not_touched() -> None:
    it = sealed([("a", "1")])
    it.produce(("a", "2"), ("a", "3"))

    assert it.compact()

    assert values(it) == [(0, "a"), (1, "behind"), (2, "a"), (3, "a")]


def test_nothing_behind_the_last_stable_offset_is_touched() -> None:
    it = CompactedLog(MemoryFiles())
    it.produce(("a", "1"))
    it.seal()
    it.produce(("b", "1"), producer_id=1, transactional=True)
    it.produce(("a", "2"))
    it.seal()
    it.produce(("a", "3"))
    it.seal()

    assert it.compact()

    assert [header.base_offset for header, _ in it.batches()] == [0, 1, 2, 3]
    it.check()


def test_small_neighbours_become_one_segment_up_to_its_bound() -> None:
    it = sealed(*([(f"k{n}", LARGE)] for n in range(5)))  # type: ignore[arg-type]

    assert it.compact()

    ends = [(segment.base_offset, segment.end_offset) for segment in it.log.sealed()]
    assert ends == [(0, 2), (2, 4), (4, 5)]
    assert all(segment.size <= SETTINGS.segment_bytes for segment in it.log.sealed())
    it.check()


def test_a_segment_that_would_be_the_same_is_not_written_again() -> None:
    it = sealed([("a", LARGE * 2)], [("b", LARGE), ("c", LARGE)], [("c", LARGE * 2)])
    before = it.log.sealed()

    assert it.compact()

    after = it.log.sealed()
    assert [segment is other for segment, other in zip(before, after, strict=True)] == [
        True,
        False,
        True,
    ]
    it.check()


def test_what_precedes_the_first_change_in_a_segment_is_copied() -> None:
    it = CompactedLog(MemoryFiles(), settings=replace(SETTINGS, segment_bytes=4_000))
    for key in ["a", "b", "c", "gone", "d"]:
        it.produce((key, LARGE))
    it.seal()
    it.produce(("gone", LARGE * 5))
    it.seal()
    it.produce(("behind", "all"))
    before = dict(it.batches())

    assert it.compact()

    assert values(it) == [(0, "a"), (1, "b"), (2, "c"), (4, "d"), (5, "gone"), (6, "behind")]
    assert all(before[header] == data for header, data in it.batches())
    it.check()


def test_the_last_batch_of_an_epoch_stays_empty() -> None:
    it = CompactedLog(MemoryFiles())
    it.produce(("a", "1"))
    it.produce(("a", "2"), ("a", "3"))
    it.open_epoch()
    it.produce(("a", "4"))
    it.seal()

    assert it.compact()

    headers = [header for header, _ in it.batches()]
    assert [(h.base_offset, h.end_offset, h.epoch, h.count) for h in headers] == [
        (1, 3, 1, 0),
        (3, 4, 2, 1),
    ]


def test_the_last_batch_of_a_segment_stays_empty() -> None:
    it = sealed([("a", LARGE * 2)], [("a", LARGE * 2)])

    assert it.compact()

    assert [header.count for header, _ in it.batches()] == [0, 1, 1]
    assert [segment.end_offset for segment in it.log.sealed()] == [1, 2]


def test_a_log_with_more_keys_than_memory_is_cleaned_in_several_runs() -> None:
    it = sealed(*([(f"k{n % 6}", str(n))] for n in range(18)))  # type: ignore[arg-type]

    ends = []
    for _ in range(100):
        if not it.compact(keys_bytes_max=2 * KEY_ENTRY_BYTES):
            break
        it.check()
        ends.append(it.clean_end)

    assert ends == sorted(set(ends))
    assert ends[-1] == 18
    assert [offset for offset, _ in values(it)] == [12, 13, 14, 15, 16, 17, 18]


def test_a_segment_with_more_keys_than_memory_is_cleaned_part_by_part() -> None:
    it = CompactedLog(MemoryFiles())
    for n in range(12):
        it.produce((f"k{n % 4}", str(n)))
    it.seal()
    it.produce(("behind", "all"))

    ends = []
    for _ in range(100):
        if not it.compact(keys_bytes_max=KEY_ENTRY_BYTES):
            break
        it.check()
        ends.append(it.clean_end)

    assert ends == sorted(set(ends))
    assert len(ends) > 2
    assert [offset for offset, _ in values(it)] == [8, 9, 10, 11, 12]


def test_a_damaged_batch_ends_the_run_and_nothing_is_changed() -> None:
    it = sealed([("a", "1")], [("a", "2")])
    assert isinstance(it.files, CrashingFiles)
    it.files.flip_bit(f"{DIRECTORY}/{1:020d}.log", 65)
    before = it.log.sealed()

    with pytest.raises(DamagedLog):
        it.compact()

    assert it.log.sealed() == before
    assert leftovers(it) == []
    assert [bad.base_offset for bad in it.log.damage()] == [1]


def test_a_full_disk_ends_the_run_and_a_later_one_succeeds() -> None:
    it = sealed([("a", LARGE), ("b", LARGE)], [("a", LARGE)])
    files = it.files
    assert isinstance(files, CrashingFiles)
    files.fail_write(1, kept=100, error=ENOSPC)

    with pytest.raises(NoSpace):
        it.compact()

    it.check()
    assert leftovers(it) == []
    assert it.compact()
    it.check()


# -- a log that changes meanwhile ------------------------------------------------------------------


def interrupted(it: CompactedLog, change: object) -> bool:
    """Compact, and let `change` happen when the first segment was swapped."""
    calls = iter([change])

    async def durable() -> None:
        sync(it.log)
        todo = next(calls, None)
        if callable(todo):
            todo()

    return it.compact(durable=durable)


def four_large_segments() -> CompactedLog:
    """Of three offsets each, of which the first goes."""
    return sealed(
        *([(f"a{n}", "old"), (f"a{n}", LARGE), (f"b{n}", LARGE)] for n in range(4)),  # type: ignore[arg-type]
    )


def test_a_run_goes_on_when_retention_took_whole_segments() -> None:
    it = four_large_segments()

    assert interrupted(it, lambda: it.advance_start(6))

    assert values(it) == [(7, "a2"), (8, "b2"), (10, "a3"), (11, "b3"), (12, "behind")]
    assert leftovers(it) == []
    assert not it.compact()


@pytest.mark.parametrize("start_offset", [2, 100])
def test_a_run_leaves_nothing_in_a_log_that_was_reset(start_offset: int) -> None:
    it = four_large_segments()

    interrupted(it, lambda: it.log.reset(start_offset))

    assert it.log.end_offset == start_offset
    assert it.log.sealed() == []
    assert leftovers(it) == []


def test_a_run_ends_when_the_segments_are_no_longer_the_same() -> None:
    it = four_large_segments()

    assert not interrupted(it, lambda: it.log.truncate(3))

    assert it.log.end_offset == 3
    assert leftovers(it) == []


def test_appends_go_on_while_a_run_is_under_way() -> None:
    it = four_large_segments()

    assert interrupted(it, lambda: it.produce(("a0", "newest")))

    assert values(it)[-1] == (13, "a0")
    it.check()


# -- what is remembered ----------------------------------------------------------------------------


def test_a_clean_log_is_not_compacted_again() -> None:
    it = sealed([("a", "1")], [("a", "2")])

    assert it.compact()

    assert not it.compact()


def test_a_clean_log_is_known_to_be_clean_after_a_restart() -> None:
    it = sealed([("a", "1")], [("a", "2")])
    assert it.compact()

    it.restart()

    assert not it.compact()


@pytest.mark.parametrize("damage", ["lost", "flipped", "cut", "empty"])
def test_when_the_memory_is_damaged_compaction_starts_over(damage: str) -> None:
    it = sealed([("a", "1")], [("a", "2")])
    assert it.compact()
    path = f"{DIRECTORY}/{MEMORY}"
    file = it.files.open(path)
    data = bytearray(file.read(0, file.size()))
    match damage:
        case "lost":
            it.files.remove(path)
        case "flipped":
            data[-1] ^= 1
            file.write(0, [data])
        case "cut":
            file.truncate(len(data) - 1)
        case "empty":
            file.truncate(0)

    it.restart()

    assert it.compact()
    it.check()


def test_the_memory_is_not_believed_of_other_segments() -> None:
    it = sealed([("a", "1")], [("a", "2")])
    assert it.compact()
    it.log.reset(0)
    it.log = it._open()
    it.model.written.clear()
    it.produce(("b", "1"))
    it.seal()
    it.produce(("b", "2"))
    it.seal()
    it.produce(("behind", "all"))

    assert it.compact()

    assert values(it) == [(1, "b"), (2, "behind")]


def test_the_memory_is_believed_only_up_to_the_first_segment_that_changed() -> None:
    it = sealed([("a", LARGE * 2)], [("b", LARGE), ("c", LARGE), ("d", "1")])
    assert it.compact()
    it.log.truncate(1)
    for key, value in [("c", "1"), ("c", "2"), ("d", LARGE * 2)]:
        it.produce((key, value))
    it.seal()
    it.produce(("behind", "all"))

    assert it.compact()

    assert values(it) == [(0, "a"), (2, "c"), (3, "d"), (4, "behind")]


def test_tombstones_go_when_they_are_due_without_any_new_record() -> None:
    it = sealed([("a", "1"), ("b", "1")], [("a", None)])
    assert it.compact()
    assert values(it) == [(1, "b"), (2, "a"), (3, "behind")]

    it.now_ms += RETENTION_MS - 1
    assert not it.compact()
    it.now_ms += 1

    assert it.compact()
    assert values(it) == [(1, "b"), (3, "behind")]
    assert not it.compact()


def test_tombstones_are_remembered_to_be_due_after_a_restart() -> None:
    it = sealed([("a", "1"), ("b", "1")], [("a", None)])
    assert it.compact()

    it.restart()
    it.now_ms += RETENTION_MS

    assert it.compact()
    assert values(it) == [(1, "b"), (3, "behind")]


# -- transactions ----------------------------------------------------------------------------------


def with_transaction(kind: ControlKind) -> CompactedLog:
    it = CompactedLog(CrashingFiles())
    it.produce(("a", "1"), ("b", "1"), producer_id=1, transactional=True)
    it.end(1, kind)
    it.seal()
    # The marker is no longer the last word on its producer, nor the last of its segment.
    it.produce(("a", "2"), ("b", "2"), ("c", LARGE * 2), producer_id=1)
    it.seal()
    it.produce(("behind", "all"))
    return it


def kinds(it: CompactedLog) -> list[str]:
    return ["marker" if header.is_control else "data" for header, _ in it.batches()]


@pytest.mark.parametrize("kind", ControlKind)
def test_a_marker_goes_long_after_the_last_of_its_records(kind: ControlKind) -> None:
    it = with_transaction(kind)

    assert it.compact()
    assert kinds(it) == ["marker", "data", "data"]
    it.produce(("z", None))
    it.seal()
    assert it.compact()
    assert kinds(it)[0] == "marker"
    for _ in range(3):
        it.now_ms += RETENTION_MS
        it.produce(("z", None))
        it.seal()
        it.compact()

    assert "marker" not in kinds(it)
    assert it.log.producers.aborted(0, 100) == []
    it.check()


def test_a_marker_stays_while_a_snapshot_on_disk_lists_its_transaction() -> None:
    it = with_transaction(ControlKind.ABORT)
    stale = it.log.producers.encode()
    for _ in range(6):
        it.now_ms += RETENTION_MS
        it.produce(("z", None))
        it.seal()
        for name in it.files.list(DIRECTORY):
            if name.endswith(".producers"):
                file = it.files.open(f"{DIRECTORY}/{name}")
                file.truncate(0)
                file.write(0, [stale])

        it.compact()

    assert "marker" in kinds(it)

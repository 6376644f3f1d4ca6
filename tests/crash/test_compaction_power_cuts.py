"""A power cut at every operation of a compaction: the log is as before a swap, or as after it."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from millstream.codec.markers import ControlKind
from millstream.errors import StorageError
from tests.support.compacted_log import RETENTION_MS, CompactedLog, sync
from tests.support.crashing_files import CrashingFiles

Cut = Callable[[CrashingFiles], None]

CUTS: dict[str, Cut] = {
    "nothing unsynced survives": lambda files: files.power_cut(worst=True),
    "everything survives": lambda files: files.power_cut(kept_bytes=2**30),
    "some of it survives": lambda files: files.power_cut(Random(files.operation_count)),
    "any sectors survive": lambda files: files.power_cut(
        Random(files.operation_count), reorder=True
    ),
}


def written(runs: int) -> CompactedLog:
    """A log with something of everything, on a disk, after so many complete runs."""
    it = CompactedLog(CrashingFiles())
    for round_number in range(3):
        value = str(round_number)
        it.produce(("a", value), ("b", value * 300))
        it.produce(("c", value), producer_id=11)
        it.produce(("d", value), producer_id=1, transactional=True)
        it.produce(("e", None if round_number else value))
        it.produce(("a", "rolled back"), ("f", value), producer_id=2, transactional=True)
        it.end(2, ControlKind.ABORT)
        it.seal()
        it.end(1, ControlKind.COMMIT)
        it.produce(("g", None), ("h", value))
        it.open_epoch()
        it.produce((None, "no key"), ("i" * 40, value), (f"stays {value}", "x" * 800))
        it.seal()
    for _ in range(runs):
        assert it.compact()
        it.now_ms += RETENTION_MS
        it.produce(("a", "later"), ("j", None))
        it.seal()
    return it


def states_of_a_whole_run(it: CompactedLog) -> list[object]:
    """What the log holds before, between and after the swaps of an undisturbed run."""
    states: list[object] = [it.batches()]

    async def durable() -> None:
        states.append(it.batches())
        sync(it.log)

    assert it.compact(durable=durable)
    assert len(states) >= 2
    return states


@pytest.mark.parametrize("runs", [0, 1, 2, 3])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_power_cut_finds_the_log_before_or_after_a_swap(runs: int, cut: Cut) -> None:
    it = written(runs)
    files = it.files
    assert isinstance(files, CrashingFiles)
    disk, now_ms, cleaned_at = files.snapshot(), it.now_ms, dict(it.cleaned_at)
    it.reopen()
    states = states_of_a_whole_run(it)

    def cut_before(operation: int) -> bool:
        files.restore(disk)
        it.now_ms, it.cleaned_at = now_ms, dict(cleaned_at)
        it.reopen()
        files.operation_count = 0

        def count(kind: str, path: str) -> None:
            if files.operation_count == operation:
                files.on_operation = None
                cut(files)

        files.on_operation = count
        try:
            it.compact()
        except (StorageError, OSError):
            return True
        finally:
            files.on_operation = None
        return False

    operation = 1
    while cut_before(operation):
        it.note_tombstones(it.log.end_offset)
        it.reopen()

        assert it.batches() in states
        it.check()
        while it.compact():
            it.now_ms += RETENTION_MS
        it.check()
        operation += 1
    assert operation > 10


def test_what_a_finished_run_achieved_survives_a_power_cut() -> None:
    it = written(runs=0)
    assert it.compact()
    assert isinstance(it.files, CrashingFiles)
    after = it.batches()

    it.files.power_cut(worst=True)
    it.reopen()

    assert it.batches() == after
    assert not it.compact()


@pytest.mark.parametrize("seed", range(60))
def test_no_series_of_power_cuts_brings_anything_back(seed: int) -> None:
    random = Random(seed)
    it = CompactedLog(CrashingFiles())
    files = it.files
    assert isinstance(files, CrashingFiles)

    for _ in range(12):
        for _ in range(random.randint(1, 6)):
            key, value = random.choice("abcde"), random.choice(["1", "2", None])
            producer_id = random.choice([1, 2])
            it.produce((key, value), producer_id=producer_id, transactional=True)
            if random.random() < 0.5:
                it.end(producer_id, random.choice(list(ControlKind)))
        for producer_id in list(it.model.open):
            it.end(producer_id, random.choice(list(ControlKind)))
        it.seal()
        it.now_ms += random.choice([0, RETENTION_MS // 2, RETENTION_MS])
        left = random.randint(1, 60)

        def count_down(kind: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                files.power_cut(random, reorder=random.random() < 0.5)

        files.on_operation = count_down
        with suppress(StorageError, OSError):
            it.compact()
        files.on_operation = None
        if left <= 0:
            it.note_tombstones(it.log.end_offset)
            it.reopen()

        it.check()

"""The power goes at every operation of a log and inside every write.

A story is told to a log over files that forget. Before each of its operations the disk is copied,
together with what the log had promised by then; then every copy suffers every kind of cut. What is
found must be the beginning of something the log once was, and hold all that was synced and not
removed since.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from millstream.codec.batch import read_header
from millstream.errors import DamagedBatch, StorageError
from millstream.model import Boundary, Epoch, ReplicaId
from millstream.storage.compaction.replacement import Replacement
from millstream.storage.files.disk import DiskFiles
from millstream.storage.sealing.batches import SEALED_BYTES
from tests.support.crashing_files import CrashingFiles, Snapshot
from tests.support.logs import DIRECTORY, append, batch, fill, open_small, read_all, stored, sync

VOTERS = frozenset({ReplicaId(1)})


class Moment(NamedTuple):
    """A disk, and all that the log was since the last round that has ended."""

    disk: Snapshot
    states: tuple[tuple[bytes, ...], ...]
    start: int
    boundaries: tuple[Boundary, ...]
    dropped: frozenset[bytes]


class Story:
    """A log that is written to, and remembers what it was."""

    def __init__(self) -> None:
        self.files = CrashingFiles()
        self.boundaries = (Boundary(Epoch(1), 0, VOTERS),)
        self.start = 0
        self.moments: list[Moment] = []
        self.states: list[tuple[bytes, ...]] = [()]
        self.dropped: frozenset[bytes] = frozenset()  # By compaction.
        self.log = self.open()
        self.files.on_operation = lambda *_: self.remember()

    def open(self):
        return open_small(self.files, start_offset=self.start, boundaries=self.boundaries)

    def remember(self) -> None:
        self.moments.append(
            Moment(
                self.files.snapshot(), tuple(self.states), self.start, self.boundaries, self.dropped
            )
        )

    def append(self, *shapes: tuple[int, int]) -> None:
        """Batches of so many records of so many bytes."""
        made = []  # type: ignore[var-annotated]
        offset = self.log.end_offset
        for count, size in shapes:
            filled = (len(self.moments) + len(made)) % 251
            epoch = self.boundaries[-1].epoch
            made.append(batch(offset, count, size=size, fill=filled, epoch=epoch))
            offset += count
        # While the write is under way any of them may be there already.
        for count in range(1, len(made) + 1):
            self.states.append((*self.states[-1], made[count - 1]))
        append(self.log, *made)

    def sync(self, during: Callable[[], None] = lambda: None) -> None:
        begun = len(self.states) - 1
        work = self.log.begin_sync()
        if work is not None:
            during()
            work()
            self.log.end_sync()
        self.states = self.states[begun:]

    def truncate(self, end: int) -> None:
        kept = tuple(state for state in self.states[-1] if read_header(state).end_offset <= end)
        self.states.append(kept)
        self.log.truncate(end)
        before = tuple(b for b in self.boundaries if b.start_offset <= end)
        epoch = Epoch(self.boundaries[-1].epoch + 1)
        self.boundaries = (*before, Boundary(epoch, end, VOTERS))  # type: ignore[assignment]

    def advance_start(self, start: int) -> None:
        # The journal may or may not know: both are tried, see `survives`.
        self.log.advance_start(start)
        self.start = start

    def compact(self, count: int) -> None:
        self.sync()
        old = self.log.sealed()[:count]
        new = Replacement(self.files, old, interval_bytes=128)
        gone = set()
        for segment in old:
            for header, data in self.log.opened(segment).batches():
                if header.base_offset % 3 == 0 or header.end_offset == old[-1].end_offset:
                    new.append(*stored(self.log, data, header))
                else:
                    gone.add(bytes(data))
        segment = new.finish()
        self.dropped |= gone
        self.log.begin_replace(old)()
        assert self.log.replace(old, segment)
        self.sync()

    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()


def survives(files: CrashingFiles, moment: Moment) -> None:
    """Open what is left; check it, and that opening it made it durable."""
    problems = check(files, moment)
    files.power_cut(worst=True)
    again = check(files, moment)
    # More may come back than there was: a cut that no round had made durable yet.
    assert again[: len(problems)] == problems


def check(files: CrashingFiles, moment: Moment) -> list[bytes]:
    log = open_small(files, start_offset=moment.start, boundaries=moment.boundaries)
    records = read_all(log)
    log.verify()
    there = set(records)
    states = [
        [entry for entry in state if read_header(entry).end_offset > moment.start]
        for state in moment.states
    ]
    # What compaction dropped is back if the old file is.
    candidates = [
        [batch for batch in state if batch in there or batch not in moment.dropped]
        for state in states
    ]
    assert any(records == candidate[: len(records)] for candidate in candidates), "garbage"
    common = set(states[0]).intersection(*states[1:])
    assert common - moment.dropped <= there, "lost"
    return records


def every_cut(story: Story, *, every: int = 1) -> None:
    files = story.files
    files.on_operation = None
    story.remember()
    for at, moment in enumerate(story.moments):
        if at % every:
            continue
        random = Random(at)
        cuts: list[dict] = [
            {"worst": True},
            {"kept_bytes": 2**30},
            {"random": random},
            {"random": random},
            {"random": random, "reorder": True},
            {"random": random, "reorder": True},
        ]
        for cut in cuts:
            files.restore(moment.disk)
            files.power_cut(**cut)
            survives(files, moment)
        files.restore(moment.disk)
        files.kill()
        survives(files, moment)


# -- the stories -----------------------------------------------------------------------------------


def test_appends_survive_as_far_as_they_were_synced() -> None:
    story = Story()
    for at in range(30):
        story.append((1 + at % 3, at * 7 % 60))
        if at % 4 == 3:
            story.sync()
    story.reopen()
    story.append((1, 1))

    every_cut(story)


def test_a_write_of_several_batches_survives_or_is_cut_at_a_batch() -> None:
    story = Story()
    for at in range(10):
        story.append((1, 30), (2, at * 20), (1, 0))
        if at % 3 == 2:
            story.sync()

    every_cut(story)


def test_a_round_vouches_only_for_what_was_written_before_it() -> None:
    story = Story()
    for at in range(8):
        story.append((1, 100), (1, 200))
        story.sync(lambda: (story.append((1, 150)), story.log.roll(), story.append((1, 50))))  # type: ignore[arg-type, func-returns-value]
        if at % 3 == 2:
            story.sync(lambda: story.truncate(story.log.end_offset - 2))

    every_cut(story, every=2)


@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.slow
def test_what_was_truncated_never_comes_back_among_new_records(is_synced: bool) -> None:
    story = Story()
    for end in (25, 24, 12, 13, 1, 0):
        while story.log.end_offset < 30:
            story.append((1, 16))
        if is_synced:
            story.sync()
        story.truncate(end)
        story.append((1, 40), (1, 20))

    every_cut(story, every=2)


def test_moving_the_log_start_loses_nothing_behind_it() -> None:
    story = Story()
    for at in range(6):
        for _ in range(9):
            story.append((1, 16))
        story.sync()
        story.advance_start(at * 9)
        story.sync()
    story.advance_start(story.log.end_offset)
    story.sync()
    story.append((1, 16))
    story.sync()

    every_cut(story, every=2)


@pytest.mark.slow
def test_compaction_is_found_before_or_after_and_never_between() -> None:
    story = Story()
    for _ in range(3):
        for _ in range(30):
            story.append((1, 16))
        story.compact(2)
        story.compact(3)

    every_cut(story, every=5)


def test_opening_and_closing_changes_no_record() -> None:
    story = Story()
    for at in range(5):
        story.append((1, 100))
        story.append((1, 300))
        story.reopen()
        if at % 2:
            story.truncate(story.log.end_offset - 1)
        story.reopen()

    every_cut(story)


@pytest.mark.slow
def test_a_power_cut_during_recovery_changes_nothing() -> None:
    story = Story()
    for _ in range(30):
        story.append((1, 50))
    story.sync()
    for _ in range(40):
        story.append((1, 50))
    story.truncate(45)
    story.append((2, 50))
    last = story.moments[-1]
    files = story.files
    for seed in range(20):
        files.on_operation = None
        files.restore(last.disk)
        files.power_cut(Random(seed), reorder=seed % 2 == 1)
        before = files.snapshot()
        moments: list[Snapshot] = []
        files.on_operation = lambda *_, to=moments: to.append(files.snapshot())
        open_small(files, boundaries=last.boundaries)
        files.on_operation = None

        for at, moment in enumerate([before, *moments]):
            files.restore(moment)
            files.power_cut(Random(at))
            survives(files, last)


# -- every byte ------------------------------------------------------------------------------------


@pytest.mark.parametrize("synced", [0, 3, 12])
def test_a_write_cut_at_every_byte_leaves_whole_batches(synced: int) -> None:
    files = CrashingFiles()
    log = open_small(files)
    added = fill(log, synced)
    sync(log)
    more = [batch(synced, 2, fill=1), batch(synced + 2, fill=2), batch(synced + 3, 3, fill=3)]
    append(log, *more)
    seal_bytes = 0 if log.sealer is None else SEALED_BYTES
    ends = [sum(len(data) + seal_bytes for data in more[:count]) for count in range(4)]
    disk = files.snapshot()

    for size in range(ends[-1] + 1):
        files.restore(disk)
        files.power_cut(kept_bytes=size)

        log = open_small(files)

        whole = sum(end <= size for end in ends[1:])
        assert read_all(log) == added + more[:whole]
        log.abandon()


# -- rot -------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_the_active_segment_is_named_or_cuts_the_last_batch() -> None:
    files = CrashingFiles()
    log = open_small(files, boundaries=(Boundary(Epoch(1), 0, VOTERS),))
    added = fill(log, 20, epoch=1)
    sync(log)
    active = log.active
    assert active is not None
    log.abandon()
    path, first = active.path, active.base_offset
    disk = files.snapshot()
    size = active.size // (20 - first)

    for at in range(active.size):
        files.restore(disk)
        files.flip_bit(path, at, bit=at % 8)

        log = open_small(files, boundaries=(Boundary(Epoch(1), 0, VOTERS),), may_have_gaps=False)

        bad = first + at // size
        if bad == 19:  # It could as well be torn: nothing behind it says otherwise.
            assert read_all(log) == added[:19]
        else:
            assert [
                (bad_range.base_offset, bad_range.end_offset) for bad_range in log.damage()
            ] == [(bad, bad + 1)]
            assert log.end_offset == 20
            with pytest.raises(DamagedBatch):
                log.read(bad, bytes_max=1, end_offset=20)
            for offset in {*range(first, 20)} - {bad}:
                part = log.read(offset, bytes_max=1, end_offset=20)
                assert part is not None
                assert part.read() == added[offset]
        log.abandon()


def test_a_flipped_bit_in_a_sealed_segment_is_found_by_verifying_and_nothing_is_deleted() -> None:
    files = CrashingFiles()
    log = open_small(files)
    fill(log, 40)
    sync(log)
    sealed = log.sealed()[1]
    size = sealed.size // (sealed.end_offset - sealed.base_offset)
    log.abandon()
    disk = files.snapshot()

    for at in range(0, sealed.size - size, 7):
        if at % size < 16:
            continue
        files.restore(disk)
        files.flip_bit(sealed.path, at, bit=3)
        names = files.list(DIRECTORY)

        log = open_small(files)
        with pytest.raises(StorageError):
            log.verify()

        assert files.list(DIRECTORY) == names
        log.abandon()


# -- full and failing disks ------------------------------------------------------------------------


def tell(story: Story, *, at_least: int = 40) -> None:
    """Append, and try again what the disk refused, as producers do."""
    while story.log.end_offset < at_least:
        states = list(story.states)
        try:
            story.append((1, 16), (2, 30))
            if story.log.end_offset % 5 == 0:
                story.sync()
        except StorageError:
            story.states = states


@pytest.mark.parametrize("kept", [0, 7, 80, 95])
def test_a_disk_that_is_full_at_any_write_loses_nothing_and_takes_more_later(kept: int) -> None:
    for nth in range(1, 25):
        story = Story()
        story.files.fail_write(nth, kept=kept)
        tell(story)
        added = list(story.states[-1])
        assert read_all(story.log) == added
        story.files.on_operation = None
        story.files.kill()

        assert read_all(story.open()) == added


@pytest.mark.parametrize("kept", [80, 95])
def test_what_a_failed_write_left_is_not_found_after_a_power_cut(kept: int) -> None:
    for nth in (1, 2, 5, 6, 7, 12):
        story = Story()
        story.files.fail_write(nth, kept=kept)
        tell(story, at_least=24)

        every_cut(story, every=2)


def append_for_ever(story: Story) -> None:
    while True:
        for _ in range(5):
            story.append((1, 30))
        story.sync()


@pytest.mark.parametrize("is_cut", [True, False])
def test_after_a_failed_sync_only_what_is_on_the_disk_is_served(is_cut: bool) -> None:
    for nth in range(1, 30):
        story = Story()
        story.files.fail_sync(nth)
        with pytest.raises(OSError, match="sync failed"):
            append_for_ever(story)
        story.files.on_operation = None
        story.remember()
        moment = story.moments[-1]
        if is_cut:
            story.files.power_cut(Random(nth))
        else:
            story.files.kill()

        survives(story.files, moment)


# -- a real process --------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from millstream.storage.files.disk import DiskFiles
from tests.support.logs import fill, open_small, sync
log = open_small(DiskFiles(Path(sys.argv[1])))
while True:
    fill(log, 7)
    sync(log)
    print(log.end_offset, flush=True)
"""


def test_a_killed_process_has_lost_nothing_that_it_had_synced(tmp_path: Path) -> None:
    end = 0
    for life in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert child.stdout is not None
        for _ in range(10 + life):
            end = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()

        log = open_small(DiskFiles(tmp_path))
        records = read_all(log)
        assert log.end_offset >= end
        assert records == fill(open_small(CrashingFiles()), log.end_offset)
        assert log.verify() == len(records)
        log.abandon()

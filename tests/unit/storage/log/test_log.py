import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.codec.batch import read_header
from millstream.codec.compression import Codec
from millstream.codec.markers import ControlKind, encode_marker
from millstream.cooperative import all_at_once
from millstream.errors import (
    BatchTooLarge,
    DiskFailed,
    NoSpace,
    OffsetOutOfRange,
    OutOfOrderSequence,
)
from millstream.ports import Files
from millstream.settings import TopicSettings
from millstream.storage.compaction.replacement import Replacement
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log.cache import LogCache
from millstream.storage.log.log import FOLD_BATCHES, Log
from millstream.storage.log.segment import FileRange
from tests.support.crashing_files import CrashingFiles
from tests.support.logs import (
    DIRECTORY,
    EVERYTHING,
    SMALL,
    append,
    batch,
    fill,
    offsets,
    open_small,
    read_all,
    searched,
    split,
    sync,
)


@pytest.fixture
def log() -> Log:
    return open_small(MemoryFiles())


def names(files: Files, suffix: str = "") -> list[str]:
    return [name for name in files.list(DIRECTORY) if name.endswith(suffix)]


def sealed_log(files: Files, count: int = 40) -> tuple[Log, list[bytes]]:
    """A synced log of several segments."""
    log = open_small(files)
    added = fill(log, count)
    sync(log)
    assert len(log.sealed()) >= 3
    return log, added


# -- appending -------------------------------------------------------------------------------------


def test_what_is_appended_can_be_read(log: Log) -> None:
    added = fill(log, 50)

    assert read_all(log) == added
    assert (log.start_offset, log.end_offset) == (0, 50)


def test_an_empty_log_has_no_files_and_nothing_to_read() -> None:
    files = MemoryFiles()
    log = open_small(files, start_offset=7)

    assert not files.exists(DIRECTORY)
    assert (log.start_offset, log.base_offset, log.end_offset) == (7, 7, 7)
    assert log.read(7, bytes_max=100, end_offset=100) is None
    assert not log.is_dirty
    assert log.begin_sync() is None


def test_several_batches_are_one_write_and_stay_in_one_segment() -> None:
    files = CrashingFiles()
    log = open_small(files)
    written: list[str] = []
    files.on_operation = lambda kind, _: written.append(kind)

    append(log, *[batch(at, size=300) for at in range(5)])

    assert written.count("write") == 1
    assert log.health().segment_count == 1
    assert offsets(read_all(log)) == list(range(5))


def test_chunks_need_not_be_batches(log: Log) -> None:
    data = batch(0, 2) + batch(2) + batch(3, 2)
    headers = [read_header(piece) for piece in split(data)]

    log.append([data[:16], memoryview(data)[16:100], data[100:]], headers, now_ms=0)

    assert b"".join(read_all(log)) == data


def test_a_batch_that_no_segment_can_hold_is_refused(log: Log) -> None:
    with pytest.raises(BatchTooLarge):
        append(log, batch(0, size=SMALL.segment_bytes))

    assert log.end_offset == 0
    append(log, batch(0))


def test_a_segment_is_rolled_when_the_next_batch_would_not_fit(log: Log) -> None:
    fill(log, 30)

    sizes = [log.contents(segment).size for segment in log._chain.segments]
    assert len(sizes) > 2
    assert all(size <= SMALL.segment_bytes for size in sizes)
    assert all(size + len(batch(0)) > SMALL.segment_bytes for size in sizes[:-1])


def test_a_segment_is_rolled_when_it_is_old_enough() -> None:
    log = open_small(MemoryFiles(), settings=TopicSettings(segment_ms=1_000))
    append(log, batch(0), now_ms=5_000)
    append(log, batch(1), now_ms=5_999)
    assert log.health().segment_count == 1

    append(log, batch(2), now_ms=6_000)

    assert log.health().segment_count == 2


def test_a_clock_that_steps_back_does_not_stop_rolling() -> None:
    log = open_small(MemoryFiles(), settings=TopicSettings(segment_ms=1_000))
    append(log, batch(0), now_ms=1_000_000)
    append(log, batch(1), now_ms=5_000)

    append(log, batch(2), now_ms=6_000)

    assert log.health().segment_count == 2


def test_the_age_of_a_segment_survives_a_restart() -> None:
    files, settings = MemoryFiles(), TopicSettings(segment_ms=1_000)
    log = open_small(files, settings=settings)
    append(log, batch(0), now_ms=5_000)
    log.close()

    log = open_small(files, settings=settings)
    append(log, batch(1), now_ms=6_000)

    assert log.health().segment_count == 2


def test_gaps_in_offsets_are_read_over(log: Log) -> None:
    first, second, third = batch(3), batch(10, 2, gap=3), batch(10_000_000_000)
    append(log, first)
    append(log, second)
    append(log, third)

    assert read_all(log, bytes_max=1) == [first, second, third]
    for offset, expected in [(0, first), (3, first), (4, second), (17, second), (18, third)]:
        part = log.read(offset, bytes_max=1, end_offset=EVERYTHING * 10)
        assert part is not None
        assert part.read() == expected


def test_offsets_further_apart_than_an_index_can_say_are_written_apart(log: Log) -> None:
    batches = [batch(0), batch(2**33), batch(2**34)]

    append(log, *batches)

    assert log.health().segment_count == 3
    assert read_all(log) == batches


def test_rolling_an_empty_log_does_nothing(log: Log) -> None:
    log.roll()

    assert log.active is None
    assert not log.is_dirty


def test_rolling_seals_the_active_segment_after_the_next_round(log: Log) -> None:
    added = fill(log, 2)

    log.roll()
    assert log.active is None
    assert log.sealed() == []
    sync(log)

    assert [segment.end_offset for segment in log.sealed()] == [2]
    assert read_all(log) == added
    assert read_all(log) + fill(log, 1) == read_all(log)


# -- reading ---------------------------------------------------------------------------------------


def test_a_read_starts_with_the_batch_that_contains_the_offset(log: Log) -> None:
    append(log, batch(0, 5))
    append(log, batch(5, 5))

    part = log.read(7, bytes_max=EVERYTHING, end_offset=10)

    assert part is not None
    assert (part.base_offset, part.end_offset) == (5, 10)


@pytest.mark.parametrize("settings", [SMALL, TopicSettings(), TopicSettings(segment_bytes=4096)])
def test_a_read_returns_whole_batches_within_both_limits(settings: TopicSettings) -> None:
    log = open_small(MemoryFiles(), settings=settings)
    batches: list[bytes] = []
    for at in range(60):
        batches.append(batch(log.end_offset, 1 + at % 3, size=at % 7 * 20))
        append(log, batches[-1])
    headers = [read_header(data) for data in batches]

    for bytes_max in (1, 90, 333, 1_000, 5_000):
        for end_offset in (1, 17, 60, log.end_offset):
            for offset in range(0, end_offset, 5):
                part = log.read(offset, bytes_max=bytes_max, end_offset=end_offset)
                first = next(h for h in headers if h.end_offset > offset)
                if first.end_offset > end_offset:
                    assert part is None
                    continue
                assert isinstance(part, FileRange)
                got = [read_header(data) for data in split(part.read())]
                assert got[0] == first
                assert got == headers[headers.index(first) :][: len(got)]
                assert got[-1].end_offset == part.end_offset <= end_offset
                assert len(got) == 1 or part.size <= bytes_max
                after = headers[headers.index(first) + len(got) :][:1]
                assert (
                    not after
                    or after[0].end_offset > end_offset
                    or part.size + after[0].size > bytes_max
                    or part.file is not log._cache.file(log._chain.segments[-1])
                )


@pytest.mark.parametrize("offset", [-1, 4, 31])
def test_offsets_that_the_log_does_not_reach_are_out_of_range(log: Log, offset: int) -> None:
    fill(log, 30)
    log.advance_start(5)

    with pytest.raises(OffsetOutOfRange):
        log.read(offset, bytes_max=1, end_offset=30)


def test_nothing_is_read_at_or_behind_the_end(log: Log) -> None:
    fill(log, 3)

    assert log.read(3, bytes_max=1, end_offset=9) is None
    assert log.read(2, bytes_max=1, end_offset=2) is None
    assert log.read(2, bytes_max=1, end_offset=1) is None


def test_searching_walks_no_further_than_an_interval_and_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = TopicSettings(segment_bytes=2**20, index_interval_bytes=1_000)
    log = open_small(MemoryFiles(), settings=settings)
    fill(log, 2_000)
    walked: list[int] = []
    real = read_header

    def counting(buffer: bytes, at: int = 0) -> object:
        walked.append(at)
        return real(buffer, at)

    monkeypatch.setattr("millstream.storage.log.segment.read_header", counting)

    for offset in range(0, 2_000, 37):
        walked.clear()
        log.read(offset, bytes_max=10_000, end_offset=1_990)
        assert len(walked) <= 2 * (1_000 // 80 + 2)


def test_a_range_stays_readable_after_its_segment_is_deleted(tmp_path: Path) -> None:
    log, added = sealed_log(DiskFiles(tmp_path))
    part = log.read(0, bytes_max=EVERYTHING, end_offset=40)
    assert part is not None

    log.advance_start(40)
    sync(log)

    assert split(part.read()) == added[: part.end_offset]
    assert names(DiskFiles(tmp_path), ".log") == [f"{40:020d}.log"]


def test_open_files_and_loaded_indexes_are_bounded(tmp_path: Path) -> None:
    files, cache = DiskFiles(tmp_path), LogCache(index_bytes_max=500, open_files_max=2)
    log = open_small(files, cache=cache)
    added = fill(log, 200)
    sync(log)

    for _ in range(2):
        assert read_all(log, bytes_max=100) == added
        assert cache.open_count <= 2
        assert cache.index_bytes <= 500


def test_closing_gives_the_cache_back_what_it_held(tmp_path: Path) -> None:
    cache = LogCache(index_bytes_max=2**20, open_files_max=100)
    log = open_small(DiskFiles(tmp_path), cache=cache)
    fill(log, 100)
    sync(log)
    read_all(log)
    assert cache.open_count > 0

    log.close()

    assert (cache.open_count, cache.index_bytes) == (0, 0)


# -- time ------------------------------------------------------------------------------------------


def test_a_time_leads_to_the_first_record_that_is_not_older(log: Log) -> None:
    times = [50, 10, 70, 70, 20, 90, 30]
    for timestamp in times * 10:
        append(log, batch(log.end_offset, timestamp=timestamp))

    for timestamp in range(-1, 95):
        place = searched(log.offset_for_time(timestamp, end_offset=70))
        offset = next((at for at, time in enumerate(times) if time >= timestamp), None)
        assert place == (None if offset is None else (offset, times[offset]))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_time_is_looked_up_inside_of_a_batch_and_from_the_log_start(
    log: Log, codec: Codec
) -> None:
    append(log, batch(0, 5, timestamp=100, codec=codec))
    append(log, batch(5, 5, timestamp=90, codec=codec))
    assert searched(log.offset_for_time(95, end_offset=10)) == (0, 100)

    log.advance_start(3)
    assert searched(log.offset_for_time(95, end_offset=10)) == (3, 100)
    log.advance_start(6)

    assert searched(log.offset_for_time(95, end_offset=10)) is None
    assert searched(log.offset_for_time(90, end_offset=10)) == (6, 90)


def test_times_behind_the_visible_end_are_not_found(log: Log) -> None:
    append(log, batch(0, timestamp=1))
    append(log, batch(1, 5, timestamp=2))

    assert searched(log.offset_for_time(2, end_offset=5)) is None
    assert searched(log.offset_for_time(2, end_offset=6)) == (1, 2)


def test_the_newest_record_is_the_first_with_the_greatest_timestamp(log: Log) -> None:
    times = [5, 80, 3, 80, 7] * 8
    for timestamp in times:
        append(log, batch(log.end_offset, timestamp=timestamp))
    assert searched(log.offset_of_max_timestamp(end_offset=40)) == (1, 80)

    for start in range(1, 40, 3):
        log.advance_start(start)
        for end in range(start + 1, 41):
            newest = max(times[start:end])
            expected = times.index(newest, start), newest
            assert searched(log.offset_of_max_timestamp(end_offset=end)) == expected


def test_records_without_a_timestamp_are_never_the_newest(log: Log) -> None:
    append(log, batch(0, timestamp=-1))

    assert searched(log.offset_of_max_timestamp(end_offset=1)) is None


# -- from the end ----------------------------------------------------------------------------------


def test_the_tail_is_exact_by_record_count(log: Log) -> None:
    for at in range(40):
        append(log, batch(log.end_offset, 1 + at % 4))
    end = log.end_offset
    log.advance_start(10)

    for count in range(end):
        assert all_at_once(log.tail(count, end_offset=end)) == max(10, end - count)


def test_the_tail_is_found_in_bounded_steps_while_the_log_changes(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.storage.log.lookup.STEP_HEADERS", 10)
    fill(log, 95)
    steps = log.tail(50, end_offset=95)

    for _ in range(4):
        next(steps)
        fill(log, 1)
    log.advance_start(60)

    assert all_at_once(steps) == 60
    assert all_at_once(log.tail(50, end_offset=95)) == 60


def test_the_tail_counts_no_markers_and_takes_a_compacted_batch_whole(log: Log) -> None:
    append(log, batch(0, 4))
    append(log, batch(4, 2, gap=4))
    marker = encode_marker(
        ControlKind.COMMIT,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=14,
    )
    append(log, marker)

    assert all_at_once(log.tail(1, end_offset=15)) == 4
    assert all_at_once(log.tail(2, end_offset=15)) == 4
    assert all_at_once(log.tail(3, end_offset=15)) == 3
    assert all_at_once(log.tail(9, end_offset=15)) == 0
    assert all_at_once(log.tail(0, end_offset=15)) == 15


# -- the log start ---------------------------------------------------------------------------------


def test_the_base_is_where_the_batch_with_the_log_start_begins(log: Log) -> None:
    append(log, batch(0, 10))
    append(log, batch(20, 5))

    for start, base in [(0, 0), (4, 0), (10, 10), (15, 15), (20, 20), (22, 20), (25, 25)]:
        log.advance_start(start)
        assert log.base_offset == base


def test_whole_segments_below_the_start_leave_after_a_round() -> None:
    files = MemoryFiles()
    log, added = sealed_log(files)
    first = log.sealed()[0]

    log.advance_start(first.end_offset + 1)
    assert first.path.rpartition("/")[2] in names(files)
    sync(log)

    assert names(files, ".log")[0] == f"{first.end_offset:020d}.log"
    assert read_all(log) == added[first.end_offset + 1 :]


def test_the_end_is_remembered_when_everything_has_gone() -> None:
    files = MemoryFiles()
    log, _ = sealed_log(files)

    log.advance_start(40)
    sync(log)
    assert names(files, ".log") == [f"{40:020d}.log"]
    log.close()

    log = open_small(files, start_offset=40)
    assert (log.start_offset, log.end_offset) == (40, 40)
    added = fill(log, 3)
    assert read_all(log) == added


def test_retention_makes_room_on_a_full_disk() -> None:
    files = CrashingFiles()
    log, added = sealed_log(files)
    files.space_left = 0

    log.advance_start(40)
    sync(log)

    assert files.space_left > 1_000
    assert log.read(40, bytes_max=1, end_offset=40) is None
    assert fill(log, 3) == read_all(log)
    assert added


# -- truncation and reset --------------------------------------------------------------------------


def test_truncation_drops_what_is_behind_and_the_log_goes_on() -> None:
    for end in range(40):
        log, added = sealed_log(MemoryFiles())

        log.truncate(end)
        assert log.end_offset == end
        assert read_all(log) == added[:end]
        more = fill(log, 30, size=33)

        assert read_all(log) == added[:end] + more
        sync(log)
        assert read_all(log) == added[:end] + more


def test_truncation_to_the_end_or_beyond_does_nothing(log: Log) -> None:
    added = fill(log, 3)
    sync(log)

    log.truncate(3)
    log.truncate(99)

    assert not log.is_dirty
    assert read_all(log) == added


def test_a_truncated_log_opens_as_it_was_left() -> None:
    for end in (1, 11, 12, 13, 39):
        for is_closed in (True, False):
            files = MemoryFiles()
            log, added = sealed_log(files)
            log.truncate(end)
            if is_closed:
                log.close()

            log = open_small(files)

            assert log.end_offset == end
            assert read_all(log) == added[:end]


def test_a_cut_file_is_sealed_and_never_grows() -> None:
    files = MemoryFiles()
    log, _ = sealed_log(files)
    segment = log.sealed()[1]

    log.truncate(segment.base_offset + 2)
    size = files.open(segment.path).size()
    fill(log, 5)

    assert files.open(segment.path).size() == size
    assert log.active is not None
    assert log.active.base_offset == segment.base_offset + 2


def test_a_reset_log_is_empty_and_goes_on_elsewhere() -> None:
    files = MemoryFiles()
    log, _ = sealed_log(files)

    log.reset(12)
    assert names(files) == []
    assert (log.start_offset, log.base_offset, log.end_offset) == (12, 12, 12)
    added = fill(log, 30)
    sync(log)
    log.close()

    assert read_all(open_small(files, start_offset=12)) == added


# -- sync rounds -----------------------------------------------------------------------------------


def test_a_round_makes_clean_only_what_was_there_when_it_began(log: Log) -> None:
    fill(log, 1)
    assert log.is_dirty
    work = log.begin_sync()
    assert work is not None

    fill(log, 1)
    work()
    log.end_sync()

    assert log.is_dirty
    sync(log)
    assert not log.is_dirty


def test_a_sealed_segment_gets_its_index_from_a_round() -> None:
    files = MemoryFiles()
    log = open_small(files)
    fill(log, 40)
    assert names(files, ".index") == []
    assert log.health().index_gaps > 0

    sync(log)

    sealed = [name.replace(".log", ".index") for name in names(files, ".log")[:-1]]
    assert names(files, ".index") == sealed
    assert log.health().index_gaps == 0
    assert names(files, ".tmp") == []


DURING = {
    "append": lambda log: fill(log, 30),
    "roll": lambda log: log.roll(),
    "cut a sealed segment": lambda log: log.truncate(3),
    "cut and append": lambda log: (log.truncate(3), fill(log, 60)),
    "truncate to a segment's base and append": lambda log: (log.truncate(12), fill(log, 60)),
    "truncate to nothing and append": lambda log: (log.truncate(0), fill(log, 60)),
    "reset": lambda log: log.reset(0),
    "reset and append": lambda log: (log.reset(0), fill(log, 60)),
    "reset elsewhere": lambda log: (log.reset(24), fill(log, 60)),
    "advance start": lambda log: log.advance_start(20),
    "advance to the end": lambda log: (log.advance_start(40), fill(log, 10)),
}


@pytest.mark.parametrize("during", DURING.values(), ids=DURING)
@pytest.mark.parametrize("is_before_work", [True, False])
def test_whatever_the_loop_does_during_a_round_the_log_opens_as_it_was(
    during: Callable[[Log], object], is_before_work: bool
) -> None:
    files = CrashingFiles()
    log = open_small(files)
    fill(log, 40)  # Twelve batches make a segment.
    work = log.begin_sync()
    assert work is not None

    if is_before_work:
        during(log)
    work()
    if not is_before_work:
        during(log)
    log.end_sync()
    content, start = read_all(log), log.start_offset
    proven = [s.index_path for s in log._chain.segments if s.is_proven]
    doomed = [s.index_path for s in log._chain._to_remove]
    assert (
        set(proven)
        <= {f"{DIRECTORY}/{name}" for name in names(files, ".index")}
        <= {
            *proven,
            *doomed,
        }
    )
    assert names(files, ".tmp") == []

    sync(log)
    assert read_all(log) == content
    assert log.health().index_gaps == 0
    files.power_cut(worst=True)
    log = open_small(files, start_offset=start)
    assert read_all(log) == content
    log.verify()


def test_a_log_that_was_deleted_during_a_round_does_no_harm() -> None:
    files = CrashingFiles()
    log = open_small(files)
    fill(log, 40)
    work = log.begin_sync()
    assert work is not None

    log.abandon()
    files.remove_directory(DIRECTORY)
    work()
    log.end_sync()

    assert not files.exists(DIRECTORY)


def test_an_error_while_syncing_comes_out_of_the_work() -> None:
    files = CrashingFiles()
    log = open_small(files)
    fill(log, 40)
    work = log.begin_sync()
    assert work is not None
    files.fail_sync()

    with pytest.raises(OSError, match="sync failed"):
        work()

    assert log.is_dirty


def test_a_full_disk_keeps_indexes_from_being_written_but_nothing_else() -> None:
    files = CrashingFiles()
    log = open_small(files)
    added = fill(log, 40)
    files.space_left = 0

    sync(log)
    assert not log.is_dirty
    assert log.health().index_gaps > 0
    assert read_all(log) == added
    files.space_left = None
    added += fill(log, 1)
    sync(log)

    assert log.health().index_gaps == 0
    assert read_all(log) == added


# -- closing ---------------------------------------------------------------------------------------


def test_a_closed_log_is_opened_without_a_scan_or_a_write() -> None:
    files = CrashingFiles()
    log, added = sealed_log(files)
    log.close()
    operations = files.operation_count
    for name in names(files, ".log"):  # A scan would not get past this.
        files.flip_bit(f"{DIRECTORY}/{name}", 80)

    log = open_small(files)

    assert files.operation_count == operations
    assert log.end_offset == len(added)
    assert not log.is_dirty


def test_a_closed_log_is_whole_after_a_power_cut() -> None:
    files = CrashingFiles()
    log, added = sealed_log(files)
    log.close()

    files.power_cut(worst=True)

    assert read_all(open_small(files)) == added


def test_closing_an_unchanged_log_touches_nothing() -> None:
    files = CrashingFiles()
    sealed_log(files)[0].close()
    log = open_small(files)
    operations = files.operation_count

    log.close()

    assert files.operation_count == operations


def test_a_log_that_was_closed_goes_on_in_the_same_segment() -> None:
    files = MemoryFiles()
    added: list[bytes] = []
    for _ in range(10):
        log = open_small(files)
        added += fill(log, 1)
        log.close()

    assert len(names(files, ".log")) == 1
    assert read_all(open_small(files)) == added


# -- failing disks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "kind"), [(errno.ENOSPC, NoSpace), (errno.EIO, DiskFailed)])
@pytest.mark.parametrize("kept", [0, 1, 61, 1_000])
@pytest.mark.parametrize("count", [0, 5, 12])
def test_a_failed_write_changes_nothing(
    error: int, kind: type[Exception], kept: int, count: int
) -> None:
    files = CrashingFiles()
    log = open_small(files)
    added = fill(log, count)
    sync(log)
    health, sealed, active = log.health(), log.sealed(), log.active

    files.fail_write(kept=kept, error=error)
    with pytest.raises(kind):
        append(log, batch(count, fill=1), batch(count + 1, fill=2))

    assert (log.health(), log.sealed(), log.active) == (health, sealed, active)
    assert read_all(log) == added
    added += fill(log, 30)
    assert read_all(log) == added
    log.abandon()
    assert read_all(open_small(files)) == added


def test_a_segment_that_cannot_be_created_changes_nothing() -> None:
    files = CrashingFiles()
    log = open_small(files)
    added = fill(log, 12)
    files.space_left = 0
    active = log.active

    for _ in range(2):
        with pytest.raises(NoSpace):
            fill(log, 1)
        assert log.active is active
        assert read_all(log) == added
    files.space_left = None

    added += fill(log, 3)
    assert read_all(log) == added
    assert log.health().segment_count == 2


@pytest.mark.parametrize("is_stubborn", [True, False])
def test_what_a_failed_write_left_never_gets_sealed_in(is_stubborn: bool) -> None:
    files = CrashingFiles()
    log = open_small(files)
    added = fill(log, 5)
    files.fail_write(kept=90)

    def refuse(kind: str, path: str) -> None:
        if kind == "truncate" and is_stubborn:
            raise OSError(errno.EIO, "cannot even be cut", path)

    files.on_operation = refuse
    with pytest.raises(NoSpace):
        append(log, batch(5, fill=7, size=40))
    files.on_operation = None

    log.roll()
    log.close()

    assert files.open(f"{DIRECTORY}/{0:020d}.log").size() == sum(map(len, added))
    assert read_all(open_small(files)) == added


# -- indexes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["removed", "empty", "flipped", "of another segment"])
def test_an_index_that_is_lost_while_running_is_rebuilt(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    log, added = sealed_log(files)
    path, other = log.sealed()[0].index_path, log.sealed()[1].index_path
    index = files.open(path)
    match damage:
        case "removed":
            files.remove(path)
        case "empty":
            index.truncate(0)
        case "flipped":
            index.write(100, [bytes([index.read(100, 1)[0] ^ 4])])
        case _:
            index.write(0, [files.open(other).read(0, 10_000)])

    with caplog.at_level(logging.WARNING):
        assert read_all(log, bytes_max=100) == added

    assert "index rebuilt" in caplog.text
    assert searched(log.offset_for_time(5, end_offset=40)) == (5, 5)


def test_health_tells_how_dense_the_index_is() -> None:
    log, added = sealed_log(MemoryFiles())

    health = log.health()

    assert health.segment_count == len(log.sealed()) + 1
    assert health.size_bytes == sum(map(len, added))
    assert (health.start_offset, health.end_offset) == (0, 40)
    assert health.index_entries >= health.size_bytes // (128 + len(added[0]))
    assert 128 <= health.index_bytes_per_entry_max < 128 + len(added[0])
    assert health.index_gaps == 0


# -- producers -------------------------------------------------------------------------------------


def produce(log: Log, count: int, *, producer_id: int = 9) -> None:
    for _ in range(count):
        at = log.end_offset
        append(log, batch(at, producer_id=producer_id, sequence=at, is_transactional=True))


def end_transaction(log: Log, kind: ControlKind, *, producer_id: int = 9) -> None:
    marker = encode_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=log.end_offset,
    )
    append(log, marker)


def test_producers_are_what_the_batches_say() -> None:
    files = MemoryFiles()
    log = open_small(files)
    produce(log, 20)
    end_transaction(log, ControlKind.ABORT)
    produce(log, 5)
    state = log.producers.encode()

    for is_closed in (True, False):
        if is_closed:
            log.close()
        log = open_small(files)
        assert log.producers.encode() == state
    assert log.producers.first_unstable_offset == 21
    assert [transaction.last_offset for transaction in log.producers.aborted(0, 99)] == [20]


def test_truncation_takes_producers_back() -> None:
    whole = open_small(MemoryFiles())
    states = [whole.producers.encode()]
    for at in range(40):
        if at % 9 == 8:
            end_transaction(whole, ControlKind.ABORT if at % 2 else ControlKind.COMMIT)
        else:
            produce(whole, 1, producer_id=at % 2 + 9 if at < 8 else 9)
        states.append(whole.producers.encode())
    batches = read_all(whole)

    for end in range(39, -1, -1):
        log = open_small(MemoryFiles())
        for data in batches:
            append(log, data)
            if read_header(data).base_offset % 7 == 0:
                sync(log)
        log.truncate(end)
        assert log.producers.encode() == states[end]


def test_the_last_two_snapshots_are_kept_and_either_will_do() -> None:
    files = MemoryFiles()
    log = open_small(files)
    for _ in range(6):
        produce(log, 10)
        sync(log)
    state = log.producers.encode()
    log.close()
    kept = names(files, ".producers")
    assert len(kept) == 2
    assert kept[-1] == f"{60:020d}.producers"

    for count in (1, 2):
        for name in kept[-count:]:
            files.open(f"{DIRECTORY}/{name}").write(12, [b"\xff\xff"])
        assert open_small(files).producers.encode() == state


def test_a_snapshot_of_what_was_truncated_is_never_used() -> None:
    files = CrashingFiles()
    log = open_small(files)
    produce(log, 30)
    sync(log)
    log.truncate(3)
    while log.end_offset < 30:
        append(log, batch(log.end_offset))
    state = log.producers.encode()

    sync(log)
    files.power_cut(worst=True)

    assert open_small(files).producers.encode() == state


def test_a_snapshot_taken_again_at_the_same_offset_during_a_round_is_the_one_that_counts() -> None:
    files = MemoryFiles()
    log = open_small(files)
    produce(log, 5)
    log.roll()
    work = log.begin_sync()
    assert work is not None
    work()

    log.truncate(4)
    append(log, batch(4))
    log.roll()
    state = log.producers.encode()
    log.end_sync()
    log.abandon()

    assert open_small(files).producers.encode() == state


def test_producers_outlive_the_records_that_retention_removed() -> None:
    files = MemoryFiles()
    log = open_small(files)
    append(log, batch(0, producer_id=4, sequence=0))
    log.advance_start(1)
    sync(log)
    log.close()

    log = open_small(files, start_offset=1)

    assert [view.producer_id for view in log.producers.describe()] == [4]


class RefusedAt:
    """Lets the operation with this number fail, and no other."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, kind: str, path: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, "refused", path)


def cut_that_is_refused(
    number: int, cut: Callable[[Log], None]
) -> tuple[CrashingFiles, Log, list[bytes]] | None:
    """A log whose `cut` failed at one of its operations; None if it has not that many."""
    files = CrashingFiles()
    log = open_small(files)
    batches = [batch(at, producer_id=9, sequence=at) for at in range(40)]
    for data in batches:
        append(log, data)
        if read_header(data).base_offset % 12 == 0:
            sync(log)
    log.advance_start(9)  # Leaves names that are to go after the next round.
    files.on_operation = RefusedAt(number)
    try:
        cut(log)
    except NoSpace:
        files.on_operation = None
        return files, log, batches
    return None


@pytest.mark.parametrize("end", [10, 17, 38])
@pytest.mark.parametrize("is_retried", [True, False])
def test_a_truncation_that_is_refused_anywhere_leaves_a_log_that_knows_its_producers(
    end: int, is_retried: bool
) -> None:
    number = 0
    while True:
        number += 1
        refused = cut_that_is_refused(number, lambda log: log.truncate(end))
        if refused is None:
            break
        files, log, batches = refused
        if is_retried:
            log.truncate(end)
        kept = log.end_offset
        while not log.fold():
            pass

        assert read_all(log) == batches[:kept][-len(read_all(log)) :]
        assert log.producers.next_sequence(9, 0) == kept
        for gone in batches[kept + 1 :]:
            with pytest.raises(OutOfOrderSequence):
                log.producers.check(read_header(gone))

        # Other batches take the place, and no trace of the old ones comes back.
        for at in range(kept, 45):
            append(log, batch(at, producer_id=8, sequence=at - kept))
        state, held = log.producers.encode(), read_all(log)
        sync(log)
        files.power_cut(worst=True)
        log = open_small(files, start_offset=9)
        assert read_all(log) == held
        assert log.producers.encode() == state
    assert number > 1


def test_producers_of_a_long_log_are_folded_step_by_step_after_a_truncation() -> None:
    log = open_small(MemoryFiles(), settings=TopicSettings())
    produce(log, 3 * FOLD_BATCHES)
    state = log.producers.encode()
    produce(log, 1)

    log.truncate(3 * FOLD_BATCHES)
    assert not log.is_folded
    append(log, batch(3 * FOLD_BATCHES))  # Not folded twice, nor left out.
    steps = 1
    while not log.fold():
        steps += 1

    assert steps == 3
    assert log.producers.encode() == state


def test_a_segment_that_is_rolled_before_its_producers_are_known_gets_no_snapshot() -> None:
    files = MemoryFiles()
    log = open_small(files, settings=TopicSettings())
    produce(log, 2 * FOLD_BATCHES)
    log.truncate(2 * FOLD_BATCHES - 1)
    assert not log.is_folded

    log.roll()
    sync(log)
    log.abandon()

    log = open_small(files)
    assert log.producers.next_sequence(9, 0) == 2 * FOLD_BATCHES - 1


# -- replacing segments ----------------------------------------------------------------------------


def rewrite(log: Log, files: Files, count: int, keep: Callable[[int], bool]) -> tuple:
    old = log.sealed()[:count]
    new = Replacement(files, old, interval_bytes=128)
    last = old[-1].end_offset - 1
    for content in [log.contents(segment) for segment in old]:
        for header, data in content.batches():
            if keep(header.base_offset) or header.last_offset == last:
                new.append([data], [header])
    segment = new.finish()
    log.begin_replace(old)()
    return old, segment


@pytest.mark.parametrize("count", [1, 2, 3])
def test_segments_are_replaced_and_old_files_leave_after_a_round(count: int) -> None:
    files = MemoryFiles()
    log, added = sealed_log(files)
    old, new = rewrite(log, files, count, lambda offset: offset % 3 == 0)
    part = log.read(5, bytes_max=EVERYTHING, end_offset=40)
    assert part is not None
    kept = [data for at, data in enumerate(added) if at % 3 == 0 or at >= old[-1].end_offset - 1]

    assert log.replace(old, new)
    assert read_all(log) == kept
    assert all(name in names(files) for name in [old[-1].path.rpartition("/")[2]])
    sync(log)

    assert read_all(log) == kept
    assert split(part.read())[0] == added[5]
    assert names(files, ".log")[:1] == [f"{0:020d}.log"]
    assert len(names(files, ".log")) == 4 - count + 1
    log.close()
    log = open_small(files)
    assert read_all(log) == kept
    log.verify()


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.truncate(3),
        lambda log: log.advance_start(13),
        lambda log: log.reset(0),
        lambda log: log.hold(),
    ],
)
def test_a_replacement_that_comes_too_late_is_refused(change: Callable[[Log], None]) -> None:
    files = MemoryFiles()
    log, _ = sealed_log(files)
    old, new = rewrite(log, files, 2, lambda offset: offset % 2 == 0)

    change(log)
    content = read_all(log)

    assert not log.replace(old, new)
    assert read_all(log) == content
    assert names(files, ".cleaned") == []


def test_a_discarded_replacement_leaves_the_log_as_it_was() -> None:
    files = MemoryFiles()
    log, added = sealed_log(files)
    new = Replacement(files, log.sealed()[:2], interval_bytes=128)
    new.append([added[0]], [read_header(added[0])])

    new.discard()

    assert names(files, ".cleaned") == []
    assert read_all(log) == added


def test_truncation_into_a_replaced_segment_may_use_the_old_names_again() -> None:
    for end in range(1, 30):
        files = CrashingFiles()
        log, added = sealed_log(files)
        old, new = rewrite(log, files, 3, lambda _: True)
        assert log.replace(old, new)

        log.truncate(end)
        more = fill(log, 40, size=33)
        sync(log)

        assert read_all(log) == added[:end] + more
        files.power_cut(worst=True)
        assert read_all(open_small(files)) == added[:end] + more


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for memory")
def test_many_logs_take_less_than_20_kilobytes_each(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096

    files, cache = DiskFiles(tmp_path), LogCache(index_bytes_max=2**20, open_files_max=10)
    fill(open_small(files, cache=cache, directory="logs/first"), 1)
    before = resident()

    logs = []
    for at in range(300):
        logs.append(open_small(files, cache=cache, directory=f"logs/{at}"))
        fill(logs[-1], 3)

    assert (resident() - before) / len(logs) < 20_000

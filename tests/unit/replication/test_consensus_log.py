"""A replica's log: records and boundaries tell one story, also when the disk refuses."""

import errno
from uuid import UUID

import pytest

from millstream.codec.batch import PREFIX_BYTES, read_header, stamp
from millstream.errors import CorruptBatch, DiskFailed, NoSpace
from millstream.model import ORIGIN, Boundary, Epoch, HardState, LogId, Position, ReplicaId
from millstream.replication.consensus_log import ConsensusLog, Stamped
from millstream.settings import TopicSettings
from millstream.storage.journal.journal import Journal, open_journal
from millstream.storage.log.cache import LogCache
from millstream.storage.log.recovery import open_log
from tests.support.crashing_files import CrashingFiles
from tests.support.nodes import batch

LOG = LogId(UUID(int=7), 0)
FOUNDERS = frozenset({ReplicaId(1), ReplicaId(2), ReplicaId(3)})


class StoppedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def boundary(epoch: int, start: int) -> Boundary:
    return Boundary(Epoch(epoch), start, FOUNDERS)


def open_consensus_log(files: CrashingFiles) -> tuple[ConsensusLog, Journal]:
    journal = open_journal(files, bytes_max=2**20)
    state = journal.state(LOG)
    records = open_log(
        files,
        f"logs/{LOG}",
        settings=TopicSettings(),
        cache=LogCache(index_bytes_max=2**20, open_files_max=100),
        start_offset=state.start_offset,
        boundaries=state.boundaries,
        decompressed_bytes_max=2**26,
    )
    log = ConsensusLog(
        LOG, records, journal, StoppedClock(), founders=FOUNDERS, fetch_bytes_max=2**20
    )
    return log, journal


def stamped(log: ConsensusLog, *values: bytes) -> Stamped:
    data = batch(*values)
    header, prefix = stamp(read_header(data), base_offset=log.last.end_offset, epoch=log.last.epoch)
    return Stamped((header,), (prefix, memoryview(data)[PREFIX_BYTES:]))


def leader_log(files: CrashingFiles) -> ConsensusLog:
    """Epoch 1 with two records, the empty epoch 2, epoch 4 with one record."""
    log, _ = open_consensus_log(files)
    log.vote(HardState(Epoch(4), ReplicaId(1)))
    log.open_epoch(boundary(1, 0))
    log.append(stamped(log, b"a", b"b"))
    log.open_epoch(boundary(2, 2))
    log.open_epoch(boundary(4, 2))
    log.append(stamped(log, b"c"))
    return log


def follower_log(files: CrashingFiles) -> tuple[ConsensusLog, Journal]:
    log, journal = open_consensus_log(files)
    log.vote(HardState(Epoch(4), None))
    return log, journal


def test_a_new_log_stands_at_the_origin_with_its_founders() -> None:
    log, _ = open_consensus_log(CrashingFiles())

    assert log.last == ORIGIN
    assert log.voters == FOUNDERS
    assert log.contains(ORIGIN)


def test_what_a_leader_reads_a_follower_extends_to_the_same_log() -> None:
    leader = leader_log(CrashingFiles())
    follower, _ = follower_log(CrashingFiles())

    while follower.last != leader.last:
        follower.extend(*leader.read(follower.last))

    assert follower.boundaries == leader.boundaries
    assert follower.log.end_offset == 3
    whole = {"bytes_max": 2**20, "end_offset": 3}
    ours, theirs = follower.log.read(0, **whole), leader.log.read(0, **whole)
    assert ours is not None
    assert theirs is not None
    assert ours.read() == theirs.read()


def test_positions_name_places_that_offsets_alone_do_not() -> None:
    log = leader_log(CrashingFiles())

    held = [Position(Epoch(1), 2), Position(Epoch(2), 2), Position(Epoch(4), 2)]
    assert all(log.contains(position) for position in held)
    assert not log.contains(Position(Epoch(3), 2))
    assert not log.contains(Position(Epoch(1), 3))
    assert log.epoch_end(Epoch(3)) == Position(Epoch(2), 2)
    assert log.epoch_at(1) == 1
    assert log.epoch_at(2) == 4


def test_truncating_drops_boundaries_by_epoch_though_they_start_at_the_end() -> None:
    log = leader_log(CrashingFiles())

    log.truncate(Position(Epoch(1), 2))

    assert log.last == Position(Epoch(1), 2)
    assert log.cuts == 1


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_extending_is_all_or_nothing_when_the_disk_is_full(nth: int) -> None:
    boundaries, data = leader_log(CrashingFiles()).read(ORIGIN)
    files = CrashingFiles()
    follower, journal = follower_log(files)

    files.fail_write(nth)
    with pytest.raises(NoSpace):
        follower.extend(boundaries, data)

    assert follower.last == ORIGIN
    assert journal.state(LOG).boundaries == ()
    follower.extend(boundaries, data)
    assert follower.last == Position(Epoch(4), 3)


def test_bytes_that_the_link_broke_are_not_written() -> None:
    boundaries, data = leader_log(CrashingFiles()).read(ORIGIN)
    follower, _ = follower_log(CrashingFiles())

    with pytest.raises(CorruptBatch):
        follower.extend(boundaries, data[:-1])

    assert follower.last == ORIGIN


def test_a_boundary_out_of_place_is_our_mistake_and_never_written() -> None:
    leader = leader_log(CrashingFiles())
    _, data = leader.read(ORIGIN)
    follower, _ = follower_log(CrashingFiles())

    with pytest.raises(AssertionError, match="a record without its epoch"):
        follower.extend((boundary(2, 0),), data)
    with pytest.raises(AssertionError, match="a boundary out of place"):
        follower.extend((boundary(1, 1),), b"")

    assert follower.last == ORIGIN


def test_a_reset_starts_over_where_the_leader_starts() -> None:
    files = CrashingFiles()
    follower, journal = follower_log(files)
    follower.extend(*leader_log(CrashingFiles()).read(ORIGIN))

    follower.reset(50, (boundary(4, 40),))

    assert follower.last == Position(Epoch(4), 50)
    assert follower.start_offset == 50
    assert journal.state(LOG).start_offset == 50


def test_a_reset_is_durable_in_the_journal_before_any_record_goes() -> None:
    files = CrashingFiles()
    follower, journal = follower_log(files)
    follower.extend(*leader_log(CrashingFiles()).read(ORIGIN))
    for work, ended in (
        (journal.begin_sync(), journal.end_sync),
        (follower.log.begin_sync(), follower.log.end_sync),
    ):
        assert work is not None
        work()
        ended()
    snapshots = []
    files.on_operation = lambda kind, path: snapshots.append(files.snapshot())

    follower.reset(50, (boundary(4, 40),))

    files.on_operation = None
    for snapshot in [*snapshots, files.snapshot()]:
        files.restore(snapshot)
        files.power_cut(worst=True)
        recovered, _ = open_consensus_log(files)
        assert recovered.last in {Position(Epoch(4), 3), Position(Epoch(4), 50)}


def test_a_newcomer_is_told_to_start_at_the_batch_that_holds_the_log_start() -> None:
    log = leader_log(CrashingFiles())

    log.advance_start(1)

    assert log.start_offset == 1
    assert log.base() == (0, (boundary(1, 0),))


def test_a_follower_at_the_batch_that_holds_the_log_start_is_served_from_there() -> None:
    leader = leader_log(CrashingFiles())
    leader.advance_start(1)
    follower, _ = follower_log(CrashingFiles())

    follower.extend(*leader.read(ORIGIN))

    assert follower.last == leader.last


def test_boundaries_before_the_last_one_below_the_start_are_forgotten() -> None:
    log = leader_log(CrashingFiles())

    log.advance_start(3)

    assert log.boundaries == (boundary(4, 2),)
    assert log.epoch_end(Epoch(2)) is None


def synced_log(files: CrashingFiles) -> tuple[ConsensusLog, Journal]:
    """A follower that holds all of `leader_log`, durably."""
    log, journal = follower_log(files)
    log.extend(*leader_log(CrashingFiles()).read(ORIGIN))
    for work, ended in (
        (journal.begin_sync(), journal.end_sync),
        (log.log.begin_sync(), log.log.end_sync),
    ):
        assert work is not None
        work()
        ended()
    return log, journal


def test_a_cut_that_the_journal_refuses_is_a_shorter_cut_that_a_crash_agrees_with() -> None:
    files = CrashingFiles()
    log, _ = synced_log(files)
    files.fail_write(1)

    with pytest.raises(NoSpace):
        log.truncate(Position(Epoch(1), 0))

    assert log.last == Position(Epoch(1), 0)
    files.kill()
    recovered, _ = open_consensus_log(files)
    assert recovered.log.end_offset == 0
    assert [b for b in recovered.boundaries if b.start_offset <= 0] == list(log.boundaries)


def test_boundaries_that_a_refused_cut_left_in_the_journal_never_count_again() -> None:
    files = CrashingFiles()
    log, journal = synced_log(files)
    files.fail_write(1)
    with pytest.raises(NoSpace):
        log.truncate(Position(Epoch(1), 0))

    log.vote(HardState(Epoch(6), ReplicaId(2)))
    log.extend((boundary(6, 0),), b"")
    log.append(stamped(log, b"x", b"y", b"z"))

    assert [b.epoch for b in log.boundaries] == [1, 6]
    assert journal.state(LOG).boundaries == log.boundaries


def test_what_cannot_be_taken_back_ends_the_replica_instead_of_its_truth() -> None:
    boundaries, data = leader_log(CrashingFiles()).read(ORIGIN)
    files = CrashingFiles()
    follower, _ = follower_log(files)
    writes = 0

    def refuse(kind: str, path: str) -> None:
        nonlocal writes
        writes += kind == "write"
        if writes > 1:  # The records are written. Nothing else is possible from here on.
            raise OSError(errno.ENOSPC, "no space left", path)

    files.on_operation = refuse
    with pytest.raises(DiskFailed, match="restart"):
        follower.extend(boundaries, data)

    files.on_operation = None
    files.kill()
    assert open_consensus_log(files)[0].last == ORIGIN


def test_a_reset_whose_files_cannot_go_ends_the_replica_and_a_restart_completes_it() -> None:
    files = CrashingFiles()
    log, _ = synced_log(files)

    def refuse(kind: str, path: str) -> None:
        if kind == "remove":
            raise OSError(errno.ENOSPC, "no space left", path)

    files.on_operation = refuse
    with pytest.raises(DiskFailed, match="restart"):
        log.reset(50, (boundary(4, 40),))

    files.on_operation = None
    files.kill()
    assert open_consensus_log(files)[0].last == Position(Epoch(4), 50)

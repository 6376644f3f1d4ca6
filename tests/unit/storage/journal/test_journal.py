"""The journal remembers votes, boundaries and starts, and tells a torn tail from damage."""

import errno
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import DamagedLog, DiskFailed, NoSpace
from millstream.model import (
    NEVER_VOTED,
    Boundary,
    Epoch,
    HardState,
    LogId,
    NodeId,
    ReplicaId,
    replica_id,
)
from millstream.storage.journal import entries
from millstream.storage.journal.journal import Journal, LogState, open_journal
from tests.support.crashing_files import CrashingFiles

A = LogId(UUID(int=1), 0)
B = LogId(UUID(int=2), 7)
BYTES_MAX = 10_000
MARK_BYTES = len(entries.frame(entries.encode(entries.Mark(0)), 0))


def voted(epoch: int, node: int | None = 1) -> HardState:
    return HardState(Epoch(epoch), None if node is None else ReplicaId(node))


def boundary(epoch: int, start_offset: int, voters: tuple[int, ...] = (1, 2, 3)) -> Boundary:
    return Boundary(Epoch(epoch), start_offset, frozenset(map(ReplicaId, voters)))


def sync(journal: Journal) -> None:
    work = journal.begin_sync()
    assert work is not None
    work()
    journal.end_sync()


def opened(files: CrashingFiles, *, bytes_max: int = BYTES_MAX) -> Journal:
    return open_journal(files, bytes_max=bytes_max)


def content(files: CrashingFiles) -> bytes:
    file = files.open("journal")
    return file.read(0, file.size())


@pytest.fixture
def files() -> CrashingFiles:
    return CrashingFiles()


@pytest.fixture
def journal(files: CrashingFiles) -> Journal:
    return opened(files)


# -- what is told ----------------------------------------------------------------------------------


def test_a_new_journal_knows_nothing(journal: Journal) -> None:
    assert journal.logs() == []
    assert journal.state(A) == LogState(NEVER_VOTED, (), 0)
    assert not journal.is_dirty


def test_votes_boundaries_and_starts_are_remembered_for_each_log(
    files: CrashingFiles, journal: Journal
) -> None:
    journal.vote(A, voted(3))
    journal.open_epoch(A, boundary(3, 0))
    journal.vote(B, voted(9, None))
    journal.move_start(B, 50)
    journal.close()

    again = opened(files)

    assert again.state(A) == LogState(voted(3), (boundary(3, 0),), 0)
    assert again.state(B) == LogState(voted(9, None), (), 50)
    assert again.logs() == [A, B]


def test_the_replica_of_a_log_is_remembered_until_the_log_is_forgotten(
    files: CrashingFiles, journal: Journal
) -> None:
    journal.place(A, 7)
    journal.vote(A, voted(3))
    journal.reset(A, 5, [boundary(3, 5)])
    journal.place(B, 8)
    journal.forget(B)
    journal.place(B, 9)
    journal.close()

    again = opened(files)

    assert again.state(A) == LogState(voted(3), (boundary(3, 5),), 5, incarnation=7)
    assert again.state(B) == LogState(incarnation=9)


def test_a_rewritten_journal_remembers_the_replicas(files: CrashingFiles) -> None:
    journal = opened(files, bytes_max=200)
    journal.place(A, 7)
    for epoch in range(1, 40):
        journal.vote(A, voted(epoch))
        sync(journal)
    assert len(content(files)) < 1_000
    journal.close()

    assert opened(files).state(A) == LogState(voted(39), incarnation=7)


def test_cutting_drops_boundaries_by_epoch_and_not_by_offset(journal: Journal) -> None:
    journal.vote(A, voted(4))
    for each in (boundary(1, 0), boundary(2, 5), boundary(3, 5), boundary(4, 5)):
        journal.open_epoch(A, each)

    journal.cut_epochs(A, Epoch(2))

    assert journal.state(A).boundaries == (boundary(1, 0), boundary(2, 5))


def test_moving_the_start_keeps_the_last_boundary_before_it_and_all_behind(
    journal: Journal,
) -> None:
    journal.vote(A, voted(5))
    for each in (boundary(1, 0), boundary(2, 10), boundary(3, 20), boundary(4, 20)):
        journal.open_epoch(A, each)

    journal.move_start(A, 20)
    at_start_of_epochs = journal.state(A).boundaries
    journal.move_start(A, 21)

    # Epoch 3 is empty; until the start is past both, both count.
    assert at_start_of_epochs == (boundary(2, 10), boundary(3, 20), boundary(4, 20))
    assert journal.state(A) == LogState(voted(5), (boundary(4, 20),), 21)


def test_moving_the_start_behind_every_boundary_keeps_the_last(journal: Journal) -> None:
    journal.vote(A, voted(1))
    journal.open_epoch(A, boundary(1, 0))

    journal.move_start(A, 1000)

    assert journal.state(A).boundaries == (boundary(1, 0),)


def test_a_reset_replaces_all_but_the_vote(journal: Journal) -> None:
    journal.vote(A, voted(8, 2))
    journal.open_epoch(A, boundary(7, 3))

    journal.reset(A, 100, [boundary(5, 90), boundary(6, 100)])

    assert journal.state(A) == LogState(voted(8, 2), (boundary(5, 90), boundary(6, 100)), 100)


def test_a_forgotten_log_is_as_one_never_met(files: CrashingFiles, journal: Journal) -> None:
    journal.vote(A, voted(8))
    journal.vote(B, voted(1))

    journal.forget(A)
    journal.close()

    assert opened(files).logs() == [B]
    assert opened(files).state(A) == LogState()


def test_what_changes_nothing_is_not_written(files: CrashingFiles, journal: Journal) -> None:
    journal.vote(A, voted(2))
    journal.open_epoch(A, boundary(2, 0))
    sync(journal)
    size = len(content(files))

    journal.vote(A, voted(2))
    journal.cut_epochs(A, Epoch(2))
    journal.move_start(A, 0)
    journal.reset(A, 0, [boundary(2, 0)])
    journal.forget(B)

    assert not journal.is_dirty
    assert len(content(files)) == size


@pytest.mark.parametrize(
    ("tell", "rule"),
    [
        (lambda j: j.vote(A, voted(4)), "earlier epoch"),
        (lambda j: j.vote(A, voted(5, 2)), "taken back"),
        (lambda j: j.vote(A, voted(5, None)), "taken back"),
        (lambda j: j.open_epoch(A, boundary(6, 10)), "vote precedes"),
        (lambda j: j.open_epoch(A, boundary(3, 10)), "twice or late"),
        (lambda j: j.open_epoch(A, boundary(5, 9)), "starts before"),
        (lambda j: j.move_start(A, 1), "grows at its start"),
        (lambda j: j.reset(A, 0, [boundary(2, 0), boundary(1, 0)]), "twice or late"),
    ],
)
def test_what_consensus_never_does_is_refused_and_changes_nothing(
    journal: Journal, tell, rule: str
) -> None:
    journal.vote(A, voted(5, 1))
    journal.open_epoch(A, boundary(3, 10))
    journal.move_start(A, 2)
    before = journal.state(A)

    with pytest.raises(AssertionError, match=rule):
        tell(journal)

    assert journal.state(A) == before


# -- rounds ----------------------------------------------------------------------------------------


def test_a_round_makes_durable_what_was_told_before_it_and_leaves_the_rest_dirty(
    files: CrashingFiles, journal: Journal
) -> None:
    journal.vote(A, voted(1))
    work = journal.begin_sync()
    assert work is not None
    work()
    journal.vote(B, voted(2))
    journal.end_sync()

    assert journal.is_dirty
    files.power_cut(worst=True)
    assert opened(files).logs() == [A]


def test_a_clean_journal_has_no_work(journal: Journal) -> None:
    assert journal.begin_sync() is None
    journal.vote(A, voted(1))
    sync(journal)

    assert journal.begin_sync() is None


def test_electing_a_thousand_partitions_costs_one_sync(
    files: CrashingFiles,
) -> None:
    journal = opened(files, bytes_max=2**20)
    seen: list[str] = []
    files.on_operation = lambda kind, path: seen.append(kind)
    for number in range(1000):
        log = LogId(UUID(int=9), number)
        journal.vote(log, voted(1))
        journal.open_epoch(log, boundary(1, 0))
    sync(journal)

    assert seen.count("sync") == 1
    assert seen.count("sync_directory") == 0


def test_closing_makes_everything_durable(files: CrashingFiles, journal: Journal) -> None:
    journal.vote(A, voted(1))
    journal.close()

    files.power_cut(worst=True)

    assert opened(files).state(A).hard_state == voted(1)


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, NoSpace), (errno.EDQUOT, NoSpace), (errno.EIO, DiskFailed)]
)
@pytest.mark.parametrize("kept", [0, 1, 8, 20, 10_000])
def test_a_failed_write_changes_nothing_and_the_next_one_works(
    files: CrashingFiles, journal: Journal, number: int, kind: type[Exception], kept: int
) -> None:
    journal.vote(A, voted(1))
    size = len(content(files))
    files.fail_write(kept=kept, error=number)

    with pytest.raises(kind, match="journal"):
        journal.vote(A, voted(2))
    assert journal.state(A).hard_state == voted(1)
    assert len(content(files)) == size
    journal.open_epoch(A, boundary(1, 0))
    journal.close()

    assert opened(files).state(A) == LogState(voted(1), (boundary(1, 0),), 0)


def test_the_rest_of_a_failed_write_that_cannot_be_taken_back_is_a_torn_tail(
    files: CrashingFiles, journal: Journal
) -> None:
    def refuse(kind: str, path: str) -> None:
        if kind == "truncate":
            raise OSError(errno.EIO, "no")

    journal.vote(A, voted(1))
    files.on_operation = refuse
    files.fail_write(kept=150)
    with pytest.raises(NoSpace):
        journal.reset(A, 0, [boundary(epoch, 0) for epoch in range(50)])
    files.on_operation = None
    journal.vote(A, voted(2))
    sync(journal)
    files.kill()

    assert opened(files).state(A) == LogState(voted(2), (), 0)


def test_a_journal_opens_and_reads_on_a_full_disk(files: CrashingFiles, journal: Journal) -> None:
    journal.vote(A, voted(1))
    journal.close()
    files.space_left = 0

    full = opened(files)

    assert full.state(A).hard_state == voted(1)
    with pytest.raises(NoSpace):
        full.vote(A, voted(2))
    files.space_left = 1000
    full.vote(A, voted(2))


def test_a_new_journal_on_a_full_disk_is_an_error(files: CrashingFiles) -> None:
    files.space_left = 0

    with pytest.raises(NoSpace):
        opened(files)


def test_after_a_failed_sync_nothing_is_promised_until_it_is_opened_again(
    files: CrashingFiles, journal: Journal
) -> None:
    journal.vote(A, voted(1))
    sync(journal)
    journal.vote(A, voted(2))
    files.fail_sync()
    work = journal.begin_sync()
    assert work is not None

    with pytest.raises(DiskFailed):
        work()

    for use in (lambda: journal.vote(A, voted(3)), journal.begin_sync):
        with pytest.raises(DiskFailed, match="restart"):
            use()
    assert journal.is_dirty
    journal.close()
    assert opened(files).state(A).hard_state == voted(1)


# -- torn tails and damage -------------------------------------------------------------------------


def written_journal(files: CrashingFiles) -> Journal:
    """A journal with durable entries of both logs, the mark that says so, and one vote more."""
    journal = opened(files)
    journal.vote(A, voted(1))
    journal.open_epoch(A, boundary(1, 0))
    journal.vote(B, voted(5))
    sync(journal)
    journal.vote(A, voted(2, 3))
    return journal


def test_a_torn_entry_is_cut_at_whichever_byte_it_ends(files: CrashingFiles) -> None:
    written_journal(files)
    before = files.snapshot()
    unsynced = files.unsynced_bytes("journal")
    assert unsynced > 30

    for kept in range(unsynced + 1):
        files.restore(before)
        files.power_cut(kept_bytes=kept)
        journal = opened(files)

        expected = voted(2, 3) if kept == unsynced else voted(1)
        assert journal.state(A) == LogState(expected, (boundary(1, 0),), 0)
        assert journal.state(B) == LogState(voted(5), (), 0)


def test_what_is_written_behind_a_cut_tail_is_read_again(files: CrashingFiles) -> None:
    written_journal(files)
    files.power_cut(kept_bytes=files.unsynced_bytes("journal") - 1)
    journal = opened(files)
    journal.vote(A, voted(7))
    sync(journal)

    files.power_cut(worst=True)

    assert opened(files).state(A).hard_state == voted(7)


def test_a_tail_of_zeros_is_cut(files: CrashingFiles) -> None:
    written_journal(files).close()
    end = len(content(files))
    files.open("journal").truncate(end + 5000)
    files.open("journal").sync()

    assert opened(files).state(A).hard_state == voted(2, 3)


def test_a_flipped_bit_anywhere_in_what_was_durable_is_damage_and_nothing_is_touched(
    files: CrashingFiles,
) -> None:
    journal = written_journal(files)
    sync(journal)
    files.open("journal").sync()
    journal.vote(B, voted(6))
    files.open("journal").sync()
    vote_size = len(entries.frame(entries.encode(entries.Voted(B, voted(6))), 0))
    covered = len(content(files)) - vote_size - MARK_BYTES
    before = files.snapshot()

    for position in range(covered):
        files.restore(before)
        files.flip_bit("journal", position, bit=position % 8)
        damaged = content(files)
        count = files.operation_count

        with pytest.raises(DamagedLog, match="journal"):
            opened(files)

        assert content(files) == damaged
        assert files.operation_count == count


def test_the_last_entries_before_a_clean_close_are_covered_too(files: CrashingFiles) -> None:
    written_journal(files).close()
    files.open("journal").sync()
    last_vote = content(files).rindex(entries.encode(entries.Voted(A, voted(2, 3))))

    files.flip_bit("journal", last_vote)

    with pytest.raises(DamagedLog, match="damaged at"):
        opened(files)


def test_what_opening_made_durable_is_covered_from_then_on(files: CrashingFiles) -> None:
    written_journal(files)
    files.kill()
    opened(files)
    files.open("journal").sync()
    files.kill()
    last_vote = content(files).rindex(entries.encode(entries.Voted(A, voted(2, 3))))

    files.flip_bit("journal", last_vote)

    with pytest.raises(DamagedLog, match="damaged at"):
        opened(files)


def test_a_damaged_mark_at_the_end_costs_nothing(files: CrashingFiles) -> None:
    written_journal(files).close()
    files.open("journal").sync()

    files.flip_bit("journal", len(content(files)) - 1)

    assert opened(files).state(A).hard_state == voted(2, 3)


def test_a_hole_in_what_was_never_synced_is_no_damage_though_valid_entries_follow(
    files: CrashingFiles,
) -> None:
    journal = written_journal(files)
    hole = len(content(files))
    journal.vote(B, voted(6))
    journal.vote(A, voted(9))
    files.open("journal").write(hole, [bytes(20)])

    files.power_cut(kept_bytes=files.unsynced_bytes("journal"))

    again = opened(files)
    assert again.state(A).hard_state == voted(2, 3)
    assert again.state(B).hard_state == voted(5)
    # The valid ones must go too, or they would count again once the hole is written over.
    assert len(content(files)) == hole + MARK_BYTES


def test_an_entry_counts_only_where_it_was_written(files: CrashingFiles) -> None:
    written_journal(files).close()
    data = content(files)
    entry = entries.frame(entries.encode(entries.Voted(A, voted(9))), 0)
    files.open("journal").write(len(data), [entry])

    assert opened(files).state(A).hard_state == voted(2, 3)


def test_a_file_that_is_no_journal_is_damage(files: CrashingFiles) -> None:
    files.open("journal", create=True).write(0, [b"something else\n"])

    with pytest.raises(DamagedLog, match="version 1"):
        opened(files)


@pytest.mark.parametrize(
    "payload",
    [b"\x63", b"\x63" + bytes(20), b"\x00", b"\x01", b"\x01" + bytes(21), b"\x02" + bytes(33)],
)
def test_a_valid_entry_that_cannot_be_decoded_is_damage(
    files: CrashingFiles, payload: bytes
) -> None:
    opened(files).close()
    end = len(content(files))
    files.open("journal").write(end, [entries.frame(payload, end)])

    with pytest.raises(DamagedLog, match="unknown entry"):
        opened(files)


# -- rewriting -------------------------------------------------------------------------------------


def test_the_file_stays_small_however_much_is_told(files: CrashingFiles) -> None:
    journal = opened(files, bytes_max=1000)
    sizes = []

    for epoch in range(1, 500):
        journal.vote(A, voted(epoch))
        sync(journal)
        sizes.append(len(content(files)))

    assert max(sizes) < 1200
    journal.close()
    assert opened(files).state(A).hard_state == voted(499)
    assert files.list("") == ["journal"]


def test_state_that_is_larger_than_the_bound_is_not_rewritten_every_round(
    files: CrashingFiles,
) -> None:
    journal = opened(files, bytes_max=100)
    for number in range(100):
        journal.vote(LogId(UUID(int=3), number), voted(1))
    renames: list[str] = []
    files.on_operation = lambda kind, path: renames.append(path) if kind == "rename" else None

    for epoch in range(2, 50):
        journal.vote(A, voted(epoch))
        sync(journal)

    assert len(renames) <= 2


def test_what_is_told_while_the_file_is_rewritten_is_in_both_files(files: CrashingFiles) -> None:
    journal = opened(files, bytes_max=50)
    journal.vote(A, voted(1))
    journal.open_epoch(A, boundary(1, 0))
    work = journal.begin_sync()
    assert work is not None
    journal.vote(A, voted(2))
    work()
    journal.vote(B, voted(1))
    before = files.snapshot()
    journal.end_sync()

    expected = (LogState(voted(2), (boundary(1, 0),), 0), LogState(voted(1), (), 0))
    assert (journal.state(A), journal.state(B)) == expected
    files.kill()
    rewritten = opened(files)
    assert (rewritten.state(A), rewritten.state(B)) == expected
    files.restore(before)
    old = opened(files)
    assert (old.state(A), old.state(B)) == expected


def test_a_rewrite_that_finds_no_space_leaves_the_old_file_in_use(files: CrashingFiles) -> None:
    journal = opened(files, bytes_max=50)
    journal.vote(A, voted(1))
    journal.open_epoch(A, boundary(1, 0))
    files.space_left = 40

    sync(journal)
    files.space_left = 1000
    journal.vote(A, voted(2))
    sync(journal)

    files.power_cut(worst=True)
    assert opened(files).state(A) == LogState(voted(2), (boundary(1, 0),), 0)


def test_a_rewrite_whose_tail_finds_no_space_leaves_the_old_file_in_use(
    files: CrashingFiles,
) -> None:
    journal = opened(files, bytes_max=50)
    journal.vote(A, voted(1))
    journal.open_epoch(A, boundary(1, 0))
    work = journal.begin_sync()
    assert work is not None
    work()
    journal.vote(A, voted(2))
    files.fail_write(kept=5)
    journal.end_sync()
    assert journal.state(A).hard_state == voted(2)

    sync(journal)

    files.power_cut(worst=True)
    assert opened(files).state(A) == LogState(voted(2), (boundary(1, 0),), 0)


def test_nothing_of_a_rewrite_that_failed_shows_up_in_the_next(files: CrashingFiles) -> None:
    journal = opened(files, bytes_max=50)
    journal.vote(A, voted(1))
    journal.vote(B, voted(1))
    work = journal.begin_sync()
    assert work is not None
    work()
    journal.forget(B)
    files.fail_write()
    journal.end_sync()
    assert files.exists("journal.tmp")

    sync(journal)
    assert not files.exists("journal.tmp")
    files.sync_directory("")
    files.power_cut(worst=True)

    assert opened(files).logs() == [A]


def test_a_rename_that_fails_stops_the_journal_because_either_file_may_be_found(
    files: CrashingFiles,
) -> None:
    def refuse(kind: str, path: str) -> None:
        if kind == "rename":
            raise OSError(errno.EIO, "no")

    journal = opened(files, bytes_max=50)
    journal.vote(A, voted(1))
    journal.open_epoch(A, boundary(1, 0))
    files.on_operation = refuse
    sync(journal)

    with pytest.raises(DiskFailed):
        journal.vote(A, voted(2))

    files.power_cut(worst=True)
    assert opened(files).state(A) == LogState(voted(1), (boundary(1, 0),), 0)


def test_the_rest_of_a_rewrite_that_was_cut_short_is_removed(files: CrashingFiles) -> None:
    opened(files).close()
    files.open("journal.tmp", create=True).write(0, [b"half a journal"])

    opened(files)

    assert files.list("") == ["journal"]


def test_a_durable_end_is_remembered_without_a_sync_and_never_goes_back(
    files: CrashingFiles,
) -> None:
    journal = opened(files, bytes_max=200)
    journal.vote(A, voted(1))
    sync(journal)

    journal.note_durable(A, 40)
    journal.note_durable(A, 30)

    assert not journal.is_dirty
    assert journal.state(A).durable_end == 40
    for epoch in range(2, 20):  # The file is written anew meanwhile.
        journal.vote(A, voted(epoch))
        sync(journal)
    journal.close()
    assert opened(files).state(A) == LogState(voted(19), durable_end=40)


def test_a_reset_takes_the_durable_end_away(files: CrashingFiles, journal: Journal) -> None:
    journal.note_durable(A, 40)

    journal.reset(A, 50, (boundary(3, 20),))

    assert journal.state(A).durable_end == 0


# -- entries as bytes ------------------------------------------------------------------------------

LOGS = st.builds(LogId, st.uuids(), st.integers(0, 2**32 - 1))
EPOCHS = st.integers(0, 2**32 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
NODES = st.integers(0, 2**20 - 1) | st.integers(0, 2**63 - 1)
BOUNDARIES = st.builds(Boundary, EPOCHS, OFFSETS, st.frozensets(NODES, max_size=9))
EVENTS = st.one_of(
    st.builds(entries.Voted, LOGS, st.builds(HardState, EPOCHS, st.none() | NODES)),
    st.builds(entries.Opened, LOGS, BOUNDARIES),
    st.builds(entries.Cut, LOGS, EPOCHS),
    st.builds(entries.Moved, LOGS, OFFSETS),
    st.builds(entries.Reset, LOGS, OFFSETS, st.lists(BOUNDARIES, max_size=5).map(tuple)),
    st.builds(entries.Durable, LOGS, OFFSETS),
    st.builds(entries.Forgotten, LOGS),
    st.builds(entries.Mark, OFFSETS),
)


@settings(deadline=None)
@given(EVENTS, st.integers(0, 2**40), st.binary(max_size=20))
def test_an_entry_is_read_as_it_was_written(event, at: int, behind: bytes) -> None:
    framed = entries.frame(entries.encode(event), 0)

    read = entries.read_frame(framed + behind, 0)

    assert read is not None
    payload, end = read
    assert entries.decode(payload, {}) == event
    assert end == len(framed)
    assert entries.frame(payload, at)[8:] == payload


def test_ids_without_incarnation_are_written_as_versions_before_incarnations_read_them() -> None:
    voters = frozenset(map(ReplicaId, (1, 2**20 - 1)))
    vote = entries.encode(entries.Voted(A, voted(3, 2**20 - 1)))
    opening = entries.encode(entries.Opened(A, Boundary(Epoch(3), 7, voters)))

    assert vote.hex() == "01" + A.topic_id.hex + "00000000" + "00000003" + "000fffff"
    assert opening.hex() == (
        "02" + A.topic_id.hex + "00000000" + "00000003" + f"{7:016x}" + "0002" + "00000001000fffff"
    )


def test_one_id_with_an_incarnation_makes_its_entry_wide() -> None:
    second = replica_id(NodeId(2), 1)
    voters = frozenset({ReplicaId(1), second})

    vote = entries.encode(entries.Voted(A, HardState(Epoch(3), second)))
    opening = entries.encode(entries.Opened(A, Boundary(Epoch(3), 7, voters)))

    assert (vote[0], len(vote)) == (7, 21 + 4 + 8)
    assert (opening[0], len(opening)) == (8, 21 + 14 + 2 * 8)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_a_value_error(payload: bytes) -> None:
    try:
        event = entries.decode(payload, {}) if payload else None
    except ValueError:
        return

    assert event is None or isinstance(event, entries.Mark | entries.Event)


@settings(deadline=None)
@given(EVENTS, st.data())
def test_no_changed_byte_passes_the_checksum(event, data: st.DataObject) -> None:
    framed = bytearray(entries.frame(entries.encode(event), 0))
    position = data.draw(st.integers(0, len(framed) - 1))
    framed[position] ^= data.draw(st.integers(1, 255))

    assert entries.read_frame(bytes(framed), 0) is None


@pytest.mark.parametrize("fate", [{"worst": True}, {"kept_bytes": 0}])
def test_what_is_synced_on_the_spot_survives_a_rewrite_that_was_under_way(
    fate: dict[str, bool | int],
) -> None:
    files = CrashingFiles()
    journal = open_journal(files, bytes_max=1)
    journal.vote(LogId(UUID(int=1), 0), HardState(Epoch(1), None))
    work = journal.begin_sync()
    assert work is not None
    work()

    journal.vote(LogId(UUID(int=2), 0), HardState(Epoch(7), None))
    journal.sync_now()
    journal.end_sync()
    files.power_cut(**fate)  # type: ignore[arg-type]

    recovered = open_journal(files, bytes_max=1)
    assert recovered.state(LogId(UUID(int=2), 0)).hard_state == HardState(Epoch(7), None)

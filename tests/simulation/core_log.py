"""A fake log of two files, records and journal, that lose their unsynced tails independently.

Implements `raft.LogView` as its contract says, with the real boundary arithmetic. A file is the
list of states it went through since its last sync; a power cut picks one of them. So a boundary may
survive and the records before it not, a truncation may be undone, a vote forgotten. `recover` then
makes one story of both files.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from millstream import boundaries
from millstream.errors import NoSpace
from millstream.model import (
    NEVER_VOTED,
    ORIGIN,
    Boundary,
    Epoch,
    HardState,
    Offset,
    Position,
    ReplicaId,
)
from millstream.raft import Base


class Batch(NamedTuple):
    """Some records that are written, cut and deleted together."""

    base_offset: Offset
    end_offset: Offset
    epoch: Epoch
    payload: str


class Records(NamedTuple):
    base_offset: Offset
    batches: tuple[Batch, ...]
    needs: int  # The journal entry that must be durable before this state can be.

    @property
    def end_offset(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else self.base_offset


class Journal(NamedTuple):
    hard_state: HardState
    start_offset: Offset
    boundaries: tuple[Boundary, ...]


class Mark(NamedTuple):
    """What was written when a sync began."""

    records: int
    journal: int
    cuts: int
    last: Position


class FakeLog:
    """One replica's log. `read_items_max` bounds a read in batches and boundaries together."""

    def __init__(self, founders: frozenset[ReplicaId], *, read_items_max: int = 8) -> None:
        self._founders = founders
        self._read_items_max = read_items_max
        self._record_states = [Records(0, (), 0)]
        self._journal_states = [Journal(NEVER_VOTED, 0, ())]
        self._record_number = 0  # How many states came before the first one in the list.
        self._journal_number = 0
        self.synced = ORIGIN  # Where a crash leaves the log at worst.
        self.cuts = 0
        self.changes = 0
        self.is_full = False

    # -- what raft asks ----------------------------------------------------------------------------

    @property
    def records(self) -> Records:
        return self._record_states[-1]

    @property
    def journal(self) -> Journal:
        return self._journal_states[-1]

    @property
    def last(self) -> Position:
        return boundaries.last_position(self.journal.boundaries, self.records.end_offset)

    @property
    def start_offset(self) -> Offset:
        return self.journal.start_offset

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        return self.journal.boundaries

    @property
    def voters(self) -> frozenset[ReplicaId]:
        return boundaries.voters_in_force(self.journal.boundaries, self._founders)

    def contains(self, position: Position) -> bool:
        records = self.records
        return boundaries.contains(
            self.journal.boundaries,
            position,
            base_offset=records.base_offset,
            end_offset=records.end_offset,
        )

    def epoch_end(self, epoch: Epoch) -> Position | None:
        records = self.records
        return boundaries.epoch_end(
            self.journal.boundaries,
            epoch,
            base_offset=records.base_offset,
            end_offset=records.end_offset,
        )

    def base(self) -> Base:
        base_offset = self.records.base_offset
        return Base(base_offset, boundaries.up_to(self.journal.boundaries, base_offset))

    def read(self, after: Position) -> tuple[tuple[Boundary, ...], tuple[Batch, ...]]:
        waiting = list(boundaries.between(self.journal.boundaries, after, self.records.end_offset))
        following = [b for b in self.records.batches if b.base_offset >= after.end_offset]
        opened: list[Boundary] = []
        taken: list[Batch] = []
        end_offset = after.end_offset
        for _ in range(self._read_items_max):
            if waiting and waiting[0].start_offset == end_offset:
                opened.append(waiting.pop(0))
            elif len(taken) < len(following):
                taken.append(following[len(taken)])
                end_offset = taken[-1].end_offset
        return tuple(opened), tuple(taken)

    def vote(self, hard_state: HardState) -> None:
        self._write_journal(self.journal._replace(hard_state=hard_state))

    def open_epoch(self, boundary: Boundary) -> None:
        self._write_journal(self._opened(self.journal, boundary, self.records.end_offset))

    def append(self, records: Sequence[Batch]) -> None:
        self._write_records(self._appended(self.records, records))

    def extend(self, opened: Sequence[Boundary], records: Sequence[Batch]) -> None:
        end_offset = self.records.end_offset
        ends = {end_offset, *(batch.end_offset for batch in records)}
        journal = self.journal
        for boundary in opened:
            assert boundary.start_offset in ends, "a boundary out of place"
            journal = self._opened(journal, boundary, boundary.start_offset)
        appended = self._appended(self.records, records)
        if opened:
            self._write_journal(journal)
        if records:
            self._write_records(appended)

    def truncate(self, to: Position) -> None:
        records = self.records
        kept = tuple(b for b in records.batches if b.end_offset <= to.end_offset)
        assert (kept[-1].end_offset if kept else records.base_offset) == to.end_offset
        cut = tuple(boundaries.cut(self.journal.boundaries, to.epoch))
        self._write_journal(self.journal._replace(boundaries=cut))
        self._write_records(records._replace(batches=kept))
        self.cuts += 1
        self.synced = min(self.synced, to)

    def reset(self, start_offset: Offset, opened: Sequence[Boundary]) -> None:
        self._write_journal(self.journal._replace(start_offset=start_offset, boundaries=opened))  # type: ignore[arg-type]
        self._write_records(Records(start_offset, (), self.journal_number))
        self.cuts += 1

    def advance_start(self, start_offset: Offset) -> None:
        assert self.start_offset < start_offset <= self.records.end_offset
        pruned = tuple(boundaries.prune(self.journal.boundaries, start_offset))
        self._write_journal(self.journal._replace(start_offset=start_offset, boundaries=pruned))
        records = _started(self.records, start_offset)
        self._write_records(records._replace(needs=self.journal_number))

    # -- disk --------------------------------------------------------------------------------------

    @property
    def hard_state(self) -> HardState:
        return self.journal.hard_state

    @property
    def journal_number(self) -> int:
        """The number of the last journal entry written."""
        return self._journal_number + len(self._journal_states) - 1

    @property
    def journal_number_synced(self) -> int:
        return self._journal_number

    @property
    def is_dirty(self) -> bool:
        return len(self._record_states) > 1 or len(self._journal_states) > 1

    def begin_sync(self) -> Mark:
        number = self._record_number + len(self._record_states) - 1
        return Mark(number, self.journal_number, self.cuts, self.last)

    def end_sync(self, mark: Mark) -> Position | None:
        """Return what is durable now; None if a cut came between."""
        del self._record_states[: mark.records - self._record_number]
        del self._journal_states[: mark.journal - self._journal_number]
        self._record_number, self._journal_number = mark.records, mark.journal
        if mark.cuts != self.cuts:
            return None
        self.synced = max(self.synced, mark.last)
        return mark.last

    def crash(self, random: Random | None = None) -> None:
        """Lose an unsynced tail of each file: a random one, or all of both."""
        journals = self._journal_states
        kept = random.randrange(len(journals)) if random else 0
        needed = self._journal_number + kept
        possible = [state for state in self._record_states if state.needs <= needed]
        records = random.choice(possible) if random else possible[0]
        self._settle(records, journals[kept])
        self.recover()

    def recover(self) -> None:
        """Keep the longest beginning that both files agree on."""
        journal = self.journal
        records = _started(self.records, journal.start_offset)
        batches: list[Batch] = []
        for batch in records.batches:
            in_force = boundaries.up_to(journal.boundaries, batch.base_offset)
            if not in_force or in_force[-1].epoch != batch.epoch:
                break  # A record whose boundary is gone.
            batches.append(batch)
        records = _started(records._replace(batches=tuple(batches)), journal.start_offset)
        kept = boundaries.up_to(journal.boundaries, records.end_offset)
        self._settle(records, journal._replace(boundaries=kept))

    # -- small parts -------------------------------------------------------------------------------

    def _settle(self, records: Records, journal: Journal) -> None:
        self._record_states = [records._replace(needs=0)]
        self._journal_states = [journal]
        self._record_number = self._journal_number = 0
        self.synced = self.last
        self.changes += 1

    def _write_records(self, state: Records) -> None:
        self._admit()
        self._record_states.append(state)
        self.changes += 1

    def _write_journal(self, state: Journal) -> None:
        self._admit()
        self._journal_states.append(state)
        self.changes += 1

    def _admit(self) -> None:
        if self.is_full:
            raise NoSpace("the fake disk is full")

    @staticmethod
    def _opened(journal: Journal, boundary: Boundary, end_offset: Offset) -> Journal:
        assert boundary.start_offset == end_offset, "a boundary out of place"
        newest = journal.boundaries[-1].epoch if journal.boundaries else 0
        assert boundary.epoch > newest, "an epoch opened twice or late"
        return journal._replace(boundaries=(*journal.boundaries, boundary))

    @staticmethod
    def _appended(records: Records, batches: Sequence[Batch]) -> Records:
        end_offset = records.end_offset
        for batch in batches:
            assert batch.base_offset == end_offset, "a hole in the log"
            end_offset = batch.end_offset
        return records._replace(batches=(*records.batches, *batches))


def _started(records: Records, start_offset: Offset) -> Records:
    """What is left of a log that starts at `start_offset`: whole batches, perhaps none."""
    kept = tuple(b for b in records.batches if b.end_offset > start_offset)
    base_offset = min(kept[0].base_offset, start_offset) if kept else start_offset
    return records._replace(base_offset=base_offset, batches=kept)

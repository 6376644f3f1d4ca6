"""The power goes at every operation of the journal and inside every write.

After each cut the journal must open, and say what a prefix of the entries says that includes every
entry whose round ended. The model is a plain dictionary that knows nothing of the journal's code.
"""

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.errors import StorageError
from millstream.model import Boundary, Epoch, HardState, LogId, ReplicaId
from millstream.storage.files.disk import DiskFiles
from millstream.storage.journal.journal import Journal, open_journal
from tests.support.crashing_files import CrashingFiles, Snapshot
from tests.support.tiers import sized

LOGS = [LogId(UUID(int=number), number) for number in range(4)]
VOTERS = frozenset({ReplicaId(1), ReplicaId(2)})
BYTES_MAX = 600

Model = dict[LogId, dict]
NEVER_MET = {"vote": HardState(Epoch(0), None), "epochs": [], "start": 0}


# -- the model -------------------------------------------------------------------------------------


def tell(journal: Journal, model: Model, call: tuple) -> None:
    """Tell both the same; the model only if the journal took it."""
    name, log, *arguments = call
    getattr(journal, name)(log, *arguments)
    known = model.setdefault(log, copy.deepcopy(NEVER_MET))
    match call:
        case "vote", _, hard_state:
            known["vote"] = hard_state
        case "open_epoch", _, boundary:
            known["epochs"].append(boundary)
        case "cut_epochs", _, epoch:
            known["epochs"] = [b for b in known["epochs"] if b.epoch <= epoch]
        case "move_start", _, start:
            known["start"] = start
            while len(known["epochs"]) > 1 and known["epochs"][1].start_offset < start:
                del known["epochs"][0]
        case "reset", _, start, boundaries:
            known.update(start=start, epochs=list(boundaries))
        case "forget", _:
            known.update(copy.deepcopy(NEVER_MET))
    if known == NEVER_MET:
        del model[log]


def said(journal: Journal) -> Model:
    states = {log: journal.state(log) for log in journal.logs()}
    return {
        log: {"vote": s.hard_state, "epochs": list(s.boundaries), "start": s.start_offset}
        for log, s in states.items()
    }


def calls(random: Random) -> Iterator[tuple]:
    """Endless calls that consensus could make."""
    model: Model = {}
    while True:
        log = random.choice(LOGS)
        known = model.setdefault(log, {"epoch": 0, "epochs": [], "start": 0, "end": 0})
        kind = random.choices(
            ["elect", "cut_epochs", "move_start", "reset", "forget"], weights=[10, 2, 2, 1, 1]
        )[0]
        if kind == "elect":
            known["epoch"] += 1
            known["end"] += random.choice([0, 0, 5])
            epoch = Epoch(known["epoch"])
            boundary = Boundary(epoch, known["end"], VOTERS)
            yield "vote", log, HardState(epoch, ReplicaId(1))
            yield "open_epoch", log, boundary
        elif kind == "cut_epochs":
            yield "cut_epochs", log, Epoch(random.randint(0, known["epoch"]))
        elif kind == "move_start":
            known["start"] = random.randint(known["start"], max(known["start"], known["end"]))
            yield "move_start", log, known["start"]
        elif kind == "reset":
            known["start"] = known["end"] = known["end"] + 10
            known["epoch"] += 2
            first = Boundary(Epoch(known["epoch"] - 1), known["end"] - 3, VOTERS)
            last = Boundary(Epoch(known["epoch"]), known["end"], VOTERS)
            yield "vote", log, HardState(Epoch(known["epoch"]), None)
            yield "reset", log, known["start"], (first, last)
        else:
            del model[log]
            yield "forget", log


def sync(journal: Journal, during: Callable[[], None] = lambda: None) -> None:
    work = journal.begin_sync()
    if work is not None:
        during()
        work()
        during()
        journal.end_sync()


# -- every operation, every byte -------------------------------------------------------------------


class Moment:
    """Just before an operation: the disk, and which of the `history` it may show afterwards."""

    def __init__(self, disk: Snapshot, durable: int, acknowledged: int) -> None:
        self.disk = disk
        self.durable = durable
        self.acknowledged = acknowledged


class Life:
    """A journal at work, watched at every operation."""

    def __init__(self, seed: int) -> None:
        self.files = CrashingFiles()
        self.history: list[Model] = [{}]
        self.durable = 0
        self.moments: list[Moment] = []
        self._calls = calls(Random(seed))
        self._model: Model = {}

    def run(self, rounds: int) -> None:
        self.files.on_operation = self._watch
        self.journal = open_journal(self.files, bytes_max=BYTES_MAX)
        for number in range(rounds):
            for _ in range(3):
                self._tell()
            begun = len(self.history) - 1
            sync(self.journal, during=self._tell if number % 3 else self._tell_for_good)
            self.durable = max(begun, self.durable)
            if number % 2:
                self._tell_for_good()  # Directly behind a round, which may have renamed the file.
        self.journal.close()
        self.durable = len(self.history) - 1
        self._watch("end", "")
        self.files.on_operation = None

    def _tell(self) -> None:
        tell(self.journal, self._model, next(self._calls))
        self.history.append(copy.deepcopy(self._model))

    def _tell_for_good(self) -> None:
        """As a reset does: records leave the disk as soon as `sync_now` returns."""
        self._tell()
        self.journal.sync_now()
        self.durable = len(self.history) - 1

    def _watch(self, kind: str, path: str) -> None:
        moment = Moment(self.files.snapshot(), self.durable, len(self.history) - 1)
        self.moments.append(moment)


def check(life: Life, moment: Moment) -> Journal:
    """Open what is left, which must be one of the states that were possible then."""
    journal = open_journal(life.files, bytes_max=BYTES_MAX)

    assert said(journal) in life.history[moment.durable : moment.acknowledged + 1]
    return journal


@pytest.fixture(scope="module")
def life() -> Life:
    life = Life(seed=1)
    life.run(rounds=12)
    return life


def test_the_watched_life_has_all_kinds_of_operations(life: Life) -> None:
    seen: list[str] = []
    again = Life(seed=1)
    again._watch = lambda kind, path: seen.append(f"{kind} {path}")  # type: ignore[method-assign]
    again.run(rounds=12)

    assert seen.count("rename journal") >= 3
    assert {"write journal", "write journal.tmp", "sync journal.tmp", "sync_directory "} <= {*seen}


def test_nothing_durable_is_lost_when_the_power_goes_at_any_operation(life: Life) -> None:
    for moment in life.moments:
        life.files.restore(moment.disk)
        life.files.power_cut(worst=True)

        check(life, moment)


def test_nothing_durable_is_lost_when_the_power_goes_at_any_byte(life: Life) -> None:
    for moment in life.moments:
        life.files.restore(moment.disk)
        unsynced = life.files.unsynced_bytes("journal") if life.files.exists("journal") else 0
        for kept in range(unsynced + 1):
            life.files.restore(moment.disk)
            life.files.power_cut(kept_bytes=kept)

            check(life, moment)


@pytest.mark.parametrize("reorder", [False, True], ids=["torn", "reordered"])
def test_nothing_durable_is_lost_by_any_choice_of_the_disk(life: Life, reorder: bool) -> None:
    for seed, moment in enumerate(life.moments * 12):
        life.files.restore(moment.disk)
        life.files.power_cut(Random(seed), reorder=reorder)

        check(life, moment)


def test_a_killed_process_loses_nothing_that_was_written(life: Life) -> None:
    for moment in life.moments:
        life.files.restore(moment.disk)
        life.files.kill()

        check(life, moment)


@pytest.mark.parametrize("reorder", [False, True], ids=["torn", "reordered"])
def test_what_was_found_after_a_crash_survives_the_next_one(life: Life, reorder: bool) -> None:
    for seed, moment in enumerate(life.moments * 4):
        random = Random(seed)
        life.files.restore(moment.disk)
        life.files.power_cut(random, reorder=reorder) if seed % 2 else life.files.kill()
        state = said(check(life, moment))

        life.files.power_cut(worst=True)
        assert said(open_journal(life.files, bytes_max=BYTES_MAX)) == state


def test_a_journal_goes_on_after_a_crash_and_keeps_what_it_is_told_then(life: Life) -> None:
    log = LogId(UUID(int=99), 0)
    for seed, moment in enumerate(life.moments * 2):
        life.files.restore(moment.disk)
        life.files.power_cut(Random(seed), reorder=True) if seed % 2 else life.files.kill()
        journal = check(life, moment)
        expected = said(journal)
        for epoch in (1, 2):
            tell(journal, expected, ("vote", log, HardState(Epoch(epoch), ReplicaId(1))))
            sync(journal)
        tell(journal, expected, ("open_epoch", log, Boundary(Epoch(2), 0, VOTERS)))
        sync(journal)

        life.files.power_cut(worst=True)
        assert said(open_journal(life.files, bytes_max=BYTES_MAX)) == expected


def test_the_power_may_go_again_at_any_operation_of_opening(life: Life) -> None:
    for seed, moment in enumerate(life.moments):
        life.files.restore(moment.disk)
        life.files.power_cut(Random(seed), reorder=True)
        disks: list[Snapshot] = []
        life.files.on_operation = lambda kind, path, disks=disks: disks.append(
            life.files.snapshot()
        )
        check(life, moment)
        life.files.on_operation = None

        for disk in disks:
            life.files.restore(disk)
            life.files.power_cut(Random(seed), reorder=True)
            check(life, moment)


def test_a_boundary_never_survives_without_the_vote_before_it(life: Life) -> None:
    for seed, moment in enumerate(life.moments * 3):
        life.files.restore(moment.disk)
        life.files.power_cut(Random(seed), reorder=True)
        journal = open_journal(life.files, bytes_max=BYTES_MAX)

        for log in journal.logs():
            state = journal.state(log)
            assert all(b.epoch <= state.hard_state.epoch for b in state.boundaries)


# -- any life at all -------------------------------------------------------------------------------


class JournalLives(RuleBasedStateMachine):
    """Random calls, rounds, failures and crashes, against the model."""

    @initialize(seed=st.integers(0, 2**32), bytes_max=st.sampled_from([1, 200, 600, 10**6]))
    def begin(self, seed: int, bytes_max: int) -> None:
        self.random = Random(seed)
        self.calls = calls(self.random)
        self.next_call: tuple | None = None
        self.bytes_max = bytes_max
        self.files = CrashingFiles()
        self.history: list[Model] = [{}]
        self.durable = 0
        self.journal = open_journal(self.files, bytes_max=bytes_max)

    @rule(count=st.integers(1, 8))
    def tells(self, count: int) -> None:
        for _ in range(count):
            self.tell()

    @rule(during=st.integers(0, 3))
    def synced(self, during: int) -> None:
        begun = len(self.history) - 1
        sync(self.journal, during=lambda: [self.tell() for _ in range(during)] and None)  # type: ignore[arg-type, func-returns-value]
        self.durable = max(begun, self.durable)

    @rule(during_a_round=st.booleans())
    def synced_at_once(self, during_a_round: bool) -> None:
        if during_a_round:
            sync(self.journal, during=self.sync_at_once)
        else:
            self.sync_at_once()

    @rule(nth=st.integers(1, 4), kept=st.integers(0, 60))
    def write_fails(self, nth: int, kept: int) -> None:
        self.files.fail_write(nth, kept=kept)

    @rule(nth=st.integers(1, 2))
    @precondition(lambda self: self.journal.is_dirty)
    def sync_fails(self, nth: int) -> None:
        self.files.fail_sync(nth)
        try:
            self.synced(0)
        except StorageError:
            self.files.kill()
            self.reopen(self.durable)
        self.files.heal()

    @rule(full=st.booleans())
    def disk_fills_or_not(self, full: bool) -> None:
        self.files.space_left = 100 if full else None

    @rule(reorder=st.booleans())
    def power_goes(self, reorder: bool) -> None:
        self.files.power_cut(self.random, reorder=reorder)
        self.reopen(self.durable)

    @rule()
    def power_goes_at_the_worst_moment(self) -> None:
        self.files.power_cut(worst=True)
        self.reopen(self.durable)

    @rule()
    def killed(self) -> None:
        self.files.kill()
        self.reopen(len(self.history) - 1)

    @rule()
    def closed(self) -> None:
        self.journal.close()
        self.reopen(len(self.history) - 1)

    @invariant()
    def says_what_it_was_told(self) -> None:
        if hasattr(self, "journal"):
            assert said(self.journal) == self.history[-1]

    def tell(self) -> None:
        self.next_call = self.next_call or next(self.calls)
        model = copy.deepcopy(self.history[-1])
        try:
            tell(self.journal, model, self.next_call)
        except StorageError:
            return
        except AssertionError:
            # The generator has not heard of the crash; what no longer fits is left out.
            self.next_call = None
            return
        self.history.append(model)
        self.next_call = None

    def sync_at_once(self) -> None:
        self.tell()
        self.journal.sync_now()
        self.durable = len(self.history) - 1

    def reopen(self, durable: int) -> None:
        self.journal = open_journal(self.files, bytes_max=self.bytes_max)
        state = said(self.journal)
        assert state in self.history[durable:]
        self.history = [state]
        self.durable = 0


TestJournalLives = JournalLives.TestCase
TestJournalLives.settings = settings(deadline=None, max_examples=sized(150), stateful_step_count=40)


# -- a real process --------------------------------------------------------------------------------


VOTE_FOR_EVER = """
import sys
from pathlib import Path
from uuid import UUID
from millstream.model import Epoch, HardState, LogId, ReplicaId
from millstream.storage.files.disk import DiskFiles
from millstream.storage.journal.journal import open_journal

journal = open_journal(DiskFiles(Path(sys.argv[1])), bytes_max=2000)
log = LogId(UUID(int=1), 0)
for epoch in range(journal.state(log).hard_state.epoch + 1, 10**9):
    journal.vote(log, HardState(Epoch(epoch), ReplicaId(epoch % 7)))
    journal.begin_sync()()
    journal.end_sync()
    print(epoch, flush=True)
"""


def test_a_real_process_that_is_killed_again_and_again_keeps_its_votes(tmp_path: Path) -> None:
    log = LogId(UUID(int=1), 0)
    epoch = 0
    for turn in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", VOTE_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE
        )
        with process:
            assert process.stdout is not None
            for _ in range(30 + 17 * turn):
                epoch = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            for line in process.stdout:
                epoch = int(line) if line.endswith(b"\n") else epoch

        journal = open_journal(DiskFiles(tmp_path), bytes_max=2000)
        assert journal.state(log).hard_state.epoch >= epoch
        journal.close()

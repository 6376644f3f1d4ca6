"""Planted bugs: each of them must be caught, or the simulator sees less than it should.

A canary replaces a few methods while it is planted. `caught_by` says what finds it: a random life
(a seed at hand; any of the first few hundred may do) or the golden script that tells its plot. Some
do no harm before many rare things come together; those need the script. What a bug breaks first is
mostly an early warning (`LogMatching`, `ElectableHoldsCommitted`, an assertion in the core), long
before a record is lost.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from millstream import boundaries
from millstream.model import ORIGIN, Position
from millstream.raft import Core
from millstream.raft.follower import Follower, Reply
from millstream.raft.leader import Leader
from millstream.raft.member import Member
from millstream.raft.messages import Diverged, FetchReply, Reset
from millstream.raft.tracker import Refusal, Tracker, Voters
from tests.simulation.core_group import Group, Node
from tests.simulation.core_log import Batch, FakeLog, Records


@dataclass(frozen=True, slots=True)
class Canary:
    patches: tuple[tuple[Any, str, Any], ...]  # Any: a class or module, and what it gets.
    caught_by: int | str  # A seed, or the name of a script.


CANARIES: dict[str, Canary] = {}


@contextmanager
def planted(bug: str | None) -> Iterator[None]:
    """Plant a bug, or none, for the time of the block."""
    with ExitStack() as stack:
        for owner, name, replacement in CANARIES[bug].patches if bug else ():
            stack.enter_context(patch.object(owner, name, replacement))
        yield


def canary(
    name: str, *targets: tuple[type, str], caught_by: int | str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a function to be what these methods are replaced with."""

    def declare(replacement: Callable[..., Any]) -> Callable[..., Any]:
        known = CANARIES[name].patches if name in CANARIES else ()
        added = tuple((owner, method, replacement) for owner, method in targets)
        CANARIES[name] = Canary(known + added, caught_by)
        return replacement

    return declare


# -- elections -------------------------------------------------------------------------------------


@canary("vote-by-length", (Core, "_holds_all"), caught_by=15)
def _longer_is_enough(self: Core, candidate: Position) -> bool:
    return candidate.end_offset >= self._member.log.last.end_offset


_crash = FakeLog.crash


@canary(
    "restart-forgets-vote", (FakeLog, "crash"), caught_by="a_restarted_voter_does_not_vote_twice"
)
def _crash_and_forget_the_vote(self: FakeLog, random: Any = None) -> None:
    _crash(self, random)
    journal = self.journal
    forgotten = journal._replace(hard_state=journal.hard_state._replace(voted_for=None))
    self._settle(self.records, forgotten)


@canary("votes-sent-before-they-are-durable", (Group, "_release"), caught_by=274)
def _send_at_once(self: Group, node: Node) -> None:
    while node.push_channel:
        _, to, message = node.push_channel.popleft()
        self.transmit(node.me, to, message)


# -- commit ----------------------------------------------------------------------------------------


def _majority_end(leader: Leader) -> int:
    tracker, member = leader._tracker, leader._member
    ends = sorted(
        (
            member.durable_position if v == member.me else tracker.followers[v].acknowledged
        ).end_offset
        for v in tracker.voters
    )
    return ends[(len(ends) - 1) // 2]


FIGURE_8 = "a_record_of_an_old_epoch_on_a_majority_is_not_committed"


@canary("commit-without-boundary", (Leader, "advance"), caught_by=FIGURE_8)
def _commit_any_majority(self: Leader) -> None:
    majority = self._tracker.majority_position(self._member.durable_position)
    self.is_established = majority.epoch == self._member.epoch
    if self._member.commit(_majority_end(self)):
        self._answer_parked()


@canary("commit-at-start", (Leader, "advance"), caught_by=FIGURE_8)
def _commit_from_own_start(self: Leader) -> None:
    end_offset = _majority_end(self)
    if end_offset >= self._member.log.boundaries[-1].start_offset:
        self.is_established = True
        if self._member.commit(end_offset):
            self._answer_parked()


@canary("observers-count", (Tracker, "majority_position"), caught_by=27)
def _count_everybody(self: Tracker, own: Position) -> Position:
    held = sorted([own, *(progress.acknowledged for progress in self.followers.values())])
    return held[(len(held) - 1) // 2]


# -- durability ------------------------------------------------------------------------------------


@canary("acknowledge-before-durable", (Member, "is_durable"), caught_by=0)  # type: ignore[misc, prop-decorator]
@property
def _all_is_well(self: Member) -> bool:
    return True


@canary(  # type: ignore[misc, prop-decorator]
    "unsynced-boundary-acknowledged",
    (Member, "is_durable"),
    caught_by="an_unsynced_boundary_is_not_acknowledged",
)
@property
def _records_are_durable(self: Member) -> bool:
    return self.durable_position.end_offset == self.log.last.end_offset


@canary("boundaries-never-synced", (FakeLog, "crash"), caught_by=0)
def _crash_and_lose_boundaries(self: FakeLog, random: Any = None) -> None:
    journal = self.journal
    count = random.randint(0, len(journal.boundaries)) if random else 0
    self._journal_states[0] = journal._replace(boundaries=journal.boundaries[:count])
    del self._journal_states[1:]
    _crash(self, random)


# -- boundaries ------------------------------------------------------------------------------------


_truncate = FakeLog.truncate


@canary("truncate-keeps-all-boundaries", (FakeLog, "truncate"), caught_by=3)
def _truncate_records_only(self: FakeLog, to: Position) -> None:
    kept = self.journal.boundaries
    _truncate(self, to)
    self._write_journal(self.journal._replace(boundaries=kept))


@canary(
    "truncate-keeps-boundaries-at-the-end",
    (FakeLog, "truncate"),
    caught_by="a_divergence_in_boundaries_only_cuts_no_record",
)
def _truncate_by_offset(self: FakeLog, to: Position) -> None:
    kept = boundaries.up_to(self.journal.boundaries, to.end_offset)
    _truncate(self, to)
    self._write_journal(self.journal._replace(boundaries=kept))


_recover = FakeLog.recover


@canary(
    "prune-empty-epochs",
    (FakeLog, "recover"),
    caught_by="a_remembered_empty_epoch_keeps_an_older_one_from_winning",
)
def _recover_without_empty_epochs(self: FakeLog) -> None:
    _recover(self)
    last_at = {boundary.start_offset: boundary for boundary in self.journal.boundaries}
    self._settle(self.records, self.journal._replace(boundaries=tuple(last_at.values())))


@canary("eager-boundaries", (FakeLog, "read"), caught_by=0)
def _read_all_boundaries(self: FakeLog, after: Position) -> tuple[tuple[Any, ...], Any]:
    following = [b for b in self.records.batches if b.base_offset >= after.end_offset]
    newer = tuple(b for b in self.journal.boundaries if b.epoch > after.epoch)
    return newer, tuple(following[: self._read_items_max])


@canary("eager-boundaries", (FakeLog, "extend"), caught_by=0)
def _extend_in_any_order(self: FakeLog, opened: Any, records: tuple[Batch, ...]) -> None:
    journal = self.journal
    self._write_journal(journal._replace(boundaries=(*journal.boundaries, *opened)))
    self._write_records(self._appended(self.records, records))


# -- followers -------------------------------------------------------------------------------------


@canary("stale-replies-are-taken", (Follower, "accept"), caught_by=0)
def _accept_anything(self: Follower, reply: Reply) -> None:
    match reply:
        case FetchReply():
            self._extend(reply)
        case Diverged():
            self._cut(reply)
        case Reset():
            self._start_over(reply)
    self.fetch()


@canary("cut-to-what-the-leader-says", (Follower, "_cut"), caught_by=17)
def _cut_without_looking(self: Follower, reply: Diverged) -> None:
    member = self._member
    to = Position(reply.end.epoch, min(reply.end.end_offset, member.log.last.end_offset))
    member.log.truncate(to)
    member.durable_position = min(member.durable_position, member.log.last)


# -- log start -------------------------------------------------------------------------------------


@canary(
    "reset-before-divergence",
    (Leader, "_misplaced"),
    caught_by="a_divergence_is_cut_before_a_reset",
)
def _reset_by_offset(self: Leader, position: Position) -> Diverged | Reset | None:
    epoch, log = self._member.epoch, self._member.log
    if log.contains(position):
        return None
    end = log.epoch_end(position.epoch)
    if end is None or position.end_offset < log.base().start_offset:
        return Reset(epoch, position, *log.base())
    return Diverged(epoch, position, end)


@canary(
    "reset-counts-as-durable",
    (Follower, "_start_over"),
    caught_by="a_reset_is_not_acknowledged_before_it_is_durable",
)
def _start_over_unsynced(self: Follower, reply: Reset) -> None:
    self._member.log.reset(reply.start_offset, reply.boundaries)
    self._member.durable_position = self._member.log.last
    self._member.commit(reply.start_offset)


def _prune_all_before(known: Any, start_offset: int) -> list[Any]:
    return [b for b in known if b.start_offset >= start_offset] or list(known[-1:])


CANARIES["prune-the-epoch-in-force"] = Canary(
    patches=((boundaries, "prune", _prune_all_before),), caught_by=3
)


@canary("delete-beyond-the-watermark", (Member, "start_offset_max"), caught_by=3)  # type: ignore[misc, prop-decorator]
@property
def _everything(self: Member) -> int:
    return self.log.last.end_offset


@canary("records-gone-before-the-journal-says-so", (FakeLog, "_write_records"), caught_by=57)
def _write_records_that_need_nothing(self: FakeLog, state: Records) -> None:
    self._admit()
    self._record_states.append(state._replace(needs=0))
    self.changes += 1


# -- voters ----------------------------------------------------------------------------------------


ONGARO = "a_leader_whose_epoch_is_not_committed_must_not_change_voters"


@canary("change-voters-in-an-uncommitted-epoch", (Leader, "refusal_of_voters"), caught_by=ONGARO)
def _change_any_time(self: Leader, voters: Voters) -> Refusal | None:
    return self._tracker.refusal_of(voters, committed=ORIGIN, within_ticks=1_000_000)


@canary("two-voters-at-once", (Tracker, "refusal_of"), caught_by=60)
def _change_as_you_like(self: Tracker, voters: Voters, **_: object) -> Refusal | None:
    return None if voters and voters != self.voters else Refusal.NOT_ONE_CHANGE


@canary(  # type: ignore[misc, prop-decorator]
    "removed-leader-gives-up",
    (Member, "is_electable"),
    caught_by="a_leader_that_removed_itself_unheard_is_elected_again",
)
@property
def _only_voters(self: Member) -> bool:
    return self.is_voter

"""One replica's part in one consensus group: roles, elections, and the entry point of every input.

Raft whose log is the partition log. There is no entry envelope: the index is the offset, the term
is the leader epoch in every batch. Opening an epoch takes no offset; it is a boundary kept beside
the records, and boundaries and records in order are an ordinary Raft log. The rules, voter changes
and why they are safe: docs/consensus.md. Replication lives in `leader` and `follower`.

Pure: no clock, no socket, no file. The driver calls `tick`, `step`, `propose` and `durable`
and applies the effects. An input may raise `StorageError` from the log: then the step that could
not be written has not happened, effects of earlier steps come with the next input's, and ticks try
again.
"""

from collections.abc import Callable
from random import Random
from typing import assert_never

from millstream.errors import ChangeRefused
from millstream.model import Boundary, Epoch, HardState, Offset, Position, ReplicaId
from millstream.raft.follower import Follower
from millstream.raft.leader import Leader
from millstream.raft.log_view import LogView
from millstream.raft.member import Effects, Member, Timing
from millstream.raft.messages import (
    Alive,
    Diverged,
    Fetch,
    FetchReply,
    Hint,
    Lead,
    Message,
    PreVote,
    PreVoteGranted,
    Reset,
    TakeOver,
    Vote,
    VoteGranted,
)
from millstream.raft.roles import Event, Role, next_role
from millstream.raft.tracker import Ballot, Refusal, Voters


class Core:
    """Takes inputs, returns effects. Writes to `log` only during a call."""

    def __init__(
        self,
        me: ReplicaId,
        log: LogView,
        hard_state: HardState,
        random: Random,
        *,
        timing: Timing,
    ) -> None:
        self._member = Member(me, log, hard_state)
        self._timing = timing
        self._random = random
        self.role = Role.FOLLOWER  # An attribute: each step of a replica asks for it.
        self._follower = Follower(self._member, timing)
        self._leader: Leader | None = None  # Set exactly while the role is LEADER.
        self._ballot: Ballot | None = None  # Set while PROSPECT or CANDIDATE.
        self._next_voters: Voters | None = None  # Those that a leader campaigns to open with.
        # A replica that starts counts as having heard no leader for an election timeout.
        self._leaderless_ticks = timing.election_ticks
        self._idle_ticks = 0  # Since the last sign that an election is not needed.
        self._patience_ticks = 0
        self._draw_patience()
        if not self._member.is_electable:
            # An observer asks at the first tick: it starts no election. Its patience is that of the
            # others, or it would forget a leader that it heard before that tick.
            self._idle_ticks = self._patience_ticks - 1

    # -- state -------------------------------------------------------------------------------------

    @property
    def me(self) -> ReplicaId:
        return self._member.me

    @property
    def epoch(self) -> Epoch:
        return self._member.hard_state.epoch

    @property
    def leader(self) -> ReplicaId | None:
        """The leader of this epoch, as far as known here."""
        return self._member.me if self._leader is not None else self._follower.leader

    @property
    def voters(self) -> Voters:
        return self._member.log.voters

    @property
    def hard_state(self) -> HardState:
        return self._member.hard_state

    @property
    def high_watermark(self) -> Offset:
        return self._member.high_watermark

    @property
    def durable_position(self) -> Position:
        return self._member.durable_position

    @property
    def start_offset_max(self) -> Offset:
        """The greatest log start allowed here: committed, and durable on this disk."""
        return self._member.start_offset_max

    @property
    def takes_proposals(self) -> bool:
        return self._leader is not None and self._leader.successor is None

    @property
    def is_established(self) -> bool:
        """Whether it leads and knows all that is committed. Listeners open then, not before."""
        return self._leader is not None and self._leader.is_established

    @property
    def needs_ticks(self) -> bool:
        """False for a leader without followers: no time-out concerns it."""
        return self._leader is None or not self._leader.is_alone

    def lags(self) -> dict[ReplicaId, Offset]:
        """Return the offsets that each follower has yet to acknowledge; empty unless leading."""
        return {} if self._leader is None else self._leader.lags()

    @property
    def in_step_count(self) -> int:
        """How many voters hold all that is committed and were heard within an election timeout,
        the leader included; 0 unless leading."""
        return 0 if self._leader is None else self._leader.in_step_count

    @property
    def heard_count(self) -> int:
        """How many voters were heard within an election timeout, in step or not."""
        return 0 if self._leader is None else self._leader.heard_count

    def end_held_by(self, count: int) -> Offset:
        """Where the records end that `count` voters hold, durably; 0 unless leading. They need
        not be committed."""
        return 0 if self._leader is None else self._leader.end_held_by(count)

    # -- inputs ------------------------------------------------------------------------------------

    def tick(self) -> Effects:
        """Count one tick of this replica's clock."""
        self._leaderless_ticks += 1
        self._idle_ticks += 1
        if self._leader is not None:
            if not self._leader.tick():
                self._become(Event.QUORUM_LOST)
        elif self._idle_ticks >= self._patience_ticks:
            self._end_patience()
        else:
            self._follower.tick()
        return self._member.flush()

    def step(self, sender: ReplicaId, message: Message) -> Effects:
        """Take a message from another replica."""
        if message.epoch > self.epoch:
            self._member.enter(message.epoch, voted_for=None)
            self._become(Event.EPOCH_PASSED)
        if message.epoch == self.epoch:
            self._dispatch(sender, message)
        elif not isinstance(message, Hint):
            # A leader also learns this way of a replica in a higher epoch, and moves on.
            self._member.send(sender, Hint(self.epoch, self.leader))
        return self._member.flush()

    def propose(self, records: object) -> Effects:
        """Append records that the driver has stamped with this epoch and the next offset."""
        assert self._leader is not None
        assert self._leader.successor is None
        self._leader.append(records)
        return self._member.flush()

    def durable(self, position: Position) -> Effects:
        """The log up to `position` survives a power cut: its records and its boundaries.

        Report the `last` of the moment the sync began, and nothing if the log was truncated or
        reset since.
        """
        member = self._member
        if position > member.durable_position:
            is_there = position == member.log.last or member.log.contains(position)
            assert is_there, "synced what is not there"
            member.durable_position = position
            if self._leader is not None:
                self._leader.advance()
                self._resign_if_removed()
            else:
                self._follower.fetch()
        return member.flush()

    def transfer(self, to: ReplicaId) -> Effects:
        """Hand leadership to `to`; raise `ChangeRefused` if that cannot be. Proposals stop until
        it took over or an election timeout has passed."""
        refusal = Refusal.NOT_LEADER if self._leader is None else self._leader.transfer(to)
        if refusal is not None:
            raise ChangeRefused(refusal)
        return self._member.flush()

    def refusal_of_voters(self, voters: Voters) -> Refusal | None:
        """Say why `change_voters` would be refused now; None if it would not."""
        if self._leader is None:
            return Refusal.NOT_LEADER
        return self._leader.refusal_of_voters(voters)

    def change_voters(self, voters: Voters) -> Effects:
        """Campaign among the voters in force for the next epoch, to open it with `voters`, one
        more or one less; raise `ChangeRefused` if that cannot be now.

        It has happened when an epoch with these voters is established. If the campaign is lost
        nothing has changed. Records already proposed stay in the log and commit in either epoch.
        """
        refusal = self.refusal_of_voters(voters)
        if refusal is not None:
            raise ChangeRefused(refusal)
        self._campaign(Event.VOTERS_CHANGE, next_voters=voters)
        return self._member.flush()

    # -- peer links --------------------------------------------------------------------------------
    # They choose when a core acts, never how it votes, counts or commits (docs/consensus.md).

    def leader_gone(self, wait_ticks: int) -> None:
        """Count as leaderless and campaign after `wait_ticks`: the leader's node cannot be reached,
        or said that it does not lead."""
        if self._leader is None and self.role is Role.FOLLOWER:
            self._follower.leader = None
            self._leaderless_ticks = self._timing.election_ticks
            self._idle_ticks, self._patience_ticks = 0, max(1, wait_ticks)

    def leader_is_near(self) -> None:
        """Count no silence: the leader's node is heard over a peer link."""
        self._leaderless_ticks = self._idle_ticks = 0

    def follower_is_near(self, replica: ReplicaId) -> None:
        """Count the replica as heard: it follows over a peer link. Its parked fetch is answered by
        news only; answered as a heartbeat it would be unparked whenever a leader looks."""
        if self._leader is not None:
            self._leader.follower_is_near(replica)

    def unpark(self, replica: ReplicaId) -> None:
        """Forget the fetch of this replica: the link that it came over has ended, or it left."""
        if self._leader is not None:
            self._leader.unpark(replica)

    def ask(self, replica: ReplicaId) -> Effects:
        """Fetch from a replica that may lead this epoch."""
        if self._leader is None:
            self._follower.ask(replica)
        return self._member.flush()

    def followers(self) -> tuple[ReplicaId, ...]:
        """The replicas that this leader expects fetches of, voters or not; none unless leading."""
        return () if self._leader is None else self._leader.followers()

    def parked(self) -> tuple[ReplicaId, ...]:
        """The followers whose fetches wait here for news."""
        return () if self._leader is None else self._leader.parked()

    def has_parked(self, replica: ReplicaId) -> bool:
        """Whether a fetch of the replica waits here for news."""
        return self._leader is not None and self._leader.has_parked(replica)

    def leader_may_quiesce(self, is_absent: Callable[[ReplicaId], bool]) -> bool:
        """Whether a leader needs no ticks: every voter is parked at the end with the same high
        watermark, or absent, and those parked are a majority with itself."""
        return self._leader is not None and self._leader.may_quiesce(is_absent)

    # -- messages ----------------------------------------------------------------------------------

    def _dispatch(self, sender: ReplicaId, message: Message) -> None:
        """Act on a message of this very epoch."""
        match message:
            case Fetch() | Alive():
                self._serve(sender, message)
            case FetchReply() | Diverged() | Reset():
                self._hear_leader(sender)
                self._follower.accept(message)
            case Lead():
                self._hear_leader(sender)
                self._follower.fetch()
            case PreVote():
                self._on_pre_vote(sender, message)
            case PreVoteGranted():
                self._count(Role.PROSPECT, sender)
            case Vote():
                self._on_vote(sender, message)
            case VoteGranted():
                self._count(Role.CANDIDATE, sender)
            case Hint():
                self._on_hint(message)
            case TakeOver():
                self._on_take_over()
            case _:
                assert_never(message)

    def _serve(self, sender: ReplicaId, message: Fetch | Alive) -> None:
        if self._leader is None:
            self._member.send(sender, Hint(self.epoch, self.leader))
        elif isinstance(message, Alive):
            self._leader.on_alive(sender)
        else:
            self._leader.on_fetch(sender, message)
            self._resign_if_removed()

    def _hear_leader(self, leader: ReplicaId) -> None:
        self._become(Event.LEADER_HEARD)
        self._follower.follow(leader)
        self._leaderless_ticks = self._idle_ticks = 0

    def _on_hint(self, hint: Hint) -> None:
        # Second-hand: ask that node, and follow it only if it answers. It may be long dead.
        leader = hint.leader
        if self.leader is None and leader is not None and leader != self._member.me:
            self._follower.ask(leader)

    def _on_take_over(self) -> None:
        if self._member.is_voter and self.role in (Role.FOLLOWER, Role.PROSPECT):
            self._campaign(Event.TOLD_TO_LEAD)

    def _on_pre_vote(self, sender: ReplicaId, ask: PreVote) -> None:
        is_leaderless = self._leaderless_ticks >= self._timing.election_ticks
        if self._leader is None and is_leaderless and self._holds_all(ask.last):
            self._member.send(sender, PreVoteGranted(self.epoch))
        else:
            self._member.send(sender, Hint(self.epoch, self.leader))

    def _on_vote(self, sender: ReplicaId, ask: Vote) -> None:
        voted_for = self.hard_state.voted_for
        if voted_for not in (None, sender) or not self._holds_all(ask.last):
            self._member.send(sender, Hint(self.epoch, self.leader))
            return
        if voted_for is None:
            self._member.enter(self.epoch, voted_for=sender)
            self._become(Event.VOTE_GIVEN)
            self._leaderless_ticks = self._idle_ticks = 0  # Give it time to win.
        self._member.send(sender, VoteGranted(self.epoch))

    def _holds_all(self, candidate: Position) -> bool:
        """Whether a log that ends at `candidate` holds all that this one may have acknowledged."""
        return candidate >= self._member.log.last

    # -- elections ---------------------------------------------------------------------------------

    def _end_patience(self) -> None:
        """Ask for votes, or for a leader: none was heard for an election timeout."""
        if not self._member.is_electable:
            self._draw_patience()
            self._follower.leader = None
            for node in sorted(self.voters):
                self._follower.ask(node)
            return
        self._become(Event.SILENCE)
        self._ballot = Ballot(self.voters, {self._member.me})
        self._member.send_all(self.voters, PreVote(self.epoch, self._member.log.last))
        self._conclude()

    def _campaign(self, event: Event, *, next_voters: Voters | None = None) -> None:
        """Enter the next epoch and ask the voters in force for their votes."""
        member = self._member
        assert member.is_electable
        member.enter(Epoch(self.epoch + 1), voted_for=member.me)
        self._become(event)
        self._next_voters = next_voters
        self._ballot = Ballot(self.voters, {member.me})
        member.send_all(self.voters, Vote(self.epoch, member.log.last))
        self._conclude()

    def _count(self, role: Role, sender: ReplicaId) -> None:
        if self.role is role and self._ballot is not None:
            self._ballot.won.add(sender)
            self._conclude()

    def _conclude(self) -> None:
        """Go on if the ballot is won: a lone voter gets from silence to leading in one step."""
        if self._ballot is None or not self._ballot.is_won:
            return
        if self.role is Role.PROSPECT:
            self._campaign(Event.POLL_WON)
        else:
            self._open_epoch()

    def _open_epoch(self) -> None:
        member = self._member
        assert member.hard_state.voted_for == member.me
        electors = self.voters
        voters = electors if self._next_voters is None else self._next_voters
        # Older epochs commit only underneath this boundary (Raft, section 5.4.2).
        member.log.open_epoch(Boundary(self.epoch, member.log.last.end_offset, voters))
        self._become(Event.VOTE_WON)
        self._leader = Leader(member, self._timing)
        member.send_all(electors | voters, Lead(self.epoch))

    def _resign_if_removed(self) -> None:
        if self._leader is not None and self._leader.is_removed:
            self._leader.bow_out()
            self._become(Event.REMOVED)

    # -- small parts -------------------------------------------------------------------------------

    def _become(self, event: Event) -> None:
        """Change the role, drop what belonged to the old one, and be patient anew. Only a leader
        that was heard, or may be about to win, is not given up for another."""
        self.role = next_role(self.role, event)
        if self._leader is not None:
            self._answer_parked(event)
        self._leader = None
        self._ballot = None
        self._next_voters = None
        if event not in (Event.LEADER_HEARD, Event.VOTE_GIVEN):
            self._follower.leader = None
            self._draw_patience()

    def _answer_parked(self, event: Event) -> None:
        """A parked fetch is a promise of an answer: say that this replica does not lead."""
        assert self._leader is not None
        # Voters that are asked for their votes are answered by that.
        asked = self.voters if event is Event.VOTERS_CHANGE else frozenset()
        for replica in self._leader.parked():
            if replica not in asked:
                self._member.send(replica, Hint(self.epoch, None))

    def _draw_patience(self) -> None:
        """Wait anew, for a random time, so that not all campaign at once. A lone voter need not."""
        ticks = self._timing.election_ticks
        is_alone = self.voters == {self._member.me}
        self._idle_ticks = 0
        self._patience_ticks = 1 if is_alone else self._random.randint(ticks, 2 * ticks - 1)

"""The duties of the leader of one epoch: serve fetches, commit, keep a quorum, hand over.

Made when an epoch is won and dropped when it ends, so nothing of it outlives the leadership. Does
not decide roles: `core` asks it whether it still has a quorum. A fetch that finds no new records is
parked and answered when there are some, so replication takes one round trip and a heartbeat is
only an answer without records.
"""

from collections.abc import Callable

from millstream.errors import StorageError
from millstream.model import Offset, Position, ReplicaId
from millstream.raft.member import Member, Timing
from millstream.raft.messages import Diverged, Fetch, FetchReply, Lead, Reset, TakeOver
from millstream.raft.tracker import NOT_COUNTED, Refusal, Tracker, Voters, is_majority


class Leader:
    """Leads the epoch that the last boundary of the log has just opened."""

    def __init__(self, member: Member, timing: Timing) -> None:
        assert member.log.last.epoch == member.epoch, "leads an epoch that it did not open"
        self._member = member
        self._timing = timing
        self._tracker = Tracker(member.me, member.log.voters)
        self._has_vote = member.is_voter  # In this epoch: other voters take another one.
        self.successor: ReplicaId | None = None  # Of a transfer; an attribute: each append asks.
        self._transfer_ticks = 0
        # Once the own boundary is on a majority, all that was ever acknowledged is visible.
        self.is_established = False

    @property
    def is_alone(self) -> bool:
        return not self._tracker.followers

    @property
    def is_removed(self) -> bool:
        """Whether its own epoch is committed and it has no vote in it."""
        return self.is_established and not self._has_vote

    def lags(self) -> dict[ReplicaId, Offset]:
        return self._tracker.lags(self._member.log.last.end_offset)

    def end_held_by(self, count: int) -> Offset:
        """Where the records end that `count` voters hold, durably."""
        return self._tracker.position_held_by(count, self._member.durable_position).end_offset

    @property
    def heard_count(self) -> int:
        return self._tracker.in_step_count(0, within_ticks=self._timing.election_ticks)

    @property
    def in_step_count(self) -> int:
        return self._tracker.in_step_count(
            self._member.high_watermark, within_ticks=self._timing.election_ticks
        )

    # -- replication -------------------------------------------------------------------------------

    def append(self, records: object) -> None:
        self._member.log.append(records)
        if self._tracker.followers:
            self._answer_parked()

    def on_fetch(self, sender: ReplicaId, fetch: Fetch) -> None:
        progress = self._tracker.heard(sender)
        progress.parked = None
        if self._member.log.contains(fetch.position):
            progress.acknowledged = max(progress.acknowledged, fetch.position)
            self.advance()
            self._hand_over()
            if self._has_no_news(fetch):
                progress.park(fetch)
                return
        self._answer(sender, fetch)

    def on_alive(self, sender: ReplicaId) -> None:
        self._tracker.heard(sender)
        self._member.send(sender, Lead(self._member.epoch))

    def advance(self) -> None:
        """Commit what a majority holds, if the majority's position lies in this very epoch.

        An older record on a majority is not safe: a leader of an epoch between may still replace
        it (Raft, figure 8). "Not before the own start offset" would not do: a follower can stand
        there without the boundary.
        """
        member = self._member
        majority = self._tracker.majority_position(member.durable_position)
        if majority.epoch == member.hard_state.epoch:
            self.is_established = True
            if member.commit(majority.end_offset) and self._tracker.followers:
                self._answer_parked()

    def tick(self) -> bool:
        """Count a tick. Returns False if no majority was heard for an election timeout: resign."""
        timing = self._timing
        self._tracker.age(observer_ticks_max=timing.election_ticks)
        if not self._tracker.has_majority(self._tracker.voters, within_ticks=timing.election_ticks):
            return False
        for node, progress in self._tracker.followers.items():
            if progress.parked is not None and progress.parked_ticks >= timing.heartbeat_ticks:
                self._answer(node, progress.parked)
                progress.parked = None
            elif progress.silent_ticks % timing.retry_ticks == 0:
                self._member.send(node, Lead(self._member.epoch))
        self._transfer_ticks += 1
        if self._transfer_ticks >= timing.election_ticks:
            self.successor = None  # It did not take over: this replica leads on.
        return True

    # -- peer links --------------------------------------------------------------------------------

    def follower_is_near(self, replica: ReplicaId) -> None:
        progress = self._tracker.followers.get(replica)
        if progress is not None:
            progress.silent_ticks = 0
            progress.parked_ticks = NOT_COUNTED

    def unpark(self, replica: ReplicaId) -> None:
        progress = self._tracker.followers.get(replica)
        if progress is not None:
            progress.parked = None

    def followers(self) -> tuple[ReplicaId, ...]:
        return tuple(self._tracker.followers)

    def parked(self) -> tuple[ReplicaId, ...]:
        return tuple(filter(self.has_parked, self._tracker.followers))

    def has_parked(self, replica: ReplicaId) -> bool:
        progress = self._tracker.followers.get(replica)
        return progress is not None and progress.parked is not None

    def may_quiesce(self, is_absent: Callable[[ReplicaId], bool]) -> bool:
        """See `Core.leader_may_quiesce`."""
        if not self.is_established or self.successor is not None:
            return False
        member, voters = self._member, self._tracker.voters
        in_step = {member.me}
        for replica, progress in self._tracker.followers.items():
            fetch = progress.parked
            if (
                fetch is not None
                and fetch.position == member.log.last
                and fetch.high_watermark == member.high_watermark
            ):
                in_step.add(replica)
            elif replica in voters and not is_absent(replica):
                return False
        return is_majority(in_step, voters)

    # -- changes -----------------------------------------------------------------------------------

    def refusal_of_voters(self, voters: Voters) -> Refusal | None:
        """Say why the next epoch cannot be opened with these voters; None if it can.

        The own epoch must be committed first. Otherwise a predecessor's uncommitted change might
        still win, with a majority that does not overlap with the new one (Ongaro, 2015).
        """
        if not self.is_established:
            return Refusal.NOT_ESTABLISHED
        if self.successor is not None:
            return Refusal.TRANSFERRING
        committed = Position(self._member.epoch, self._member.high_watermark)
        return self._tracker.refusal_of(
            voters, committed=committed, within_ticks=self._timing.election_ticks
        )

    def transfer(self, to: ReplicaId) -> Refusal | None:
        """Stop taking proposals and let `to` take over as soon as it holds everything."""
        if to not in self._tracker.voters:
            return Refusal.NOT_VOTER
        if to != self._member.me:
            self.successor, self._transfer_ticks = to, 0
            self._hand_over()
        return None

    def bow_out(self) -> None:
        """Removed itself: let the follower that holds most take over, instead of a timeout."""
        followers = self._tracker.followers
        voters = sorted(self._tracker.voters)
        best = max(voters, key=lambda node: followers[node].acknowledged)
        self._member.send(best, TakeOver(self._member.epoch))

    # -- small parts -------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        if self.successor is None:
            return
        if self._tracker.followers[self.successor].acknowledged == self._member.log.last:
            self._member.send(self.successor, TakeOver(self._member.epoch))

    def _misplaced(self, position: Position) -> Diverged | Reset | None:
        """The reply to a follower that cannot read on from `position`; None if it can."""
        epoch, log = self._member.epoch, self._member.log
        if log.contains(position):
            return None
        end = log.epoch_end(position.epoch)
        # Divergence first: cutting may lower a position's epoch, a reset must never do so, or a
        # replica would forget an epoch that it had acknowledged.
        if end is not None and end < position:
            return Diverged(epoch, position, end)
        return Reset(epoch, position, *log.base())

    def _has_no_news(self, fetch: Fetch) -> bool:
        is_at_end = fetch.position == self._member.log.last
        return is_at_end and fetch.high_watermark >= self._member.high_watermark

    def _answer_parked(self) -> None:
        for node, progress in self._tracker.followers.items():
            if progress.parked is not None:
                self._answer(node, progress.parked)
                progress.parked = None

    def _answer(self, to: ReplicaId, fetch: Fetch) -> None:
        """Send what follows the fetch's position, or note why this log cannot be read there.

        Never raises `StorageError`: the append or the commit that brought the news has happened,
        and other followers may ask for places that can be read. The follower asks again.
        """
        try:
            self._read_for(to, fetch)
        except StorageError as problem:
            self._member.note_unreadable(problem)

    def _read_for(self, to: ReplicaId, fetch: Fetch) -> None:
        member = self._member
        misplaced = self._misplaced(fetch.position)
        if misplaced is not None:
            member.send(to, misplaced)
            return
        boundaries, records = member.log.read(fetch.position)
        reply = FetchReply(
            epoch=member.epoch,
            base=fetch.position,
            boundaries=boundaries,
            records=records,
            high_watermark=member.high_watermark,
            start_offset=member.log.start_offset,
        )
        member.send(to, reply)

"""One replica's part in the peer links: `Left`, lost leaders, quiescence, confirmed reads.

Stands between a core and its driver. Chooses when the core is ticked and what it is told about its
peers; elections and commits rest on none of it, confirmed reads do (docs/consensus.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple, Protocol

from millstream.errors import Overloaded
from millstream.model import NO_EPOCH, Epoch, LogId, NodeId, Offset, Position, ReplicaId, node_of
from millstream.raft.core import Core
from millstream.raft.link_messages import GroupMessage, Left
from millstream.raft.member import Effects
from millstream.raft.messages import Diverged, Fetch, FetchReply, Hint, Lead, Message, Reset
from millstream.raft.roles import Role
from millstream.raft.tracker import Voters, is_majority
from millstream.replication.peering.links import Link, PeerLinks

QUIET_MS = 1_000  # Without news for so long, a replica may quiesce.
OPENING_TICKS = 2  # In which all nodes open the replicas of a new log.
QUESTIONS_MAX = 10_000  # Confirmed reads that wait in one group.


class Driver(Protocol):
    """Gives inputs to a core and applies their effects; calls `stepped` before it does."""

    def drive(self, act: Callable[[], Effects]) -> None: ...

    def post(self, to: ReplicaId, message: Message) -> None:
        """Send when every vote given so far is durable: by `GroupLinks.transmit`."""

    def woke(self) -> None:
        """The replica is no longer quiesced: tick it again."""


@dataclass(frozen=True, slots=True)
class Question:
    """A read that may be answered by the leader of `epoch` only."""

    epoch: Epoch
    threshold: int  # The least number of a heartbeat that was sent after the question came.
    answer: Callable[[bool], None]  # Whether the epoch was proven current.


def is_confirmed(
    question: Question,
    me: ReplicaId,
    voters: Voters,
    echo_of: Callable[[ReplicaId, Epoch], int],
) -> bool:
    """Whether a majority of the voters, the leader among them, was still in the leader's epoch when
    the question came (ReadIndex, Raft 6.4; no clock is trusted).

    `echo_of` is the highest own number that the replica's node echoed over the link in force,
    0 unless the replica is in the epoch by what came over that link."""
    confirming = {
        voter
        for voter in voters
        if voter == me or echo_of(voter, question.epoch) >= question.threshold
    }
    return is_majority(confirming, voters)


class _Outstanding(NamedTuple):
    """The last fetch that was sent to the leader, and the link that it left over."""

    link: Link
    epoch: Epoch
    position: Position


class _Seen(NamedTuple):
    """What counts as news."""

    role: Role
    epoch: Epoch
    leader: ReplicaId | None
    last: Position
    high_watermark: Offset


class GroupLinks:
    def __init__(
        self,
        log: LogId,
        core: Core,
        links: PeerLinks,
        driver: Driver,
        random: Random,
        *,
        placement: Callable[[], Sequence[ReplicaId]],
        last: Callable[[], Position],
        now_ms: Callable[[], int],
    ) -> None:
        """`placement` names the replicas in the order in which they campaign; `last` is the end of
        the log."""
        self.me = core.me
        self.is_quiesced = False
        self._log = log
        self._core = core
        self._links = links
        self._driver = driver
        self._random = random
        self._placement = placement
        self._last = last
        self._now_ms = now_ms
        self._epoch = core.epoch  # As of the last step, whose `Left` has been sent.
        self._outstanding: _Outstanding | None = None
        self._last_leader: tuple[Epoch, ReplicaId] | None = None
        self._questions: list[Question] = []
        self._seen = self._look()
        self._news_ms = now_ms()

    # -- for the driver ----------------------------------------------------------------------------

    def stepped(self) -> None:
        """The core took a step. Called before its effects are applied: what says that this replica
        is in another epoch must not overtake its `Left`."""
        if self._core.epoch != self._epoch:
            self._say_left()
            self._epoch = self._core.epoch

    def observe(self) -> None:
        """The effects of a step are applied, or a link changed: note news, wake, answer reads."""
        core = self._core
        seen = self._look()
        if seen != self._seen:
            self._seen, self._news_ms = seen, self._now_ms()
        if core.leader is not None and core.role is not Role.LEADER:
            self._last_leader = core.epoch, core.leader
        if self.is_quiesced and not self.may_quiesce():
            self.is_quiesced = False
            self._driver.woke()
        if self._questions:
            self.answer_questions()

    def tick(self) -> None:
        """Count a tick, unless quiesced."""
        if self.is_quiesced:
            return
        core = self._core
        if core.role is Role.LEADER:
            for link in self._links.links.values():
                for voter in self._fetching(link):
                    core.follower_is_near(voter)
        elif core.leader is not None and self._links.reaches(core.leader):
            core.leader_is_near()
        self._driver.drive(core.tick)
        if self._now_ms() - self._news_ms >= QUIET_MS and self.may_quiesce():
            self.is_quiesced = True

    def transmit(self, to: ReplicaId, message: Message) -> None:
        """Send a message of the core whose votes are durable."""
        link = self._links.links.get(node_of(to))
        if link is None:
            return
        if isinstance(message, Fetch):
            if message.epoch != self._core.epoch:
                return  # It waited for a vote, and the replica has left that epoch since.
            link.asked[self._log] = message.epoch
            if to == self._core.leader:
                self._outstanding = _Outstanding(link, message.epoch, message.position)
        self._links.send(to, GroupMessage(self._log, self.me, to, message))

    def close(self) -> None:
        """The replica is closed, dropped or stopped while the node lives on."""
        core = self._core
        self._links.forget(self._log)
        self._say_left()
        for follower in core.parked():
            self._links.send(
                follower, GroupMessage(self._log, self.me, follower, Hint(core.epoch, None))
            )
        self._refuse_questions()

    # -- messages and links ------------------------------------------------------------------------

    def receive(self, link: Link, sender: ReplicaId, message: Message) -> None:
        """Give the core a message that came over `link`."""
        core = self._core
        is_first = False
        if isinstance(message, Fetch):
            key = self._log, sender
            is_first = link.fetched.get(key) != message.epoch
            link.fetched[key] = message.epoch
        followed = core.role is not Role.LEADER and core.leader == sender
        if followed and isinstance(message, FetchReply | Diverged | Reset):
            self._outstanding = None
        is_hint = isinstance(message, Hint) and message.epoch == core.epoch
        self._driver.drive(lambda: core.step(sender, message))
        if is_hint and isinstance(message, Hint):
            self._on_hint(sender, message, followed=followed)
        # The first fetch of an epoch over a link is answered also without news: its sender counts
        # as leaderless, and a fetch that is parked without a word would leave it so.
        if is_first and core.has_parked(sender):
            self._driver.post(sender, Lead(core.epoch))

    def opened(self) -> None:
        """Campaign soon in a log that never had a leader, once the other replicas can be open. In
        any other log a leader may be there, and says so within a few ticks."""
        if self._core.epoch == NO_EPOCH and len(self._core.voters) > 1:
            self._leader_gone(after_ticks=OPENING_TICKS)

    def link_began(self, peer: NodeId) -> None:
        """Ask the replica there, if it was last known to lead this epoch. A replica that does not
        vote asks any voter: no leader may know of it."""
        if self._core.leader is None and self.me not in self._core.voters:
            for voter in sorted(self._core.voters):
                if node_of(voter) == peer:
                    self._driver.drive(partial(self._core.ask, voter))
        if self._last_leader is None or self._core.role is Role.LEADER:
            return
        epoch, leader = self._last_leader
        if epoch == self._core.epoch and node_of(leader) == peer:
            self._driver.drive(lambda: self._core.ask(leader))

    def positions_came(self, peer: NodeId) -> None:
        """Say that this replica leads to those of the peer that did not ask: they may not know."""
        core = self._core
        link = self._links.links[peer]
        if core.role is Role.LEADER:
            for replica in core.followers():
                is_there = node_of(replica) == peer
                if is_there and link.fetched.get((self._log, replica)) != core.epoch:
                    self._driver.post(replica, Lead(core.epoch))
        self.observe()

    def link_ended(self, peer: NodeId) -> None:
        core = self._core
        for replica in core.followers():
            if node_of(replica) == peer:
                core.unpark(replica)
        leader = None if core.role is Role.LEADER else core.leader
        if leader is not None and node_of(leader) == peer:
            self._leader_gone()
        self.observe()

    def peer_left(self, replica: ReplicaId, epoch: Epoch) -> None:
        if self._core.epoch == epoch:
            self._core.unpark(replica)
            self.observe()

    # -- quiescence --------------------------------------------------------------------------------

    def may_quiesce(self) -> bool:
        """Whether nothing can be due here before a message comes or a link changes."""
        core = self._core
        if core.role is Role.LEADER:
            return core.leader_may_quiesce(self._links.is_absent)
        if core.role is not Role.FOLLOWER or core.leader is None:
            return False
        link = self._links.links.get(node_of(core.leader))
        fetch = self._outstanding
        return (
            link is not None
            and fetch is not None
            and fetch.link is link
            and (fetch.epoch, fetch.position) == (core.epoch, self._last())
        )

    # -- confirmed reads ---------------------------------------------------------------------------

    @property
    def is_heard(self) -> bool:
        """Whether a majority has echoed this leader lately. Costs no round trip and proves less
        than `ask`: a leader that was cut off serves its end for half a timeout at most."""
        core, now_ms = self._core, self._now_ms()
        heard = {
            voter
            for voter in core.voters
            if voter == self.me or self._links.is_heard_by(self._log, voter, core.epoch, now_ms)
        }
        return is_majority(heard, core.voters)

    def ask(self, answer: Callable[[bool], None]) -> None:
        """Call `answer` with whether this replica was proven to lead the current epoch after this
        call, at once or later. Raises `Overloaded` when too many wait."""
        core = self._core
        if not core.is_established:
            answer(False)
            return
        if len(self._questions) >= QUESTIONS_MAX:
            raise Overloaded(f"{self._log} has {QUESTIONS_MAX} reads that wait for confirmation")
        threshold = self._links.number + 1
        if core.voters != {self.me}:
            threshold = self._links.ask_for_echoes()
        self._questions.append(Question(core.epoch, threshold, answer))
        self._links.asking[self._log] = self
        self.answer_questions()

    def answer_questions(self) -> None:
        core = self._core
        questions, self._questions = self._questions, []
        for question in questions:
            if core.role is not Role.LEADER or core.epoch != question.epoch:
                question.answer(False)
            elif is_confirmed(question, self.me, core.voters, self._echo_of):
                question.answer(True)
            else:
                self._questions.append(question)
        if not self._questions:
            self._links.asking.pop(self._log, None)

    # -- parts -------------------------------------------------------------------------------------

    def _look(self) -> _Seen:
        core = self._core
        return _Seen(core.role, core.epoch, core.leader, self._last(), core.high_watermark)

    def _fetching(self, link: Link) -> list[ReplicaId]:
        """The replicas of a peer that follow this leader over the link."""
        epoch, log = self._core.epoch, self._log
        return [
            replica
            for replica in self._core.followers()
            if node_of(replica) == link.peer and link.fetched.get((log, replica)) == epoch
        ]

    def _echo_of(self, replica: ReplicaId, epoch: Epoch) -> int:
        return self._links.echo_of(self._log, replica, epoch)

    def _on_hint(self, sender: ReplicaId, hint: Hint, *, followed: bool) -> None:
        core = self._core
        if followed and hint.leader != sender:
            self._leader_gone()
            self.observe()
        elif core.leader is None and hint.leader == sender and core.role is not Role.LEADER:
            # First-hand, so as good as `Lead`.
            self._driver.drive(lambda: core.step(sender, Lead(hint.epoch)))

    def _leader_gone(self, *, after_ticks: int = 0) -> None:
        """Campaign after the replicas that come before this one in the placement: ranks keep two
        from splitting the vote, and spread leaders over the survivors."""
        present = [replica for replica in self._placement() if self._links.reaches(replica)]
        rank = present.index(self.me) if self.me in present else len(present)
        self._core.leader_gone(after_ticks + 2 * rank + self._random.randint(0, 1))
        self._outstanding = None

    def _say_left(self) -> None:
        """Tell every node that has a fetch of the epoch that was left, over the link in force."""
        for peer, link in list(self._links.links.items()):
            if link.asked.get(self._log) == self._epoch:
                del link.asked[self._log]
                self._links.send_left(peer, Left(self._log, self.me, self._epoch))

    def _refuse_questions(self) -> None:
        questions, self._questions = self._questions, []
        self._links.asking.pop(self._log, None)
        for question in questions:
            question.answer(False)

"""Planted bugs of peer links: each leaves out one rule, and the peer simulator must catch it.

`SEEDS` has a seed that catches each; when lives change, the search finds another.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from millstream.model import Epoch, LogId, NodeId, ReplicaId, node_of
from millstream.raft import Core, Role
from millstream.raft.leader import Leader
from millstream.raft.link_messages import GroupMessage, Heartbeat, Left
from millstream.raft.messages import Hint
from millstream.replication.peering.group import GroupLinks
from millstream.replication.peering.links import Link, PeerLinks
from tests.simulation.peer_world import TICK_MS, Stream

# Any: what a class gets in place of its method.
CANARIES: dict[str, tuple[tuple[type, str, Any], ...]] = {}
SEEDS: dict[str, int] = {}


@contextmanager
def planted(bug: str | None) -> Iterator[None]:
    """Plant a bug, or none, for the time of the block."""
    with ExitStack() as stack:
        for owner, name, replacement in CANARIES[bug] if bug else ():
            stack.enter_context(patch.object(owner, name, replacement))
        yield


def canary(
    name: str, owner: type, method: str, *, seed: int = 0
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def declare(replacement: Callable[..., Any]) -> Callable[..., Any]:
        CANARIES[name] = (*CANARIES.get(name, ()), (owner, method, replacement))
        SEEDS[name] = seed
        return replacement

    return declare


def _nothing(*_: Any, **__: Any) -> None:
    return None


def leave_out(name: str, owner: type, method: str, *, seed: int = 0) -> None:
    canary(name, owner, method, seed=seed)(_nothing)


# -- streams ---------------------------------------------------------------------------------------

_send = Stream.send


@canary("l2-loses-silently", Stream, "send", seed=2)
def _lose_some(self: Stream, item: Any) -> None:
    """A full queue drops a message and keeps the stream."""
    if self.world.random.random() >= 0.05:
        _send(self, item)


# -- Left ------------------------------------------------------------------------------------------

leave_out("no-left", GroupLinks, "_say_left", seed=4)


@canary("echo-before-left", GroupLinks, "_say_left", seed=7)
def _say_left_with_the_next_tick(self: GroupLinks) -> None:
    """Behind the vote and the echo."""
    world = self._driver.world  # type: ignore[attr-defined]
    node = self._driver.node  # type: ignore[attr-defined]
    for peer, link in self._links.links.items():
        if link.asked.get(self._log) == self._epoch:
            del link.asked[self._log]
            left = Left(self._log, self.me, self._epoch)
            stream = node.wires[peer].streams[node.id, peer]
            world.at(world.now + TICK_MS, stream.send, left)


@canary("left-waits-for-vote", GroupLinks, "_say_left", seed=4)
def _say_left_with_the_vote(self: GroupLinks) -> None:
    """It is lost if the replica is closed before the vote is durable."""
    for peer, link in self._links.links.items():
        if link.asked.get(self._log) == self._epoch:
            del link.asked[self._log]
            left = Left(self._log, self.me, self._epoch)
            gate = self._driver.log.journal_number  # type: ignore[attr-defined]

            def send(peer: NodeId = peer, left: Left = left) -> None:
                self._links.send_left(peer, left)

            self._driver.held.append((gate, ReplicaId(peer), send))  # type: ignore[attr-defined]


@canary("left-only-to-leader", GroupLinks, "_say_left", seed=76)
def _say_left_to_the_leader(self: GroupLinks) -> None:
    """Not to all that it sent a fetch."""
    epoch, leader = self._last_leader or (None, None)
    for peer, link in self._links.links.items():
        is_leader = leader is not None and epoch == self._epoch and node_of(leader) == peer
        if is_leader and link.asked.get(self._log) == self._epoch:
            del link.asked[self._log]
            self._links.send_left(peer, Left(self._log, self.me, self._epoch))


@canary("closes-silently", GroupLinks, "close", seed=4)
def _close_without_left(self: GroupLinks) -> None:
    """A replica closed and opened again under a living node says nothing."""
    for link in self._links.links.values():
        link.asked.pop(self._log, None)
    for follower in self._core.parked():
        hint = Hint(self._core.epoch, None)
        self._links.send(follower, GroupMessage(self._log, self.me, follower, hint))
    self._refuse_questions()


# -- echoes ----------------------------------------------------------------------------------------


@canary("echo-without-fetch", PeerLinks, "echo_of", seed=1)
def _any_echo(self: PeerLinks, log: LogId, replica: ReplicaId, epoch: Epoch) -> int:
    """An echo counts without a fetch of that group."""
    link = self.links.get(node_of(replica))
    return 0 if link is None else link.echoed


_begin, _end = PeerLinks.begin, PeerLinks.end


@canary("fetch-over-any-link", PeerLinks, "begin", seed=1)
def _begin_with_old_fetches(self: PeerLinks, peer: NodeId, now_ms: int) -> None:
    """An echo counts with a fetch that came over an older link."""
    _begin(self, peer, now_ms)
    self.links[peer].fetched.update(self.__dict__.get("old_fetches", {}).get(peer, {}))


@canary("fetch-over-any-link", PeerLinks, "end", seed=1)
def _end_and_remember_fetches(self: PeerLinks, peer: NodeId) -> None:
    link = self.links.get(peer)
    if link is not None:
        self.__dict__.setdefault("old_fetches", {})[peer] = dict(link.fetched)
    _end(self, peer)


_on_heartbeat = PeerLinks._on_heartbeat


@canary("confirmed-by-old-heartbeat", PeerLinks, "_on_heartbeat", seed=3)
def _any_heartbeat_is_an_echo(self: PeerLinks, link: Link, beat: Heartbeat, now_ms: int) -> None:
    """The next heartbeat that comes counts, whichever it echoes."""
    _on_heartbeat(self, link, Heartbeat(beat.number, self.number, beat.wants_echo), now_ms)


@canary("numbers-restart", PeerLinks, "begin", seed=1)
def _begin_with_number_one(self: PeerLinks, peer: NodeId, now_ms: int) -> None:
    """Heartbeat numbers begin anew with a link, echoes do not."""
    self.number = 0
    _begin(self, peer, now_ms)
    self.links[peer].heard = self.__dict__.get("ever_heard", {}).get(peer, 0)


@canary("numbers-restart", PeerLinks, "end", seed=1)
def _end_and_remember_numbers(self: PeerLinks, peer: NodeId) -> None:
    link = self.links.get(peer)
    if link is not None:
        self.__dict__.setdefault("ever_heard", {})[peer] = link.heard
    _end(self, peer)


_echo_of = PeerLinks.echo_of


@canary("echo-of-absent-voters", PeerLinks, "echo_of", seed=1)
def _absent_voters_echo(self: PeerLinks, log: LogId, replica: ReplicaId, epoch: Epoch) -> int:
    if not self.reaches(replica):
        return self.number + 1_000_000
    return _echo_of(self, log, replica, epoch)


_ask, _answer_questions = GroupLinks.ask, GroupLinks.answer_questions


@canary("watermark-is-proof", GroupLinks, "ask", seed=21)
def _ask_and_note_the_watermark(self: GroupLinks, answer: Callable[[bool], None]) -> None:
    """A watermark that advanced after the question confirms it."""
    self.__dict__["watermark"] = self._core.high_watermark
    _ask(self, answer)


@canary("watermark-is-proof", GroupLinks, "answer_questions", seed=21)
def _answer_by_watermark(self: GroupLinks) -> None:
    has_moved = self._core.high_watermark > self.__dict__.get("watermark", 0)
    if self._core.role is Role.LEADER and has_moved:
        questions, self._questions = self._questions, []
        for question in questions:
            question.answer(self._core.epoch == question.epoch)
    _answer_questions(self)


# -- quiescence ------------------------------------------------------------------------------------


@canary("quiesces-while-behind", Core, "leader_may_quiesce")
def _quiesce_when_established(self: Core, is_absent: Callable[[ReplicaId], bool]) -> bool:
    """Voters may be behind, or not heard."""
    return self.is_established


@canary("counts-absent-voters", Leader, "may_quiesce")
def _count_absent_voters(self: Leader, is_absent: Callable[[ReplicaId], bool]) -> bool:
    """No majority is parked, and the leader never resigns."""
    followers = self._tracker.followers.items()
    return self.is_established and all(
        progress.parked is not None or is_absent(replica) for replica, progress in followers
    )


_observe = GroupLinks.observe


@canary("never-wakes", GroupLinks, "observe")
def _observe_and_sleep_on(self: GroupLinks) -> None:
    was_quiesced = self.is_quiesced
    _observe(self)
    self.is_quiesced = was_quiesced


@canary("heartbeat-answers", Leader, "follower_is_near")
def _hear_and_count_on(self: Leader, replica: ReplicaId) -> None:
    """An awake leader answers parked fetches as heartbeats."""
    if replica in self._tracker.followers:
        self._tracker.followers[replica].silent_ticks = 0


leave_out("silence-counts", Core, "leader_is_near")

# -- lost leaders ----------------------------------------------------------------------------------

leave_out("no-leader-gone", GroupLinks, "link_ended")
leave_out("hint-is-ignored", GroupLinks, "_on_hint", seed=19)
leave_out("leader-stops-silently", Core, "_answer_parked", seed=1063)


@canary("leader-stops-silently", Core, "parked", seed=1063)
def _none_parked(self: Core) -> tuple[ReplicaId, ...]:
    return ()


@canary("in-step-is-not-answered", Core, "has_parked", seed=9)
def _nothing_is_parked(self: Core, replica: ReplicaId) -> bool:
    return False

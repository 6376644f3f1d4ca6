"""The follower's side of replication: fetch, append, truncate, reset.

Owns the fetches to the leader, one at a time. Knows nothing of elections.

Invariant: a fetch acknowledges. So it is sent only when the whole log is durable, from its end, and
a reply counts only if the log still ends there.
"""

from typing import assert_never

from millstream.model import ORIGIN, Position, ReplicaId
from millstream.raft.member import Member, Timing
from millstream.raft.messages import Alive, Diverged, Fetch, FetchReply, Reset

Reply = FetchReply | Diverged | Reset


class Follower:
    """Follows one leader after another; `leader` is None while there is none."""

    def __init__(self, member: Member, timing: Timing) -> None:
        self._member = member
        self._timing = timing
        self._quiet_ticks = 0  # Since the last fetch was sent.
        self.leader: ReplicaId | None = None

    def follow(self, leader: ReplicaId) -> None:
        assert self.leader in (None, leader), "two leaders in one epoch"
        self.leader = leader

    def fetch(self) -> None:
        """Fetch from the leader, unless the last records are not durable yet."""
        if self.leader is not None:
            self._quiet_ticks = 0
            self.ask(self.leader)

    def ask(self, node: ReplicaId) -> None:
        """Fetch from any node as if it led: it answers, or hints at the leader."""
        member = self._member
        if member.is_durable:
            member.send(node, Fetch(member.epoch, member.log.last, member.high_watermark))

    def tick(self) -> None:
        """Repeat a fetch that may be lost, so that a lost message does not lead to an election."""
        self._quiet_ticks += 1
        if self.leader is None or self._quiet_ticks < self._timing.retry_ticks:
            return
        if self._member.is_durable:
            self.fetch()
        else:
            self._quiet_ticks = 0
            self._member.send(self.leader, Alive(self._member.epoch))

    def accept(self, reply: Reply) -> None:
        """Apply the leader's reply, and fetch more."""
        if reply.base != self._member.log.last:
            return  # A reply to an older fetch; that to the current one is on its way.
        match reply:
            case FetchReply():
                self._extend(reply)
            case Diverged():
                self._cut(reply)
            case Reset():
                self._start_over(reply)
            case _:
                assert_never(reply)
        self.fetch()

    def _extend(self, reply: FetchReply) -> None:
        member = self._member
        if reply.boundaries or reply.records:
            member.log.extend(reply.boundaries, reply.records)
        member.commit(min(reply.high_watermark, member.log.last.end_offset))
        # Records that go must be committed, and must not be what a power cut would take anyway:
        # the journal would remember a start beyond the end.
        start_offset = min(reply.start_offset, member.start_offset_max)
        if start_offset > member.log.start_offset:
            member.log.advance_start(start_offset)

    def _cut(self, reply: Diverged) -> None:
        """Truncate to the last position that both logs may share; if they do not share it, the next
        reply says so. Each cut goes strictly backwards, so this ends."""
        member = self._member
        own = member.log.epoch_end(reply.end.epoch)
        assert own is not None, "the leader's log begins before committed data"
        to = min(own, reply.end)
        assert to < member.log.last
        assert to.end_offset >= member.high_watermark, "would cut off committed records"
        try:
            member.log.truncate(to)
        finally:
            # A cut that failed part-way has shortened the log, too, and one at a gap ends before
            # `to`. A durable position behind the end would never be reached again.
            member.durable_position = min(member.durable_position, to, member.log.last)

    def _start_over(self, reply: Reset) -> None:
        member = self._member
        start = Position(reply.boundaries[-1].epoch, reply.start_offset)
        assert start > member.log.last, "a reset must not forget an epoch"
        assert start.end_offset >= member.high_watermark, "would drop committed records"
        member.log.reset(reply.start_offset, reply.boundaries)
        member.durable_position = ORIGIN  # Nothing of it is, before the next sync.
        member.commit(reply.start_offset)

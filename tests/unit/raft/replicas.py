"""A single replica on a fake log, and words to talk to it."""

from collections.abc import Iterable
from random import Random

from millstream.model import NEVER_VOTED, Boundary, Epoch, HardState, Position, ReplicaId
from millstream.raft import Core, Effects, Message, Role, Timing
from millstream.raft.messages import Fetch, FetchReply, PreVoteGranted, VoteGranted
from tests.simulation.core_log import Batch, FakeLog

TIMING = Timing(election_ticks=10, heartbeat_ticks=2)
ONE, TWO, THREE, FOUR = ReplicaId(1), ReplicaId(2), ReplicaId(3), ReplicaId(4)


def nodes(*numbers: int) -> frozenset[ReplicaId]:
    return frozenset(map(ReplicaId, numbers))


def at(epoch: int, end_offset: int) -> Position:
    return Position(Epoch(epoch), end_offset)


def boundary(epoch: int, start_offset: int, *voters: int) -> Boundary:
    return Boundary(Epoch(epoch), start_offset, nodes(*(voters or (1, 2, 3))))


def batch(epoch: int, base_offset: int, *, records: int = 1) -> Batch:
    return Batch(base_offset, base_offset + records, Epoch(epoch), f"{epoch}/{base_offset}")


class Replica:
    """Node 1 of a group, with a disk that syncs when told to."""

    def __init__(
        self,
        *voters: int,
        me: int = 1,
        log: FakeLog | None = None,
        hard_state: HardState = NEVER_VOTED,
    ) -> None:
        self.log = log or FakeLog(nodes(*(voters or (1, 2, 3))))
        if hard_state != self.log.hard_state:
            self.log.vote(hard_state)
        self.log.end_sync(self.log.begin_sync())
        self.core = Core(ReplicaId(me), self.log, self.log.hard_state, Random(0), timing=TIMING)

    def hear(self, sender: ReplicaId, message: Message) -> list[tuple[ReplicaId, Message]]:
        return self.core.step(sender, message).messages

    def tick(self, count: int = 1) -> list[tuple[ReplicaId, Message]]:
        return [sent for _ in range(count) for sent in self.core.tick().messages]

    def sync(self) -> list[tuple[ReplicaId, Message]]:
        durable = self.log.end_sync(self.log.begin_sync())
        assert durable is not None
        return self.core.durable(durable).messages

    def propose(self, *, records: int = 1) -> list[tuple[ReplicaId, Message]]:
        new = batch(self.core.epoch, self.log.last.end_offset, records=records)
        return self.core.propose((new,)).messages

    def fetch(self, sender: ReplicaId, position: Position, high_watermark: int = 0) -> Effects:
        return self.core.step(sender, Fetch(self.core.epoch, position, high_watermark))

    def lead(self, *supporters: ReplicaId) -> "Replica":
        """Be elected, and sync the boundary."""
        while self.core.role is Role.FOLLOWER:
            self.tick()
        for message in (PreVoteGranted, VoteGranted):
            for sender in supporters:
                self.hear(sender, message(self.core.epoch))
        assert self.core.role is Role.LEADER
        self.sync()
        return self

    def establish(self, *followers: ReplicaId) -> "Replica":
        """Let followers acknowledge all there is."""
        for follower in followers:
            self.fetch(follower, self.log.last)
        assert self.core.is_established
        return self

    def follow(
        self,
        leader: ReplicaId,
        boundaries: Iterable[Boundary] = (),
        batches: Iterable[Batch] = (),
        *,
        epoch: int = 1,
        high_watermark: int = 0,
        start_offset: int = 0,
    ) -> list[tuple[ReplicaId, Message]]:
        """Hear a reply of a leader to where the log ends."""
        reply = FetchReply(
            epoch=Epoch(epoch),
            base=self.log.last,
            boundaries=tuple(boundaries),
            records=tuple(batches),
            high_watermark=high_watermark,
            start_offset=start_offset,
        )
        return self.hear(leader, reply)

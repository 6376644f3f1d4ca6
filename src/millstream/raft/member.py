"""The state of a replica that does not depend on its role, and the effects of one input.

Owns the vote, the high watermark, the durable position and the effects.

Invariant: the log is written first and the replica's own state changed after it, so a disk that
refuses leaves both as they were.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct, field

from millstream.boundaries import may_campaign
from millstream.errors import StorageError
from millstream.model import Epoch, HardState, Offset, Position, ReplicaId
from millstream.raft.log_view import LogView
from millstream.raft.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Lengths of time, in ticks of the driver. Replicas need not tick at the same rate."""

    election_ticks: int = 10  # Silence that makes followers elect and leaders resign.
    heartbeat_ticks: int = 2  # How long a leader lets a fetch wait for news.

    def __post_init__(self) -> None:
        assert self.heartbeat_ticks >= 1
        assert self.retry_ticks < self.election_ticks

    @property
    def retry_ticks(self) -> int:
        """Silence after which a message counts as lost and is sent again."""
        return 2 * self.heartbeat_ticks


class Effects(Struct):
    """The effects of an input, which the driver applies in this order.

    1. If `hard_state` is set, make it durable. It is in the log view already (`LogView.vote`), in
       front of what the same input wrote of that epoch.
    2. Then send `messages`. They wait for every hard state handed out so far, also by earlier
       inputs: a message must not overtake the vote that it rests on. They need not wait for
       records, because whatever they promise of the log is durable.
    3. If the log's `last` is beyond what is durable, sync it and report by `Core.durable`.
    4. If `unreadable` is set, this log cannot be read for a follower: decide whether to lead on.
    """

    hard_state: HardState | None = None
    messages: list[tuple[ReplicaId, Message]] = field(default_factory=list)
    # Why a follower was not answered. The input itself has been applied.
    unreadable: StorageError | None = None


class Member:
    """One replica of one group: its log, its vote, its watermark."""

    def __init__(self, me: ReplicaId, log: LogView, hard_state: HardState) -> None:
        assert log.last.epoch <= hard_state.epoch, "an epoch was opened before it was entered"
        self.me = me
        self.log = log
        self.hard_state = hard_state
        # Below the log start everything was committed; above it nothing is known after a restart.
        self.high_watermark: Offset = log.start_offset
        self.durable_position: Position = log.last
        self._effects = Effects()

    @property
    def epoch(self) -> Epoch:
        return self.hard_state.epoch

    @property
    def is_voter(self) -> bool:
        return self.me in self.log.voters

    @property
    def is_electable(self) -> bool:
        """Voters are, and replicas whose removal may not be committed."""
        return self.is_voter or may_campaign(self.log.boundaries, self.me, self.high_watermark)

    @property
    def is_durable(self) -> bool:
        """Whether the whole log would survive a power cut."""
        return self.durable_position == self.log.last

    @property
    def start_offset_max(self) -> Offset:
        return min(self.high_watermark, self.durable_position.end_offset)

    def enter(self, epoch: Epoch, *, voted_for: ReplicaId | None) -> None:
        """Enter `epoch`, or vote in it. Never goes back and never votes twice."""
        hard_state = HardState(epoch, voted_for)
        assert epoch > self.epoch or (epoch == self.epoch and self.hard_state.voted_for is None)
        self.log.vote(hard_state)
        self.hard_state = hard_state
        self._effects.hard_state = hard_state

    def commit(self, high_watermark: Offset) -> bool:
        """Raise the high watermark if this is higher; say whether it was."""
        assert high_watermark <= self.log.last.end_offset
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        return True

    def send(self, to: ReplicaId, message: Message) -> None:
        assert to != self.me
        self._effects.messages.append((to, message))

    def note_unreadable(self, problem: StorageError) -> None:
        self._effects.unreadable = problem

    def send_all(self, nodes: Iterable[ReplicaId], message: Message) -> None:
        """Send to each of these nodes but this one. Sorted, so that one seed is one history."""
        for node in sorted(nodes):
            if node != self.me:
                self.send(node, message)

    def flush(self) -> Effects:
        effects, self._effects = self._effects, Effects()
        return effects

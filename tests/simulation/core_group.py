"""Replicas of one group on fake logs, driven as `raft.Effects` demands, without chance or clock.

Owns the driver: what an input's effects lead to, what waits for which sync, who may be told that a
record is safe. Subclasses say when messages arrive and syncs end: `core_simulator` by a seed,
`core_script` by a script. Every input ends with the invariants.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from millstream.errors import StorageError
from millstream.model import Offset, ReplicaId
from millstream.raft import Core, Effects, Message, Role, Timing
from millstream.raft.messages import Diverged, FetchReply, Reset
from tests.simulation.core_invariants import Witness, invariants
from tests.simulation.core_log import Batch, FakeLog, Mark


@dataclass
class Node:
    """A machine with one replica. `core` is None while it is down."""

    me: ReplicaId
    log: FakeLog
    core: Core | None = None
    life: int = 0
    gate: int = 0  # The journal entry that messages wait for.
    push_channel: deque[tuple[int, ReplicaId, Message]] = field(default_factory=deque)
    unanswered: list[Batch] = field(default_factory=list)  # Proposed here, not acknowledged yet.
    cuts_seen: int = 0
    is_syncing: bool = False

    @property
    def is_leader(self) -> bool:
        return self.core is not None and self.core.role is Role.LEADER


class Group:
    """All nodes that may ever hold a replica, founders or not."""

    def __init__(
        self,
        nodes: Iterable[int],
        founders: Iterable[int],
        *,
        random: Random,
        timing: Timing,
        read_items_max: int = 8,
    ) -> None:
        voters = frozenset(map(ReplicaId, founders))
        self.random = random
        self.timing = timing
        self.nodes = {
            ReplicaId(me): Node(ReplicaId(me), FakeLog(voters, read_items_max=read_items_max))
            for me in nodes
        }
        self.seen: Counter[str] = Counter()  # How often the rare cases really happened.
        self.witness = Witness()
        self.invariants = invariants()
        self.end_offset_max: Offset = 0  # How far records were ever proposed.
        self._proposed = 0

    # -- to be said by subclasses ------------------------------------------------------------------

    def transmit(self, sender: ReplicaId, to: ReplicaId, message: Message) -> None:
        raise NotImplementedError

    def sync_wanted(self, node: Node, mark: Mark) -> None:
        """Arrange that `sync_ended` is called with this mark when the disk is done."""
        raise NotImplementedError

    # -- lives -------------------------------------------------------------------------------------

    def start(self, me: ReplicaId) -> None:
        node = self.nodes[me]
        assert node.core is None
        node.life += 1
        node.gate = 0
        node.core = Core(me, node.log, node.log.hard_state, self.random, timing=self.timing)  # type: ignore[arg-type]
        self.seen["starts"] += 1
        self.check(node)

    def crash(self, me: ReplicaId, *, random: Random | None) -> None:
        """Cut the power; None for a disk that loses all it may lose."""
        node = self.nodes[me]
        node.core = None
        node.is_syncing = False
        node.push_channel.clear()
        node.unanswered.clear()
        node.log.crash(random)
        self.check(node)

    # -- inputs ------------------------------------------------------------------------------------

    def tick(self, me: ReplicaId) -> None:
        self._input(me, Core.tick)

    def deliver(self, sender: ReplicaId, to: ReplicaId, message: Message) -> None:
        node = self.nodes[to]
        if node.core is not None:
            self._count(node, message)
            self._input(to, lambda core: core.step(sender, message))

    def propose(self, me: ReplicaId, *, records: int = 1, payload: str | None = None) -> Batch:
        node = self.nodes[me]
        core = node.core
        assert core is not None
        self._proposed += 1
        base = node.log.last.end_offset
        batch = Batch(base, base + records, core.epoch, payload or f"r{self._proposed}")
        self.end_offset_max = max(self.end_offset_max, batch.end_offset)
        refused = self._input(me, lambda core: core.propose((batch,)))
        if not refused:
            node.unanswered.append(batch)
        return batch

    def retain(self, me: ReplicaId, start_offset: Offset) -> None:
        """What a leader's retention does: move the log start up."""
        node = self.nodes[me]
        assert node.core is not None
        assert start_offset <= node.core.start_offset_max
        if start_offset > node.log.start_offset and not node.log.is_full:
            node.log.advance_start(start_offset)
            self.witness.deleted_to = max(self.witness.deleted_to, start_offset)
            self.seen["log starts moved"] += 1
            self.carry_out(node, Effects())
            self.check(node)

    def request(self, me: ReplicaId, act: Callable[[Core], Effects]) -> None:
        """Ask a node for something that it may refuse by an exception."""
        self._input(me, act)

    def sync_ended(self, node: Node, life: int, mark: Mark) -> None:
        if node.life != life or node.core is None:
            return
        node.is_syncing = False
        durable = node.log.end_sync(mark)
        if durable is None:
            self.seen["syncs that proved nothing"] += 1
            self.carry_out(node, Effects())
        else:
            self._input(node.me, lambda core: core.durable(durable))

    # -- effects -----------------------------------------------------------------------------------

    def carry_out(self, node: Node, effects: Effects) -> None:
        if effects.hard_state is not None:
            node.gate = node.log.journal_number
        node.push_channel.extend((node.gate, to, message) for to, message in effects.messages)
        self._release(node)
        # Rule 3 of `Effects`: a cut that the disk refused lowers what counts as durable, though
        # nothing was written; only a sync proves it again.
        is_unproven = node.core is not None and node.core.durable_position < node.log.last
        if (node.log.is_dirty or is_unproven) and not node.is_syncing:
            node.is_syncing = True
            self.sync_wanted(node, node.log.begin_sync())

    def check(self, node: Node) -> None:
        for invariant in self.invariants:
            invariant.check(self, node)

    def _input(self, me: ReplicaId, act: Callable[[Core], Effects]) -> bool:
        """Give a node an input. True if its disk refused it."""
        node = self.nodes[me]
        assert node.core is not None
        effects, refused = Effects(), False
        try:
            effects = act(node.core)
        except StorageError:
            refused = True
            self.seen["inputs a full disk refused"] += 1
        self.carry_out(node, effects)
        self._answer_producers(node)
        self.check(node)
        return refused

    def _release(self, node: Node) -> None:
        """Send what no longer waits for a vote to be durable, in order."""
        while node.push_channel and node.push_channel[0][0] <= node.log.journal_number_synced:
            _, to, message = node.push_channel.popleft()
            self.transmit(node.me, to, message)

    def _answer_producers(self, node: Node) -> None:
        """A record is safe once the high watermark passed it where it was proposed, unless it was
        cut off before: then its fate is unknown here, also when a reset moves the watermark past
        it. Whether the node still leads does not matter."""
        if not node.unanswered or node.core is None:
            return
        if node.cuts_seen != node.log.cuts:
            held = set(node.log.records.batches)
            node.unanswered = [batch for batch in node.unanswered if batch in held]
        node.cuts_seen = node.log.cuts
        watermark = node.core.high_watermark
        safe = [batch for batch in node.unanswered if batch.end_offset <= watermark]
        self.witness.acknowledged += safe
        node.unanswered = [batch for batch in node.unanswered if batch.end_offset > watermark]

    def _count(self, node: Node, message: Message) -> None:
        if not isinstance(message, FetchReply | Diverged | Reset):
            return
        if message.base != node.log.last or (node.core and message.epoch < node.core.epoch):
            self.seen["stale replies"] += 1
        elif isinstance(message, Reset):
            self.seen["resets"] += 1
        elif isinstance(message, Diverged):
            is_records = message.end.end_offset < node.log.last.end_offset
            self.seen["divergences" if is_records else "divergences in boundaries only"] += 1

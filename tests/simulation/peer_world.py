"""Nodes of the peer simulator: streams that break, disks that forget, replicas on peer links.

The rules under test are the real ones: `millstream.raft` and `millstream.replication.peering`. A
peer link is two FIFO streams. It ends for each side on its own: by EOF, by a newer greeting, or by
silence; what is in flight is lost.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.model import LogId, NodeId, ReplicaId, replica_id
from millstream.raft import Core, Effects, Message, Role, Timing
from millstream.raft.tracker import is_majority
from millstream.replication.peering.group import GroupLinks
from millstream.replication.peering.links import PeerLinks
from tests.simulation.core_log import Batch, FakeLog, Mark

if TYPE_CHECKING:
    from tests.simulation.peer_simulator import World

TICK_MS, HEARTBEAT_MS, ELECTION_MS = 50, 100, 1_000
END = object()  # The end of a stream.
LOGS = (LogId(UUID(int=1), 0), LogId(UUID(int=2), 0))
INCARNATIONS = dict(zip(LOGS, (0, 41), strict=True))  # One group of today's data, one of tomorrow.


class Violation(AssertionError):
    """An invariant does not hold. The message begins with its name."""


def id_of(log: LogId, node: NodeId) -> ReplicaId:
    return replica_id(node, INCARNATIONS[log])


class Stream:
    """One direction of a peer link. Keeps order; loses only what is in flight when it breaks."""

    def __init__(self, world: "World", wire: "Wire", source: NodeId, target: NodeId) -> None:
        self.world, self.wire, self.source, self.target = world, wire, source, target
        self._queue: deque[Any] = deque()
        self._next_ms = 0.0
        self.is_dead = False

    def send(self, item: Any) -> None:
        if self.is_dead:
            return
        world = self.world
        self._queue.append(item)
        latency = world.random.uniform(0.2, world.latency_ms)
        self._next_ms = max(self._next_ms, world.now + latency)
        world.at(self._next_ms, self._deliver)

    def die(self) -> None:
        self.is_dead = True
        self._queue.clear()

    def _deliver(self) -> None:
        if not self._queue:
            return
        world, node = self.world, self.world.nodes[self.target]
        wait_until = max(world.blocked.get((self.source, self.target), 0), node.frozen_until)
        if not self.wire.has_begun[self.target]:
            wait_until = max(wait_until, world.now + 1)
        if wait_until > world.now:
            world.at(wait_until, self._deliver)
            return
        item = self._queue.popleft()
        if node.wires.get(self.source) is not self.wire:
            return
        if item is END:
            node.end_link(self.source, "eof")
        else:
            node.links.receive(self.source, item, int(world.now))
            node.links.flush()


class Wire:
    """The two streams of a link."""

    def __init__(self, world: "World", number: int, a: NodeId, b: NodeId) -> None:
        self.number = number
        self.streams = {(a, b): Stream(world, self, a, b), (b, a): Stream(world, self, b, a)}
        self.has_begun = {a: False, b: False}


class Replica:
    """Drives one core as `raft.Effects` demands, and tells the world of all that it does."""

    def __init__(self, node: "Node", log_id: LogId, log: FakeLog) -> None:
        self.node, self.world, self.log_id, self.log = node, node.world, log_id, log
        world = self.world
        me = id_of(log_id, node.id)
        timing = Timing(election_ticks=ELECTION_MS // TICK_MS)
        self.core = Core(me, log, log.hard_state, Random(world.random.random()), timing=timing)  # type: ignore[arg-type]
        self.is_gone = False
        self.lonely_ticks = 0  # While leading without a majority of peer links.
        self.questions: list[float] = []
        self.held: deque[tuple[int, ReplicaId, Any]] = deque()
        self._gate = 0
        self._is_syncing = False
        self.links = GroupLinks(
            log_id,
            self.core,
            node.links,
            self,
            Random(world.random.random()),
            placement=lambda: [id_of(log_id, n) for n in world.placement(log_id)],
            last=lambda: log.last,
            now_ms=lambda: int(world.now),
        )

    # -- replication.peering.group.Driver ---------------------------------------------------------

    def drive(self, act: Callable[[], Effects]) -> None:
        effects = act()
        self.links.stepped()
        if effects.hard_state is not None:
            self._gate = self.log.journal_number
        for to, message in effects.messages:
            self.post(to, message)
        self._sync()
        self.links.observe()
        self.world.check(self)

    def post(self, to: ReplicaId, message: Message) -> None:
        if self._gate > self.log.journal_number_synced:
            self.held.append((self._gate, to, message))
        else:
            self.links.transmit(to, message)

    def woke(self) -> None:
        return  # Ticks are counted for all, and quiesced replicas skip them.

    # -- the rest ----------------------------------------------------------------------------------

    def hold(self, to: ReplicaId, item: Any) -> None:
        """Only for canaries."""
        self.held.append((self._gate, to, item))

    def propose(self, payload: str) -> None:
        base = self.log.last.end_offset
        batch = Batch(base, base + 1, self.core.epoch, payload)
        self.drive(lambda: self.core.propose((batch,)))

    def ask(self) -> None:
        """A confirmed read: what it answers must not be older than what was committed by now."""
        world, core = self.world, self.core
        committed, epoch = len(world.committed[self.log_id]), core.epoch

        def answer(is_confirmed: bool) -> None:
            world.counts["confirmed" if is_confirmed else "unconfirmed"] += 1
            if is_confirmed and core.high_watermark < committed:
                raise Violation(
                    f"ConfirmedIsCurrent: {self} epoch {epoch} answered {core.high_watermark}, "
                    f"{committed} were committed when the question came"
                )

        self.links.ask(answer)
        self.node.links.flush()

    def tick(self) -> None:
        self._check_majority_of_links()
        self.links.tick()

    def close(self) -> None:
        """Closed and opened again under a living node."""
        self.links.close()
        self.is_gone = True
        self.log.crash(self.world.random)

    def __str__(self) -> str:
        return f"n{self.node.id} {LOGS.index(self.log_id)}"

    def _sync(self) -> None:
        is_unproven = self.core.durable_position < self.log.last
        if self._is_syncing or not (self.log.is_dirty or is_unproven):
            return
        self._is_syncing = True
        disk_ms = self.world.random.uniform(0.1, self.node.disk_ms)
        mark = self.log.begin_sync()
        self.world.at(self.world.now + disk_ms, self._end_sync, self.node.instance, mark)

    def _end_sync(self, instance: int, mark: Mark) -> None:
        if self.is_gone or self.node.instance != instance or not self.node.is_alive:
            return
        self._is_syncing = False
        durable = self.log.end_sync(mark)
        while self.held and self.held[0][0] <= self.log.journal_number_synced:
            _, to, item = self.held.popleft()
            if callable(item):
                item()
            else:
                self.links.transmit(to, item)
        if durable is None:
            self._sync()
        else:
            self.drive(lambda: self.core.durable(durable))
        self.node.links.flush()

    def _check_majority_of_links(self) -> None:
        core = self.core
        near = {voter for voter in core.voters if self.node.links.reaches(voter)}
        if core.role is not Role.LEADER or is_majority(near, core.voters):
            self.lonely_ticks = 0
            return
        self.lonely_ticks += 1
        if self.lonely_ticks > 2 * ELECTION_MS // TICK_MS:
            raise Violation(f"CutOffLeaderResigns: {self}")


class Node:
    """One process: peer links, heartbeats, replicas."""

    def __init__(self, world: "World", node_id: NodeId) -> None:
        self.world, self.id = world, node_id
        self.instance = 0
        self.is_alive = False
        self.frozen_until = 0.0
        self.disk_ms = 3.0
        self.speed = 1.0
        self.logs = {log: FakeLog(world.founders(log), read_items_max=3) for log in LOGS}
        self.replicas: dict[LogId, Replica] = {}
        self.groups: dict[LogId, GroupLinks] = {}
        self.wires: dict[NodeId, Wire] = {}
        self.links: PeerLinks

    def start(self) -> None:
        world = self.world
        self.instance += 1
        self.is_alive = True
        self.wires, self.replicas, self.groups = {}, {}, {}
        self.links = PeerLinks(self.id, self.groups, self.send, silence_ms_max=ELECTION_MS)
        for log_id in self.logs:
            self._open(log_id)
        world.at(world.now + TICK_MS * world.random.random(), self._on_tick, self.instance)
        world.at(world.now + HEARTBEAT_MS * world.random.random(), self._on_beat, self.instance)

    def send(self, peer: NodeId, message: Any) -> None:
        self.wires[peer].streams[self.id, peer].send(message)

    def reopen(self, log_id: LogId) -> None:
        self.replicas[log_id].close()
        self._open(log_id)

    def _open(self, log_id: LogId) -> None:
        self.replicas[log_id] = replica = Replica(self, log_id, self.logs[log_id])
        self.groups[log_id] = replica.links

    def crash(self, *, is_silent: bool) -> None:
        self.is_alive = False
        for peer, wire in self.wires.items():
            wire.streams[peer, self.id].die()
            out = wire.streams[self.id, peer]
            if is_silent or self.world.random.random() < 0.5:
                out.die()
            if not is_silent:
                self._end_stream(peer, wire)
        for replica in self.replicas.values():
            replica.is_gone = True
        for log in self.logs.values():
            log.crash(self.world.random)
        self.wires, self.replicas = {}, {}
        self.groups.clear()
        self.links.links.clear()

    def begin_link(self, peer: NodeId, wire: Wire) -> None:
        if not self.is_alive or wire.streams[self.id, peer].is_dead:
            return
        if peer in self.wires:
            self.end_link(peer, "a newer link")
        wire.has_begun[self.id] = True
        self.wires[peer] = wire
        self.world.log(f"n{self.id} link {wire.number} to n{peer} begins")
        self.links.begin(peer, int(self.world.now))

    def end_link(self, peer: NodeId, why: str) -> None:
        wire = self.wires.pop(peer)
        self.world.log(f"n{self.id} link {wire.number} to n{peer} ends: {why}")
        wire.streams[peer, self.id].die()
        if self.world.random.random() < 0.5:
            wire.streams[self.id, peer].die()
        if why != "a newer link":
            self._end_stream(peer, wire)
        self.links.end(peer)

    def _end_stream(self, peer: NodeId, wire: Wire) -> None:
        """The peer hears of the end: behind what is in flight, or instead of it."""
        out = wire.streams[self.id, peer]
        if not out.is_dead:
            out.send(END)
            return
        other = self.world.nodes[peer]
        if self.world.blocked.get((self.id, peer), 0) > self.world.now:
            return  # Nor does a reset get through: the peer will notice the silence.

        def arrive() -> None:
            if other.is_alive and other.wires.get(self.id) is wire:
                other.end_link(self.id, "reset")

        self.world.at(self.world.now + self.world.random.uniform(0.2, 5), arrive)

    # -- time --------------------------------------------------------------------------------------

    def _on_tick(self, instance: int) -> None:
        if not self._runs(instance, self._on_tick):
            return
        for replica in list(self.replicas.values()):
            replica.tick()
        self.links.flush()
        self.world.at(self.world.now + TICK_MS * self.speed, self._on_tick, instance)

    def _on_beat(self, instance: int) -> None:
        if not self._runs(instance, self._on_beat):
            return
        for peer in self.links.tick(int(self.world.now)):
            self.end_link(peer, "silence")
        self.world.at(self.world.now + HEARTBEAT_MS * self.speed, self._on_beat, instance)

    def _runs(self, instance: int, again: Callable[[int], None]) -> bool:
        if instance != self.instance or not self.is_alive:
            return False
        if self.frozen_until > self.world.now:
            self.world.at(self.frozen_until, again, instance)
            return False
        return True

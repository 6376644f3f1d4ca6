"""Random lives of nodes with peer links, quiescence and confirmed reads, from one seed.

    python -m tests.simulation.peer_simulator --seed 7               # one life again
    python -m tests.simulation.peer_simulator --seed 0 --count 400   # many, with a summary
    python -m tests.simulation.peer_simulator --seed 0 --count 400 --bug NAME

A life is a schedule of faults, then peace, in which liveness is checked: one leader, all in step,
all quiesced; a link reset for 200 ms changes no epoch; a stall of 800 ms wakes no replica; a dead
leader of quiesced groups is replaced; a dead node keeps no replica awake.
"""

import argparse
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from millstream.errors import ChangeRefused
from millstream.model import Epoch, LogId, NodeId, ReplicaId
from millstream.raft import Role
from tests.simulation.core_log import Batch
from tests.simulation.peer_canaries import planted
from tests.simulation.peer_faults import FAULTS, usurp_again
from tests.simulation.peer_world import LOGS, Node, Replica, Violation, Wire, id_of

START_MS, CHAOS_MS = 2_500, 12_000


class SimulationFailed(AssertionError):
    """A life went wrong. The message says how to see it again."""


class World:
    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.random = Random(f"world {seed}")
        plan = Random(f"plan {seed}")
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self.trace: list[str] = []
        self._keeps_trace = keeps_trace
        self.counts: Counter[str] = Counter()
        size = plan.choice((3, 3, 3, 4, 5))
        self.node_ids = [NodeId(n) for n in range(1, size + 1)]
        self.changes_voters = size == 4  # Three founders and one that comes and goes.
        self.latency_ms = plan.choice((1, 5, 40))
        self.blocked: dict[tuple[NodeId, NodeId], float] = {}  # Nothing arrives before then.
        self.mute: dict[tuple[NodeId, LogId], float] = {}  # It takes no writes until then.
        self.committed: dict[LogId, list[Batch]] = defaultdict(list)
        self.leaders: dict[tuple[LogId, Epoch], NodeId] = {}
        self.newest: dict[LogId, Epoch] = defaultdict(lambda: Epoch(0))
        self.failover: tuple[float, bool] | None = None
        self._links = 0
        self._payloads = 0
        self._schedule = _draw(plan)
        self.nodes = {n: Node(self, n) for n in self.node_ids}
        for node in self.nodes.values():
            node.speed = plan.uniform(0.95, 1.05)
            node.start()

    # -- time --------------------------------------------------------------------------------------

    def at(self, when: float, act: Callable[..., None], *args: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, act, args))

    def run_until(self, when: float) -> None:
        while self._events and self._events[0][0] <= when:
            self.now, _, act, args = heapq.heappop(self._events)
            act(*args)
        self.now = when

    def log(self, text: str) -> None:
        if self._keeps_trace:
            self.trace.append(f"{self.now:9.1f}  {text}")

    # -- network -----------------------------------------------------------------------------------

    def _dial(self) -> None:
        for a in self.node_ids:
            for b in self.node_ids:
                if a < b:
                    self._dial_pair(self.nodes[a], self.nodes[b])
        self.at(self.now + self.random.uniform(10, 40), self._dial)

    def _dial_pair(self, a: Node, b: Node) -> None:
        if not (a.is_alive and b.is_alive) or max(a.frozen_until, b.frozen_until) > self.now:
            return
        pairs = (a.id, b.id), (b.id, a.id)
        if any(self.blocked.get(pair, 0) > self.now for pair in pairs):
            return
        if b.id in a.wires and a.id in b.wires:
            return
        self._links += 1
        wire = Wire(self, self._links, a.id, b.id)
        for node, peer in ((a, b), (b, a)):
            self.at(self.now + self.random.uniform(0.2, 5), node.begin_link, peer.id, wire)

    def block(self, a: NodeId, b: NodeId, ms: float) -> None:
        self.blocked[a, b] = max(self.blocked.get((a, b), 0), self.now + ms)

    def reset(self, a: NodeId, b: NodeId) -> None:
        for node, peer in ((self.nodes[a], b), (self.nodes[b], a)):
            if node.is_alive and peer in node.wires:
                node.end_link(peer, "reset")

    def placement(self, log_id: LogId) -> list[NodeId]:
        shift = LOGS.index(log_id) % len(self.node_ids)
        return self.node_ids[shift:] + self.node_ids[:shift]

    def founders(self, log_id: LogId) -> frozenset[ReplicaId]:
        nodes = self.node_ids[:3] if self.changes_voters else self.node_ids
        return frozenset(id_of(log_id, node) for node in nodes)

    # -- what must hold ----------------------------------------------------------------------------

    def check(self, replica: Replica) -> None:
        core, log_id = replica.core, replica.log_id
        if core.role is Role.LEADER:
            leader = self.leaders.setdefault((log_id, core.epoch), replica.node.id)
            if leader != replica.node.id:
                raise Violation(f"OneLeaderPerEpoch: {core.epoch}, n{leader} and {replica}")
            self.newest[log_id] = max(self.newest[log_id], core.epoch)
        committed, watermark = self.committed[log_id], core.high_watermark
        batches = replica.log.records.batches
        if watermark > len(committed):
            committed.extend(batches[len(committed) : watermark])
            self.log(f"{replica} epoch {core.epoch} committed {watermark}")
        if core.is_established:
            if list(batches[:watermark]) != committed[:watermark]:
                raise Violation(f"NothingCommittedIsLost: {replica}")
            if core.epoch == self.newest[log_id] and watermark < len(committed):
                raise Violation(f"EstablishedSeesAll: {replica}")

    def replicas(self, log_id: LogId) -> list[Replica]:
        return [node.replicas[log_id] for node in self.nodes.values() if node.is_alive]

    def leader_of(self, log_id: LogId) -> Replica | None:
        leaders = [r for r in self.replicas(log_id) if r.core.role is Role.LEADER]
        return max(leaders, key=lambda r: r.core.epoch, default=None)

    def led(self, log_id: LogId) -> Replica:
        leader = self.leader_of(log_id)
        if leader is None:
            raise Violation(f"OneLeaderInPeace: group {LOGS.index(log_id)} has none")
        return leader

    def payload(self) -> str:
        self._payloads += 1
        return f"r{self._payloads}"

    # -- a life ------------------------------------------------------------------------------------

    def live(self) -> None:
        self._dial()
        self.run_until(START_MS)
        for when, kind, dice in self._schedule:
            self.at(when, self._fault, kind, dice)
        self.at(self.now, self._load)
        self.run_until(START_MS + CHAOS_MS)
        self._peace()

    def _load(self) -> None:
        """Writes and reads at every replica that believes to lead, also at stale ones."""
        if self.now >= START_MS + CHAOS_MS:
            return
        for log_id in LOGS:
            for replica in self.replicas(log_id):
                if replica.node.frozen_until > self.now:
                    continue
                is_mute = self.mute.get((replica.node.id, log_id), 0) > self.now
                if replica.core.takes_proposals and not is_mute and self.random.random() < 0.3:
                    replica.propose(self.payload())
                if self.random.random() < 0.7:
                    replica.ask()
        pause = self.random.choice((5, 20, 20, 100, 1_500))  # Long enough to quiesce.
        self.at(self.now + pause, self._load)

    def _fault(self, kind: str, dice: float) -> None:
        random = Random(dice)
        log_id = random.choice(LOGS)
        leader = self.leader_of(log_id)
        a = leader.node.id if leader is not None and random.random() < 0.6 else None
        a = random.choice(self.node_ids) if a is None else a
        b = random.choice([n for n in self.node_ids if n != a])
        self.log(f"fault {kind} n{a} n{b} group {LOGS.index(log_id)}")
        self.counts["faults"] += 1
        FAULTS[kind](self, random, self.nodes[a], self.nodes[b], log_id)

    def restart(self, node_id: NodeId) -> None:
        if not self.nodes[node_id].is_alive:
            self.nodes[node_id].start()

    def usurp_again(self, random: Random, log_id: LogId) -> None:
        usurp_again(self, random, log_id)

    def request(self, replica: Replica, act: Callable[[], Any]) -> None:
        try:
            replica.drive(act)
        except ChangeRefused:
            self.counts["refused"] += 1

    # -- peace -------------------------------------------------------------------------------------

    def _peace(self) -> None:
        self.log("peace")
        self.blocked.clear()
        for node in self.nodes.values():
            node.disk_ms = 3.0
            node.frozen_until = min(node.frozen_until, self.now)
            self.restart(node.id)
        self.run_until(self.now + 14_000)
        self._must_be_calm("after peace")
        epochs = self._epochs()
        for log_id in LOGS:  # One record: no replica may sleep through it.
            self.led(log_id).propose("peace")
        self.run_until(self.now + 3_000)
        self._must_be_calm("after one more record")
        self._blips(epochs)
        self._kill()

    def _blips(self, epochs: list[Epoch]) -> None:
        leader = self.led(LOGS[0]).node.id
        peer = self.random.choice([n for n in self.node_ids if n != leader])
        self.reset(leader, peer)
        self.block(leader, peer, 200)
        self.block(peer, leader, 200)
        self.run_until(self.now + 3_000)
        if self._epochs() != epochs:
            raise Violation("BlipIsNoElection: a reset link, redialled after 200 ms")
        self._must_be_calm("after a reset link")
        for peer in self.node_ids:
            self.block(leader, peer, 800)
            self.block(peer, leader, 800)
        self.run_until(self.now + 500)
        if not all(r.links.is_quiesced for log_id in LOGS for r in self.replicas(log_id)):
            raise Violation("StallWakesNoReplica: 800 ms without a byte")
        self.run_until(self.now + 2_500)
        if self._epochs() != epochs:
            raise Violation("BlipIsNoElection: a stall of 800 ms")
        self._must_be_calm("after a stall")

    def _kill(self) -> None:
        victim = self.led(LOGS[0]).node
        waiting = {log_id for log_id in LOGS if self.led(log_id).node is victim}
        is_silent = self.random.random() < 0.5
        if any(len(self.led(log_id).core.voters) < 3 for log_id in LOGS):
            return  # Two voters do not survive the loss of one.
        began = self.now
        victim.crash(is_silent=is_silent)
        took = 0.0
        while waiting and self.now < began + 8_000:
            self.run_until(self.now + 20)
            for log_id in sorted(waiting):
                leader = self.leader_of(log_id)
                if leader is not None and leader.core.is_established:
                    waiting.discard(log_id)
                    took = self.now - began
        if waiting:
            raise Violation(f"DeadLeaderIsReplaced: {len(waiting)} groups were not in 8 s")
        self.failover = took, is_silent
        self.run_until(self.now + 4_000)
        self._must_be_calm("with a dead node")
        victim.start()
        self.run_until(self.now + 5_000)
        self._must_be_calm("after it came back")

    def _epochs(self) -> list[Epoch]:
        return [max(r.core.epoch for r in self.replicas(log_id)) for log_id in LOGS]

    def _must_be_calm(self, when: str) -> None:
        """One established leader, all in step, all quiesced."""
        for log_id in LOGS:
            replicas = self.replicas(log_id)
            leaders = [r for r in replicas if r.core.role is Role.LEADER]
            state = "\n".join(map(_describe, replicas))
            if len(leaders) != 1 or not leaders[0].core.is_established:
                raise Violation(f"OneLeaderInPeace: {when}\n{state}")
            leader = leaders[0]
            place = leader.log.last, leader.core.high_watermark
            if any((r.log.last, r.core.high_watermark) != place for r in replicas):
                raise Violation(f"InStepInPeace: {when}\n{state}")
            voters = [r for r in replicas if r.core.me in leader.core.voters]
            if not all(r.links.is_quiesced for r in voters):
                raise Violation(f"QuiescedInPeace: {when}\n{state}")


def _describe(replica: Replica) -> str:
    core = replica.core
    return (
        f"    {replica} {core.role.value} epoch {core.epoch} {tuple(replica.log.last)} "
        f"watermark {core.high_watermark} leader {core.leader} "
        f"{'quiesced' if replica.links.is_quiesced else 'awake'}"
    )


def _draw(plan: Random) -> list[tuple[float, str, float]]:
    """The faults of a life; a swarm: each life knows some kinds only."""
    names = [name for name in sorted(FAULTS) for _ in range(FREQUENCIES.get(name, 1))]
    kinds = [kind for kind in names if plan.random() < 0.7] or names
    pace = plan.choice((60, 200, 200, 600))
    if plan.random() < 0.3:
        kinds, pace = ["usurp", "usurp_twice"], 1_500
    schedule: list[tuple[float, str, float]] = []
    when = float(START_MS)
    while (when := when + plan.expovariate(1 / pace)) < START_MS + CHAOS_MS - 500:
        schedule.append((when, plan.choice(kinds), plan.random()))
    return schedule


FREQUENCIES = {
    "reset": 2, "stall": 3, "flip": 2, "slow_disk": 2, "lose_patience": 2, "change_voters": 2,
    "usurp": 3, "usurp_twice": 2,
}  # fmt: skip


def simulate(seed: int, *, bug: str | None = None, keeps_trace: bool = False) -> World:
    """Live one life; raise `SimulationFailed` with the command that lives it again."""
    with planted(bug):
        world = World(seed, keeps_trace=keeps_trace)
        try:
            world.live()
        except AssertionError as problem:
            flag = f" --bug {bug}" if bug else ""
            command = f"python -m tests.simulation.peer_simulator --seed {seed}{flag}"
            story = "\n".join([*world.trace[-120:], f"seed {seed}: {problem}"])
            raise SimulationFailed(f"{story}\nagain: {command}") from problem
    return world


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--bug")
    options = parser.parse_args()
    totals: Counter[str] = Counter()
    failovers: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(options.seed, options.seed + options.count):
        world = simulate(seed, bug=options.bug, keeps_trace=options.count == 1)
        totals.update(world.counts)
        totals["epochs led"] += len(world.leaders)
        totals["records"] += sum(map(len, world.committed.values()))
        totals["lives"] += 1
        if world.failover is not None:
            failovers[world.failover[1]].append(world.failover[0])
    print("\n".join(f"{count:9,} {name}" for name, count in sorted(totals.items())))
    for is_silent, times in failovers.items():
        if times:
            times.sort()
            p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
            after = "silence" if is_silent else "EOF"
            print(f"failover after {after}: n={len(times)} p50 {p50:.0f} ms, p99 {p99:.0f} ms")


if __name__ == "__main__":
    main()

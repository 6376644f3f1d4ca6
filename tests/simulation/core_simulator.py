"""Whole lives of a group in one thread, every fault from one seed.

    python -m tests.simulation.core_simulator --seed 417             # one life again
    python -m tests.simulation.core_simulator --seed 0 --count 1000  # many, with a summary
    python -m tests.simulation.core_simulator --seed 0 --count 1000 --bug NAME

Swarm testing: each seed draws its own mix of faults, so that each life is extreme in its own way
and none is average in all. After the trouble comes a quiet time, in which everything acknowledged
must become visible without a write, elections must move no offset, and the group must go on.
"""

import argparse
import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from millstream.errors import ChangeRefused
from millstream.model import Offset, ReplicaId
from millstream.raft import Message, Timing
from tests.simulation.canaries import planted
from tests.simulation.core_faults import CHORES, FAULTS, crash_all
from tests.simulation.core_group import Group, Node
from tests.simulation.core_log import Mark

TROUBLE_UNTIL = 8_000  # In units of time; a node's clock ticks every ten or so.
EVENTS_MAX = 60_000


class SimulationFailed(AssertionError):
    """A life went wrong. The message says how to see it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How one life is extreme."""

    nodes: int
    founders: int
    loss: float
    repeats: float
    delay_max: int
    sync_max: int
    trouble_every: int
    chores_every: int
    write_every: int
    batch_records_max: int
    read_items_max: int
    election_ticks: int
    tick_lengths: tuple[int, int]
    hates_leaders: bool
    faults: tuple[str, ...]
    chores: tuple[str, ...]

    @staticmethod
    def draw(random: Random) -> "Mix":
        nodes = random.choice([1, 2, 3, 3, 3, 4, 5, 5])
        election_ticks = random.choice([4, 6, 10])
        return Mix(
            nodes=nodes,
            founders=random.choice([nodes, nodes, random.randint(1, nodes)]),
            loss=random.choice([0, 0, 0.05, 0.2]),
            repeats=random.choice([0, 0.02, 0.2]),
            delay_max=random.choice([3, 10, 3 * election_ticks]),
            sync_max=random.choice([2, 15, 10 * election_ticks]),
            trouble_every=random.choice([80, 250, 600]),
            chores_every=random.choice([50, 150, 600]),
            write_every=random.choice([30, 60, 300, 1500]),
            batch_records_max=random.choice([1, 3]),
            read_items_max=random.choice([1, 2, 8]),
            election_ticks=election_ticks,
            tick_lengths=random.choice([(10, 10), (8, 12), (5, 20)]),
            hates_leaders=random.choice([False, True]),
            faults=_some(random, FAULTS),
            chores=_some(random, CHORES),
        )


def _some(random: Random, kinds: dict[str, Callable[["Life"], None]]) -> tuple[str, ...]:
    return tuple(random.sample(sorted(kinds), random.randint(1, len(kinds))))


class Life(Group):
    """One group from its first start to its quiet end."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.mix = mix = Mix.draw(random)
        super().__init__(
            range(1, mix.nodes + 1),
            range(1, mix.founders + 1),
            random=random,
            timing=Timing(
                election_ticks=mix.election_ticks, heartbeat_ticks=1 + mix.election_ticks // 9
            ),
            read_items_max=mix.read_items_max,
        )
        self.now = 0
        self.is_troubled = True
        self.is_writing = True
        self.write_every = mix.write_every
        self.cut: set[tuple[ReplicaId, ReplicaId]] = set()  # Directed: who is not heard by whom.
        self.frozen_until: dict[ReplicaId, int] = {}
        self.slow_until: dict[ReplicaId, int] = {}
        self.tick_length = {me: random.randint(*mix.tick_lengths) for me in self.nodes}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        for me in self.nodes:
            self._start(me)
        self.at(1, self._write)
        self.at(100, self._chore)
        self.at(200, self._misfortune)

    # -- time --------------------------------------------------------------------------------------

    def at(self, delay: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + delay, self._order, action))

    def run(self, until: Callable[[], bool]) -> bool:
        for _ in range(EVENTS_MAX):
            if until():
                return True
            self.now, _, action = heapq.heappop(self._events)
            action()
        return False

    def _on(self, me: ReplicaId, action: Callable[[], None]) -> None:
        """Do something on a node when it is not frozen."""
        thaw = self.frozen_until.get(me, 0)
        if thaw > self.now:
            self.at(thaw - self.now, lambda: self._on(me, action))
        else:
            action()

    # -- nodes -------------------------------------------------------------------------------------

    def _start(self, me: ReplicaId) -> None:
        if self.nodes[me].core is None:
            self.start(me)
            life = self.nodes[me].life
            self.at(self.random.randint(1, 10), lambda: self._on(me, lambda: self._tick(me, life)))

    def _tick(self, me: ReplicaId, life: int) -> None:
        node = self.nodes[me]
        if node.core is None or node.life != life:
            return
        if node.core.needs_ticks:
            self.tick(me)
        length = self.tick_length[me]
        self.at(length, lambda: self._on(me, lambda: self._tick(me, life)))

    def transmit(self, sender: ReplicaId, to: ReplicaId, message: Message) -> None:
        if (sender, to) in self.cut or self.random.random() < self._loss:
            return
        copies = 2 if self.is_troubled and self.random.random() < self.mix.repeats else 1
        for _ in range(copies):
            delay = self.random.randint(1, self.mix.delay_max if self.is_troubled else 3)
            self.at(delay, lambda: self._on(to, lambda: self.deliver(sender, to, message)))

    def sync_wanted(self, node: Node, mark: Mark) -> None:
        life = node.life
        delay = self.random.randint(1, self.mix.sync_max if self.is_troubled else 3)
        delay += max(0, self.slow_until.get(node.me, 0) - self.now)
        self.at(delay, lambda: self._on(node.me, lambda: self.sync_ended(node, life, mark)))

    @property
    def _loss(self) -> float:
        return self.mix.loss if self.is_troubled else 0

    # -- what users and fate do --------------------------------------------------------------------

    def leaders(self) -> list[ReplicaId]:
        return [me for me, node in self.nodes.items() if node.is_leader]

    def up(self) -> list[ReplicaId]:
        return [me for me, node in self.nodes.items() if node.core is not None]

    def victims(self) -> list[ReplicaId]:
        return (self.mix.hates_leaders and self.leaders()) or self.up()

    def _write(self) -> None:
        for me in self.leaders() if self.is_writing else []:
            if self.nodes[me].core.takes_proposals:  # type: ignore[union-attr]
                self.propose(me, records=self.random.randint(1, self.mix.batch_records_max))
        self.at(self.random.randint(5, self.write_every), self._write)

    def _misfortune(self) -> None:
        if self.is_troubled:
            FAULTS[self.random.choice(self.mix.faults)](self)
            self.at(self.random.randint(10, self.mix.trouble_every), self._misfortune)

    def _chore(self) -> None:
        if self.is_troubled:
            CHORES[self.random.choice(self.mix.chores)](self)
            self.at(self.random.randint(10, self.mix.chores_every), self._chore)

    def power_cut(self, me: ReplicaId) -> None:
        if self.nodes[me].core is not None:
            self.crash(me, random=self.random)
            self.frozen_until.pop(me, None)
            self.at(self.random.randint(10, 150), lambda: self._start(me))

    def disconnect(self, pairs: Iterable[tuple[ReplicaId, ReplicaId]]) -> None:
        """Cut these connections, and only these, for a while."""
        self.cut = cut = set(pairs)

        def rejoin() -> None:
            if self.cut is cut:
                self.cut = set()

        self.at(self.random.randint(30, 600), rejoin)

    def ask(self, me: ReplicaId, act: Callable, name: str) -> None:
        try:
            self.request(me, act)
            self.seen[name] += 1
        except ChangeRefused as refused:
            self.seen[f"refused: {refused.reason.name}"] += 1

    def heal(self) -> None:
        self.is_troubled = False
        self.cut = set()
        self.frozen_until.clear()
        self.slow_until.clear()
        for node in self.nodes.values():
            node.log.is_full = False

    def settled(self) -> bool:
        """Every replica is up, in one place, and everything it holds is visible."""
        return len({node.log.last for node in self.nodes.values()}) == 1 and all(
            node.core is not None and node.core.high_watermark == node.log.last.end_offset
            for node in self.nodes.values()
        )


# -- a life ----------------------------------------------------------------------------------------


def simulate(seed: int, *, bug: str | None = None) -> Life:
    """Live one life; raise `SimulationFailed` with the command that lives it again."""
    try:
        with planted(bug):
            return _live(seed)
    except AssertionError as problem:
        flag = f" --bug {bug}" if bug else ""
        command = f"python -m tests.simulation.core_simulator --seed {seed}{flag}"
        raise SimulationFailed(f"seed {seed}: {problem}\nagain: {command}") from problem


def _live(seed: int) -> Life:
    life = Life(seed)
    assert life.run(lambda: life.now > TROUBLE_UNTIL), "time stood still"
    life.heal()
    # Without writes: what was acknowledged becomes visible all the same, on every replica.
    life.is_writing = False
    assert life.run(life.settled), "never settles without new writes"
    end_offset = _check_quiet(life)
    for _ in range(2):
        crash_all(life)
        assert life.run(life.settled), "never settles after a power cut"
        assert _check_quiet(life) == end_offset, "OffsetsNeverSkip: an election moved the end"
    life.is_writing, life.write_every = True, 60
    goal = end_offset + 10
    assert life.run(lambda: _all_at(life, goal)), "no progress after the faults stopped"
    return life


def _all_at(life: Life, offset: Offset) -> bool:
    return all(n.core is not None and n.core.high_watermark >= offset for n in life.nodes.values())


def _check_quiet(life: Life) -> Offset:
    """In the quiet every log is what was committed, and holds all that was acknowledged."""
    witness = life.witness
    for node in life.nodes.values():
        assert witness.is_complete(node.log), f"node {node.me} is not what was committed"
        assert node.log.records.end_offset == witness.end_offset, "holds more than is committed"
    log = next(iter(life.nodes.values())).log
    starts = Counter(boundary.start_offset for boundary in log.journal.boundaries)
    life.seen["empty epochs"] += sum(starts.values()) - len(starts)
    return witness.end_offset


def summary(lives: list[Life]) -> str:
    seen: Counter[str] = Counter()
    for life in lives:
        seen += life.seen
        seen["records committed"] += life.witness.end_offset
        seen["epochs led"] += len(life.witness.leaders)
        seen["lives"] += 1
    return "\n".join(f"{count:9,} {event}" for event, count in sorted(seen.items()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--bug")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    print(summary([simulate(seed, bug=options.bug) for seed in seeds]))


if __name__ == "__main__":
    main()

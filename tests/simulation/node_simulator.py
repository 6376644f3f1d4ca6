"""Whole nodes under one seed: real engine, hub, journal and segments on a fake world.

    python -m tests.simulation.node_simulator 100             # seeds 0 to 99
    python -m tests.simulation.node_simulator --seed 17       # the same life again
    python -m tests.simulation.node_simulator 50 --bug NAME   # a planted bug: must be caught

Each seed draws its own mix of faults (swarm testing), so that every life is extreme in its own way.
A life: faults while clients write, then peace, in which everything acknowledged must be found again
and everything held must become visible without a further write.
"""

import argparse
import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from random import Random

from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.config import Config, Limits, Timing
from millstream.engine.partitions.slices import Latest
from millstream.errors import RequestError
from millstream.model import Acks, LogId, NodeId, Session, TopicPartition, user_principal
from millstream.server.node import Node, build_node
from millstream.settings import TopicSettings
from tests.simulation.node_invariants import Histories
from tests.simulation.node_links import Network
from tests.simulation.node_world import START_MS, Machine
from tests.support.virtual_loop import run

# As a client of Kafka: its requests are not passed on to the leader.
SESSION = Session(principal=user_principal("simulation"), protocol="kafka")
TOPIC = "orders"
LIFE_S = 12.0
PEACE_S_MAX = 60.0


@dataclass
class Life:
    """One node from its start to its stop or to a power cut."""

    node: Node
    task: asyncio.Task[None]
    number: int


class Cluster:
    def __init__(self, seed: int, group: asyncio.TaskGroup) -> None:
        self.random = random = Random(seed)
        self.seen: Counter[str] = Counter()
        self.histories = Histories()
        self.network = Network(random)
        size = random.choice([1, 3, 3, 3, 5])
        self.ids = [NodeId(n) for n in range(1, size + 1)]
        self.machines = {n: Machine(n, self.network, random) for n in self.ids}
        self.lives: dict[NodeId, Life] = {}
        self.partitions = random.choice([1, 2])
        self.acknowledged: list[tuple[LogId, int, bytes]] = []
        self.is_peaceful = False
        # Half of the lives rewrite their journals every few elections. Not drawn, so that a seed
        # of the other half is the life that it always was.
        self.limits = Limits(journal_bytes_max=300) if seed % 4 >= 2 else Limits()
        # One life of five has readers, too, which look up the ends of partitions.
        self.has_readers = seed % 5 == 4
        self._group = group
        self._starts = 0
        self._draw_faults()

    def _draw_faults(self) -> None:
        random = self.random
        self.network.reset_rate = random.choice([0, 0, 0.001, 0.01])
        # Less than the election timeout, as it must be: else every link would count as silent.
        self.network.delay_s_max = random.choice([0.002, 0.02, 0.06])
        self.sync_s_max = random.choice([0.001, 0.01, 0.2])
        self.trouble_s_max = random.choice([0.3, 1.0, 3.0])
        self.write_s_max = random.choice([0.02, 0.1, 0.5])
        self.hates_leaders = random.random() < 0.5
        self.settings = TopicSettings(
            segment_bytes=random.choice([1024, 2048, 2**20]),
            index_interval_bytes=random.choice([64, 256, 4096]),
            max_message_bytes=1024,
        )
        for machine in self.machines.values():
            machine.threads.delay_s_max = self.sync_s_max

    # -- lives -----------------------------------------------------------------------------

    def start(self, node_id: NodeId) -> None:
        if node_id in self.lives:
            return
        config = Config(
            node_id=node_id,
            nodes=tuple(self.ids),
            topic_defaults=self.settings,
            limits=self.limits,
            timing=Timing(tick_ms=20, election_timeout_ms=self.random.choice([100, 200])),
        )
        node = build_node(config, self.machines[node_id].ports())
        self._starts += 1
        self.seen["starts"] += 1
        task = self._group.create_task(self._live(node))
        self.lives[node_id] = Life(node, task, self._starts)

    async def _live(self, node: Node) -> None:
        try:
            await node.run()
        except asyncio.CancelledError:
            return  # The power went.

    def lose_power(self, node_id: NodeId) -> None:
        self.observe()  # What it has committed by now must be there for good.
        life = self.lives.pop(node_id, None)
        if life is None:
            return
        self.seen["power cuts"] += 1
        self.machines[node_id].lose_power()
        life.task.cancel()
        loop = asyncio.get_running_loop()
        loop.call_later(self.random.uniform(0.05, 1.0), self.start, node_id)

    async def stop_in_order(self, node_id: NodeId) -> None:
        life = self.lives.get(node_id)
        if life is None:
            return
        self.seen["clean stops"] += 1
        life.node.stop()
        await life.task
        if self.lives.get(node_id) is life:  # The power may have gone meanwhile.
            del self.lives[node_id]
            self.start(node_id)

    def observe(self) -> None:
        for node_id, life in self.lives.items():
            self.histories.observe(node_id, life.number, life.node.hub.replicas.values())
        for life in self.lives.values():
            self.histories.settled_leaders_hold_all(life.node.hub.replicas.values())

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            self.observe()

    # -- what happens to them --------------------------------------------------------------

    async def misfortunes(self) -> None:
        while not self.is_peaceful:
            await asyncio.sleep(self.random.uniform(0.05, self.trouble_s_max))
            await self._misfortune()

    async def _misfortune(self) -> None:
        random, ids = self.random, self.ids
        victim = self._victim()
        match random.randrange(11):
            case 0 | 1:
                self.lose_power(victim)
            case 2:
                for node_id in ids:
                    self.lose_power(node_id)
            case 3:
                await self.stop_in_order(victim)
            case 4:
                self.network.cut = {(victim, o) for o in ids} | {(o, victim) for o in ids}
            case 5:  # One way: it hears everything and is not heard, or the other way round.
                deaf = random.random() < 0.5
                self.network.cut = {(o, victim) if deaf else (victim, o) for o in ids}
            case 6:
                half = set(random.sample(ids, len(ids) // 2))
                remaining = set(ids) - half
                self.network.cut = {(a, b) for a in half for b in remaining} | {
                    (b, a) for a in half for b in remaining
                }
            case 7:
                self.machines[victim].clock.skew_ms += random.randint(-3_600_000, 3_600_000)
            case 8:
                self.machines[victim].threads.delay_s_max = random.choice([self.sync_s_max, 1.0])
            case 9:
                self._delete_records(victim)
            case _:
                self.network.cut = set()

    def _delete_records(self, victim: NodeId) -> None:
        if victim not in self.lives:
            return
        self.observe()
        target = TopicPartition(TOPIC, self.random.randrange(self.partitions))
        partitions = self.lives[victim].node.partitions
        try:
            high_watermark = partitions.health(SESSION, target).high_watermark
            partitions.delete_records(SESSION, target, self.random.randint(0, high_watermark))
        except RequestError:
            return
        self.seen["deletions"] += 1

    def _victim(self) -> NodeId:
        leaders = [
            node_id
            for node_id, life in self.lives.items()
            if any(replica.is_leader for replica in life.node.hub.replicas.values())
        ]
        return self.random.choice(leaders if leaders and self.hates_leaders else self.ids)

    def make_peace(self) -> None:
        self.network.cut, self.network.reset_rate, self.network.delay_s_max = set(), 0.0, 0.005
        for machine in self.machines.values():
            machine.threads.delay_s_max = 0.002

    # -- clients ---------------------------------------------------------------------------

    async def create_topic(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            for life in list(self.lives.values()):
                try:
                    async with asyncio.timeout(5):
                        await life.node.topics.create(
                            SESSION,
                            TOPIC,
                            partitions=self.partitions,
                            replicas=len(self.ids),
                        )
                    return
                except (RequestError, TimeoutError) as problem:
                    if type(problem).__name__ == "TopicExists":
                        return

    async def write(self, partition: int) -> None:
        """An idempotent producer: sends the same batch until it is acknowledged."""
        target = TopicPartition(TOPIC, partition)
        sequence = 0
        while not self.is_peaceful:
            await asyncio.sleep(self.random.uniform(0.001, self.write_s_max))
            count = self.random.randint(1, 4)
            values = [b"%d/%d" % (partition, sequence + at) for at in range(count)]
            data = encode_batch(
                [Record(at, START_MS - 7_200_000, None, v) for at, v in enumerate(values)],
                producer_id=100 + partition,
                producer_epoch=0,
                base_sequence=sequence,
            )
            if not await self._send(target, data, values):
                return
            sequence += count

    async def _send(self, target: TopicPartition, data: bytes, values: list[bytes]) -> bool:
        while not self.is_peaceful:
            for life in self.random.sample(list(self.lives.values()), len(self.lives)):
                if life.task.done():
                    continue  # It lost its power while another was asked.
                try:
                    async with asyncio.timeout(self.random.choice([0.05, 0.5])):
                        append = life.node.partitions.append(SESSION, target, data, Acks.ALL)
                        appended = await append
                except TimeoutError:
                    self.seen["unknown outcomes"] += 1
                    continue
                except RequestError:
                    continue
                self.observe()
                log = life.node.topics.describe(SESSION, TOPIC).log(target.partition)
                for at, value in enumerate(values):
                    self.acknowledged.append((log, appended.base_offset + at, value))
                    self.histories.acknowledge(*self.acknowledged[-1])
                self.seen["acknowledged"] += len(values)
                return True
            await asyncio.sleep(0.02)
        return False

    async def look_up(self, partition: int) -> None:
        """Ask nodes for the end of a partition: no answer is older than its question."""
        target = TopicPartition(TOPIC, partition)
        while not self.is_peaceful:
            await asyncio.sleep(self.random.uniform(0.001, 0.05))
            life = self.random.choice(list(self.lives.values()) or [None])
            if life is None or life.task.done():
                continue
            known = self._acknowledged_end(partition)
            try:
                async with asyncio.timeout(2):
                    place = await life.node.partitions.find(SESSION, target, Latest())
            except (RequestError, TimeoutError):
                continue
            assert place is not None
            assert place.offset >= known, f"ConfirmedIsCurrent: {place.offset} of {known}"
            self.seen["lookups"] += 1

    def _acknowledged_end(self, partition: int) -> int:
        ends = [at + 1 for log, at, _ in self.acknowledged if log.partition == partition]
        return max(ends, default=0)

    # -- the end ---------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Every replica is up, all are in one place, and everything they hold is visible."""
        if len(self.lives) < len(self.ids):
            return False
        places: dict[LogId, set[object]] = {}
        for life in self.lives.values():
            if len(life.node.hub.replicas) != self.partitions + 1:
                return False
            for log_id, replica in life.node.hub.replicas.items():
                places.setdefault(log_id, set()).add(replica.consensus_log.last)
                if replica.high_watermark != replica.log.end_offset:
                    return False
                if not replica.is_ready:
                    return False
        return all(len(where) == 1 for where in places.values())

    async def become_quiet(self) -> None:
        try:
            async with asyncio.timeout(PEACE_S_MAX):
                while not self.is_quiet():
                    for life in self.lives.values():
                        life.node.hub.wake(list(life.node.hub.resting))
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError("Liveness: not quiet after the faults ended") from None

    def check_the_end(self) -> None:
        self.observe()
        for log, offset, value in self.acknowledged:
            self.histories.acknowledge(log, offset, value)
        self.histories.offsets_never_skip()
        self.histories.nothing_twice()
        for node_id, life in self.lives.items():
            for log_id, replica in life.node.hub.replicas.items():
                held = len(self.histories.committed.get(log_id, {}))
                assert replica.high_watermark == held, f"Durable: node {node_id} {log_id}"


async def live(seed: int) -> Counter[str]:
    async with asyncio.TaskGroup() as group:
        cluster = Cluster(seed, group)
        for node_id in cluster.ids:
            cluster.start(node_id)
        watcher = group.create_task(cluster.watch())
        await cluster.create_topic()
        clients = [group.create_task(cluster.write(p)) for p in range(cluster.partitions)]
        if cluster.has_readers:
            readers = range(cluster.partitions)
            clients += [group.create_task(cluster.look_up(partition)) for partition in readers]
        fate = group.create_task(cluster.misfortunes())
        await asyncio.sleep(LIFE_S)
        cluster.is_peaceful = True
        await asyncio.gather(fate, *clients)
        cluster.make_peace()
        await cluster.become_quiet()
        cluster.check_the_end()
        # Elections move no offsets: not even when the power goes everywhere at once.
        ends = {log: len(h) for log, h in cluster.histories.committed.items()}
        for node_id in cluster.ids:
            cluster.lose_power(node_id)
        await cluster.become_quiet()
        cluster.check_the_end()
        assert ends == {log: len(h) for log, h in cluster.histories.committed.items()}
        watcher.cancel()
        for life in cluster.lives.values():
            life.node.stop()
        cluster.seen["journal rewrites"] += sum(
            m.journal_rewrites for m in cluster.machines.values()
        )
        cluster.seen["checks"] += cluster.histories.checks
        cluster.seen["epochs led"] += len(cluster.histories.leaders)
        return cluster.seen


class SeedFailed(AssertionError):
    """A life broke a promise; the message holds the command that runs it again."""


def simulate(seed: int, bug: str | None = None) -> Counter[str]:
    from tests.simulation.node_canaries import BUGS

    planted = BUGS[bug]() if bug else nullcontext()
    flag = f" --bug {bug}" if bug else ""
    command = f"python -m tests.simulation.node_simulator --seed {seed}{flag}"
    with planted, quiet_logs():
        try:
            return run(live(seed))
        except Exception as problem:
            raise SeedFailed(f"{_first(problem)}\n  again: {command}") from problem


def _first(problem: BaseException) -> str:
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return f"{type(problem).__name__}: {problem}"


@contextmanager
def quiet_logs() -> Iterator[None]:
    logger = logging.getLogger("millstream")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bug")
    options = parser.parse_args()
    totals: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.count):
        totals += simulate(seed, options.bug)
    print(f"{options.count} lives held:", ", ".join(f"{n} {event}" for event, n in totals.items()))


if __name__ == "__main__":
    main()

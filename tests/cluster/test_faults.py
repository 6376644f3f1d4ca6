"""Three real processes through kills, freezes and cuts: nothing acknowledged is lost.

Real nodes, real disks, real sockets through the proxy. Writers are idempotent, and speak to every
node in turn; the checker is `History`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream.replication.peering.node_links import QUEUED_BYTES_MAX
from tests.cluster.processes import (
    NODES,
    TOPIC,
    Cluster,
    History,
    NodeProcess,
    running_cluster,
)

PARTITIONS = 2
FAULT_S = 2.5  # Longer than an election takes.
DEADLINE_S = 100.0

Fault = Callable[[Cluster, int, Random], Awaitable[None]]


async def kill(cluster: Cluster, victim: int, random: Random) -> None:
    await cluster.nodes[victim].kill()
    await asyncio.sleep(random.uniform(0.1, FAULT_S))
    await cluster.nodes[victim].start()


async def freeze(cluster: Cluster, victim: int, random: Random) -> None:
    cluster.nodes[victim].freeze()
    await asyncio.sleep(random.uniform(0.3, 2 * FAULT_S))
    cluster.nodes[victim].thaw()


async def cut_off(cluster: Cluster, victim: int, random: Random) -> None:
    cluster.isolate(victim)
    await asyncio.sleep(FAULT_S)
    cluster.heal()


async def cut_one_way(cluster: Cluster, victim: int, random: Random) -> None:
    """It hears everything and is not heard, or the other way round."""
    is_deaf = random.random() < 0.5
    for other in NODES:
        if other != victim:
            source, target = (other, victim) if is_deaf else (victim, other)
            cluster.cut_one_way(source, target)
    await asyncio.sleep(FAULT_S)
    cluster.heal()


async def cut_pair(cluster: Cluster, victim: int, random: Random) -> None:
    """Two nodes do not hear each other, and the third hears both."""
    cluster.cut(victim, random.choice([node for node in NODES if node != victim]))
    await asyncio.sleep(FAULT_S)
    cluster.heal()


async def reset(cluster: Cluster, victim: int, random: Random) -> None:
    for pair, proxy in cluster.proxies.items():
        if victim in pair:
            proxy.reset()


async def kill_all(cluster: Cluster, victim: int, random: Random) -> None:
    for node in cluster.nodes.values():
        await node.kill()
    for node in cluster.nodes.values():
        await node.start()


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "freeze": freeze,
    "cut off": cut_off,
    "cut one way": cut_one_way,
    "cut a pair": cut_pair,
    "reset": reset,
    "kill all": kill_all,
}


async def live(directory: Path, faults: list[str], seed: int, *, records: int) -> None:
    """Write through all of these faults, and until so many records are acknowledged at least."""
    random = Random(seed)
    history = History(PARTITIONS)
    async with running_cluster(directory, partitions=PARTITIONS) as cluster:
        writers = [
            asyncio.ensure_future(history.write(cluster, partition, random))
            for partition in range(PARTITIONS)
        ]
        for name in faults:
            victim = await cluster.leader_of(random.randrange(PARTITIONS))
            await FAULTS[name](cluster, victim or random.choice(NODES), random)
            await asyncio.sleep(random.uniform(0.2, 1.0))
        await cluster_goes_on(history)
        await acknowledged(history, records)
        history.is_over = True
        await asyncio.gather(*writers)
        await cluster.calm(PARTITIONS)
        await history.check(cluster)


async def cluster_goes_on(history: History) -> None:
    """Wait for acknowledgements in every partition after the last fault."""
    seen = len(history.acknowledged)
    async with asyncio.timeout(DEADLINE_S):
        while len({entry[0] for entry in history.acknowledged[seen:]}) < PARTITIONS:
            await asyncio.sleep(0.05)


async def acknowledged(history: History, records: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while len(history.acknowledged) < records:
            await asyncio.sleep(0.01)


async def leader_that_answers(
    cluster: Cluster, answer: dict[str, Any], **request: Any
) -> NodeProcess:
    """The leader of partition 0, once it answers the request as it should: on a busy machine
    another node may lead by the time that it is asked."""
    last: dict[str, Any] = {}
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while asyncio.get_running_loop().time() < deadline:
        leader = await cluster.leader_of(0)
        if leader is not None:
            last = await cluster.nodes[leader].ask(topic=TOPIC, partition=0, **request)
            if last == answer:
                return cluster.nodes[leader]
        await asyncio.sleep(0.05)
    raise AssertionError(f"the answer is {last}, not {answer}")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_acknowledged_is_lost_when_the_leader_meets(fault: str, tmp_path: Path) -> None:
    asyncio.run(live(tmp_path, [fault, fault], seed=1, records=20))


@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost_in_a_life_of_mixed_faults(tmp_path: Path) -> None:
    random = Random(7)
    faults = [random.choice(list(FAULTS)) for _ in range(12)]
    asyncio.run(live(tmp_path, faults, seed=7, records=100))


@pytest.mark.timeout(400)
def test_a_node_that_was_away_catches_up_with_many_records(tmp_path: Path) -> None:
    """More than may be queued for it: its fetches wait for room, and its links stay up."""

    async def main() -> None:
        history = History(PARTITIONS, value_bytes=200_000)
        async with running_cluster(tmp_path, partitions=PARTITIONS) as cluster:
            await cluster.nodes[3].kill()
            writers = [
                asyncio.ensure_future(history.write(cluster, partition, Random(partition)))
                for partition in range(PARTITIONS)
            ]
            await acknowledged(history, (QUEUED_BYTES_MAX + 2**23) // 200_000)
            history.is_over = True
            await asyncio.gather(*writers)
            await cluster.nodes[3].start()
            await cluster.calm(PARTITIONS)
            await history.check(cluster)
            for node in cluster.nodes.values():
                assert "the peer does not read what it is sent" not in node.log_text()

    asyncio.run(main())


@pytest.mark.timeout(400)
def test_clocks_that_are_hours_apart_do_no_harm(tmp_path: Path) -> None:
    """No timer and no agreement rests on a wall clock."""

    async def main() -> None:
        history = History(PARTITIONS)
        async with running_cluster(tmp_path, partitions=PARTITIONS) as cluster:
            for node, hours in ((2, 5), (3, -5)):
                await cluster.nodes[node].kill()
                cluster.nodes[node].clock_ahead_ms = hours * 3_600_000
                await cluster.nodes[node].start()
                await cluster.calm(PARTITIONS)
            writers = [
                asyncio.ensure_future(history.write(cluster, partition, Random(partition)))
                for partition in range(PARTITIONS)
            ]
            for partition in range(PARTITIONS):
                await cluster_goes_on(history)
                victim = await cluster.leader_of(partition)
                await kill(cluster, victim or 1, Random(1))
            await cluster_goes_on(history)
            history.is_over = True
            await asyncio.gather(*writers)
            await cluster.calm(PARTITIONS)
            await history.check(cluster)

    asyncio.run(main())


@pytest.mark.timeout(300)
def test_a_cut_off_leader_confirms_no_read(tmp_path: Path) -> None:
    """Its watermark may be old, and it does not say so as if it were current."""

    async def main() -> None:
        history = History(PARTITIONS)
        async with running_cluster(tmp_path, partitions=PARTITIONS) as cluster:
            confirmed = {"is_confirmed": True, "high_watermark": 0}
            leader = await leader_that_answers(cluster, confirmed, do="confirm")
            cluster.isolate(leader.node)
            writer = asyncio.ensure_future(history.write(cluster, 0, Random(1)))
            async with asyncio.timeout(DEADLINE_S):
                while len(history.acknowledged) < 5:
                    known = len(history.acknowledged)
                    answer = await leader.ask(do="confirm", topic=TOPIC, partition=0)
                    assert answer.get("is_confirmed") is not True or not known
            history.is_over = True
            await writer
            cluster.heal()
            await cluster.calm(PARTITIONS)
            await history.check(cluster)

    asyncio.run(main())


@pytest.mark.timeout(300)
def test_a_cut_off_leader_answers_no_lookup_and_no_fetch_at_its_end(tmp_path: Path) -> None:
    """What it answers is no less than what clients were told before they asked."""

    async def main() -> None:
        history = History(PARTITIONS)
        async with running_cluster(tmp_path, partitions=PARTITIONS) as cluster:
            leader = await leader_that_answers(cluster, {"offset": 0}, do="find")
            cluster.isolate(leader.node)
            writer = asyncio.ensure_future(history.write(cluster, 0, Random(1)))
            async with asyncio.timeout(DEADLINE_S):
                while len(history.acknowledged) < 5:
                    known = len(history.acknowledged)
                    answer = await leader.ask(do="find", topic=TOPIC, partition=0)
                    assert answer.get("offset", known) >= known
            fetched = await leader.ask(
                do="fetch", topic=TOPIC, partition=0, offset=0, answer_s_max=DEADLINE_S
            )
            assert fetched["error"] == "NotLeader"
            history.is_over = True
            await writer
            cluster.heal()
            await cluster.calm(PARTITIONS)
            await history.check(cluster)

    asyncio.run(main())


@pytest.mark.timeout(300)
def test_idle_nodes_quiesce_and_wake_for_the_next_record(tmp_path: Path) -> None:
    async def main() -> None:
        history = History(PARTITIONS)
        async with running_cluster(tmp_path, partitions=PARTITIONS) as cluster:
            await cluster.calm(PARTITIONS, is_quiesced=True)
            for node in cluster.nodes.values():
                state = await node.ask(do="state", answer_s_max=DEADLINE_S)
                assert state["ticking"] == 0
            writer = asyncio.ensure_future(history.write(cluster, 1, Random(1)))
            await acknowledged(history, 5)
            history.is_over = True
            await writer
            await cluster.calm(PARTITIONS)
            await history.check(cluster)

    asyncio.run(main())

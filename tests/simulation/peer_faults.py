"""The faults of the peer simulator. `usurp` is made for stale reads: uniform faults seldom bring
together what a stale answer needs."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from millstream.model import LogId, NodeId
from tests.simulation.peer_world import Node, Replica, id_of

if TYPE_CHECKING:
    from tests.simulation.peer_simulator import World

Fault = Callable[["World", Random, Node, Node, LogId], None]


def reset(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    world.reset(a.id, b.id)


def reset_all(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    for peer in _others(world, a):
        world.reset(a.id, peer)


def stall(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    world.block(a.id, b.id, random.uniform(50, 900))


def one_way(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    source, target = random.sample((a.id, b.id), 2)
    world.block(source, target, random.uniform(900, 3_000))


def cut(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    ms = random.uniform(200, 3_000)
    world.block(a.id, b.id, ms)
    world.block(b.id, a.id, ms)


def isolate(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    ms = random.uniform(500, 3_000)
    for peer in _others(world, a):
        world.block(a.id, peer, ms)
        if random.random() < 0.7:
            world.block(peer, a.id, ms)


def flip(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    """A link is reset and comes back at once, with the leader cut off elsewhere."""
    world.reset(a.id, b.id)
    for peer in _others(world, a, b):
        world.block(a.id, peer, random.uniform(1_000, 2_500))
        world.block(peer, a.id, random.uniform(1_000, 2_500))


def crash(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    if a.is_alive:
        a.crash(is_silent=random.random() < 0.5)
        world.at(world.now + random.uniform(20, 2_500), world.restart, a.id)


def freeze(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    a.frozen_until = max(a.frozen_until, world.now + random.uniform(200, 2_500))


def slow_disk(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    a.disk_ms = random.choice((1, 30, 300))


def lose_patience(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    """Followers believe that their leader is gone, without any reason."""
    for replica in world.replicas(log_id):
        if random.random() < 0.7:
            replica.links._leader_gone()
            replica.links.observe()


def reopen(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    if a.is_alive:
        a.reopen(log_id)


def transfer(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    leader = world.leader_of(log_id)
    if leader is not None:
        to = random.choice(sorted(leader.core.voters))
        world.request(leader, partial(leader.core.transfer, to))


def change_voters(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    leader = world.leader_of(log_id)
    if leader is not None and world.changes_voters:
        voters = leader.core.voters ^ {id_of(log_id, random.choice(world.node_ids))}
        if len(voters) >= 2:
            world.request(leader, partial(leader.core.change_voters, voters))


def usurp(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    leader = world.leader_of(log_id)
    if leader is not None and a is leader.node:
        _usurp(world, random, leader, b.id)


def usurp_twice(world: "World", random: Random, a: Node, b: Node, log_id: LogId) -> None:
    leader = world.leader_of(log_id)
    if leader is None or a is not leader.node:
        return
    for node in world.nodes.values():
        node.disk_ms = 2 if node in (a, b) else 300
    successor = id_of(log_id, b.id)
    if random.random() < 0.5 and successor in leader.core.voters:
        world.request(leader, partial(leader.core.transfer, successor))
    else:
        _usurp(world, random, leader, b.id)
    for _ in range(2):
        world.at(world.now + random.uniform(10, 300), world.usurp_again, random, log_id)


def usurp_again(world: "World", random: Random, log_id: LogId) -> None:
    leader = world.leader_of(log_id)
    if leader is not None:
        _usurp(world, random, leader, random.choice(_others(world, leader.node)))


def _usurp(world: "World", random: Random, leader: Replica, winner: NodeId) -> None:
    """Another replica is elected while the old leader hears little of it; reads go on there."""
    log_id, old = leader.log_id, leader.node
    others = [n for n in world.node_ids if n not in (old.id, winner)]
    world.mute[old.id, log_id] = world.now + 900
    world.block(winner, old.id, random.uniform(300, 950))
    if random.random() < 0.5 and leader.core.takes_proposals:
        leader.propose(world.payload())
    delay: float = random.choice((0, 3, 10, 30))
    for peer in others:
        if random.random() < 0.3:
            world.reset(old.id, peer)
            delay = random.uniform(10, 60)
        if random.random() < 0.4:
            when, ms = world.now + random.uniform(0, 8), random.uniform(100, 700)
            world.at(when, world.block, peer, old.id, ms)
        if random.random() < 0.3:
            world.at(world.now + random.uniform(0, 8), _reopen, world.nodes[peer], log_id)
        if random.random() < 0.4:
            world.nodes[peer].disk_ms = random.choice((1, 30, 300))

    world.at(world.now + delay, _campaign, world, log_id, old, winner)
    for _ in range(60):
        world.at(world.now + random.uniform(0, 900), _read_and_write, world, log_id, old)


def _campaign(world: "World", log_id: LogId, old: Node, winner: NodeId) -> None:
    for replica in world.replicas(log_id):
        if replica.node is not old:
            replica.links._leader_gone()
            replica.core.leader_gone(1 if replica.node.id == winner else 15)
            replica.links.observe()


def _read_and_write(world: "World", log_id: LogId, old: Node) -> None:
    for replica in world.replicas(log_id):
        if replica.node is old:
            replica.ask()
        elif replica.core.takes_proposals:
            replica.propose(world.payload())


def _reopen(node: Node, log_id: LogId) -> None:
    if node.is_alive:
        node.reopen(log_id)


def _others(world: "World", *nodes: Node) -> list[NodeId]:
    return [node for node in world.node_ids if world.nodes[node] not in nodes]


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        reset,
        reset_all,
        stall,
        one_way,
        cut,
        isolate,
        flip,
        crash,
        freeze,
        slow_disk,
        lose_patience,
        reopen,
        transfer,
        change_voters,
        usurp,
        usurp_twice,
    )
}

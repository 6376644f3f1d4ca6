"""While two nodes are cut apart, logs are led by a node that reaches both."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from millstream.engine.cluster import reach
from millstream.engine.cluster.reach import Reach
from millstream.errors import ChangeRefused
from millstream.model import CONTROL_LOG, LogId, NodeId, ReplicaId, replica_id
from millstream.raft.tracker import Refusal

ORDERS = LogId(UUID(int=7), 0)
NODES = (1, 2, 3)


class Station:
    """A node, as far as it concerns `Reach`: members, hub, links and calls in one."""

    def __init__(self, net: "dict[int, Station]", node: int, *, of: tuple[int, ...] = NODES):
        self.net, self.me = net, node
        self.nodes = [SimpleNamespace(node_id=each) for each in of]
        self.up: set[int] = {node}
        self.drained: set[int] = set()
        self.replicas: dict[LogId, Any] = {}
        self.transferred: list[tuple[LogId, ReplicaId]] = []
        self.leadership = self
        net[node] = self
        self.reach = Reach(self, self, self, self)  # type: ignore[arg-type]

    def serve(self, method: str, kind: type, handler: Any) -> None:
        self.handler = handler

    def watch(self, watcher: Callable[[NodeId, bool], None]) -> None:
        self.watcher = watcher

    def tell(self, node: NodeId, method: str, message: Any) -> None:
        other = self.net[node]
        asyncio.get_running_loop().create_task(other.handler(NodeId(self.me), message))

    def is_up(self, node: NodeId) -> bool:
        return node in self.up

    def is_available(self, node: NodeId) -> bool:
        return node in self.up - self.drained

    def transfer(self, log_id: LogId, successor: ReplicaId) -> None:
        self.transferred.append((log_id, successor))

    def link(self, other: int, *, is_up: bool = True) -> None:
        (self.up.add if is_up else self.up.discard)(other)
        self.watcher(NodeId(other), is_up)

    def leads(self, log_id: LogId, *voters: int, behind: int = 0) -> None:
        replicas = frozenset(replica_id(NodeId(node)) for node in voters)
        self.replicas[log_id] = SimpleNamespace(
            id=log_id,
            name="orders-0",
            is_leader=True,
            high_watermark=10,
            log=SimpleNamespace(end_offset=10),
            core=SimpleNamespace(
                voters=replicas, takes_proposals=True, lags=lambda: dict.fromkeys(replicas, behind)
            ),
        )


def linked(nodes: tuple[int, ...] = NODES) -> dict[int, Station]:
    net: dict[int, Station] = {}
    for node in nodes:
        Station(net, node, of=nodes)
    for node in nodes:
        for other in nodes:
            if other != node:
                net[node].link(other)
    return net


def cut(net: dict[int, Station], node: int, other: int) -> None:
    net[node].link(other, is_up=False)
    net[other].link(node, is_up=False)


async def settled(station: Station) -> list[tuple[LogId, ReplicaId]]:
    """What is handed over once nodes have been unreached for long enough."""
    await asyncio.sleep(0)
    await station.reach.hand_over()
    await asyncio.sleep(0.02)
    await station.reach.hand_over()
    return station.transferred


@pytest.fixture(autouse=True)
def _without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "MISSED_S_MIN", 0.01)


def test_a_leader_cut_from_a_follower_hands_over_to_the_node_that_reaches_both() -> None:
    async def main() -> None:
        net = linked()
        net[1].leads(CONTROL_LOG, 1, 2, 3)
        net[1].leads(ORDERS, 1, 2, 3)
        cut(net, 1, 3)
        second = replica_id(NodeId(2))
        assert await settled(net[1]) == [(CONTROL_LOG, second), (ORDERS, second)]

    asyncio.run(main())


def test_a_link_that_was_lost_a_moment_ago_moves_nothing() -> None:
    async def main() -> None:
        net = linked()
        net[1].leads(ORDERS, 1, 2, 3)
        cut(net, 1, 3)
        await asyncio.sleep(0)
        await net[1].reach.hand_over()
        assert net[1].transferred == []

    asyncio.run(main())


def test_a_dead_node_moves_nothing() -> None:
    async def main() -> None:
        net = linked()
        net[1].leads(ORDERS, 1, 2, 3)
        cut(net, 1, 3)
        cut(net, 2, 3)
        assert await settled(net[1]) == []

    asyncio.run(main())


def test_the_control_log_is_led_for_nodes_that_do_not_vote_on_it() -> None:
    async def main() -> None:
        net = linked((1, 2, 3, 4))
        net[1].leads(CONTROL_LOG, 1, 2, 3)
        net[1].leads(ORDERS, 1, 2, 3)
        cut(net, 1, 4)
        assert await settled(net[1]) == [(CONTROL_LOG, replica_id(NodeId(2)))]

    asyncio.run(main())


def test_a_node_that_lacks_another_one_takes_nothing() -> None:
    """Else two nodes would hand a log to each other and back."""

    async def main() -> None:
        net = linked((1, 2, 3, 4))
        net[1].leads(ORDERS, 1, 2, 3, 4)
        cut(net, 1, 3)
        cut(net, 2, 4)
        assert await settled(net[1]) == []
        assert not net[1].reach.loses_none(net[1].replicas[ORDERS], NodeId(2))

    asyncio.run(main())


@pytest.mark.parametrize("why", ["drained", "behind", "refused"])
def test_only_a_node_that_can_lead_takes_over(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        net = linked()
        net[1].leads(ORDERS, 1, 2, 3, behind=5 if why == "behind" else 0)
        if why == "drained":
            net[1].drained.add(2)
        if why == "refused":

            def refuse(log_id: LogId, successor: ReplicaId) -> None:
                raise ChangeRefused(Refusal.TRANSFERRING)

            monkeypatch.setattr(net[1], "transfer", refuse)
        cut(net, 1, 3)
        assert await settled(net[1]) == []

    asyncio.run(main())


def test_after_the_cut_any_node_may_lead_again() -> None:
    async def main() -> None:
        net = linked()
        net[2].leads(ORDERS, 1, 2, 3)
        cut(net, 1, 3)
        await asyncio.sleep(0)
        assert not net[2].reach.loses_none(net[2].replicas[ORDERS], NodeId(1))
        net[1].link(3)
        net[3].link(1)
        await asyncio.sleep(0)
        assert net[2].reach.loses_none(net[2].replicas[ORDERS], NodeId(1))

    asyncio.run(main())

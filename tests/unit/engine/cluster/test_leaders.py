"""A node hears of leaders that it cannot reach from the nodes that it does."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from millstream.engine.cluster.leaders import LeaderNews
from millstream.errors import PeerUnreachable
from millstream.model import Epoch, LogId, NodeId
from millstream.replication.peering.leadership import KnownLeader, Leadership

LOG = LogId(UUID(int=7), 0)


class Station:
    """A node, as far as news of leaders concerns it: `ports.Links`, `PeerCalls` and hub in one."""

    def __init__(self, net: "dict[int, Station]", node: int) -> None:
        self.net, self.node = net, node
        self.links: set[int] = set()
        self.handlers: dict[str, Any] = {}
        self.replicas: dict[LogId, Any] = {}
        self.asked = 0
        self.leadership = Leadership(self, lambda *_: None)  # type: ignore[arg-type]
        net[node] = self
        LeaderNews(self, self, self, self)  # type: ignore[arg-type]

    def serve(self, method: str, kind: type, handler: Any) -> None:
        self.handlers[method] = handler

    def watch(self, watcher: Callable[[NodeId, bool], None]) -> None:
        self.watcher = watcher

    def on_drop(self, forget: Callable[[LogId], None]) -> None:
        self.forget = forget

    def tell(self, node: NodeId, method: str, message: Any) -> None:
        """News is lost here: the tests are about inquiries."""

    async def ask(
        self, node: NodeId, method: str, question: Any, kind: type, *, timeout_s: float
    ) -> Any:
        self.asked += 1
        if node not in self.links:
            raise PeerUnreachable(node, was_sent=True)
        return await self.net[node].handlers[method](NodeId(self.node), question)

    def reach(self, *nodes: int) -> None:
        for node in nodes:
            self.links.add(node)
            self.watcher(NodeId(node), True)

    def follows(self, leader: int | None, epoch: int) -> None:
        is_leader = leader == self.node
        self.replicas[LOG] = SimpleNamespace(
            id=LOG, is_leader=is_leader, leader=leader, core=SimpleNamespace(epoch=epoch)
        )


def test_a_leader_behind_a_cut_is_known_by_a_third_node() -> None:
    async def main() -> None:
        net: dict[int, Station] = {}
        _, second, third = (Station(net, node) for node in (1, 2, 3))
        second.follows(1, epoch=4)
        third.follows(None, epoch=4)
        third.reach(2)

        await third.leadership.find([LOG])

        assert third.leadership.of(LOG) == KnownLeader(Epoch(4), NodeId(1))

    asyncio.run(main())


def test_a_node_is_not_told_that_it_leads_itself() -> None:
    """It was a leader, gave up, and the other has not noticed yet."""

    async def main() -> None:
        net: dict[int, Station] = {}
        second, third = Station(net, 2), Station(net, 3)
        second.follows(3, epoch=1)
        third.follows(None, epoch=1)
        third.reach(2)

        await third.leadership.find([LOG])

        assert third.leadership.of(LOG).leader is None

    asyncio.run(main())


def test_inquiries_are_few_and_outlive_nodes_that_do_not_answer() -> None:
    async def main() -> None:
        net: dict[int, Station] = {}
        first, second = Station(net, 1), Station(net, 2)
        second.follows(None, epoch=1)
        await second.leadership.find([LOG])
        assert second.asked == 0  # Alone.
        second.reach(1)
        second.links.clear()  # The link is lost while it asks.

        for _ in range(50):
            await second.leadership.find([LOG])

        assert second.asked == 1
        assert second.leadership.of(LOG).leader is None
        assert first.asked == 0

    asyncio.run(main())

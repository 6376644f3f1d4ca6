"""A command of a node that does not lead the control log: its refusals, and no leader at all."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.engine.cluster import proposals
from millstream.engine.cluster.proposals import Proposals
from millstream.errors import NotLeader, TopicExists
from millstream.model import NodeId


class Follower:
    """A node that follows the control log: its controller, its replica and calls to the leader."""

    name = "(control log)"
    is_leader = False
    is_ready = True

    def __init__(self, leader: int | None, *, applied: int = 0, committed: int = 0) -> None:
        self.leader = leader
        self.applied_offset = applied
        self.committed_offset = committed
        self.asked: list[str] = []
        self.proposals = Proposals(NodeId(2), 7, self)  # type: ignore[arg-type]
        self.proposals.connect(self, self)  # type: ignore[arg-type]

    def serve(self, *_: object) -> None:
        """The leader asks nothing here."""

    async def ask(self, node: NodeId, method: str, question: Any, answer: type) -> Any:
        self.asked.append(method)
        if method == "control.propose":
            raise TopicExists("orders")
        return SimpleNamespace(offset=self.committed_offset)

    async def next_fold(self) -> None:
        await asyncio.sleep(0)
        self.applied_offset += 1


def test_a_refusal_is_raised_once_its_reason_is_known_here() -> None:
    """Else a topic "exists already" and is looked for in vain."""

    async def main() -> None:
        follower = Follower(1, applied=3, committed=5)
        with pytest.raises(TopicExists):
            await follower.proposals.forward(b"create it")
        assert follower.asked == ["control.propose", "control.watermark"]
        assert follower.applied_offset == 5

    asyncio.run(main())


def test_without_a_leader_it_fails_before_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "LEADERLESS_S_MAX", 0.01)
    monkeypatch.setattr(proposals, "RETRY_S", 0.001)

    async def main() -> None:
        follower = Follower(None)
        with pytest.raises(NotLeader):
            await follower.proposals.forward(b"create it")
        assert follower.asked == []

    asyncio.run(main())

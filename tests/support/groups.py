"""Groups on a whole node on virtual time, and consumers that behave or misbehave in them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from millstream.config import Config
from millstream.engine.gate import Policy
from millstream.engine.groups.classic.vocabulary import Joined, Leaver, Synced
from millstream.engine.groups.service import Groups
from millstream.errors import TopicExists
from millstream.errors.groups import MemberIdRequired
from millstream.internal_topics.groups import Protocol
from millstream.model import Session, user_principal
from millstream.ports import Files
from millstream.server.node import Node
from tests.support.nodes import SESSION, FixedClock, running_node

GROUP = "billing"
CONSUMER = Session(principal=user_principal("test"), client_id="app", address="10.0.0.1")
RANGE = (Protocol("range", b"orders"),)


@asynccontextmanager
async def running_groups(
    config: Config | None = None,
    *,
    files: Files | None = None,
    clock: FixedClock | None = None,
    policy: Policy | None = None,
) -> AsyncIterator[Node]:
    """A node that has what groups need, a topic to read included."""
    async with running_node(config, files=files, clock=clock, policy=policy) as node:
        with suppress(TopicExists):
            await node.topics.create(SESSION, "orders", partitions=4)
        await node.groups.coordinator_of(SESSION, GROUP)
        yield node


class Consumer:
    """A well-behaved member of a group, one step at a time."""

    def __init__(
        self, groups: Groups, *, instance_id: str | None = None, group_id: str = GROUP
    ) -> None:
        self.groups = groups
        self.group_id = group_id
        self.instance_id = instance_id
        self.member_id = ""
        self.joined: Joined | None = None
        self.protocols = RANGE

    @property
    def generation(self) -> int:
        return -1 if self.joined is None else self.joined.generation

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader == self.member_id

    async def join(self, **changes: object) -> Joined:
        arguments: dict[str, object] = {
            "protocol_type": "consumer",
            "protocols": self.protocols,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "instance_id": self.instance_id,
            **changes,
        }
        try:
            joined = await self._join(arguments)
        except MemberIdRequired as required:
            self.member_id = required.member_id
            joined = await self._join(arguments)
        self.member_id, self.joined = joined.member_id, joined
        return joined

    async def sync(self) -> Synced:
        """As the leader, give everybody its own id as its assignment."""
        assert self.joined is not None
        return await self.groups.sync(
            CONSUMER,
            self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            assignments={m.member_id: m.member_id.encode() for m in self.joined.members},
        )

    async def enter(self) -> Synced:
        await self.join()
        return await self.sync()

    async def heartbeat(self) -> None:
        await self.groups.heartbeat(
            CONSUMER,
            self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
        )

    async def beat_for(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            await self.heartbeat()

    async def leave(self) -> None:
        (outcome,) = await self.groups.leave(CONSUMER, self.group_id, [Leaver(self.member_id)])
        assert outcome is None

    async def _join(self, arguments: dict[str, Any]) -> Joined:
        return await self.groups.join(
            CONSUMER, self.group_id, member_id=self.member_id, **arguments
        )

"""Topics as users ask for them: create, describe, list, alter, grow, delete.

Owns the checks a proposal needs before it goes to the control log, and the placement of new
partitions. The rules that must hold on every node are the catalog's.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from uuid import UUID

from millstream.config import Config
from millstream.control.catalog import Topic
from millstream.control.commands import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Replicas,
)
from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Operation, topic_resource
from millstream.errors import InvalidPartitions, InvalidReplication, InvalidSetting
from millstream.model import NodeId, Session
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.settings import TopicSettings, with_overrides

# Elections take one to two timeouts; a topic that is not led by then is led later.
LED_TIMEOUTS_MAX = 3


class Topics:
    def __init__(
        self,
        gate: Gate,
        controller: Controller,
        hub: Hub,
        *,
        config: Config,
        clock: Clock,
        entropy: Random,
    ) -> None:
        self._gate = gate
        self._controller = controller
        self._hub = hub
        self._config = config
        self._clock = clock
        self._entropy = entropy

    async def create(
        self,
        session: Session,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic; it takes records when this returns."""
        self._gate.admit(session, Operation.CREATE, topic_resource(name))
        self._controller.state.catalog.check_name(name)
        overrides = self._check_settings(settings or {})
        topic = await self._controller.propose(
            CreateTopic(
                name=name,
                topic_id=UUID(int=self._entropy.getrandbits(128), version=4),
                placement=self._place(partitions, replicas),
                overrides=overrides,
                created_ms=self._clock.now_ms(),
            )
        )
        await self._led(topic)
        return topic

    async def delete(self, session: Session, name: str) -> None:
        """Delete a topic with all its records."""
        self._gate.admit(session, Operation.DELETE, topic_resource(name))
        self._controller.state.catalog.find(name)
        await self._controller.propose(DeleteTopic(name=name))

    async def alter(self, session: Session, name: str, changes: Mapping[str, str | None]) -> Topic:
        """Change settings; None takes one back to its default."""
        self._gate.admit(session, Operation.ALTER, topic_resource(name))
        self._controller.state.catalog.find(name)
        self._check_settings({key: text for key, text in changes.items() if text is not None})
        return await self._controller.propose(AlterTopic(name=name, changes=dict(changes)))

    async def add_partitions(self, session: Session, name: str, *, total: int) -> Topic:
        """Grow a topic to `total` partitions."""
        self._gate.admit(session, Operation.ALTER, topic_resource(name))
        topic = self._controller.state.catalog.find(name)
        count = total - topic.partition_count
        if count < 1:
            raise InvalidPartitions(f"{name} has {topic.partition_count} partitions already")
        grown = await self._controller.propose(
            AddPartitions(
                name=name,
                count_before=topic.partition_count,
                placement=self._place(count, len(topic.placement[0]), of_total=total),
            )
        )
        await self._led(grown)
        return grown

    def describe(self, session: Session, name: str) -> Topic:
        self._gate.admit(session, Operation.DESCRIBE, topic_resource(name))
        return self._controller.state.catalog.find(name)

    def list(self, session: Session) -> list[Topic]:
        """Every topic that the session may know of, by name."""
        self._gate.admit(session, Operation.DESCRIBE, "topics")
        topics = self._controller.state.catalog.topics()
        visible = [t for t in topics if self._gate.sees(session, topic_resource(t.name))]
        return sorted(visible, key=lambda topic: topic.name)

    # -- parts -----------------------------------------------------------------------------

    def _check_settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        limit = self._config.limits.topic_settings_max
        if len(settings) > limit:
            raise InvalidSetting(f"{len(settings)} settings, at most {limit}")
        with_overrides(TopicSettings(), dict(settings))
        return dict(settings)

    def _place(
        self, partitions: int, replicas: int, *, of_total: int | None = None
    ) -> tuple[Replicas, ...]:
        """Spread partitions over the nodes, and their replicas over the nodes that follow."""
        limits = self._config.limits
        total = partitions if of_total is None else of_total
        if not 1 <= total <= limits.topic_partitions_max:
            raise InvalidPartitions(
                f"{total} partitions, a topic has 1 to {limits.topic_partitions_max}"
            )
        held = sum(t.partition_count for t in self._controller.state.catalog.topics())
        if held + partitions > limits.node_partitions_max:
            raise InvalidPartitions(
                f"{held} partitions exist, at most {limits.node_partitions_max} are allowed"
            )
        nodes = sorted(self._config.voters)
        if not 1 <= replicas <= len(nodes):
            raise InvalidReplication(f"{replicas} replicas asked for, there are {len(nodes)} nodes")
        first = self._entropy.randrange(len(nodes))
        return tuple(
            tuple(NodeId(nodes[(first + at + step) % len(nodes)]) for step in range(replicas))
            for at in range(partitions)
        )

    async def _led(self, topic: Topic) -> None:
        """Wait until the replicas here know their leader, but not for ever."""
        limit_ms = LED_TIMEOUTS_MAX * self._config.timing.election_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                for partition in range(topic.partition_count):
                    await self._hub.led(topic.log(partition))
        except TimeoutError:
            return  # Created all the same; clients ask again until there is a leader.

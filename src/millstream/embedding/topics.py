"""Topics of an embedded broker. Owns the translation from the engine's words to plain values."""

from millstream.control.catalog import Topic
from millstream.embedding import checks
from millstream.embedding.values import PartitionDetails, TopicDetails
from millstream.model import Session, TopicPartition
from millstream.names import INTERNAL_TOPICS
from millstream.server.node import Node


class Topics:
    def __init__(self, session: Session, node: Node) -> None:
        self._session = session
        self._node = node

    async def create(
        self, name: str, *, partitions: int = 1, settings: checks.Settings | None = None
    ) -> TopicDetails:
        """Create a topic; it takes records when this returns.

        Settings are Kafka's, such as `retention_ms` or `retention.ms`, with text, a number or a
        bool. Raises `TopicExists`, `InvalidTopicName`, `InvalidPartitions` or `InvalidSetting`,
        and `TypeError` or `ValueError` for what is none of these types.
        """
        topic = await self._node.topics.create(
            self._session,
            checks.text("name", name),
            partitions=checks.whole_number("partitions", partitions, 1),
            settings=checks.settings_text(settings),
        )
        return self._details(topic)

    def list(self) -> list[str]:
        """The names of all topics but the broker's own, in order."""
        topics = self._node.topics.list(self._session)
        return [topic.name for topic in topics if topic.name not in INTERNAL_TOPICS]

    def describe(self, name: str) -> TopicDetails:
        """Partitions, sizes and settings; raises `UnknownTopic`."""
        name = checks.text("name", name)
        return self._details(self._node.topics.describe(self._session, name))

    async def delete(self, name: str) -> None:
        """Delete a topic with all its records; raises `UnknownTopic`."""
        await self._node.topics.delete(self._session, checks.text("name", name))

    def _details(self, topic: Topic) -> TopicDetails:
        return TopicDetails(
            name=topic.name,
            topic_id=str(topic.topic_id),
            partitions=tuple(
                self._partition(TopicPartition(topic.name, index))
                for index in range(topic.partition_count)
            ),
            is_internal=topic.name in INTERNAL_TOPICS,
            settings=dict(topic.overrides),
        )

    def _partition(self, target: TopicPartition) -> PartitionDetails:
        health = self._node.partitions.health(self._session, target)
        return PartitionDetails(
            partition=target.partition,
            leader=health.leader,
            start_offset=health.log.start_offset,
            end_offset=health.high_watermark,
            size_bytes=health.log.size_bytes,
        )

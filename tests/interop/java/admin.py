"""What the tests of programs around Kafka ask of a broker, theirs or ours."""

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.interop.librdkafka.clients import QUIET, SECONDS_MAX

DYNAMIC_TOPIC_CONFIG = 1


class Admin:
    """What the tests ask of one broker."""

    def __init__(self, address: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": address, **QUIET})

    def create(self, topic: str, partitions: int, settings: dict[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, config=settings or {})
        self._admin.create_topics([new])[topic].result(SECONDS_MAX)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS_MAX)

    def partition_count(self, topic: str) -> int:
        listed = self._admin.list_topics(timeout=SECONDS_MAX).topics
        return len(listed[topic].partitions) if topic in listed else 0

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of the topic itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._admin.describe_configs([resource])[resource].result(SECONDS_MAX)
        return {
            name: entry.value
            for name, entry in entries.items()
            if entry.source == DYNAMIC_TOPIC_CONFIG
        }

    def change(self, topic: str, name: str, value: str | None) -> None:
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value or "", incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The group's offset in each partition; none while the group is not known."""
        asked = [ConsumerGroupTopicPartitions(group)]
        try:
            offsets = self._admin.list_consumer_group_offsets(asked)[group].result(SECONDS_MAX)
        except KafkaException:
            return {}
        return {at.partition: at.offset for at in offsets.topic_partitions if at.topic == topic}

    def ends(self, topic: str) -> dict[int, int]:
        asked = {
            TopicPartition(topic, partition): OffsetSpec.latest()
            for partition in range(self.partition_count(topic))
        }
        if not asked:
            return {}
        answers = self._admin.list_offsets(asked)
        return {at.partition: answer.result(SECONDS_MAX).offset for at, answer in answers.items()}

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=SECONDS_MAX).topics)

"""Looking at a cluster and changing it: topics, settings, offsets, groups, transactions.

Owns the calls; `shapes.py` turns librdkafka's answers into values. Every call waits for its answer
and raises a typed error; none creates a topic by asking about it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from millstream.client._librdkafka import shapes
from millstream.client._librdkafka.link import STEP_S, Link
from millstream.client.errors import NotFound, Refused, no_topic
from millstream.client.extensions.requests import list_transactions, topic_sizes
from millstream.client.models import (
    Cluster,
    Group,
    GroupDescription,
    Lag,
    Partition,
    Setting,
    StartPoint,
    Topic,
    TopicDescription,
    TopicPartition,
    Transaction,
    milliseconds,
)
from millstream.view_names import split_filtered

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# A setting that only brokers with delays, lifetimes and message ids have.
QUEUE_SETTING = "log.message.queue.headers"


class Admin:
    """`client.admin`. Threads may share it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._handle: AdminClient | None = None
        self._has_queues: bool | None = None  # Not known yet.

    # -- the cluster ---------------------------------------------------------------------------

    def describe_cluster(self) -> Cluster:
        return self._cluster("describe the cluster", is_hasty=False)

    def check(self) -> Cluster:
        """Reach the cluster, or say at once that no broker is there."""
        return self._cluster("connect", is_hasty=True)

    def broker_settings(self, node_id: int | None = None) -> tuple[Setting, ...]:
        from confluent_kafka.admin import ResourceType

        asked = self.describe_cluster().nodes[0].node_id if node_id is None else node_id
        return self._settings(ResourceType.BROKER, str(asked), f"describe node {asked}")

    def has_queues(self) -> bool:
        """Whether the brokers carry out delays, lifetimes and message ids. Asked for once."""
        if self._has_queues is None:
            self._has_queues = any(s.name == QUEUE_SETTING for s in self.broker_settings())
        return self._has_queues

    # -- topics --------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, object] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Create a topic; the broker has defaults for all options. `dry_run` only checks.

        Settings are named `retention.ms` or `retention_ms`, with any text, number or truth.
        """
        from confluent_kafka.admin import NewTopic

        doing = f"create topic {name!r}"
        if partitions is not None and partitions < 1:
            raise Refused(f"cannot {doing}: {partitions} partitions; at least 1")
        topic = NewTopic(
            name,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=shapes.topic_settings(settings or {}, doing),
        )
        self._single(lambda a, w: a.create_topics([topic], validate_only=dry_run, **w), doing)

    def list_topics(
        self, *, with_internal: bool = False, timeout_s: float | None = None
    ) -> tuple[Topic, ...]:
        """All topics by name, without the cluster's own unless asked for."""
        limit_s = self._link.timeout_s if timeout_s is None else timeout_s
        listed = self._call(lambda a: a.list_topics(timeout=limit_s), "list topics")
        topics = (shapes.topic(topic) for topic in listed.topics.values())
        return tuple(sorted((t for t in topics if with_internal or not t.is_internal), key=_name))

    def topic_sizes(self) -> dict[str, int]:
        """Bytes that each topic takes on disk, with all its replicas. Views take none."""
        nodes = self.describe_cluster().nodes
        return topic_sizes(nodes, self._link.config(), timeout_s=self._link.timeout_s)

    def describe_topic(self, name: str) -> TopicDescription:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import ResourceType

        doing = f"describe topic {name!r}"
        with _naming(name):
            topic = self._single(
                lambda a, w: a.describe_topics(TopicCollection([name]), **w), doing
            )
        targets = [TopicPartition(name, partition.id) for partition in topic.partitions]
        begins, ends = self.offsets(targets, "earliest"), self.offsets(targets, "latest")
        return TopicDescription(
            name=topic.name,
            topic_id=str(topic.topic_id),
            is_internal=topic.is_internal,
            partitions=tuple(
                shapes.partition(partition, begins[target], ends[target])
                for partition, target in zip(topic.partitions, targets, strict=True)
            ),
            settings=self._settings(ResourceType.TOPIC, name, doing),
        )

    def partitions(self, topic: str) -> tuple[Partition, ...]:
        return self.describe_topic(topic).partitions

    def alter_topic(
        self, name: str, settings: Mapping[str, object] | None = None, *, unset: Iterable[str] = ()
    ) -> None:
        """Set some settings and put others back to their defaults; all others stay."""
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        operation = AlterConfigOpType
        entries = [
            ConfigEntry(key, value, incremental_operation=operation.SET)
            for key, value in shapes.topic_settings(settings or {}, f"alter topic {name!r}").items()
        ]
        entries += [
            ConfigEntry(shapes.setting_name(key), None, incremental_operation=operation.DELETE)
            for key in unset
        ]
        if not entries:
            raise Refused(f"cannot alter topic {name!r}: no setting was given")
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        with _naming(name):
            self._single(
                lambda a, w: a.incremental_alter_configs([resource], **w), f"alter topic {name!r}"
            )

    def topic_settings(self, name: str, *, doing: str | None = None) -> tuple[Setting, ...]:
        """The settings of a topic. `doing` names the operation in errors."""
        from confluent_kafka.admin import ResourceType

        filtered = split_filtered(name)
        with _naming(name if filtered is None else filtered.topic):
            return self._settings(ResourceType.TOPIC, name, doing or f"describe topic {name!r}")

    def settings_of_topics(self, names: Iterable[str]) -> dict[str, tuple[Setting, ...]]:
        """The settings of many topics, asked for at once."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        asked = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not asked:
            return {}
        answers = self._many(lambda a, w: a.describe_configs(asked, **w), "describe topics")
        return {
            resource.name: tuple(map(shapes.setting, settings.values()))
            for resource, settings in answers.items()
        }

    def grow_topic(self, name: str, partitions: int) -> None:
        """Give the topic `partitions` in total. Records of a key may go elsewhere from then on."""
        from confluent_kafka.admin import NewPartitions

        doing = f"grow topic {name!r} to {partitions} partitions"
        if partitions < 1:
            raise Refused(f"cannot {doing}: at least 1")
        grown = [NewPartitions(name, partitions)]
        with _naming(name):
            self._single(lambda a, w: a.create_partitions(grown, **w), doing)

    def delete_topic(self, name: str) -> None:
        with _naming(name):
            self._single(lambda a, w: a.delete_topics([name], **w), f"delete topic {name!r}")

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all of them); return the new beginnings."""
        from confluent_kafka import TopicPartition as KafkaPartition

        targets = [KafkaPartition(at.topic, at.partition, offset) for at, offset in before.items()]
        if not targets:
            return {}
        answers = self._many(lambda a, w: a.delete_records(targets, **w), "delete records")
        return {shapes.place(at): deleted.low_watermark for at, deleted in answers.items()}

    def offsets(
        self, targets: Iterable[TopicPartition] | str, at: StartPoint
    ) -> dict[TopicPartition, int]:
        """The offsets where reading from `at` begins; after the last record this is the end.

        `targets` are partitions, or the name of a topic for all of its partitions.
        """
        from confluent_kafka import TopicPartition as KafkaPartition
        from confluent_kafka.admin import OffsetSpec

        places = self._places(targets) if isinstance(targets, str) else list(targets)
        if not places:
            return {}
        if isinstance(at, int):
            return dict.fromkeys(places, at)
        specs: Any = OffsetSpec  # Its methods carry no types.
        spec = specs.earliest() if at == "earliest" else specs.latest()
        if not isinstance(at, str):
            spec = specs.for_timestamp(milliseconds(at))
        asked = {KafkaPartition(*place): spec for place in places}
        answers = self._many(lambda a, w: a.list_offsets(asked, **w), f"find offsets at {at}")
        offsets = {shapes.place(place): listed.offset for place, listed in answers.items()}
        late = [place for place, offset in offsets.items() if offset < 0]
        return offsets | (self.offsets(late, "latest") if late and at != "latest" else {})

    # -- groups --------------------------------------------------------------------------------

    def list_groups(self) -> tuple[Group, ...]:
        doing = "list groups"
        answer = self._future(lambda a, w: a.list_consumer_groups(**w), doing)
        for problem in answer.errors or ():
            raise self._link.failure(problem, doing)
        return tuple(
            sorted(map(shapes.group, answer.valid or ()), key=lambda group: group.group_id)
        )

    def describe_group(self, group: str) -> GroupDescription:
        doing = f"describe group {group!r}"
        described = self._single(lambda a, w: a.describe_consumer_groups([group], **w), doing)
        if described.state.name == "DEAD":  # Brokers before 4.0 answer so for an unknown group.
            raise NotFound(f"cannot {doing}: there is no such group.", code="GROUP_ID_NOT_FOUND")
        return shapes.group_description(described)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        asked = [ConsumerGroupTopicPartitions(group)]
        doing = f"read the offsets of group {group!r}"
        deadline = monotonic() + self._link.timeout_s
        while True:
            answer = self._single(
                lambda a, w: a.list_consumer_group_offsets(asked, require_stable=True, **w), doing
            )
            errors = [place.error for place in answer.topic_partitions if place.error is not None]
            if not errors:
                places = answer.topic_partitions
                return {shapes.place(at): at.offset for at in places if at.offset >= 0}
            # A transaction is being completed: the offsets that it commits are known in a moment.
            if errors[0].name() != "UNSTABLE_OFFSET_COMMIT" or monotonic() > deadline:
                raise self._link.error(errors[0], doing)
            sleep(STEP_S)

    def group_lag(self, group: str) -> tuple[Lag, ...]:
        """How far the group is behind, in all partitions of topics that it reads or has read."""
        described = self.describe_group(group)
        owners = {at: member.member_id for member in described.members for at in member.partitions}
        committed = self.committed(group)
        # The group has not begun a partition in which it has committed nothing.
        topics = sorted({at.topic for at in (*owners, *committed)})
        places = [at for topic in topics for at in sorted(self._places(topic))]
        begins, ends = self.offsets(places, "earliest"), self.offsets(places, "latest")
        return tuple(
            Lag(
                topic=place.topic,
                partition=place.partition,
                committed_offset=committed.get(place),
                begin_offset=begins[place],
                end_offset=ends[place],
                member_id=owners.get(place),
            )
            for place in places
        )

    def reset_group(
        self,
        group: str,
        to: "StartPoint | Mapping[TopicPartition, int]",
        *,
        topics: Iterable[str] | None = None,
        dry_run: bool = False,
    ) -> dict[TopicPartition, int]:
        """Move a group without members to `to`; return the offsets it has then.

        Without `topics`, those that it has committed. `dry_run` returns the offsets only.
        """
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka import TopicPartition as KafkaPartition

        if isinstance(to, Mapping):
            goals = dict(to)
        elif topics is None:
            goals = self.offsets(self.committed(group), to)
        else:
            goals = {at: n for topic in topics for at, n in self.offsets(topic, to).items()}
        if dry_run or not goals:
            return goals
        asked = [KafkaPartition(at.topic, at.partition, offset) for at, offset in goals.items()]
        doing = f"reset group {group!r}"
        answer = self._single(
            lambda a, w: a.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, asked)], **w
            ),
            doing,
        )
        for place in answer.topic_partitions:
            if place.error is not None:
                raise self._link.error(place.error, doing)
        return goals

    def delete_group(self, group: str) -> None:
        self._single(lambda a, w: a.delete_consumer_groups([group], **w), f"delete group {group!r}")

    # -- transactions --------------------------------------------------------------------------

    def list_transactions(self) -> tuple[Transaction, ...]:
        """The transactions that the coordinators know, open or done.

        librdkafka does not offer this request, so it goes over connections of our own: with TLS and
        SASL (PLAIN, SCRAM) as the settings say. Any other protection is refused by name.
        """
        config = self._link.config()
        nodes = self.describe_cluster().nodes
        return list_transactions(nodes, config, timeout_s=self._link.timeout_s)

    def close(self) -> None:
        self._handle = None

    # -- private parts -------------------------------------------------------------------------

    def _cluster(self, doing: str, *, is_hasty: bool) -> Cluster:
        return shapes.cluster(
            self._future(lambda a, w: a.describe_cluster(**w), doing, is_hasty=is_hasty)
        )

    def _places(self, topic: str) -> list[TopicPartition]:
        from confluent_kafka import TopicCollection

        asked, doing = TopicCollection([topic]), f"find topic {topic!r}"
        with _naming(topic):
            described = self._single(lambda a, w: a.describe_topics(asked, **w), doing)
        return [TopicPartition(topic, partition.id) for partition in described.partitions]

    # ResourceType is an enumeration of librdkafka's, imported late.
    def _settings(self, kind: Any, name: str, doing: str) -> tuple[Setting, ...]:
        from confluent_kafka.admin import ConfigResource

        asked = [ConfigResource(kind, name)]
        settings = self._single(lambda a, w: a.describe_configs(asked, **w), doing)
        return tuple(sorted(map(shapes.setting, settings.values()), key=_name))

    # Any: librdkafka's answers have a type per call, which the callers know.
    def _call(self, call: "Callable[[AdminClient], Any]", doing: str) -> Any:
        from confluent_kafka import KafkaException

        handle = self._admin()
        try:
            return call(handle)
        except (KafkaException, TypeError, ValueError) as problem:
            handle.poll(0)
            raise self._link.failure(problem, doing) from problem

    def _future(
        self,
        call: "Callable[[AdminClient, dict[str, Any]], Future[Any]]",
        doing: str,
        *,
        is_hasty: bool = False,
    ) -> Any:
        future = self._call(lambda a: call(a, self._limits), doing)
        return self._link.wait(future, doing, poll=self._admin().poll, is_hasty=is_hasty)

    def _many(
        self, call: "Callable[[AdminClient, dict[str, Any]], dict[Any, Future[Any]]]", doing: str
    ) -> dict[Any, Any]:
        futures = self._call(lambda a: call(a, self._limits), doing)
        poll = self._admin().poll
        return {
            key: self._link.wait(future, doing, poll=poll, is_hasty=False)
            for key, future in futures.items()
        }

    def _single(
        self, call: "Callable[[AdminClient, dict[str, Any]], dict[Any, Future[Any]]]", doing: str
    ) -> Any:
        (answer,) = self._many(call, doing).values()
        return answer

    @property
    def _limits(self) -> dict[str, Any]:
        return {"request_timeout": self._link.timeout_s}

    def _admin(self) -> "AdminClient":
        from confluent_kafka.admin import AdminClient

        if self._handle is None:
            self._handle = self._link.open(AdminClient, self._link.config())
        return self._handle


@contextmanager
def _naming(topic: str) -> Iterator[None]:
    """Say which topic there is not, and how to create it."""
    try:
        yield
    except NotFound as problem:
        raise no_topic(topic) from problem


def _name(named: "Topic | Setting") -> str:
    return named.name

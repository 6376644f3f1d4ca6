"""Handlers of topics, and of the cluster that holds them.

Translates between FlyMQ's requests and the engine's topics. Creating a topic that exists and
deleting one that does not are answered as done.
"""

from contextlib import suppress

from millstream.control.catalog import Topic
from millstream.engine.gate import Operation
from millstream.engine.partitions.slices import Earliest, Latest, Place
from millstream.errors import InvalidRequest, TopicExists, UnknownTopic
from millstream.model import Isolation, TopicPartition
from millstream.names import INTERNAL_PREFIX
from millstream.protocols.flymq.context import Context
from millstream.protocols.flymq.gateway import Handler
from millstream.protocols.flymq.wire import bodies
from millstream.protocols.flymq.wire.frames import Opcode

_ONLINE, _OFFLINE = "online", "offline"


async def create_topic(context: Context, request: bodies.CreateTopic) -> bodies.Done:
    with suppress(TopicExists):
        await context.services.topics.create(
            context.session,
            request.topic,
            partitions=request.partitions or 1,
            replicas=None,
        )
    return bodies.Done(True)


async def delete_topic(context: Context, request: bodies.TopicOnly) -> bodies.Done:
    with suppress(UnknownTopic):
        await context.services.topics.delete(context.session, request.topic)
    return bodies.Done(True)


async def list_topics(context: Context, request: bodies.Nothing) -> bodies.Topics:
    return bodies.Topics(tuple(topic.name for topic in _visible(context)))


async def metadata(context: Context, request: bodies.TopicOnly) -> bodies.TopicMetadata:
    services, session = context.services, context.session
    topic = services.topics.describe(session, request.topic)
    return bodies.TopicMetadata(
        topic.name,
        tuple(
            [
                bodies.PartitionMetadata(
                    at,
                    -1 if led.leader is None else led.leader,
                    await find_offset(context, TopicPartition(topic.name, at), Earliest()),
                    await find_offset(context, TopicPartition(topic.name, at), Latest()),
                )
                for at, led in enumerate(services.partitions.leadership(session, topic))
            ]
        ),
    )


async def find_offset(context: Context, target: TopicPartition, place: Place) -> int:
    """The offset of a place for readers of committed records; the end if there is none."""
    partitions, session = context.services.partitions, context.session
    isolation = Isolation.READ_COMMITTED
    offset = await partitions.find(session, target, place, isolation=isolation)
    if offset is None:
        offset = await partitions.find(session, target, Latest(), isolation=isolation)
        assert offset is not None, "every log has an end"
    return offset.offset


# -- cluster -------------------------------------------------------------------------------------


async def cluster_metadata(context: Context, request: bodies.TopicOrAll) -> bodies.ClusterMetadata:
    topics = _visible(context)
    if request.topic:
        topics = [context.services.topics.describe(context.session, request.topic)]
    return bodies.ClusterMetadata(
        context.services.cluster_id, tuple(_placed(context, topic) for topic in topics)
    )


def _placed(context: Context, topic: Topic) -> bodies.PlacedTopic:
    leadership = context.services.partitions.leadership(context.session, topic)
    return bodies.PlacedTopic(
        topic.name,
        tuple(
            bodies.PlacedPartition(
                at,
                "" if led.leader is None else str(led.leader),
                # A client knows this node by the address it dialled, and no other node at all.
                str(context.dialled) if led.leader == context.services.config.node_id else "",
                led.epoch,
                _OFFLINE if led.leader is None else _ONLINE,
                tuple(map(str, led.replicas)),
                tuple(map(str, led.replicas)),
            )
            for at, led in enumerate(leadership)
        ),
    )


async def cluster_status(context: Context, request: bodies.Nothing) -> bodies.ClusterStatus:
    context.services.topics.admit_to_cluster(context.session, Operation.DESCRIBE)
    config, topics = context.services.config, _visible(context)
    return bodies.ClusterStatus(
        context.services.cluster_id,
        str(config.node_id),
        _ONLINE,
        len(config.voters),
        len(topics),
        sum(topic.partition_count for topic in topics),
    )


async def change_cluster(context: Context, request: object) -> bodies.Message:
    """Clients take any reply for a yes, so no must be an error."""
    context.services.topics.admit_to_cluster(context.session, Operation.ALTER)
    raise InvalidRequest("which nodes are in the cluster is configured, and not changed by clients")


def _visible(context: Context) -> list[Topic]:
    topics = context.services.topics.list(context.session)
    return [topic for topic in topics if not topic.name.startswith(INTERNAL_PREFIX)]


HANDLERS: dict[Opcode, Handler] = {
    Opcode.CREATE_TOPIC: create_topic,
    Opcode.DELETE_TOPIC: delete_topic,
    Opcode.LIST_TOPICS: list_topics,
    Opcode.METADATA: metadata,
    Opcode.CLUSTER_METADATA: cluster_metadata,
    Opcode.CLUSTER_STATUS: cluster_status,
    Opcode.CLUSTER_JOIN: change_cluster,
    Opcode.CLUSTER_LEAVE: change_cluster,
}

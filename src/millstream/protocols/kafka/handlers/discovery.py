"""Handlers of discovery: ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions.

A node advertises the address that the client dialled, unless it is configured with another, so a
client that came through a port forward, a container or a tunnel comes the same way again.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from millstream.control.catalog import Topic
from millstream.engine.controller import Quorum
from millstream.engine.partitions.leaders import Leadership
from millstream.errors import RequestError, TopicExists, UnknownTopic
from millstream.kafka_wire.apis.discovery import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
    TopicCursor,
)
from millstream.kafka_wire.apis.table import OWN_CLIENTS, OWN_KEYS_FIRST, api_versions
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.kafka_wire.schema import NO_ID, NO_OPERATIONS
from millstream.names import INTERNAL_TOPICS, METADATA_TOPIC
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.handlers.own import features
from millstream.view_names import split_filtered

NO_LEADER = -1
# Kafka's bound on one page of DescribeTopicPartitions.
PAGE_PARTITIONS_MAX = 2000

CONTROL_LISTENER = "CONTROLLER"

# Described in one turn of the event loop, of 2 ms or so. The partitions of one topic are in one.
STEP_PARTITIONS = 128

_NAMELESS_TOPICS = 12
_METADATA = 3
_NAMED_LISTENERS = 6  # Metadata since then says that a listener is missing.
_MetadataTopic = MetadataResponse.Topic
_PagedTopic = DescribeTopicPartitionsResponse.Topic
_QuorumTopic = DescribeQuorumResponse.Topic


def api_versions_handler(
    context: Context, request: ApiVersionsRequest, served: Sequence[int]
) -> ApiVersionsResponse:
    is_ours = request.client_software_name.startswith(OWN_CLIENTS)
    advertised = [key for key in served if is_ours or key < OWN_KEYS_FIRST]
    return api_versions(context.version, advertised, *features.in_use(context))


# -- metadata ----------------------------------------------------------------------------------


async def metadata(context: Context, request: MetadataRequest) -> MetadataResponse:
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    if not wants_all:
        await _awake(context, request.topics or [])
    topics = await _metadata_topics(
        context,
        request,
        context.broker.topics.list(context.session) if wants_all else request.topics or [],
    )
    context.end_if_cut_off()
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(
                node_id=node.node_id, host=node.host, port=node.port, rack=node.rack or None
            )
            for node in context.nodes()
        ],
        cluster_id=context.broker.cluster_id,
        controller_id=_controller_id(context),
        topics=topics,
        cluster_authorized_operations=context.broker.topics.cluster_operations(context.session)
        if request.include_cluster_authorized_operations
        else NO_OPERATIONS,
    )


async def _metadata_topics(
    context: Context, request: MetadataRequest, wants: Sequence[Topic | MetadataRequest.Topic]
) -> list[_MetadataTopic]:
    """The answers for all `wants`; other tasks run after each `STEP_PARTITIONS`."""
    described: list[_MetadataTopic] = []
    count = 0
    for want in wants:
        if isinstance(want, Topic):
            described.append(_described(context, want, request))
        else:
            described.append(await _metadata_topic(context, want, request))
        count += 1 + len(described[-1].partitions)
        if count >= STEP_PARTITIONS:
            count = 0
            await asyncio.sleep(0)
    return described


async def _awake(context: Context, wants: Sequence[MetadataRequest.Topic]) -> None:
    """Open the logs that the client is about to use, all at once."""
    topics: list[Topic] = []
    for want in wants:
        name = _asked_name(want)
        with suppress(RequestError):
            topics.append(
                context.broker.topics.describe_id(context.session, want.topic_id)
                if name is None
                else context.broker.topics.describe(context.session, name)
            )
    await context.broker.partitions.awake(context.session, topics)


async def _metadata_topic(
    context: Context, want: MetadataRequest.Topic, request: MetadataRequest
) -> _MetadataTopic:
    topics, session = context.broker.topics, context.session
    name = _asked_name(want)
    try:
        if name is None:
            return _described(context, topics.describe_id(session, want.topic_id), request)
        return _described(context, topics.describe(session, name), request)
    except UnknownTopic as unknown:
        if name is None:
            return _refused(context, want, ErrorCode.UNKNOWN_TOPIC_ID)
        may_create = request.allow_auto_topic_creation and split_filtered(name) is None
        if not (may_create and context.broker.config.auto_create_topics):
            return _refused(context, want, code_for(unknown))
    except RequestError as problem:
        return _refused(context, want, code_for(problem))
    return await _created(context, want, name, request)


def _asked_name(want: MetadataRequest.Topic) -> str | None:
    """None where the id is what counts: Java's clients send an empty name with it, others none."""
    return want.name if want.topic_id == NO_ID else None


async def _created(
    context: Context, want: MetadataRequest.Topic, name: str, request: MetadataRequest
) -> _MetadataTopic:
    """Create a topic that a request names, as Kafka's brokers do by default."""
    config = context.broker.config
    try:
        topic = await context.broker.topics.create(
            context.session,
            name,
            partitions=config.default_partitions,
            replicas=None,
        )
    except TopicExists:
        topic = context.broker.topics.describe(context.session, name)
    except RequestError as problem:
        return _refused(context, want, code_for(problem))
    return _described(context, topic, request)


def _refused(context: Context, want: MetadataRequest.Topic, code: ErrorCode) -> _MetadataTopic:
    name = _asked_name(want)
    if name is None and context.version < _NAMELESS_TOPICS:
        name = ""  # There is no word yet for a topic without a name.
    return _MetadataTopic(error_code=code, name=name, topic_id=want.topic_id, partitions=[])


def _described(context: Context, topic: Topic, request: MetadataRequest) -> _MetadataTopic:
    leaderships = context.broker.partitions.leadership(context.session, topic)
    return _MetadataTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=context.broker.topics.operations(context.session, topic.name)
        if request.include_topic_authorized_operations
        else NO_OPERATIONS,
        partitions=[
            _MetadataTopic.Partition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=leadership.epoch,
                replica_nodes=list(leadership.replicas),
                isr_nodes=leadership.in_step(context.broker.members.is_up),
                offline_replicas=_offline(context, leadership),
            )
            for index, leadership in enumerate(leaderships)
            for leader, error in [_leader(context, leadership.leader)]
        ],
    )


def _offline(context: Context, leadership: Leadership) -> list[int]:
    return [node for node in leadership.replicas if not context.broker.members.is_up(node)]


def _leader(context: Context, leader: int | None) -> tuple[int, ErrorCode]:
    is_reached = leader == context.broker.node_id or (
        leader is not None and context.node(leader) is not None
    )
    is_named = context.header.api_key != _METADATA or context.version >= _NAMED_LISTENERS
    return leader_answer(leader, is_reached=is_reached, is_named=is_named)


def leader_answer(leader: int | None, *, is_reached: bool, is_named: bool) -> tuple[int, ErrorCode]:
    """The id and the error of a partition's leader.

    `is_reached`: it has a listener of the name that the client came by. `is_named`: this version
    has a word for a missing one (KIP-103).
    """
    if leader is not None and is_reached:
        return leader, ErrorCode.NONE
    if leader is not None and is_named:
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
    return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE


# -- the cluster -------------------------------------------------------------------------------


def describe_cluster(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=context.broker.cluster_id,
        controller_id=_controller_id(context),
        brokers=[
            DescribeClusterResponse.Broker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack or None
            )
            for node in context.nodes()
        ],
        cluster_authorized_operations=context.broker.topics.cluster_operations(context.session)
        if request.include_cluster_authorized_operations
        else NO_OPERATIONS,
    )


def _controller_id(context: Context) -> int:
    """Every node takes every administrative request; the active controller is the one at hand."""
    leader = context.broker.members.active_controller
    return context.broker.node_id if leader is None else leader


def describe_quorum(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    try:
        quorum = context.broker.topics.quorum(context.session)
    except RequestError as problem:
        return DescribeQuorumResponse(
            error_code=code_for(problem), error_message=str(problem), topics=[]
        )
    node = DescribeQuorumResponse.Node
    return DescribeQuorumResponse(
        topics=[
            _QuorumTopic(
                topic_name=topic.topic_name,
                partitions=[
                    _quorum_of(context, topic.topic_name, part.partition_index, quorum)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[
            node(
                node_id=each.node_id,
                listeners=[node.Listener(name=CONTROL_LISTENER, host=each.host, port=each.port)],
            )
            for each in context.nodes()
        ],
    )


def _quorum_of(context: Context, topic: str, index: int, quorum: Quorum) -> _QuorumTopic.Partition:
    if (topic, index) != (METADATA_TOPIC, 0):
        return _QuorumTopic.Partition(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"only {METADATA_TOPIC}-0 has a quorum",
            current_voters=[],
            observers=[],
        )
    me = context.broker.node_id
    return _QuorumTopic.Partition(
        partition_index=index,
        leader_id=NO_LEADER if quorum.leader is None else quorum.leader,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[
            _QuorumTopic.Partition.Replica(
                replica_id=voter,
                log_end_offset=quorum.end_offset if voter == me else -1,
                last_caught_up_timestamp=quorum.as_of_ms if voter == me == quorum.leader else -1,
            )
            for voter in quorum.voters
        ],
        observers=[
            _QuorumTopic.Partition.Replica(
                replica_id=each.node_id, log_end_offset=-1, last_caught_up_timestamp=-1
            )
            for each in context.nodes()
            if each.node_id not in quorum.voters
        ],
    )


def describe_topic_partitions(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """One page: topics in the order of their names, from the cursor on."""
    topics_of_node, session = context.broker.topics, context.session
    names = sorted(
        {t.name for t in request.topics} or {t.name for t in topics_of_node.list(session)}
    )
    cursor, left = request.cursor, min(request.response_partition_limit, PAGE_PARTITIONS_MAX)
    topics: list[_PagedTopic] = []
    for name in names:
        start = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            start = cursor.partition_index if name == cursor.topic_name else 0
        try:
            topic = topics_of_node.describe(session, name)
        except RequestError as problem:
            topics.append(_PagedTopic(error_code=code_for(problem), name=name, partitions=[]))
            continue
        if left <= 0:
            return _page(topics, TopicCursor(topic_name=name, partition_index=start))
        page = _paged(context, topic, start, left)
        topics.append(page)
        left -= len(page.partitions)
        end = start + len(page.partitions)
        if end < topic.partition_count:
            return _page(topics, TopicCursor(topic_name=name, partition_index=end))
    return _page(topics, None)


def _page(topics: list[_PagedTopic], cursor: TopicCursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _paged(context: Context, topic: Topic, start: int, count_max: int) -> _PagedTopic:
    leaderships = context.broker.partitions.leadership(context.session, topic)
    return _PagedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=context.broker.topics.operations(context.session, topic.name),
        partitions=[
            _PagedTopic.Partition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=leadership.epoch,
                replica_nodes=list(leadership.replicas),
                isr_nodes=leadership.in_step(context.broker.members.is_up),
                # Null is allowed by the schema, but Java's admin client reads it as a list.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=_offline(context, leadership),
            )
            for index, leadership in list(enumerate(leaderships))[start : start + count_max]
            for leader, error in [_leader(context, leadership.leader)]
        ],
    )


HANDLERS: dict[int, Handler] = {
    3: metadata,
    55: describe_quorum,
    60: describe_cluster,
    75: describe_topic_partitions,
}

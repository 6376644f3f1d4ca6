"""Handlers of placement: log directories, ElectLeaders, and the two of reassignments.

Consensus elects a leader as soon as there is none: ElectLeaders asks it for the preferred one.
"""

import asyncio
from collections.abc import Collection, Sequence
from enum import IntEnum

from millstream.control.assignments import nodes_of
from millstream.control.catalog import Topic
from millstream.control.commands import Replicas
from millstream.engine.gate import Operation
from millstream.engine.partitions.leaders import Leadership
from millstream.errors import InvalidRequest, RequestError, UnknownTopic
from millstream.kafka_wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.model import NodeId, TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.handlers.broker_config_table import directory_of

_LogDir = DescribeLogDirsResponse.Result
_Moved = AlterReplicaLogDirsResponse.Topic.Partition
_Elected = ElectLeadersResponse.Topic.Partition
_Reassigned = AlterPartitionReassignmentsResponse.Topic.Partition
_Moving = ListPartitionReassignmentsResponse.Topic.Partition


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


# -- directories -------------------------------------------------------------------------------


async def describe_log_dirs(
    context: Context, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    try:
        context.broker.topics.admit_to_cluster(context.session, Operation.DESCRIBE)
        topics = context.broker.topics.list(context.session)
    except RequestError as problem:
        # Before v3 there is no place for the code: as in Kafka, nothing is listed.
        return DescribeLogDirsResponse(error_code=code_for(problem), results=[])
    partitions_by_topic: dict[str, set[int]] = {}
    for requested in request.topics or ():
        partitions_by_topic.setdefault(requested.topic, set()).update(requested.partitions)
    logs = []
    for topic in topics:
        if topic.is_view:
            continue  # It takes no space of its own.
        every = range(topic.partition_count)
        indexes = (
            every
            if request.topics is None
            else partitions_by_topic.get(topic.name, set()) & set(every)
        )
        parts = _sizes(context, topic, indexes)
        if parts:
            logs.append(_LogDir.Topic(name=topic.name, partitions=parts))
        await asyncio.sleep(0)  # There may be very many, and others wait.
    place = directory_of(context.broker.config)
    return DescribeLogDirsResponse(results=[_LogDir(log_dir=place, topics=logs)])


def _sizes(
    context: Context, topic: Topic, indexes: Collection[int]
) -> list[_LogDir.Topic.Partition]:
    parts = []
    for index in sorted(indexes):
        target = TopicPartition(topic.name, index)
        try:
            health = context.broker.partitions.health(context.session, target)
        except RequestError:
            continue  # Deleted meanwhile, or not readable: it has no size.
        parts.append(
            _LogDir.Topic.Partition(
                partition_index=index,
                partition_size=health.log.size_bytes,
                offset_lag=max(0, health.high_watermark - health.log.end_offset),
            )
        )
    return parts


def alter_replica_log_dirs(
    context: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """A node has one directory: moving a replica there is done already, no other is known."""
    refusal = _refusal(context, Operation.ALTER)
    results: dict[str, list[_Moved]] = {}
    for directory in request.dirs:
        is_here = directory.path.rstrip("/") == directory_of(context.broker.config).rstrip("/")
        for topic in directory.topics:
            held = refusal or _leaderships(context, topic.name)
            parts = results.setdefault(topic.name, [])
            for index in topic.partitions:
                code = ErrorCode.NONE if is_here else ErrorCode.LOG_DIR_NOT_FOUND
                try:
                    _at(held, topic.name, index)
                except RequestError as problem:
                    code = code_for(problem)
                parts.append(_Moved(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.Topic(topic_name=name, partitions=parts)
            for name, parts in results.items()
        ]
    )


# -- leaders -----------------------------------------------------------------------------------


async def elect_leaders(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Have preferred replicas lead; say which partitions have a leader, and which cannot."""
    refusal = _refusal(context, Operation.ALTER)
    try:
        if refusal is None and request.election_type not in set(ElectionType):
            raise InvalidRequest(f"election type {request.election_type} is not known")
        election = ElectionType.PREFERRED if refusal else ElectionType(request.election_type)
        if request.topic_partitions is None:
            if refusal is not None:
                raise refusal
            return await _elect_where_needed(context, election)
    except RequestError as problem:
        return ElectLeadersResponse(error_code=code_for(problem), replica_election_results=[])
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if refusal is None else code_for(refusal),
        replica_election_results=[
            ElectLeadersResponse.Topic(
                topic=want.topic,
                partition_result=await _elected(
                    context, want.topic, want.partitions, election, refusal
                ),
            )
            for want in request.topic_partitions
        ],
    )


async def _elect_where_needed(context: Context, election: ElectionType) -> ElectLeadersResponse:
    """A request for all partitions lists those that needed an election."""
    results = []
    for topic in context.broker.topics.list(context.session):
        needed = [
            outcome
            for outcome in await _elected(
                context, topic.name, range(topic.partition_count), election
            )
            if outcome.error_code != ErrorCode.ELECTION_NOT_NEEDED
        ]
        if needed:
            results.append(ElectLeadersResponse.Topic(topic=topic.name, partition_result=needed))
    return ElectLeadersResponse(replica_election_results=results)


async def _elected(
    context: Context,
    topic: str,
    indexes: Sequence[int],
    election: ElectionType,
    refusal: RequestError | None = None,
) -> list[_Elected]:
    results = []
    held = refusal or _leaderships(context, topic)
    for index in indexes:
        try:
            leadership = _at(held, topic, index)
            code, message = _standing(leadership, election)
            if code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE and leadership.leader is not None:
                code, message = await _preferred(context, topic, index)
        except RequestError as problem:
            code, message = code_for(problem), str(problem)
        results.append(_Elected(partition_id=index, error_code=code, error_message=message))
    return results


async def _preferred(context: Context, topic: str, index: int) -> tuple[ErrorCode, str | None]:
    try:
        await context.broker.cluster.elect(context.session, topic, index)
    except RequestError as problem:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, str(problem)
    return ErrorCode.NONE, None


def _standing(held: Leadership, election: ElectionType) -> tuple[ErrorCode, str | None]:
    preferred = held.replicas[0]
    if election is ElectionType.PREFERRED and held.leader != preferred:
        return (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"node {preferred} does not lead at the moment",
        )
    if held.leader is None:
        return (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "no replica in reach has all committed records",
        )
    return ErrorCode.ELECTION_NOT_NEEDED, f"node {held.leader} leads already"


# -- reassignments -----------------------------------------------------------------------------


async def alter_partition_reassignments(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin to move replicas, or cancel it; each partition has an answer of its own (KIP-455)."""
    refusal = _refusal(context, Operation.ALTER)
    if refusal is not None:
        return AlterPartitionReassignmentsResponse(
            error_code=code_for(refusal), error_message=str(refusal), responses=[]
        )
    may_resize = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize,
        responses=[
            AlterPartitionReassignmentsResponse.Topic(
                name=topic.name, partitions=await _reassigned(context, topic, may_resize=may_resize)
            )
            for topic in request.topics
        ],
    )


async def _reassigned(
    context: Context, topic: AlterPartitionReassignmentsRequest.Topic, *, may_resize: bool
) -> list[_Reassigned]:
    """The partitions of a topic that can move do so by one command."""
    cluster, session = context.broker.cluster, context.session
    problems: dict[int, RequestError] = {}
    targets: dict[int, Replicas | None] = {}
    for part in topic.partitions:
        index = part.partition_index
        nodes = None if part.replicas is None else tuple(map(NodeId, part.replicas))
        try:
            cluster.check_move(session, topic.name, index, nodes, may_resize=may_resize)
            targets[index] = nodes
        except RequestError as problem:
            problems[index] = problem
    if targets:
        try:
            await cluster.move(session, topic.name, targets)
        except RequestError as problem:
            problems |= dict.fromkeys(targets, problem)
    results = []
    for part in topic.partitions:
        result = _Reassigned(partition_index=part.partition_index)
        refused = problems.get(part.partition_index)
        if refused is not None:
            result.error_code, result.error_message = code_for(refused), str(refused)
        results.append(result)
    return results


def list_partition_reassignments(
    context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        moves = context.broker.cluster.moves(context.session)
    except RequestError as problem:
        return ListPartitionReassignmentsResponse(
            error_code=code_for(problem), error_message=str(problem), topics=[]
        )
    asked = request.topics and {
        (topic.name, index) for topic in request.topics for index in topic.partition_indexes
    }
    topics: dict[str, list[_Moving]] = {}
    for topic, index, assignment in moves:
        if request.topics is None or (asked and (topic.name, index) in asked):
            moving = _Moving(
                partition_index=index,
                replicas=list(nodes_of(assignment.all)),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(nodes_of(assignment.leaving)),
            )
            topics.setdefault(topic.name, []).append(moving)
    return ListPartitionReassignmentsResponse(
        topics=[
            ListPartitionReassignmentsResponse.Topic(name=name, partitions=parts)
            for name, parts in topics.items()
        ]
    )


# -- parts -------------------------------------------------------------------------------------


def _refusal(context: Context, operation: Operation) -> RequestError | None:
    """Why the client may not do that to the cluster."""
    try:
        context.broker.topics.admit_to_cluster(context.session, operation)
    except RequestError as problem:
        return problem
    return None


def _leaderships(context: Context, topic: str) -> list[Leadership] | RequestError:
    """All of a topic's, looked up once; or why there are none."""
    try:
        described = context.broker.topics.describe(context.session, topic)
        return context.broker.partitions.leadership(context.session, described)
    except RequestError as problem:
        return problem


def _at(held: list[Leadership] | RequestError, topic: str, index: int) -> Leadership:
    if isinstance(held, RequestError):
        raise held
    if not 0 <= index < len(held):
        raise UnknownTopic(TopicPartition(topic, index))
    return held[index]


HANDLERS: dict[int, Handler] = {
    34: alter_replica_log_dirs,
    35: describe_log_dirs,
    43: elect_leaders,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
}

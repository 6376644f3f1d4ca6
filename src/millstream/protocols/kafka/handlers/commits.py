"""Handlers of committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

Translates between Kafka's requests and the engine's groups. The engine knows topics by name. Where
a request has ids, they are turned into names on the way in and into ids on the way out; an unknown
id gets a name that no topic can have.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar
from uuid import UUID

from millstream.engine.groups.offsets import Outcomes
from millstream.engine.groups.service import NO_GENERATION
from millstream.engine.groups.views import NOT_COMMITTED, Commit, Committed
from millstream.errors import BatchTooLarge, Denied, RequestError, StorageUnavailable, UnknownTopic
from millstream.errors.groups import GroupNotFound, StaleGeneration
from millstream.kafka_wire.apis.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.kafka_wire.apis.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.kafka_wire.schema import NO_ID
from millstream.model import Producer, TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

_MANY_GROUPS = 8
_TELLS_GROUP_NOT_FOUND = 9
_TELLS_ERROR_AT_TOP = 2
_JOINS_TRANSACTION = 5  # From here on a client does not add its group itself (KIP-890).
_TOPICS_BY_ID = 10

_NAMELESS = "id:"  # In front of an id that is no topic's; no topic's name has a colon.

# Where clients know these errors by another name when they commit offsets.
_COMMIT_CODES: dict[type[RequestError], ErrorCode] = {
    StorageUnavailable: ErrorCode.NOT_COORDINATOR,
    BatchTooLarge: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

_Group = OffsetFetchResponse.Group
_Found = Mapping[TopicPartition, Committed | RequestError]
_AskedTopics = Sequence[
    OffsetCommitRequest.Topic | TxnOffsetCommitRequest.Topic | OffsetDeleteRequest.Topic
]
_Answered = TypeVar(
    "_Answered",
    OffsetCommitResponse.Topic,
    TxnOffsetCommitResponse.Topic,
    OffsetDeleteResponse.Topic,
)


async def offset_commit(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    _give_names(context, request.topics)
    commits = _commits(request.topics)
    outcomes: Outcomes
    try:
        outcomes = await context.broker.groups.commit_offsets(
            context.session,
            request.group_id,
            commits,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
        )
    except GroupNotFound as problem:
        # Before v9 there was no word for it; a generation of no group is no generation.
        older = StaleGeneration(-1, request.generation_id_or_member_epoch)
        is_told = context.version >= _TELLS_GROUP_NOT_FOUND
        outcomes = dict.fromkeys(commits, problem if is_told else older)
    except RequestError as problem:
        outcomes = dict.fromkeys(commits, problem)
    topics = _answered(OffsetCommitResponse.Topic, request.topics, outcomes)
    for answered, requested in zip(topics, request.topics, strict=True):
        answered.topic_id = requested.topic_id
    return OffsetCommitResponse(topics=topics)


async def txn_offset_commit(
    context: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    commits = _commits(request.topics)
    outcomes: Outcomes
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        if context.version >= _JOINS_TRANSACTION:
            await context.broker.transactions.add_offsets(
                context.session, request.transactional_id, producer, request.group_id
            )
        outcomes = await context.broker.groups.commit_in_transaction(
            context.session,
            request.group_id,
            commits,
            transactional_id=request.transactional_id,
            producer=producer,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
        )
    except GroupNotFound:
        # A producer knows no other word for it.
        outcomes = dict.fromkeys(commits, StaleGeneration(-1, request.generation_id))
    except RequestError as problem:
        outcomes = dict.fromkeys(commits, problem)
    return TxnOffsetCommitResponse(
        topics=_answered(TxnOffsetCommitResponse.Topic, request.topics, outcomes)
    )


def _commits(
    topics: Iterable[OffsetCommitRequest.Topic | TxnOffsetCommitRequest.Topic],
) -> dict[TopicPartition, Commit]:
    return {
        TopicPartition(topic.name, part.partition_index): Commit(
            part.committed_offset, part.committed_metadata or "", part.committed_leader_epoch
        )
        for topic in topics
        for part in topic.partitions
    }


def _answered(
    kind: type[_Answered], requested: _AskedTopics, outcomes: Outcomes
) -> list[_Answered]:
    return [
        kind(
            name=topic.name,
            partitions=[
                kind.Partition(
                    partition_index=part.partition_index,
                    error_code=_code(
                        topic.name, outcomes[TopicPartition(topic.name, part.partition_index)]
                    ),
                )
                for part in topic.partitions
            ],
        )
        for topic in requested
    ]


async def offset_fetch(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= _MANY_GROUPS:
        for group in request.groups:
            _give_names(context, group.topics or [])
        return OffsetFetchResponse(
            groups=[
                await _fetched(
                    context,
                    group.group_id,
                    _targets(group.topics),
                    request,
                    member_id=group.member_id,
                    epoch=group.member_epoch,
                )
                for group in request.groups
            ]
        )
    fetched = await _fetched(context, request.group_id, _targets(request.topics), request)
    return OffsetFetchResponse(
        topics=_as_single(fetched, request, context), error_code=fetched.error_code
    )


def _targets(
    topics: Iterable[OffsetFetchRequest.Topic | OffsetFetchRequest.Group.Topic] | None,
) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [TopicPartition(t.name, index) for t in topics for index in t.partition_indexes]


async def _fetched(
    context: Context,
    group_id: str,
    targets: list[TopicPartition] | None,
    request: OffsetFetchRequest,
    *,
    member_id: str | None = None,
    epoch: int = NO_GENERATION,
) -> _Group:
    try:
        offsets: _Found = await context.broker.groups.fetch_offsets(
            context.session,
            group_id,
            targets,
            must_be_stable=request.require_stable,
            member_id=member_id,
            epoch=epoch,
        )
    except RequestError as problem:
        return _Group(group_id=group_id, topics=[], error_code=code_for(problem))
    by_topic = groupby(sorted(offsets), key=attrgetter("topic"))
    return _Group(
        group_id=group_id,
        topics=[
            _Group.Topic(
                name=topic,
                topic_id=topic_id,
                partitions=[_partition(target, offsets[target]) for target in targets_of],
            )
            for topic, targets_of in by_topic
            if (topic_id := _topic_id(context, topic)) is not None
        ],
    )


def _partition(target: TopicPartition, outcome: Committed | RequestError) -> _Group.Topic.Partition:
    committed, problem = (
        (outcome, None) if isinstance(outcome, Committed) else (NOT_COMMITTED, outcome)
    )
    return _Group.Topic.Partition(
        partition_index=target.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=_code(target.topic, problem),
    )


def _as_single(
    group: _Group, request: OffsetFetchRequest, context: Context
) -> list[OffsetFetchResponse.Topic]:
    """The form before v8. The oldest have no place for an error but at each partition."""
    single = OffsetFetchResponse.Topic
    if group.error_code and context.version < _TELLS_ERROR_AT_TOP:
        return [
            single(
                name=topic.name,
                partitions=[
                    single.Partition(
                        partition_index=index, committed_offset=-1, error_code=group.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or []
        ]
    return [
        single(
            name=topic.name,
            partitions=[
                single.Partition(
                    partition_index=part.partition_index,
                    committed_offset=part.committed_offset,
                    committed_leader_epoch=part.committed_leader_epoch,
                    metadata=part.metadata,
                    error_code=part.error_code,
                )
                for part in topic.partitions
            ],
        )
        for topic in group.topics
    ]


async def offset_delete(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    targets = [
        TopicPartition(topic.name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
    ]
    try:
        outcomes = await context.broker.groups.delete_offsets(
            context.session, request.group_id, targets
        )
    except RequestError as problem:
        return OffsetDeleteResponse(error_code=code_for(problem), topics=[])
    return OffsetDeleteResponse(
        topics=_answered(OffsetDeleteResponse.Topic, request.topics, outcomes)
    )


def _give_names(
    context: Context,
    topics: Iterable[OffsetCommitRequest.Topic | OffsetFetchRequest.Group.Topic],
) -> None:
    if context.version < _TOPICS_BY_ID:
        return
    for topic in topics:
        try:
            described = context.broker.topics.describe_id(context.session, topic.topic_id)
            topic.name = described.name
        except (UnknownTopic, Denied):
            topic.name = f"{_NAMELESS}{topic.topic_id}"


def _topic_id(context: Context, name: str) -> UUID | None:
    """The topic id for the response; None for a topic that has gone with its id."""
    if context.version < _TOPICS_BY_ID:
        return NO_ID
    if name.startswith(_NAMELESS):
        return UUID(name.removeprefix(_NAMELESS))
    try:
        return context.broker.topics.describe(context.session, name).topic_id
    except (UnknownTopic, Denied):
        return None


def _code(topic: str, outcome: RequestError | None) -> ErrorCode:
    is_group_denied = isinstance(outcome, Denied) and outcome.resource.startswith("group:")
    if topic.startswith(_NAMELESS) and not is_group_denied:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if outcome is None:
        return ErrorCode.NONE
    return _COMMIT_CODES.get(type(outcome)) or code_for(outcome)


HANDLERS: dict[int, Handler] = {
    8: offset_commit,
    9: offset_fetch,
    28: txn_offset_commit,
    47: offset_delete,
}

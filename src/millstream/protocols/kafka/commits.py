"""Handlers of committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

Owns the translation between Kafka's requests and the engine's groups.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from millstream.engine.group_views import Commit, Committed
from millstream.errors import GroupNotFound, RequestError, StaleGeneration
from millstream.model import TopicPartition
from millstream.protocols.kafka.apis.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.error_codes import ErrorCode, code_for
from millstream.protocols.kafka.gateway import Handler

_MANY_GROUPS = 8
_TELLS_GROUP_NOT_FOUND = 9
_TELLS_ERROR_AT_TOP = 2

_Group = OffsetFetchResponse.Group
_Found = Mapping[TopicPartition, Committed | RequestError]


async def offset_commit(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    commits = {
        TopicPartition(topic.name, part.partition_index): Commit(
            part.committed_offset, part.committed_metadata or "", part.committed_leader_epoch
        )
        for topic in request.topics
        for part in topic.partitions
    }
    outcomes: Mapping[TopicPartition, RequestError | None]
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
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponse.Topic.Partition(
                        partition_index=part.partition_index,
                        error_code=_code(
                            outcomes[TopicPartition(topic.name, part.partition_index)]
                        ),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def offset_fetch(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= _MANY_GROUPS:
        return OffsetFetchResponse(
            groups=[
                await _fetched(context, group.group_id, _targets(group.topics))
                for group in request.groups
            ]
        )
    group = await _fetched(context, request.group_id, _targets(request.topics))
    return OffsetFetchResponse(
        topics=_as_single(group, request, context), error_code=group.error_code
    )


def _targets(
    topics: Iterable[OffsetFetchRequest.Topic | OffsetFetchRequest.Group.Topic] | None,
) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [TopicPartition(t.name, index) for t in topics for index in t.partition_indexes]


async def _fetched(context: Context, group_id: str, targets: list[TopicPartition] | None) -> _Group:
    try:
        found: _Found = await context.broker.groups.fetch_offsets(
            context.session, group_id, targets
        )
    except RequestError as problem:
        return _Group(group_id=group_id, topics=[], error_code=code_for(problem))
    by_topic = groupby(sorted(found), key=attrgetter("topic"))
    return _Group(
        group_id=group_id,
        topics=[
            _Group.Topic(
                name=topic, partitions=[_partition(target, found[target]) for target in targets_of]
            )
            for topic, targets_of in by_topic
        ],
    )


def _partition(target: TopicPartition, found: Committed | RequestError) -> _Group.Topic.Partition:
    if isinstance(found, RequestError):
        return _Group.Topic.Partition(
            partition_index=target.partition, committed_offset=-1, error_code=code_for(found)
        )
    return _Group.Topic.Partition(
        partition_index=target.partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
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
        topics=[
            OffsetDeleteResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.Topic.Partition(
                        partition_index=part.partition_index,
                        error_code=_code(
                            outcomes[TopicPartition(topic.name, part.partition_index)]
                        ),
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _code(outcome: RequestError | None) -> ErrorCode:
    return ErrorCode.NONE if outcome is None else code_for(outcome)


HANDLERS: dict[int, Handler] = {8: offset_commit, 9: offset_fetch, 47: offset_delete}

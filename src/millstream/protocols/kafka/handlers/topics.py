"""Handlers of administration: topics made, grown and deleted, and numbers for producers.

Owns the translation between Kafka's requests and the engine's words. Each topic of a request has an
outcome of its own, so one that is refused does not keep the others from being done.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from millstream.control.commands import Replicas
from millstream.errors import InvalidPlacement, InvalidRequest, RequestError, TimedOut, UnknownTopic
from millstream.kafka_wire.apis.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode, control_code_for
from millstream.kafka_wire.schema import NO_ID
from millstream.model import NodeId
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.handlers.config_table import (
    error_text,
    read_overrides,
    topic_entries,
)

BROKERS_CHOICE = -1  # Of partitions or replicas: as the broker is configured.

T = TypeVar("T")
_Created = CreateTopicsResponse.Topic
_Deleted = DeleteTopicsResponse.Result


class _Plan(NamedTuple):
    """A topic of CreateTopics, with the broker's choices made."""

    partitions: int
    replicas: int
    placement: Sequence[Replicas] | None
    settings: Mapping[str, str]


# -- topics ------------------------------------------------------------------------------------


async def create_topics(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    deadline = _deadline(request.timeout_ms)
    copies = Counter(topic.name for topic in request.topics)
    answers: dict[str, _Created] = {}
    for topic in request.topics:
        if topic.name in answers:
            continue
        try:
            _check_once(topic.name, copies[topic.name])
            made = _created(context, topic, validate_only=request.validate_only)
            answers[topic.name] = await _within(deadline, made)
        except RequestError as problem:
            answers[topic.name] = _Created(
                name=topic.name,
                error_code=control_code_for(problem),
                error_message=error_text(problem),
            )
    return CreateTopicsResponse(topics=list(answers.values()))


async def _created(
    context: Context, topic: CreateTopicsRequest.Topic, *, validate_only: bool
) -> _Created:
    topics, defaults = context.broker.topics, context.inherited
    plan = _plan(context, topic)
    topic_id = NO_ID
    if validate_only:
        topics.check_create(
            context.session,
            topic.name,
            partitions=plan.partitions,
            replicas=plan.replicas,
            placement=plan.placement,
            settings=plan.settings,
        )
    else:
        made = await topics.create(
            context.session,
            topic.name,
            partitions=plan.partitions,
            replicas=plan.replicas,
            placement=plan.placement,
            settings=plan.settings,
        )
        topic_id = made.topic_id
        plan = plan._replace(
            partitions=made.partition_count,  # A view has those of its base.
            replicas=len(made.placement[0]),
        )
    return _Created(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=plan.partitions,
        replication_factor=plan.replicas,
        configs=[
            _Created.Config(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in topic_entries(plan.settings, defaults)
        ],
    )


def _plan(context: Context, topic: CreateTopicsRequest.Topic) -> _Plan:
    config = context.broker.config
    settings = read_overrides((entry.name, entry.value) for entry in topic.configs)
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if not topic.assignments:
        return _Plan(
            config.default_partitions if partitions == BROKERS_CHOICE else partitions,
            config.default_replicas if replicas == BROKERS_CHOICE else replicas,
            None,
            settings,
        )
    if partitions != BROKERS_CHOICE or replicas != BROKERS_CHOICE:
        raise InvalidRequest("assignments say how many partitions and replicas there are")
    placed = {entry.partition_index: _replicas(entry.broker_ids) for entry in topic.assignments}
    count = len(topic.assignments)
    if set(placed) != set(range(count)):
        raise InvalidPlacement(f"assignments of partitions {sorted(placed)}, not of 0 to {count}")
    return _Plan(count, len(placed[0]), [placed[at] for at in range(count)], settings)


async def delete_topics(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    deadline = _deadline(request.timeout_ms)
    targets = request.topics or [DeleteTopicsRequest.Topic(name=n) for n in request.topic_names]
    copies = Counter((want.name, want.topic_id) for want in targets)
    unique = {(want.name, want.topic_id): want for want in targets}
    return DeleteTopicsResponse(
        responses=[
            await _deleted(context, want, copies[which], deadline) for which, want in unique.items()
        ]
    )


async def _deleted(
    context: Context, want: DeleteTopicsRequest.Topic, copies: int, deadline: float
) -> _Deleted:
    topics, session = context.broker.topics, context.session
    result = _Deleted(name=want.name, topic_id=want.topic_id)
    try:
        if (want.name is None) == (want.topic_id == NO_ID):
            raise InvalidRequest("a topic is deleted by its name or by its id")
        _check_once(want.name or want.topic_id, copies)
        if want.name is None:
            topic = topics.describe_id(session, want.topic_id)
        else:
            topic = topics.describe(session, want.name)
        result.name, result.topic_id = topic.name, topic.topic_id
        await _within(deadline, topics.delete(session, topic.name))
    except RequestError as problem:
        result.error_code, result.error_message = control_code_for(problem), error_text(problem)
        if isinstance(problem, UnknownTopic) and want.name is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
    return result


async def create_partitions(
    context: Context, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    deadline = _deadline(request.timeout_ms)
    copies = Counter(topic.name for topic in request.topics)
    answers: dict[str, CreatePartitionsResponse.Result] = {}
    for topic in request.topics:
        answer = answers.setdefault(topic.name, CreatePartitionsResponse.Result(name=topic.name))
        try:
            _check_once(topic.name, copies[topic.name])
            await _within(deadline, _grown(context, topic, validate_only=request.validate_only))
        except RequestError as problem:
            answer.error_code, answer.error_message = control_code_for(problem), error_text(problem)
    return CreatePartitionsResponse(results=list(answers.values()))


async def _grown(
    context: Context, topic: CreatePartitionsRequest.Topic, *, validate_only: bool
) -> None:
    topics, session = context.broker.topics, context.session
    # Some clients say "place them for me" with an empty list, some with none.
    placement = [_replicas(assignment.broker_ids) for assignment in topic.assignments or ()] or None
    if validate_only:
        topics.check_add_partitions(session, topic.name, total=topic.count, placement=placement)
    else:
        await topics.add_partitions(session, topic.name, total=topic.count, placement=placement)


# -- parts -------------------------------------------------------------------------------------


def _deadline(timeout_ms: int) -> float:
    return asyncio.get_running_loop().time() + timeout_ms / 1000


async def _within(deadline: float, change: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout_at(deadline):
            return await change
    except TimeoutError:
        raise TimedOut("not done in time; it may still be") from None


def _check_once(name: object, copies: int) -> None:
    if copies > 1:
        raise InvalidRequest(f"{name} is named {copies} times")


def _replicas(nodes: Sequence[int]) -> Replicas:
    return tuple(NodeId(node) for node in nodes)


HANDLERS: dict[int, Handler] = {
    19: create_topics,
    20: delete_topics,
    37: create_partitions,
}

"""Handlers of administration: topics made, grown and deleted, and numbers for producers.

Owns the translation between Kafka's requests and the engine's words. Each topic of a request has an
outcome of its own, so one that is refused does not keep the others from being done.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple, TypeVar

from millstream.control.catalog import VIEW_OF
from millstream.control.commands import Replicas
from millstream.errors import (
    InvalidPlacement,
    InvalidRequest,
    QuotaExceeded,
    RequestError,
    TimedOut,
    UnknownTopic,
)
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
    Inherited,
    TopicConfig,
    error_text,
    read_overrides,
    topic_entries,
)

# Topics of one request that are proposed together: they share the syncs of their commands and of
# their epochs. To check and propose one costs the event loop about 0.2 ms.
CREATED_TOGETHER = 200
PROPOSED_PER_TURN = 10
BROKERS_CHOICE = -1  # Of partitions or replicas: as the broker is configured.

# The first version of an API whose clients know THROTTLING_QUOTA_EXCEEDED.
STRICT_SINCE = {19: 6, 20: 5, 37: 3}

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
    """Create topics some at a time, which share their syncs; views after all others.

    The answers have the order of the request.
    """
    deadline = _deadline(request.timeout_ms)
    copies = Counter(topic.name for topic in request.topics)
    unique = {topic.name: topic for topic in request.topics}
    answers: dict[str, _Created] = {}
    throttle = _Throttle(context, STRICT_SINCE[19])
    described = cache(partial(_described, context.inherited))  # Most have the same settings.

    async def create(topic: CreateTopicsRequest.Topic) -> None:
        try:
            _check_once(topic.name, copies[topic.name])
            made = partial(_created, context, topic, described, validate_only=request.validate_only)
            answers[topic.name] = await _within(deadline, throttle.run(made))
        except RequestError as problem:
            answers[topic.name] = _Created(
                name=topic.name,
                error_code=control_code_for(problem),
                error_message=error_text(problem),
            )

    # The base of a view may be created by the same request.
    views = [topic for topic in unique.values() if _is_view(topic)]
    others = [topic for topic in unique.values() if not _is_view(topic)]
    for topics in (others, views):
        for first in range(0, len(topics), CREATED_TOGETHER):
            async with asyncio.TaskGroup() as group:
                for count, topic in enumerate(topics[first : first + CREATED_TOGETHER], start=1):
                    group.create_task(create(topic))
                    if count % PROPOSED_PER_TURN == 0:
                        await asyncio.sleep(0)
    return CreateTopicsResponse(
        topics=[answers[name] for name in unique], throttle_time_ms=throttle.time_ms
    )


def _is_view(topic: CreateTopicsRequest.Topic) -> bool:
    return any(
        TopicConfig.setting(entry.name) == VIEW_OF and entry.value for entry in topic.configs
    )


async def _created(
    context: Context,
    topic: CreateTopicsRequest.Topic,
    described: Callable[[frozenset[tuple[str, str]]], list[_Created.Config]],
    *,
    validate_only: bool,
) -> _Created:
    topics = context.broker.topics
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
        is_ours = topic.replication_factor == BROKERS_CHOICE
        made = await topics.create(
            context.session,
            topic.name,
            partitions=plan.partitions,
            replicas=None if is_ours else plan.replicas,
            placement=plan.placement,
            settings=plan.settings,
        )
        topic_id = made.topic_id
        plan = plan._replace(
            partitions=made.partition_count,  # A view has those of its base.
            replicas=len(made.placement[0]),
        )
    if not topics.may_describe_configs(context.session, topic.name):
        return _Created(
            name=topic.name,
            topic_id=topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=None,
        )
    return _Created(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=plan.partitions,
        replication_factor=plan.replicas,
        configs=described(frozenset(plan.settings.items())),
    )


def _described(defaults: Inherited, settings: frozenset[tuple[str, str]]) -> list[_Created.Config]:
    return [
        _Created.Config(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=entry.source,
            is_sensitive=False,
        )
        for entry in topic_entries(dict(settings), defaults)
    ]


def _plan(context: Context, topic: CreateTopicsRequest.Topic) -> _Plan:
    config = context.broker.config
    settings = read_overrides((entry.name, entry.value) for entry in topic.configs)
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if not topic.assignments:
        return _Plan(
            config.default_partitions if partitions == BROKERS_CHOICE else partitions,
            context.broker.topics.default_replicas if replicas == BROKERS_CHOICE else replicas,
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
    throttle = _Throttle(context, STRICT_SINCE[20])
    responses = [
        await _deleted(context, want, copies[which], deadline, throttle)
        for which, want in unique.items()
    ]
    return DeleteTopicsResponse(responses=responses, throttle_time_ms=throttle.time_ms)


async def _deleted(
    context: Context,
    want: DeleteTopicsRequest.Topic,
    copies: int,
    deadline: float,
    throttle: "_Throttle",
) -> _Deleted:
    topics, session = context.broker.topics, context.session
    result = _Deleted(name=want.name, topic_id=want.topic_id)
    try:
        if (want.name is None) == (want.topic_id == NO_ID):
            raise InvalidRequest("a topic is deleted by its name or by its id")
        _check_once(want.topic_id if want.name is None else want.name, copies)
        name = want.name
        if name is None:
            name = result.name = topics.describe_id(session, want.topic_id).name
        made = await _within(deadline, throttle.run(partial(topics.delete, session, name)))
        result.name, result.topic_id = made.name, made.topic_id
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
    throttle = _Throttle(context, STRICT_SINCE[37])
    for topic in request.topics:
        answer = answers.setdefault(topic.name, CreatePartitionsResponse.Result(name=topic.name))
        try:
            _check_once(topic.name, copies[topic.name])
            grow = partial(_grown, context, topic, validate_only=request.validate_only)
            await _within(deadline, throttle.run(grow))
        except RequestError as problem:
            answer.error_code, answer.error_message = control_code_for(problem), error_text(problem)
    return CreatePartitionsResponse(
        results=list(answers.values()), throttle_time_ms=throttle.time_ms
    )


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


class _Throttle:
    """The quota of changes for one request (KIP-599).

    From some version on clients know the refusal and wait themselves; for older ones the broker
    waits, and then does what was asked for.
    """

    def __init__(self, context: Context, strict_since: int) -> None:
        self.time_ms = 0
        self._is_strict = context.version >= strict_since

    async def run(self, change: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await change()
            except QuotaExceeded as problem:
                self.time_ms = max(self.time_ms, problem.throttle_ms)
                if self._is_strict:
                    raise
                await asyncio.sleep(problem.throttle_ms / 1000)


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

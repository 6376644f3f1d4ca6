"""The handler of Fetch: a request, its session, one read of the engine, and its response.

Owns the translation between Kafka's fetch and the engine's words. What a session remembers and
leaves out is `fetch_sessions`'; waiting for records is the engine's. A batch leaves as a range of
the file it lies in, unless the engine had to filter it.
"""

import asyncio
from collections.abc import Iterable
from uuid import UUID

from millstream.engine.partitions.slices import FilteredBatches, Slice, Want
from millstream.errors import RequestError, UnknownTopic
from millstream.kafka_wire.apis.data import FetchRequest, FetchResponse
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.kafka_wire.schema import Chunk
from millstream.kafka_wire.writers import size_of
from millstream.model import Isolation, TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.fetch_sessions import (
    NO_SESSION,
    OPENING_EPOCH,
    Part,
    PartitionFetch,
    PartitionState,
    SessionRequest,
    Turn,
)
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.leader_hints import endpoints_of, leader_hint
from millstream.protocols.kafka.throttling import charge_fetch, fetch_bytes_max, throttle_fetch

SINCE_TOPIC_IDS = 13

_Fetched = FetchResponse.Topic.Partition
_READ_COMMITTED = 1


async def fetch(context: Context, request: FetchRequest) -> FetchResponse:
    loop = asyncio.get_running_loop()
    throttle_ms = throttle_fetch(context)
    if throttle_ms and request.session_epoch == OPENING_EPOCH:
        # As in Kafka: a session whose opening was not answered in full must not be there.
        return FetchResponse(throttle_time_ms=throttle_ms, responses=[])
    turn = context.broker.fetch_sessions.begin(
        _ask(context, request), now_ms=int(loop.time() * 1000)
    )
    if isinstance(turn, ErrorCode):
        return FetchResponse(throttle_time_ms=throttle_ms, error_code=turn, responses=[])
    if throttle_ms:
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=turn.session_id, responses=[])
    targets = _targets(context, turn.fetches)
    wants = [
        Want(TopicPartition(name, part.partition), *turn.fetches[part])
        for part, name in targets
        if isinstance(name, str)
    ]
    isolation = isolation_of(request.isolation_level)
    wait_ms = min(request.max_wait_ms, context.broker.config.limits.fetch_wait_ms_max)
    slices = await context.broker.partitions.read(
        context.session,
        wants,
        # Nothing to wait for, or something to tell at once.
        min_bytes=request.min_bytes if wants and len(wants) == len(targets) else 0,
        bytes_max=fetch_bytes_max(context, request.max_bytes),
        deadline=loop.time() + wait_ms / 1000,
        isolation=isolation,
    )
    charge_fetch(context, slices)
    served = iter(slices)
    answers: list[tuple[Part, _Fetched]] = []
    failed: list[tuple[_Fetched, Slice]] = []
    for part, name in targets:
        if not isinstance(name, str):
            answers.append((part, _refused(part.partition, name)))
            continue
        records = next(served)
        answer = _fetched(part.partition, records, isolation)
        answers.append((part, answer))
        if records.error is not None:
            failed.append((answer, records))
    response = FetchResponse(session_id=turn.session_id, responses=_by_topic(_news(turn, answers)))
    if failed:
        _add_leaders(context, response, failed)
    return response


def _add_leaders(
    context: Context, response: FetchResponse, failed: Iterable[tuple[_Fetched, Slice]]
) -> None:
    """Name the leaders of partitions that are not led here."""
    hints = []
    for answer, part in failed:
        answer.current_leader = leader_hint(context, part.target, answer.error_code)
        hints.append(answer.current_leader)
    response.node_endpoints = endpoints_of(context, hints)


def isolation_of(level: int) -> Isolation:
    return Isolation.READ_COMMITTED if level == _READ_COMMITTED else Isolation.READ_UNCOMMITTED


def _ask(context: Context, request: FetchRequest) -> SessionRequest:
    fetches = {
        Part(topic.topic, topic.topic_id, part.partition): PartitionFetch(
            part.fetch_offset,
            part.partition_max_bytes,
            part.current_leader_epoch,
            part.last_fetched_epoch,
        )
        for topic in request.topics
        for part in topic.partitions
    }
    forgotten: list[Part] = []
    if request.forgotten_topics_data:
        forgotten = [
            Part(topic.topic, topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
    return SessionRequest(
        principal=context.session.principal,
        session_id=request.session_id,
        epoch=request.session_epoch,
        uses_ids=context.version >= SINCE_TOPIC_IDS,
        fetches=fetches,
        forgotten=forgotten,
    )


def _targets(context: Context, parts: Iterable[Part]) -> list[tuple[Part, str | ErrorCode]]:
    """Each part with the name of its topic, or why there is none."""
    if context.version < SINCE_TOPIC_IDS:
        return [(part, part.topic) for part in parts]
    names: dict[int, str | ErrorCode] = {}
    targets: list[tuple[Part, str | ErrorCode]] = []
    for part in parts:
        number = part.topic_id.int  # The hash of a UUID is a call, that of a number is none.
        if number not in names:
            names[number] = _name_of(context, part.topic_id)
        targets.append((part, names[number]))
    return targets


def _name_of(context: Context, topic_id: UUID) -> str | ErrorCode:
    try:
        return context.broker.topics.describe_id(context.session, topic_id).name
    except UnknownTopic:
        return ErrorCode.UNKNOWN_TOPIC_ID
    except RequestError as problem:
        return code_for(problem)


def _news(turn: Turn, answers: list[tuple[Part, _Fetched]]) -> list[tuple[Part, _Fetched]]:
    if turn.session_id == NO_SESSION:
        return answers
    return [
        (part, answer)
        for part, answer in answers
        if turn.includes(
            part,
            PartitionState(
                size=sum(map(size_of, answer.records or ())),
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                is_special=answer.error_code != 0 or answer.diverging_epoch is not None,
            ),
        )
    ]


def _by_topic(answers: Iterable[tuple[Part, _Fetched]]) -> list[FetchResponse.Topic]:
    """Group by topic, in the order of the answers; the first partition places its topic."""
    topics: dict[tuple[str, int], FetchResponse.Topic] = {}
    for part, answer in answers:
        key = part.topic, part.topic_id.int
        topic = topics.get(key)
        if topic is None:
            topic = FetchResponse.Topic(topic=part.topic, topic_id=part.topic_id, partitions=[])
            topics[key] = topic
        topic.partitions.append(answer)
    return list(topics.values())


def _refused(partition: int, code: ErrorCode) -> _Fetched:
    return _Fetched(partition_index=partition, error_code=code, high_watermark=-1, records=[])


def _fetched(partition: int, part: Slice, isolation: Isolation) -> _Fetched:
    if part.error is not None:
        return _refused(partition, code_for(part.error))
    aborted = None
    if isolation is Isolation.READ_COMMITTED:
        aborted = [
            _Fetched.AbortedTransaction(
                producer_id=transaction.producer_id, first_offset=transaction.first_offset
            )
            for transaction in part.aborted
        ]
    diverging = None
    if part.diverging is not None:
        diverging = _Fetched.DivergingEpoch(
            epoch=part.diverging.epoch, end_offset=part.diverging.end_offset
        )
    return _Fetched(
        partition_index=partition,
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable_offset,
        log_start_offset=part.log_start_offset,
        diverging_epoch=diverging,
        aborted_transactions=aborted,
        records=_spelled(part),
    )


def _spelled(part: Slice) -> list[Chunk]:
    if part.records is None:
        return []
    return [part.records.data if isinstance(part.records, FilteredBatches) else part.records]


HANDLERS: dict[int, Handler] = {1: fetch}

"""Handlers of the data path: Produce, ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

Owns the translation between Kafka's requests and the engine's words; that of Fetch is `fetch`'s. A
client's batch goes to the engine as the bytes it came in.
"""

import asyncio
from collections.abc import Awaitable, Sequence

from millstream.engine.partitions.slices import AtMaxTimestamp, AtTime, Earliest, Latest, Place
from millstream.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    InvalidBatch,
    InvalidRecords,
    NotCoordinator,
    ProducerFenced,
    ProtocolError,
    RequestError,
    TimedOut,
)
from millstream.kafka_wire.apis.data import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.kafka_wire.error_codes import ErrorCode, code_for
from millstream.model import Acks, Appended, Epoch, Isolation, TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.handlers.fetch import isolation_of
from millstream.protocols.kafka.leader_hints import endpoints_of, leader_hint
from millstream.protocols.kafka.throttling import throttle_produce

_ACKS = {acks.value: acks for acks in Acks}
_JOINS_TRANSACTIONS = 12  # From here on a client does not add partitions itself (KIP-890).

_Produced = ProduceResponse.Topic.Partition
_Listed = ListOffsetsResponse.Topic.Partition

# Kafka's special timestamps. Nothing is tiered here, so the earliest local record is the earliest.
_PLACES: dict[int, Place] = {
    -1: Latest(),
    -2: Earliest(),
    -3: AtMaxTimestamp(),
    -4: Earliest(),
}
_TIERED = {-5, -6}  # The latest record that was tiered, the earliest that is yet to be.

# A producer knows no coordinator codes: temporary errors get a code that it retries.
_PRODUCE_CODES: dict[type[RequestError], ErrorCode] = {
    CoordinatorLoading: ErrorCode.NOT_ENOUGH_REPLICAS,
    CoordinatorUnavailable: ErrorCode.NOT_ENOUGH_REPLICAS,
    NotCoordinator: ErrorCode.NOT_ENOUGH_REPLICAS,
    ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
}


# -- produce -----------------------------------------------------------------------------------


_Outcome = asyncio.Future[Appended] | RequestError | ErrorCode
_Written = tuple[str, list[tuple[int, _Outcome]]]  # Of one topic, by partition.


def produce(
    context: Context, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append now, in the order of arrival; answer when `acks` allows, which may be at once."""
    acks = _ACKS.get(request.acks)
    throttle_ms = throttle_produce(context)
    written: list[_Written] = []
    waiting: list[asyncio.Future[Appended]] = []
    for topic in request.topic_data:
        outcomes: list[tuple[int, _Outcome]] = []
        for part in topic.partition_data:
            outcome = _append(context, request, topic.name, part, acks)
            outcomes.append((part.index, outcome))
            if isinstance(outcome, asyncio.Future) and not outcome.done():
                waiting.append(outcome)
        written.append((topic.name, outcomes))
    if acks is Acks.NONE:
        _check_unanswered(written)
        # What waits to be written counts as a request that is not answered yet.
        return _unanswered(waiting) if waiting else None
    if not waiting:
        return _produced(context, written, throttle_ms)
    return _produced_later(context, written, throttle_ms, waiting, request.timeout_ms / 1000)


def _append(
    context: Context,
    request: ProduceRequest,
    topic: str,
    part: ProduceRequest.Topic.Partition,
    acks: Acks | None,
) -> _Outcome:
    if acks is None:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if part.records is None:
        return InvalidBatch("there is no batch")
    try:
        return context.broker.partitions.append(
            context.session,
            TopicPartition(topic, part.index),
            part.records,
            acks,
            transactional_id=request.transactional_id,
            joins=context.header.api_version >= _JOINS_TRANSACTIONS,
        )
    except RequestError as problem:
        return problem


def _check_unanswered(written: Sequence[_Written]) -> None:
    """With acks=0 an error can be reported only by closing the connection."""
    for topic, parts in written:
        for index, outcome in parts:
            if isinstance(outcome, RequestError | ErrorCode):
                raise ProtocolError(f"produce to {topic}-{index} without acks: {outcome}")


async def _produced_later(
    context: Context,
    written: Sequence[_Written],
    throttle_ms: int,
    waiting: Sequence[asyncio.Future[Appended]],
    timeout_s: float,
) -> ProduceResponse:
    # One timer for all of them; `asyncio.timeout` around each costs as much as the append.
    timer = asyncio.get_running_loop().call_later(timeout_s, _give_up, waiting)
    try:
        for outcome in waiting:
            try:
                await outcome
            except RequestError:
                continue  # It is reported with its partition.
    finally:
        timer.cancel()
    return _produced(context, written, throttle_ms)


async def _unanswered(waiting: Sequence[asyncio.Future[Appended]]) -> None:
    await asyncio.wait(waiting)
    for outcome in waiting:
        problem = None if outcome.cancelled() else outcome.exception()
        if isinstance(problem, RequestError):
            raise ProtocolError(f"produce without acks: {problem}") from problem
        if problem is not None:
            raise problem


def _give_up(waiting: Sequence[asyncio.Future[Appended]]) -> None:
    for outcome in waiting:
        if not outcome.done():
            outcome.set_exception(TimedOut("not committed in time; it may still be"))


def _produced(context: Context, written: Sequence[_Written], throttle_ms: int) -> ProduceResponse:
    responses: list[ProduceResponse.Topic] = []
    has_errors = False
    for topic, outcomes in written:
        parts: list[_Produced] = []
        for index, outcome in outcomes:
            part = _outcome(index, outcome)
            parts.append(part)
            has_errors = has_errors or part.error_code != 0
        responses.append(ProduceResponse.Topic(name=topic, partition_responses=parts))
    response = ProduceResponse(throttle_time_ms=throttle_ms, responses=responses)
    if has_errors:
        _add_leaders(context, response)
    return response


def _add_leaders(context: Context, response: ProduceResponse) -> None:
    """Name the leaders of partitions that are not led here."""
    hints = []
    for topic in response.responses:
        for part in topic.partition_responses:
            target = TopicPartition(topic.name, part.index)
            part.current_leader = leader_hint(context, target, part.error_code)
            hints.append(part.current_leader)
    response.node_endpoints = endpoints_of(context, hints)


def _outcome(index: int, outcome: _Outcome) -> _Produced:
    if isinstance(outcome, ErrorCode):
        return _Produced(index=index, error_code=outcome, base_offset=-1)
    try:
        if isinstance(outcome, RequestError):
            raise outcome
        appended = outcome.result()
    except RequestError as problem:
        code, message = _PRODUCE_CODES.get(type(problem), code_for(problem)), str(problem)
        return _Produced(
            index=index,
            error_code=code,
            base_offset=-1,
            error_message=message,
            record_errors=_record_errors(problem),
        )
    # Duplicates and delayed records are not distinguished in `record_errors`: librdkafka takes what
    # is named there for refused, whatever the error code says. The base offset has to do.
    return _Produced(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _record_errors(problem: RequestError) -> list[_Produced.RecordError]:
    """The records that are to blame (KIP-467): clients report the others of the batch apart."""
    if not isinstance(problem, InvalidRecords):
        return []
    return [
        _Produced.RecordError(
            batch_index=at, batch_index_error_message=f"the record {problem.problem}"
        )
        for at in problem.indexes
    ]


# -- offsets -----------------------------------------------------------------------------------


async def list_offsets(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    isolation = isolation_of(request.isolation_level)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=topic.name,
                partitions=[
                    await _find(context, topic.name, part, isolation) for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _find(
    context: Context, topic: str, part: ListOffsetsRequest.Topic.Partition, isolation: Isolation
) -> _Listed:
    index = part.partition_index
    if part.timestamp in _TIERED:
        return _Listed(partition_index=index)
    if part.timestamp < 0 and part.timestamp not in _PLACES:
        return _Listed(partition_index=index, error_code=ErrorCode.UNSUPPORTED_VERSION)
    place = _PLACES.get(part.timestamp, AtTime(part.timestamp))
    try:
        position = await context.broker.partitions.find(
            context.session,
            TopicPartition(topic, index),
            place,
            isolation=isolation,
            leader_epoch=part.current_leader_epoch,
        )
    except RequestError as problem:
        return _Listed(partition_index=index, error_code=code_for(problem))
    if position is None:
        return _Listed(partition_index=index)
    return _Listed(
        partition_index=index,
        timestamp=position.timestamp_ms,
        offset=position.offset,
        leader_epoch=position.leader_epoch,
    )


def offset_for_leader_epoch(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.Topic(
                topic=topic.topic,
                partitions=[_epoch_end(context, topic.topic, part) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _epoch_end(
    context: Context, topic: str, part: OffsetForLeaderEpochRequest.Topic.Partition
) -> OffsetForLeaderEpochResponse.Topic.Partition:
    answer = OffsetForLeaderEpochResponse.Topic.Partition(partition=part.partition)
    try:
        end = context.broker.partitions.epoch_end(
            context.session,
            TopicPartition(topic, part.partition),
            Epoch(part.leader_epoch),
            leader_epoch=part.current_leader_epoch,
        )
    except RequestError as problem:
        answer.error_code = code_for(problem)
        return answer
    if end is not None:
        answer.leader_epoch, answer.end_offset = end
    return answer


async def delete_records(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.Topic(
                name=topic.name,
                partitions=[_delete(context, topic.name, part) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    context: Context, topic: str, part: DeleteRecordsRequest.Topic.Partition
) -> DeleteRecordsResponse.Topic.Partition:
    index = part.partition_index
    try:
        start = context.broker.partitions.delete_records(
            context.session,
            TopicPartition(topic, index),
            None if part.offset == -1 else part.offset,
        )
    except RequestError as problem:
        return DeleteRecordsResponse.Topic.Partition(
            partition_index=index, low_watermark=-1, error_code=code_for(problem)
        )
    return DeleteRecordsResponse.Topic.Partition(partition_index=index, low_watermark=start)


HANDLERS: dict[int, Handler] = {
    0: produce,
    2: list_offsets,
    21: delete_records,
    23: offset_for_leader_epoch,
}

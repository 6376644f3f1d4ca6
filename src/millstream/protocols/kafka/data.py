"""Handlers of the data path: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

Owns the translation between Kafka's requests and the engine's words. A client's batch goes to the
engine as the bytes it came in, and a fetched one leaves as a range of the file it lies in.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from uuid import UUID

from millstream.engine.reading import AtMaxTimestamp, AtTime, Earliest, Latest, Place, Slice, Want
from millstream.errors import InvalidBatch, ProtocolError, RequestError, TimedOut, UnknownTopic
from millstream.model import Acks, Appended, Epoch, Isolation, TopicPartition
from millstream.protocols.kafka.apis.data import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.error_codes import ErrorCode, code_for
from millstream.protocols.kafka.gateway import Handler
from millstream.protocols.kafka.schema import NO_ID

_ACKS = {acks.value: acks for acks in Acks}
_SINCE_TOPIC_IDS = 13
_FINAL_EPOCH = -1  # Of a fetch session: there is none.

_Produced = ProduceResponse.Topic.Partition
_Fetched = FetchResponse.Topic.Partition
_Listed = ListOffsetsResponse.Topic.Partition

# Kafka's special timestamps. Nothing is tiered here, so the earliest local record is the earliest.
_PLACES: dict[int, Place] = {
    -1: Latest(),
    -2: Earliest(),
    -3: AtMaxTimestamp(),
    -4: Earliest(),
}
_LATEST_TIERED = -5


# -- produce -----------------------------------------------------------------------------------


def produce(context: Context, request: ProduceRequest) -> Awaitable[ProduceResponse | None]:
    """Append now, in the order of arrival; answer when `acks` allows."""
    acks = _ACKS.get(request.acks)
    written = [
        (topic.name, [_append(context, topic.name, part, acks) for part in topic.partition_data])
        for topic in request.topic_data
    ]
    if acks is Acks.NONE:
        return _no_answer(written)
    return _produced(written, request.timeout_ms / 1000)


_Written = tuple[int, Awaitable[Appended] | RequestError | ErrorCode]


def _append(
    context: Context, topic: str, part: ProduceRequest.Topic.Partition, acks: Acks | None
) -> _Written:
    if acks is None:
        return part.index, ErrorCode.INVALID_REQUIRED_ACKS
    if part.records is None:
        return part.index, InvalidBatch("there is no batch")
    target = TopicPartition(topic, part.index)
    try:
        return part.index, context.broker.partitions.append(
            context.session, target, part.records, acks
        )
    except RequestError as problem:
        return part.index, problem


async def _no_answer(written: Sequence[tuple[str, Sequence[_Written]]]) -> None:
    """With acks=0 an error can only be told by closing the connection."""
    for topic, parts in written:
        for index, outcome in parts:
            if isinstance(outcome, RequestError | ErrorCode):
                raise ProtocolError(f"produce to {topic}-{index} without acks: {outcome}")


async def _produced(
    written: Sequence[tuple[str, Sequence[_Written]]], timeout_s: float
) -> ProduceResponse:
    deadline = asyncio.get_running_loop().time() + timeout_s
    return ProduceResponse(
        responses=[
            ProduceResponse.Topic(
                name=topic,
                partition_responses=[await _outcome(*one, deadline) for one in parts],
            )
            for topic, parts in written
        ]
    )


async def _outcome(
    index: int, outcome: Awaitable[Appended] | RequestError | ErrorCode, deadline: float
) -> _Produced:
    if isinstance(outcome, ErrorCode):
        return _Produced(index=index, error_code=outcome, base_offset=-1)
    try:
        if isinstance(outcome, RequestError):
            raise outcome
        async with asyncio.timeout_at(deadline):
            appended = await outcome
    except TimeoutError:
        problem: RequestError = TimedOut("not committed in time; it may still be")
    except RequestError as refused:
        problem = refused
    else:
        return _Produced(
            index=index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=appended.log_start_offset,
        )
    return _Produced(
        index=index, error_code=code_for(problem), base_offset=-1, error_message=str(problem)
    )


# -- fetch -------------------------------------------------------------------------------------


async def fetch(context: Context, request: FetchRequest) -> FetchResponse:
    """Serve without a session: each request says all it wants, and is told so by session id 0."""
    if request.session_id != 0 and request.session_epoch != _FINAL_EPOCH:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    names = [_name_of(context, topic.topic, topic.topic_id) for topic in request.topics]
    wants = [
        Want(
            TopicPartition(name, part.partition),
            part.fetch_offset,
            part.partition_max_bytes,
            part.current_leader_epoch,
        )
        for topic, name in zip(request.topics, names, strict=True)
        if name is not None
        for part in topic.partitions
    ]
    isolation = _isolation(request.isolation_level)
    slices = iter(
        await context.broker.partitions.read(
            context.session,
            wants,
            min_bytes=request.min_bytes if None not in names else 0,
            bytes_max=request.max_bytes,
            deadline=asyncio.get_running_loop().time() + request.max_wait_ms / 1000,
            isolation=isolation,
        )
    )
    return FetchResponse(
        responses=[
            FetchResponse.Topic(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    _unknown_id(part.partition)
                    if name is None
                    else _fetched(part.partition, next(slices), isolation)
                    for part in topic.partitions
                ],
            )
            for topic, name in zip(request.topics, names, strict=True)
        ]
    )


def _isolation(level: int) -> Isolation:
    return Isolation.READ_COMMITTED if level == 1 else Isolation.READ_UNCOMMITTED


def _name_of(context: Context, name: str, topic_id: UUID) -> str | None:
    """The topic's name; None for an id that is not known here."""
    if topic_id == NO_ID and context.version < _SINCE_TOPIC_IDS:
        return name
    try:
        return context.broker.topics.describe_id(context.session, topic_id).name
    except UnknownTopic:
        return None


def _unknown_id(partition: int) -> _Fetched:
    return _Fetched(
        partition_index=partition, error_code=ErrorCode.UNKNOWN_TOPIC_ID, high_watermark=-1
    )


def _fetched(partition: int, part: Slice, isolation: Isolation) -> _Fetched:
    if part.error is not None:
        return _Fetched(
            partition_index=partition,
            error_code=code_for(part.error),
            high_watermark=-1,
            records=[],
        )
    aborted = None
    if isolation is Isolation.READ_COMMITTED:
        aborted = [
            _Fetched.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in part.aborted
        ]
    return _Fetched(
        partition_index=partition,
        high_watermark=part.high_watermark,
        last_stable_offset=part.last_stable_offset,
        log_start_offset=part.log_start_offset,
        aborted_transactions=aborted,
        records=[] if part.records is None else [part.records],
    )


# -- offsets -----------------------------------------------------------------------------------


def list_offsets(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    isolation = _isolation(request.isolation_level)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.Topic(
                name=topic.name,
                partitions=[
                    _find(context, topic.name, part, isolation) for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _find(
    context: Context, topic: str, part: ListOffsetsRequest.Topic.Partition, isolation: Isolation
) -> _Listed:
    index = part.partition_index
    if part.timestamp == _LATEST_TIERED:
        return _Listed(partition_index=index)
    if part.timestamp < 0 and part.timestamp not in _PLACES:
        return _Listed(partition_index=index, error_code=ErrorCode.UNSUPPORTED_VERSION)
    place = _PLACES.get(part.timestamp, AtTime(part.timestamp))
    try:
        found = context.broker.partitions.find(
            context.session,
            TopicPartition(topic, index),
            place,
            isolation=isolation,
            leader_epoch=part.current_leader_epoch,
        )
    except RequestError as problem:
        return _Listed(partition_index=index, error_code=code_for(problem))
    if found is None:
        return _Listed(partition_index=index)
    return _Listed(
        partition_index=index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
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


def delete_records(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
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
    1: fetch,
    2: list_offsets,
    21: delete_records,
    23: offset_for_leader_epoch,
}

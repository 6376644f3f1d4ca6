"""Handlers of dead letters, for clients that know Millstream: list, count, send back, purge.

Owns the translation between the requests and the engine's dead letters, and how much one of them
may ask for.
"""

from collections.abc import Mapping

from millstream.engine.dead_letters.service import (
    LISTED_BYTES_MAX,
    DeadLetter,
    RedrivePlan,
    dead_topic_of,
)
from millstream.errors import InvalidRequest, RequestError
from millstream.kafka_wire.apis.millstream import (
    DescribeDeadLettersRequest,
    DescribeDeadLettersResponse,
    ListDeadLettersRequest,
    ListDeadLettersResponse,
    PurgeDeadLettersRequest,
    PurgeDeadLettersResponse,
    RedriveDeadLettersRequest,
    RedriveDeadLettersResponse,
    ReplayDeadLetterRequest,
    ReplayDeadLetterResponse,
)
from millstream.kafka_wire.error_codes import code_for
from millstream.model import TopicPartition
from millstream.protocols.kafka.context import Context
from millstream.protocols.kafka.gateway import Handler

LISTED_MAX = 1_000  # In one answer.
STEP_RECORDS_MAX = 1_000  # Sent back by one request.

_Letter = ListDeadLettersResponse.Letter
_Count = DescribeDeadLettersResponse.Count


async def list_letters(
    context: Context, request: ListDeadLettersRequest
) -> ListDeadLettersResponse:
    listed: list[_Letter] = []
    try:
        if request.count_max < 1:
            raise InvalidRequest(f"{request.count_max} dead letters cannot be listed; at least 1")
        count_max = min(request.count_max, LISTED_MAX)
        # One more than is listed shows whether there are more.
        letters = await context.broker.dead_letters.list(
            context.session, request.topic, count_max=count_max + 1
        )
    except RequestError as problem:
        return ListDeadLettersResponse(error_code=code_for(problem), error_message=str(problem))
    size = 0
    for letter in letters[:count_max]:
        size += letter.size
        if listed and size > LISTED_BYTES_MAX:
            break
        listed.append(_listed(letter))
    return ListDeadLettersResponse(
        topic=dead_topic_of(request.topic), letters=listed, has_more=len(listed) < len(letters)
    )


async def describe_letters(
    context: Context, request: DescribeDeadLettersRequest
) -> DescribeDeadLettersResponse:
    try:
        statistics = await context.broker.dead_letters.statistics(context.session, request.topic)
    except RequestError as problem:
        return DescribeDeadLettersResponse(error_code=code_for(problem), error_message=str(problem))
    return DescribeDeadLettersResponse(
        topic=statistics.topic,
        waiting=statistics.waiting,
        by_reason=_counts(statistics.by_reason),
        by_group=_counts(statistics.by_group),
        oldest_ms=-1 if statistics.oldest_ms is None else statistics.oldest_ms,
        newest_ms=-1 if statistics.newest_ms is None else statistics.newest_ms,
        is_complete=statistics.is_complete,
    )


async def replay_letter(
    context: Context, request: ReplayDeadLetterRequest
) -> ReplayDeadLetterResponse:
    place = TopicPartition(request.topic, request.partition)
    try:
        goal, offset = await context.broker.dead_letters.replay(
            context.session, place, request.offset, to=request.to
        )
    except RequestError as problem:
        return ReplayDeadLetterResponse(error_code=code_for(problem), error_message=str(problem))
    return ReplayDeadLetterResponse(topic=goal.topic, partition=goal.partition, offset=offset)


async def redrive_letters(
    context: Context, request: RedriveDeadLettersRequest
) -> RedriveDeadLettersResponse:
    """A step of a redrive. A dry run sends nothing, so it looks at all at once."""
    try:
        if request.count_max < 0:
            raise InvalidRequest(f"{request.count_max} dead letters cannot be sent back")
        bound = request.count_max if request.is_dry_run else STEP_RECORDS_MAX
        plan = RedrivePlan(
            filter=request.filter,
            group=request.group,
            to=request.to,
            count_max=min(request.count_max, bound),
            is_dry_run=request.is_dry_run,
        )
        done = await context.broker.dead_letters.redrive(context.session, request.topic, plan)
    except RequestError as problem:
        return RedriveDeadLettersResponse(error_code=code_for(problem), error_message=str(problem))
    return RedriveDeadLettersResponse(sent=done.sent, skipped=done.skipped)


async def purge_letters(
    context: Context, request: PurgeDeadLettersRequest
) -> PurgeDeadLettersResponse:
    try:
        count = await context.broker.dead_letters.purge(context.session, request.topic)
    except RequestError as problem:
        return PurgeDeadLettersResponse(error_code=code_for(problem), error_message=str(problem))
    return PurgeDeadLettersResponse(count=count)


def _listed(letter: DeadLetter) -> _Letter:
    record, origin = letter.record, letter.origin
    return _Letter(
        partition=letter.target.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=[_Letter.Header(name=name, value=value) for name, value in record.headers],
        origin_topic=origin.target.topic,
        origin_partition=_fitting(origin.target.partition, 31),
        origin_offset=_fitting(origin.offset, 63),
        group=origin.group,
        attempts=_fitting(origin.attempts, 31),
        reason=origin.reason,
        error=origin.error,
    )


def _fitting(number: int, bits: int) -> int:
    """A number of a header, which any client may have written, within the bounds of the field."""
    return number if 0 <= number < 2**bits else -1


def _counts(counts: Mapping[str, int]) -> list[_Count]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [_Count(name=name, count=count) for name, count in ordered]


HANDLERS: dict[int, Handler] = {
    10_002: list_letters,
    10_003: describe_letters,
    10_004: replay_letter,
    10_005: redrive_letters,
    10_006: purge_letters,
}

"""Looks an offset up in a log: its ends, by time, or a number of records before its end."""

import asyncio
from contextlib import suppress
from typing import assert_never

from millstream.cooperative import one_by_one
from millstream.engine.partitions.slices import (
    ANY_EPOCH,
    AtMaxTimestamp,
    AtTime,
    Earliest,
    LastRecords,
    Latest,
    OffsetAndTimestamp,
    Place,
    refuse_read,
    visible_end,
)
from millstream.engine.produce.unpacking import Unpacking
from millstream.errors import ReadPending, StorageError
from millstream.model import Isolation, Offset, TopicPartition
from millstream.replication.replica import Replica
from millstream.storage.log.log import Log
from millstream.storage.log.time_lookup import Steps

# If a sync takes longer, a lookup answers with the committed end.
CATCH_UP_S_MAX = 1.0
# Between two attempts in a segment whose index is being built again.
REBUILT_WAIT_S = 0.05


async def look_up(
    replica: Replica,
    target: TopicPartition,
    place: Place,
    isolation: Isolation,
    unpacking: Unpacking,
) -> OffsetAndTimestamp | None:
    """The offset of a place in the log of a leader; None where no record answers the question.

    Waits for the commit of all that is written by now.
    """
    await _catch_up(replica)
    end = visible_end(replica, isolation)
    try:
        position = await _place_in(replica.log, place, end, unpacking)
    except StorageError as problem:
        raise refuse_read(replica, target, problem) from problem
    if position is None:
        return None
    epoch = replica.consensus_log.epoch_at(position[0])
    return OffsetAndTimestamp(position[0], position[1], ANY_EPOCH if epoch is None else epoch)


async def _place_in(
    log: Log, place: Place, end: Offset, unpacking: Unpacking
) -> tuple[Offset, int] | None:
    while True:
        try:
            match place:
                case Earliest():
                    return log.start_offset, -1
                case Latest():
                    return end, -1
                case AtTime(timestamp_ms):
                    steps = log.offset_for_time(timestamp_ms, end_offset=end)
                    return await _searched(steps, unpacking)
                case AtMaxTimestamp():
                    return await _searched(log.offset_of_max_timestamp(end_offset=end), unpacking)
                case LastRecords(count):
                    return await one_by_one(log.tail(count, end_offset=end)), -1
                case _:
                    assert_never(place)
        except ReadPending:
            await asyncio.sleep(REBUILT_WAIT_S)


async def _searched(steps: Steps, unpacking: Unpacking) -> tuple[Offset, int] | None:
    """Take the steps of a search; batches are read and unpacked on threads."""
    while True:
        try:
            search = next(steps)
        except StopIteration as end:
            position: tuple[Offset, int] | None = end.value
            return position
        if search is None:
            await asyncio.sleep(0)
        else:
            await unpacking.run(search.run, packed_bytes=search.size)


async def _catch_up(replica: Replica) -> None:
    end_offset = replica.log.end_offset
    if end_offset > replica.high_watermark:
        with suppress(TimeoutError):  # Then the lookup answers with the committed end.
            async with asyncio.timeout(CATCH_UP_S_MAX):
                await replica.committed(end_offset, None)

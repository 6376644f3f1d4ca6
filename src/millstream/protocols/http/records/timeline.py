"""Records over time: how many lie in each stretch of the span that a topic keeps.

Offsets are looked up by time, and counted: nothing is read that the index knows.
"""

from typing import Annotated

import msgspec

from millstream.engine.partitions.slices import AtMaxTimestamp, AtTime
from millstream.model import TopicPartition
from millstream.protocols.http.admin.topics import TopicParams
from millstream.protocols.http.calls import Call
from millstream.protocols.http.records.pages import PartitionNumber, partitions_of
from millstream.protocols.http.records.reading import Bounds, bounds_of, offset_at
from millstream.protocols.http.router import Right, Route

PARTITIONS_MAX = 256
LOOKUPS_MAX = 4_096  # Of offsets by time, over all partitions.
STRETCHES_MAX = 500


class TimelineParams(TopicParams, frozen=True, kw_only=True):
    partition: PartitionNumber | None = None
    stretches: Annotated[int, msgspec.Meta(ge=1, le=STRETCHES_MAX)] = 120


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    from_ms: int | None  # None: there is no record.
    until_ms: int | None
    step_ms: int
    counts: list[int]  # Offsets in each stretch, the oldest first.
    partitions_left_out: int
    is_estimated: bool  # The budget ran out: the records of some stretches are spread evenly.


class _Budget:
    """How many lookups are left, and for how long."""

    def __init__(self, call: Call) -> None:
        self._elapsed_s = call.services.elapsed_s
        self._deadline_s = self._elapsed_s() + call.services.config.http.scan_ms_max / 1000
        self._lookups_left = LOOKUPS_MAX
        self.is_exceeded = False

    def take(self) -> bool:
        self._lookups_left -= 1
        if self._lookups_left < 0 or self._elapsed_s() > self._deadline_s:
            self.is_exceeded = True
        return not self.is_exceeded


async def timeline(call: Call, params: TimelineParams) -> Timeline:
    topic = call.services.topics.describe(call.session, params.topic)
    numbers = partitions_of(topic, params.partition)
    targets = [TopicPartition(params.topic, number) for number in numbers[:PARTITIONS_MAX]]
    left_out = len(numbers) - len(targets)
    async with call.services.scans.turn():
        bounds = {
            target: await bounds_of(call.services, call.session, target) for target in targets
        }
        filled = {target: each for target, each in bounds.items() if each.start < each.end}
        span = await _span(call, list(filled))
        if span is None:
            return Timeline(
                from_ms=None,
                until_ms=None,
                step_ms=0,
                counts=[],
                partitions_left_out=left_out,
                is_estimated=False,
            )
        first_ms, last_ms = span
        step_ms = (last_ms - first_ms) // params.stretches + 1
        counts = [0] * ((last_ms - first_ms) // step_ms + 1)
        budget = _Budget(call)
        for target, each in filled.items():
            await _count(call, target, each, first_ms, step_ms, counts, budget)
    return Timeline(
        from_ms=first_ms,
        until_ms=last_ms,
        step_ms=step_ms,
        counts=counts,
        partitions_left_out=left_out,
        is_estimated=budget.is_exceeded,
    )


async def _span(call: Call, targets: list[TopicPartition]) -> tuple[int, int] | None:
    """The times of the oldest and of the newest record."""
    times = []
    for target in targets:
        for place in (AtTime(0), AtMaxTimestamp()):
            position = await call.services.partitions.find(call.session, target, place)
            if position is not None and position.timestamp_ms >= 0:
                times.append(position.timestamp_ms)
    return (min(times), max(times)) if times else None


async def _count(
    call: Call,
    target: TopicPartition,
    bounds: Bounds,
    first_ms: int,
    step_ms: int,
    counts: list[int],
    budget: _Budget,
) -> None:
    """Halve the span until a part is one stretch, or empty: quiet hours cost one lookup."""
    waiting = [(0, bounds.start, len(counts), bounds.end)]
    while waiting:
        low, low_offset, high, high_offset = waiting.pop()
        if low_offset == high_offset:
            continue
        if high - low == 1:
            counts[low] += high_offset - low_offset
        elif budget.take():
            middle = (low + high) // 2
            time_ms = first_ms + middle * step_ms
            offset = await offset_at(call.services, call.session, target, time_ms, bounds.end)
            # Producers may set times that go back; offsets do not.
            offset = min(max(offset, low_offset), high_offset)
            waiting += [(low, low_offset, middle, offset), (middle, offset, high, high_offset)]
        else:
            records, width = high_offset - low_offset, high - low
            for at in range(width):
                counts[low + at] += records * (at + 1) // width - records * at // width


_TOPIC = "topic:{topic}"

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics/{topic}/records/timeline",
        handler=timeline,
        summary="How many records lie in each stretch of the kept span",
        params=TimelineParams,
        reply=Timeline,
        rights=(Right("DESCRIBE", _TOPIC),),
    ),
)

"""Which dead letters of a topic were redriven: a floor with exceptions, and a few marks past it.

Owns their storage, in a delivery shard under a reserved name. A mark is written together with the
redriven record itself; `tidy` keeps the marks few by raising the floor over them.

Invariant: a partition has at most `MARKS_MAX` marks and `SKIPPED_MAX` exceptions, however a redrive
chooses its letters.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from millstream.control.catalog import Catalog, Topic
from millstream.engine.ledgers.shards import Shards
from millstream.engine.push.shard import DeliveryShard, cursor_entry, unmark
from millstream.errors import Overloaded, RequestError, UnknownTopic
from millstream.internal_topics.deliveries import CursorValue, Unsettled
from millstream.model import LogId, Offset
from millstream.names import DELIVERIES_TOPIC

MARKS_KEPT = 1_000  # With more of them the floor is raised past letters that still wait.
SKIPPED_MAX = 10_000  # Letters that wait before the floor.
MARKS_MAX = 50_000  # Letters redriven from behind more than `SKIPPED_MAX` that still wait.


class RedrivenOffsets(NamedTuple):
    """Redriven letters of a partition: all before the floor except `skipped`, and `marks`."""

    floor: Offset
    skipped: frozenset[Offset]
    marks: AbstractSet[Offset]

    def has(self, offset: Offset) -> bool:
        if offset in self.marks:
            return True
        return offset < self.floor and offset not in self.skipped

    @property
    def first_waiting(self) -> Offset:
        """No letter before this offset waits."""
        return min(self.skipped, default=self.floor)


_NOTHING = RedrivenOffsets(0, frozenset(), frozenset())


def redrive_name(topic: Topic) -> str:
    """The name under which it is kept what was redriven of a dead-letter topic."""
    return f"__redrive/{topic.topic_id.hex}"


def waiting_count(
    catalog: Catalog,
    shards: Shards[DeliveryShard],
    topic: Topic,
    spans: Mapping[LogId, tuple[Offset, Offset]],
) -> int | None:
    """The letters in `spans`, from start to end, that wait; None while that is not known here."""
    name, redriven = redrive_name(topic), None
    try:
        catalog.find(DELIVERIES_TOPIC)
    except UnknownTopic:
        pass  # Nothing was ever redriven.
    else:
        try:
            redriven = RedrivenLetters(name, shards.find_now(name))
        except RequestError:
            return None
    count = 0
    for log_id, (start, end) in spans.items():
        offsets = _NOTHING if redriven is None else redriven.offsets(log_id)
        floor = max(start, offsets.floor)
        count += max(0, end - floor) - sum(at >= floor for at in offsets.marks)
        count += sum(at >= start and at not in offsets.marks for at in offsets.skipped)
    return count


class RedrivenLetters:
    def __init__(self, name: str, shard: DeliveryShard) -> None:
        self.name = name
        self.shard = shard

    def offsets(self, log_id: LogId) -> RedrivenOffsets:
        """The redriven letters; `marks` is a view that changes with the shard."""
        value = self.shard.stored.cursor(self.name, log_id)
        marks = self.shard.stored.marks(self.name, log_id)
        if value is None:
            return RedrivenOffsets(0, frozenset(), marks)
        return RedrivenOffsets(
            value.next_offset, frozenset(entry.offset for entry in value.unsettled), marks
        )

    def check_room(self, log_id: LogId) -> None:
        """Raise `Overloaded` if no more letters can be redriven out of order."""
        count = len(self.shard.stored.marks(self.name, log_id))
        if count >= MARKS_MAX:
            raise Overloaded(
                f"{count} dead letters were sent back from behind older ones that still wait; "
                "send the older ones back or purge them first"
            )

    async def tidy(self, log_id: LogId, least: Offset) -> None:
        """Raise the floor to `least`, before which no letter waits, and over adjacent marks."""
        known = self.offsets(log_id)
        marks = known.marks
        floor = max(known.floor, least)
        while floor in marks:
            floor += 1
        skipped = {at for at in known.skipped if at >= least and at not in marks}
        end = max(marks, default=floor) + 1
        behind = sum(at >= floor for at in marks)
        if behind > MARKS_KEPT and len(skipped) + end - floor - behind <= SKIPPED_MAX:
            skipped.update(at for at in range(floor, end) if at not in marks)
            floor = end
        if floor == known.floor and frozenset(skipped) == known.skipped:
            return
        waiting = tuple(Unsettled(at, 0) for at in sorted(skipped))
        value = CursorValue(next_offset=floor, unsettled=waiting)
        entries = [cursor_entry(self.name, log_id, value)]
        entries += [unmark(self.name, log_id, at) for at in sorted(marks) if at < floor]
        self.shard.write(entries)
        await self.shard.wait_committed(self.name)

"""Which dead letters of a topic were sent back: a floor, and those behind it one by one.

Owns what is written of that, in a shard, under a name of the broker's own. The one thing to know:
the marks come with the hand-overs themselves, in the same write; all that is done here is to keep
them few, by a floor that says the same.
"""

from typing import NamedTuple

from millstream.control.deliveries import CursorValue
from millstream.engine.delivery.shard import DeliveryShard, cursor_entry, unmark
from millstream.model import LogId, Offset


class Settled(NamedTuple):
    """Of one partition: all before the floor, and these."""

    floor: Offset
    marks: frozenset[Offset]

    def has(self, offset: Offset) -> bool:
        return offset < self.floor or offset in self.marks


class SentBack:
    def __init__(self, name: str, shard: DeliveryShard) -> None:
        self.name = name
        self.shard = shard

    def settled(self, log_id: LogId) -> Settled:
        """As of now. It copies what is marked: not to be asked for each of many."""
        value = self.shard.stored.cursors(self.name).get(log_id)
        marks = self.shard.stored.settled(self.name).get(log_id, frozenset())
        return Settled(0 if value is None else value.next_offset, marks)

    async def tidy(self, log_id: LogId, least: Offset) -> None:
        """Raise the floor: nothing waits before `least`, nor among the marks next to it."""
        known = self.settled(log_id)
        floor = max(known.floor, least)
        while floor in known.marks:
            floor += 1
        if floor == known.floor:
            return
        gone = [offset for offset in known.marks if offset < floor]
        entries = [cursor_entry(self.name, log_id, CursorValue(next_offset=floor))]
        entries += [unmark(self.name, log_id, offset) for offset in sorted(gone)]
        self.shard.write(entries)
        await self.shard.settle(self.name)

"""How far a subscription is in one partition, record by record.

Owns the phases of a record from the log until it is settled, and the cursor: which records are
settled, which are not, and how that is stored. Settled has AMQP's meaning: the record is
acknowledged, dropped, expired or written as a dead letter, and is never delivered again. Pure.

Invariant: every record before `next_offset` is settled, except those in `in_flight`. So the floor
is derived, and a record that does not match the subscription costs nothing.
"""

from enum import IntEnum

from millstream.codec.lifetime import NEVER_MS
from millstream.codec.records import Record
from millstream.internal_topics.deliveries import CursorValue, Unsettled
from millstream.model import Offset, TopicPartition

IN_FLIGHT_BYTES = 200  # Estimated overhead of a record in memory.
HEADER_BYTES = 150  # Estimated overhead of each header.
SENT_HELD_MAX = 4  # Records held, of those sent together, per unacknowledged one.
ERRORS_KEPT_MAX = 2**18  # Characters of error texts stored per cursor; later ones are left out.


# Integers: the table is read twice for every record, and integers hash much faster.
class Phase(IntEnum):
    """State of a record that is not settled."""

    READY = 1  # Can be sent to any member.
    SENT = 2  # A member has it and has not acknowledged it.
    WAITING = 3  # An attempt failed; it is ready again after the retry delay.
    GIVEN_UP = 4  # The last attempt failed; its dead letter is being written.


class Event(IntEnum):
    SEND = 1
    REFUSE = 2  # The member's connection had no room: the send does not count.
    ACK = 3
    RETRY_LATER = 4
    RETRY_NOW = 5
    GIVE_UP = 6
    DUE = 7
    DEAD_LETTERED = 8
    DROP = 9
    EXPIRE = 10


# Next phase; None: settled.
TRANSITIONS: dict[tuple[Phase, Event], Phase | None] = {
    (Phase.READY, Event.SEND): Phase.SENT,
    (Phase.READY, Event.DROP): None,
    (Phase.READY, Event.EXPIRE): None,
    (Phase.READY, Event.ACK): None,  # A late answer of the previous holder.
    (Phase.READY, Event.GIVE_UP): Phase.GIVEN_UP,  # A late rejection by the previous holder.
    (Phase.SENT, Event.REFUSE): Phase.READY,
    (Phase.SENT, Event.ACK): None,
    (Phase.SENT, Event.RETRY_LATER): Phase.WAITING,
    (Phase.SENT, Event.RETRY_NOW): Phase.READY,
    (Phase.SENT, Event.GIVE_UP): Phase.GIVEN_UP,
    (Phase.WAITING, Event.DUE): Phase.READY,
    (Phase.WAITING, Event.ACK): None,
    (Phase.WAITING, Event.GIVE_UP): Phase.GIVEN_UP,
    (Phase.GIVEN_UP, Event.DEAD_LETTERED): None,
}


class InFlight:
    """A record that is not settled. One exists for every delivered record: slots, no checks."""

    __slots__ = (
        "attempts",
        "cursor",
        "ends_ms",
        "error",
        "holder",
        "phase",
        "reason",
        "record",
        "sending",
        "size",
        "subject",
    )

    def __init__(
        self, cursor: "Cursor", record: Record, subject: str, size: int, ends_ms: int
    ) -> None:
        self.cursor = cursor
        self.record = record
        self.size = size
        self.subject = subject
        self.ends_ms = ends_ms  # It expires then.
        self.phase: Phase | None = Phase.READY
        self.attempts = 0
        self.holder = 0  # Number of the member that has it or had it last; 0: none.
        self.sending: Sending | None = None  # In phase SENT.
        self.reason = ""  # Of giving up.
        self.error = ""

    @property
    def target(self) -> TopicPartition:
        return self.cursor.target

    @property
    def offset(self) -> Offset:
        return self.record.offset


def size_of(record: Record) -> int:
    """Bytes of memory that a record takes while it is not settled."""
    size = IN_FLIGHT_BYTES
    if record.value is not None:
        size += len(record.value)
    if record.key is not None:
        size += len(record.key)
    for name, content in record.headers:
        size += len(name) + len(content or b"") + HEADER_BYTES
    return size


class Sending:
    """Records that were sent to a member at the same time, and share a deadline."""

    __slots__ = ("deadline_ms", "items", "left")

    def __init__(self, deadline_ms: int, items: list[InFlight]) -> None:
        self.deadline_ms = deadline_ms
        self.items = items
        self.left = len(items)  # Not answered.

    def drop(self, in_flight: InFlight) -> None:
        """Remove an answered record. Few payloads are kept until the deadline: `SENT_HELD_MAX`."""
        in_flight.sending = None
        self.left -= 1
        if SENT_HELD_MAX * self.left <= len(self.items):
            self.items = [item for item in self.items if item.sending is self] if self.left else []


class Cursor:
    def __init__(self, target: TopicPartition, next_offset: Offset) -> None:
        self.target = target
        self.next_offset = next_offset
        self.is_changed = False  # Since it was saved.
        self.in_flight: dict[Offset, InFlight] = {}  # Ascending: records are taken in offset order.
        self.marked: frozenset[Offset] = frozenset()  # Settled by a mark in the shard.
        self._restored: dict[Offset, Unsettled] = {}
        self._restored_end: Offset = 0
        self._settled_end: Offset = 0  # One past the last record that was settled here.

    @staticmethod
    def restore(
        target: TopicPartition, value: CursorValue, marked: frozenset[Offset] = frozenset()
    ) -> "Cursor":
        """A saved cursor; it reads again from its floor to get the unsettled records."""
        unsettled = [entry for entry in value.unsettled if entry.offset not in marked]
        floor = min((entry.offset for entry in unsettled), default=value.next_offset)
        cursor = Cursor(target, floor)
        cursor.marked = marked
        cursor._restored = {entry.offset: entry for entry in unsettled}
        cursor._restored_end = value.next_offset
        cursor._settled_end = max(marked, default=-1) + 1
        return cursor

    @property
    def floor(self) -> Offset:
        """Every record before it is settled."""
        return min(next(iter(self.in_flight), self.next_offset), self.next_offset)

    @property
    def known_end_offset(self) -> Offset:
        """Lower bound of the log's end, by what this cursor has seen."""
        return max(self.next_offset, self._restored_end, self._settled_end)

    @property
    def unsettled_count(self) -> int:
        return len(self.in_flight) + len(self._restored)

    def is_settled(self, offset: Offset) -> bool:
        if offset in self.in_flight or offset in self._restored:
            return False
        if offset in self.marked:
            return True
        return offset < max(self.next_offset, self._restored_end)

    def take(
        self, record: Record, subject: str, size: int = IN_FLIGHT_BYTES, ends_ms: int = NEVER_MS
    ) -> InFlight | None:
        """Take the next record that matches the subscription; None if it is already settled."""
        assert record.offset >= self.next_offset, "records are taken in offset order"
        self.next_offset = record.offset + 1
        known = self._restored.pop(record.offset, None)
        if known is None and (record.offset < self._restored_end or record.offset in self.marked):
            return None
        in_flight = InFlight(self, record, subject, size, ends_ms)
        if known is not None:
            in_flight.attempts = known.attempts
            if known.reason:
                in_flight.phase = Phase.GIVEN_UP
                in_flight.reason, in_flight.error = known.reason, known.error
        self.in_flight[record.offset] = in_flight
        return in_flight

    @property
    def is_caught_up(self) -> bool:
        """Whether nothing of before a restart is left to be taken again."""
        return not self._restored and not self.marked and self.next_offset >= self._restored_end

    def pass_to(self, next_offset: Offset) -> None:
        """Every record before `next_offset` is settled, without having been in flight."""
        assert next_offset >= self.next_offset, "records are taken in offset order"
        assert not self.in_flight
        self.next_offset = self._settled_end = next_offset
        self.is_changed = True

    def settle(self, offset: Offset) -> None:
        del self.in_flight[offset]
        if offset >= self._settled_end:
            self._settled_end = offset + 1
        self.is_changed = True

    def move_on(self, next_offset: Offset) -> None:
        """Skip to `next_offset`: the records up to there do not match the subscription."""
        if next_offset <= self.next_offset:
            return
        self.next_offset = next_offset
        if self._restored:
            # Retention or compaction removed these records from the log.
            self._restored = {
                at: entry for at, entry in self._restored.items() if at >= next_offset
            }

    def cut(self, end_offset: Offset) -> None:
        """The log was truncated to `end_offset`: records from there on are new ones."""
        self.next_offset = min(self.next_offset, end_offset)
        self._restored_end = min(self._restored_end, end_offset)
        self._settled_end = min(self._settled_end, end_offset)
        self._restored = {at: entry for at, entry in self._restored.items() if at < end_offset}
        self.marked = frozenset(at for at in self.marked if at < end_offset)
        self.is_changed = True

    def value(self) -> CursorValue:
        """The value to save. A tail of records that never failed is left out: it is read again."""
        unsettled = []
        room = ERRORS_KEPT_MAX
        for at, record in self.in_flight.items():
            room -= len(record.error)
            error = record.error if room >= 0 else ""
            # An attempt that a restart interrupts does not count.
            attempts = record.attempts - (record.phase is Phase.SENT)
            unsettled.append(Unsettled(at, attempts, record.reason, error))
        next_offset = max(self.next_offset, self._restored_end)
        if self._restored:
            unsettled += self._restored.values()
            unsettled.sort(key=lambda entry: entry.offset)
            return CursorValue(next_offset=next_offset, unsettled=tuple(unsettled))
        while (
            unsettled
            and unsettled[-1].offset >= max(self._settled_end, self._restored_end)
            and not unsettled[-1].attempts
            and not unsettled[-1].reason
        ):
            next_offset = unsettled.pop().offset
        return CursorValue(next_offset=next_offset, unsettled=tuple(unsettled))

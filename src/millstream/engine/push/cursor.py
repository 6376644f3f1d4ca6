"""How far a subscription is in one partition, record by record.

Owns the states of a record between the log and its end, and the cursor: what is done, what is not,
and how that is kept. Pure. The one thing to know: everything before `next_offset` is settled,
except what is in `in_flight`. So the floor needs no book of its own, and a record that is not for
this subscription costs nothing.
"""

from enum import IntEnum

from millstream.codec.lifetime import NEVER_MS
from millstream.codec.records import Record
from millstream.internal_topics.deliveries import CursorValue, Unsettled
from millstream.model import Offset, TopicPartition

IN_FLIGHT_BYTES = 200  # What a record takes besides what is in it, about.
HEADER_BYTES = 150  # The same for each of its headers.
SENT_HELD_MAX = 4  # Records held, of those that were sent together, for each that is still out.
ERRORS_KEPT_MAX = 2**18  # Characters of a cursor's errors that are kept; the rest is left out.


# Numbers, because the table is asked twice for every record, and they are found much faster.
class Phase(IntEnum):
    """Where a record is that is not settled yet."""

    READY = 1  # To be sent to any member.
    SENT = 2  # A member has it.
    WAITING = 3  # It failed, and will be ready again after a while.
    GIVEN_UP = 4  # It failed for good, and is on its way to the dead letters.


class Event(IntEnum):
    SEND = 1
    REFUSE = 2  # The member's connection had no room: as if it had not been sent.
    ACK = 3
    RETRY_LATER = 4
    RETRY_NOW = 5
    GIVE_UP = 6
    DUE = 7
    DEAD_LETTERED = 8
    DROP = 9
    EXPIRE = 10


# None: settled.
TRANSITIONS: dict[tuple[Phase, Event], Phase | None] = {
    (Phase.READY, Event.SEND): Phase.SENT,
    (Phase.READY, Event.DROP): None,
    (Phase.READY, Event.EXPIRE): None,
    (Phase.READY, Event.ACK): None,  # By the member that had it before, late.
    (Phase.READY, Event.GIVE_UP): Phase.GIVEN_UP,  # The same member rejects it, late.
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
    """A record that is not settled. There is one for every record delivered: slots, no checks."""

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
        self.ends_ms = ends_ms  # Nobody is sent it from then on.
        self.phase: Phase | None = Phase.READY
        self.attempts = 0
        self.holder = 0  # The member that has it or had it last; 0: none.
        self.sending: Sending | None = None  # While it is sent.
        self.reason = ""  # Why it is given up.
        self.error = ""

    @property
    def target(self) -> TopicPartition:
        return self.cursor.target

    @property
    def offset(self) -> Offset:
        return self.record.offset


def size_of(record: Record) -> int:
    """What a record takes while it is not settled, in bytes."""
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
        self.left = len(items)  # Still out.

    def drop(self, in_flight: InFlight) -> None:
        """It is out no more. Payloads are not kept until the deadline, but for a few."""
        in_flight.sending = None
        self.left -= 1
        if SENT_HELD_MAX * self.left <= len(self.items):
            self.items = [one for one in self.items if one.sending is self] if self.left else []


class Cursor:
    def __init__(self, target: TopicPartition, next_offset: Offset) -> None:
        self.target = target
        self.next_offset = next_offset
        self.is_changed = False  # It is not as it was kept.
        self.in_flight: dict[Offset, InFlight] = {}  # Ascending, because records come in order.
        self.marked: frozenset[Offset] = frozenset()  # Settled, and kept as such one by one.
        self._restored: dict[Offset, Unsettled] = {}
        self._restored_end: Offset = 0
        self._settled_end: Offset = 0  # Behind the last record that was settled here.

    @staticmethod
    def restore(
        target: TopicPartition, value: CursorValue, marked: frozenset[Offset] = frozenset()
    ) -> "Cursor":
        """A cursor as it was kept: it reads again from its floor, for what was not settled."""
        unsettled = [one for one in value.unsettled if one.offset not in marked]
        floor = min((one.offset for one in unsettled), default=value.next_offset)
        cursor = Cursor(target, floor)
        cursor.marked = marked
        cursor._restored = {one.offset: one for one in unsettled}
        cursor._restored_end = value.next_offset
        cursor._settled_end = max(marked, default=-1) + 1
        return cursor

    @property
    def floor(self) -> Offset:
        """All before it is settled."""
        return min(next(iter(self.in_flight), self.next_offset), self.next_offset)

    @property
    def known_end_offset(self) -> Offset:
        """Where the log went at least, as far as this cursor knows."""
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
        """Take the next record that is for this subscription; None if it is settled already."""
        assert record.offset >= self.next_offset, "records come in order"
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

    def settle(self, offset: Offset) -> None:
        del self.in_flight[offset]
        if offset >= self._settled_end:
            self._settled_end = offset + 1
        self.is_changed = True

    def move_on(self, next_offset: Offset) -> None:
        """What lies before `next_offset` and was not taken is not for this subscription."""
        if next_offset <= self.next_offset:
            return
        self.next_offset = next_offset
        if self._restored:
            # Their records are gone from the log, by retention or compaction.
            self._restored = {at: one for at, one in self._restored.items() if at >= next_offset}

    def cut(self, end_offset: Offset) -> None:
        """The log ends there, before what is known of it: what comes next is new."""
        self.next_offset = min(self.next_offset, end_offset)
        self._restored_end = min(self._restored_end, end_offset)
        self._settled_end = min(self._settled_end, end_offset)
        self._restored = {at: one for at, one in self._restored.items() if at < end_offset}
        self.marked = frozenset(at for at in self.marked if at < end_offset)
        self.is_changed = True

    def value(self) -> CursorValue:
        """What must be kept: a tail of records that never failed is simply read again."""
        unsettled = []
        room = ERRORS_KEPT_MAX
        for at, one in self.in_flight.items():
            room -= len(one.error)
            error = one.error if room >= 0 else ""
            # An attempt that a restart cuts short has not failed.
            attempts = one.attempts - (one.phase is Phase.SENT)
            unsettled.append(Unsettled(at, attempts, one.reason, error))
        next_offset = max(self.next_offset, self._restored_end)
        if self._restored:
            unsettled += self._restored.values()
            unsettled.sort(key=lambda one: one.offset)
            return CursorValue(next_offset=next_offset, unsettled=tuple(unsettled))
        while (
            unsettled
            and unsettled[-1].offset >= max(self._settled_end, self._restored_end)
            and not unsettled[-1].attempts
            and not unsettled[-1].reason
        ):
            next_offset = unsettled.pop().offset
        return CursorValue(next_offset=next_offset, unsettled=tuple(unsettled))

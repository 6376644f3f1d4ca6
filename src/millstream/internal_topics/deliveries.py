"""Durable subscriptions and their cursors, as a fold over one partition of the deliveries topic.

Owns the keys, the values, their bytes and the fold. A null value removes a key. Pure: the engine
decides what is written.

Invariant: the encoding of a key never changes, because compaction compares keys byte by byte;
values are maps, and may get further fields.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar
from uuid import UUID

import msgspec

from millstream.model import LogId, Offset
from millstream.names import DLQ_SUBJECT_PREFIX, DLQ_TOPIC_SUFFIX

K = TypeVar("K")
V = TypeVar("V")


class AckMode(Enum):
    EXPLICIT = "explicit"  # A record is settled when a member acknowledges it.
    ON_SEND = "on send"  # A record is settled when a member's connection has taken it.


class Overflow(Enum):
    """What happens to a record when the buffer is full."""

    BLOCK = "block"  # It stays in the log until there is room: no record is lost.
    DROP = "drop"  # It is dropped.
    SHED = "shed"  # The oldest waiting record is dropped instead.


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a record is sent again, and where it goes after the last attempt."""

    max_retries: int = 3  # After the first attempt.
    ack_timeout_ms: int = 30_000
    retry_delay_ms: int = 0  # Before the first retry; 0: at once, and always.
    multiplier: float = 2.0  # Of the delay, with each further retry.
    retry_delay_ms_max: int = 10 * 60 * 1000
    jitter: float = 0.1  # Random part of a delay, in both directions.
    # `{topic}` is the record's topic; None: no dead letters, the record is dropped.
    dead_letter_topic: str | None = f"{{topic}}{DLQ_TOPIC_SUFFIX}"
    dead_subject_prefix: str = DLQ_SUBJECT_PREFIX  # Put before the record's subject.


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPolicy:
    """Flow control. Each member may have its own; their buffers add up."""

    window: int = 1_000  # Records that a member holds unacknowledged.
    rate: float | None = None  # Records a second; None: as fast as the member takes them.
    burst: int = 100  # Records at once, after a pause.
    buffer: int = 1_000  # Records that wait to be sent.
    overflow: Overflow = Overflow.BLOCK
    slow_threshold: float = 0.8  # How full the buffer of a slow consumer is, 0 to 1.
    is_pull: bool = False  # Only what was asked for with `Member.want` is sent.


class SubscriptionKey(msgspec.Struct, frozen=True, array_like=True, tag=0):
    name: str


class CursorKey(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """By topic id: a later topic of the same name is another one."""

    name: str
    topic_id: UUID
    partition: int

    @property
    def log(self) -> LogId:
        return LogId(self.topic_id, self.partition)


class SettledKey(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A mark: the record is settled whatever the cursor says, until the cursor includes it.

    It can be written without knowing the cursor: together with the end of an intent.
    """

    name: str
    topic_id: UUID
    partition: int
    offset: Offset

    @property
    def log(self) -> LogId:
        return LogId(self.topic_id, self.partition)


AnyKey = SubscriptionKey | CursorKey | SettledKey


class DeadLetterIntent(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The stored intent to write a record to, or back from, a dead-letter topic: everything needed
    to write the same record again after a crash."""

    name: str  # Of the subscription whose cursor it settles; empty: none is stored.
    topic_id: UUID  # Of the log that holds it.
    topic: str
    partition: int
    offset: Offset
    is_redrive: bool = False  # From the dead letters back to its topic.
    attempts: int = 0
    reason: str = ""
    error: str = ""
    prefix: str = ""  # Of the dead letter's subject.
    group: str = ""  # The subscription, as the dead letter names it.

    @property
    def log(self) -> LogId:
        return LogId(self.topic_id, self.partition)

    @property
    def settled(self) -> SettledKey:
        return SettledKey(self.name, self.topic_id, self.partition, self.offset)


class SubscriptionValue(msgspec.Struct, frozen=True, kw_only=True):
    """A durable subscription as it was created, without types of the engine."""

    pattern: str | None
    style: str
    topics: tuple[str, ...]
    start: str
    start_number: int
    filter: str | None
    acks: AckMode
    created_ms: int
    principal: str
    retry: RetryPolicy = msgspec.field(default_factory=RetryPolicy)
    flow: FlowPolicy = msgspec.field(default_factory=FlowPolicy)


class Unsettled(msgspec.Struct, frozen=True, array_like=True):
    """A record before a cursor's next offset that is not settled."""

    offset: Offset
    attempts: int
    reason: str = ""  # Not empty: it was given up for it; its dead letter is being written.
    error: str = ""


class CursorValue(msgspec.Struct, frozen=True, kw_only=True):
    """Every record before `next_offset` is settled, except `unsettled`, ascending."""

    next_offset: Offset
    unsettled: tuple[Unsettled, ...] = ()


class DeliveriesState:
    """The fold: `apply` each record in order, tombstones included."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, SubscriptionValue] = {}
        self._cursors: dict[str, dict[LogId, CursorValue]] = {}
        self._settled: dict[str, dict[LogId, set[Offset]]] = {}

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._subscriptions)

    def find(self, name: str) -> SubscriptionValue | None:
        return self._subscriptions.get(name)

    def cursors(self, name: str) -> dict[LogId, CursorValue]:
        """The stored cursors of a subscription, by partition."""
        return dict(self._cursors.get(name, {}))

    def settled(self, name: str) -> dict[LogId, frozenset[Offset]]:
        """The marks of a subscription, by partition."""
        marks = self._settled.get(name, {})
        return {log: frozenset(offsets) for log, offsets in marks.items()}

    def cursor(self, name: str, log: LogId) -> CursorValue | None:
        return self._cursors.get(name, {}).get(log)

    def marks(self, name: str, log: LogId) -> AbstractSet[Offset]:
        """The marks of one partition: a view that changes with the state."""
        return self._settled.get(name, {}).get(log, frozenset())

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record; one that cannot be decoded changes nothing and raises."""
        match _key_decoder.decode(key or b""):
            case SubscriptionKey(name):
                _put(self._subscriptions, name, value, _subscription_decoder)
            case CursorKey(name) as cursor:
                cursors = self._cursors.get(name, {})
                _put(cursors, cursor.log, value, _cursor_decoder)
                if cursors:
                    self._cursors[name] = cursors
                else:
                    self._cursors.pop(name, None)
            case SettledKey() as mark:
                self._apply_mark(mark, is_set=value is not None)

    def _apply_mark(self, mark: SettledKey, *, is_set: bool) -> None:
        marks = self._settled.setdefault(mark.name, {})
        offsets = marks.setdefault(mark.log, set())
        if is_set:
            offsets.add(mark.offset)
        else:
            offsets.discard(mark.offset)
        if not offsets:
            del marks[mark.log]
        if not marks:
            del self._settled[mark.name]


def _put(
    into: dict[K, V], key: K, value: bytes | None, decoder: msgspec.msgpack.Decoder[V]
) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = decoder.decode(value)


def encode_key(key: AnyKey) -> bytes:
    return _encoder.encode(key)


def encode_value(value: SubscriptionValue | CursorValue) -> bytes:
    return _encoder.encode(value)


def encode_intent(intent: DeadLetterIntent) -> bytes:
    return _encoder.encode(intent)


def decode_intent(data: bytes) -> DeadLetterIntent:
    """Decode an intent; `msgspec.MsgspecError` for invalid bytes or a later version."""
    return _intent_decoder.decode(data)


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_key_decoder = msgspec.msgpack.Decoder(AnyKey)
_subscription_decoder = msgspec.msgpack.Decoder(SubscriptionValue)
_cursor_decoder = msgspec.msgpack.Decoder(CursorValue)
_intent_decoder = msgspec.msgpack.Decoder(DeadLetterIntent)

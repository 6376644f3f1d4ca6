"""Stored state of transactions, as a fold over one partition of the transactions topic.

Owns the keys, the values, their bytes, the states and the table of transitions; `transaction_steps`
decides which request is allowed. A null value removes a key.

Invariant: the encoding of a key never changes, because compaction compares keys byte by byte;
values carry a version, and may get further fields at their end.
"""

from collections.abc import Iterator
from enum import Enum
from uuid import UUID

import msgspec

from millstream.model import LogId, Producer, TopicPartition

NO_ID = -1
NOT_STARTED = -1


class TransactionState(Enum):
    """The values are stored, and are those of Kafka's tools."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


class Event(Enum):
    INITIALIZED = "a producer took over"
    PARTITIONS_ADDED = "partitions were added"
    COMMITTED = "the producer committed"
    ABORTED = "the producer aborted"
    SKIPPED = "the producer aborted what it had not begun"
    FENCED = "the producer was fenced"
    MARKED = "every partition has its marker"
    EXPIRED = "the transactional id expired"


_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMMITTED, _ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

# Kafka's PrepareEpochFence is not here: fencing and the abort it leads to are one record.
TRANSITIONS: dict[tuple[TransactionState, Event], TransactionState] = {
    (_EMPTY, Event.INITIALIZED): _EMPTY,
    (_EMPTY, Event.PARTITIONS_ADDED): _ONGOING,
    (_EMPTY, Event.SKIPPED): _PREPARE_ABORT,
    (_EMPTY, Event.EXPIRED): TransactionState.DEAD,
    (_ONGOING, Event.PARTITIONS_ADDED): _ONGOING,
    (_ONGOING, Event.COMMITTED): _PREPARE_COMMIT,
    (_ONGOING, Event.ABORTED): _PREPARE_ABORT,
    (_ONGOING, Event.FENCED): _PREPARE_ABORT,
    (_PREPARE_COMMIT, Event.MARKED): _COMMITTED,
    (_PREPARE_ABORT, Event.MARKED): _ABORTED,
    (_COMMITTED, Event.INITIALIZED): _EMPTY,
    (_COMMITTED, Event.PARTITIONS_ADDED): _ONGOING,
    (_COMMITTED, Event.SKIPPED): _PREPARE_ABORT,
    (_COMMITTED, Event.EXPIRED): TransactionState.DEAD,
    (_ABORTED, Event.INITIALIZED): _EMPTY,
    (_ABORTED, Event.PARTITIONS_ADDED): _ONGOING,
    (_ABORTED, Event.SKIPPED): _PREPARE_ABORT,
    (_ABORTED, Event.EXPIRED): TransactionState.DEAD,
}

PREPARING = frozenset({_PREPARE_COMMIT, _PREPARE_ABORT})
# The states in which a transaction is decided on, and whether it was committed.
DECIDED = {_PREPARE_COMMIT: True, _COMMITTED: True, _PREPARE_ABORT: False, _ABORTED: False}


class TransactionKey(msgspec.Struct, frozen=True, array_like=True, tag=0):
    transactional_id: str


class Participant(msgspec.Struct, frozen=True, array_like=True):
    """A partition in a transaction. It is that of the topic's id, not of a later namesake."""

    topic: str
    partition: int
    topic_id: UUID

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def log(self) -> LogId:
        return LogId(self.topic_id, self.partition)


class TransactionValue(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag=0):
    """While the markers are written, `epoch` is theirs."""

    producer_id: int
    epoch: int
    timeout_ms: int
    changed_ms: int
    state: TransactionState = TransactionState.EMPTY
    started_ms: int = NOT_STARTED
    participants: frozenset[Participant] = frozenset()
    # The producer before its own request for the latest epoch: it may repeat that request.
    last_producer_id: int = NO_ID
    last_epoch: int = NO_ID
    # Takes the place of a producer id that has no epoch left, once the markers are written.
    next_producer_id: int = NO_ID

    @property
    def producer(self) -> Producer:
        """The producer that may continue, now or once the transaction has ended."""
        if self.next_producer_id != NO_ID:
            return Producer(self.next_producer_id, 0)
        return Producer(self.producer_id, self.epoch)

    @property
    def last(self) -> Producer:
        return Producer(self.last_producer_id, self.last_epoch)

    @property
    def is_unended(self) -> bool:
        return self.state is TransactionState.ONGOING or self.is_preparing

    @property
    def is_preparing(self) -> bool:
        return self.state in PREPARING

    @property
    def commits(self) -> bool:
        return DECIDED[self.state]


class TransactionsState:
    """The fold: `apply` each record in order, tombstones included."""

    def __init__(self) -> None:
        self._values: dict[str, TransactionValue] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def find(self, transactional_id: str) -> TransactionValue | None:
        return self._values.get(transactional_id)

    def apply(self, key: bytes | None, value: bytes | None) -> str:
        """Return whom the record is about. One that cannot be read changes nothing and raises what
        its decoder does."""
        transactional_id, stored = decode_entry(key, value)
        if stored is None:
            self._values.pop(transactional_id, None)
        else:
            self._values[transactional_id] = stored
        return transactional_id


def decode_entry(key: bytes | None, value: bytes | None) -> tuple[str, TransactionValue | None]:
    transactional_id = _key_decoder.decode(key or b"").transactional_id
    return transactional_id, None if value is None else _value_decoder.decode(value)


def encode_key(transactional_id: str) -> bytes:
    return _encoder.encode(TransactionKey(transactional_id))


def encode_value(value: TransactionValue) -> bytes:
    return _encoder.encode(value)


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_key_decoder = msgspec.msgpack.Decoder(TransactionKey)
_value_decoder = msgspec.msgpack.Decoder(TransactionValue)

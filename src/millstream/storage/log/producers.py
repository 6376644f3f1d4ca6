"""Tracks the producers of a log: sequences, epochs, open and aborted transactions.

A fold over batch headers: `check` asks whether a batch may come next and changes nothing, `apply`
takes batches of the log and refuses none, so a leader, a follower and a restart reach the same
state. The log persists it with `encode` and rebuilds it after a truncation by `decode` and replay.
Batches without a producer id pass through untouched, at almost no cost.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct as Layout
from typing import NamedTuple

import msgspec
from fastcrc import crc32

from millstream.codec.batch import SEQUENCE_MAX, Header
from millstream.codec.markers import ControlKind, Marker
from millstream.errors import (
    DamagedLog,
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
)
from millstream.model import Buffer, Offset
from millstream.storage.log.aborted import Aborted, AbortedIndex, FrozenAborted

WINDOW_BATCHES = 5  # As many as a Kafka client keeps in flight per connection.
# Transactions that ended above the high watermark; the oldest are merged beyond this many.
CLOSING_MAX = 1_024

_NEVER = -1
_MAGIC = b"MSPS"
_VERSION = 2
_PREFIX = Layout(">4sHI")  # Magic, version, CRC-32C of the body.
# MessagePack, as `_Snapshot` is spelled.
_ARRAY_OF_FOUR = b"\x94"
_ARRAY_32 = Layout(">BI")
_ARRAY_32_CODE, _BYTES_32_CODE = 0xDD, 0xC6
_ENCODED_AT_ONCE = 1_000


class Duplicate(NamedTuple):
    """Where the first copy of a batch went."""

    base_offset: Offset
    end_offset: Offset
    timestamp: int


class ProducerView(NamedTuple):
    """One producer as an operator sees it; -1 where there is nothing to say."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: Offset
    last_offset: Offset  # Of its newest batch with data.


class _Sent(NamedTuple):
    """A batch in the window of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: Offset
    end_offset: Offset
    timestamp: int


class _Producer(msgspec.Struct, array_like=True):
    epoch: int
    window: list[_Sent]  # Newest last, all of them of `epoch`.
    coordinator_epoch: int = _NEVER
    last_timestamp: int = _NEVER
    idle_since_ms: int = _NEVER  # The first call of `expire` that found it silent.


class _Closing(NamedTuple):
    marker_offset: Offset
    first_offset: Offset


class _Snapshot(msgspec.Struct, array_like=True):
    # Decoded one by one: all in one call would hold up every other thread.
    producers: list[msgspec.Raw]
    open: list[tuple[int, int]]
    closing: list[_Closing]
    aborted: bytes


class _FirstSnapshot(msgspec.Struct, array_like=True):
    """Version 1: aborted transactions one by one."""

    producers: list[msgspec.Raw]
    open: list[tuple[int, int]]
    closing: list[_Closing]
    aborted: list[Aborted]
    aborted_stable: list[int]


class FrozenProducers(NamedTuple):
    """The state at one offset, to be encoded on any thread while the log goes on."""

    producer_ids: list[int]
    producers: list[_Producer]
    open: list[tuple[int, int]]
    closing: list[_Closing]
    aborted: FrozenAborted

    def last_batches(self) -> Iterator[tuple[int, Offset, int]]:
        """The id, the last offset of the newest batch with data (or -1), and the epoch of each."""
        for producer_id, producer in zip(self.producer_ids, self.producers, strict=True):
            window = producer.window
            yield producer_id, window[-1].end_offset - 1 if window else _NEVER, producer.epoch

    def encode(self) -> list[bytes]:
        """A snapshot with version and checksum, in pieces: no call holds up others for long."""
        body = [_ARRAY_OF_FOUR, _ARRAY_32.pack(_ARRAY_32_CODE, len(self.producers))]
        encode = msgspec.msgpack.Encoder().encode
        pairs = zip(self.producer_ids, self.producers, strict=True)
        while piece := b"".join(map(encode, islice(pairs, _ENCODED_AT_ONCE))):
            body.append(piece)
        body += [encode(self.open), encode(self.closing)]
        body.append(_ARRAY_32.pack(_BYTES_32_CODE, self.aborted.size))
        body += self.aborted.encode()
        crc = 0
        for piece in body:
            crc = crc32.iscsi(piece, crc)
        return [_PREFIX.pack(_MAGIC, _VERSION, crc), *body]


class Producers:
    """The producers of one log. Offsets must come in ascending order, as they stand in the log."""

    def __init__(self, *, producer_ids_max: int = 100_000) -> None:
        assert producer_ids_max > 0
        self._producer_ids_max = producer_ids_max
        self._producers: OrderedDict[int, _Producer] = OrderedDict()  # Least recent first.
        self._open: OrderedDict[int, Offset] = OrderedDict()  # First offsets, ascending.
        self._closing: deque[_Closing] = deque()  # Both fields ascending.
        self._aborted = AbortedIndex()
        # Those that no frozen state holds, since one was made: all others are copied before they
        # change. Not for `idle_since_ms`, which may be of either time in a snapshot.
        self._unfrozen: set[int] | None = None
        # Producers whose transaction is being verified on another node; a marker drops its own.
        self.guards: set[int] = set()

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Where the oldest open transaction starts."""
        return next(iter(self._open.values()), None)

    def check(self, header: Header) -> Duplicate | None:
        """Ask whether this producer may write this batch next; say so if it is here already.

        Raises `StaleProducerEpoch`, `OutOfOrderSequence` or `InvalidTransactionState`.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        producer = self._producers.get(producer_id)
        if producer is None:
            return None  # Forgotten or new: any sequence goes.
        if header.producer_epoch < producer.epoch:
            raise StaleProducerEpoch(producer_id, producer.epoch, header.producer_epoch)
        # Only the broker writes without a sequence: offsets of a consumer, in a transaction.
        if header.base_sequence >= 0:
            is_same_epoch = header.producer_epoch == producer.epoch
            duplicate = _find_duplicate(producer, header) if is_same_epoch else None
            if duplicate is not None:
                return duplicate
            expected = _next_sequence(producer) if is_same_epoch else 0
            if header.base_sequence != expected:
                raise OutOfOrderSequence(producer_id, expected, header.base_sequence)
        if producer_id in self._open and not header.is_transactional:
            raise InvalidTransactionState(
                f"producer {producer_id} has an open transaction here and wrote outside of it"
            )
        return None

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """The sequence that a producer goes on with; None if it is not known in this epoch."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            return None
        return _next_sequence(producer)

    def check_marker(self, marker: Marker, *, must_be_newer: bool = False) -> None:
        """Ask whether a coordinator may end a transaction with this marker.

        There need not be one: a coordinator repeats markers until it sees them written. With
        `must_be_newer` the epoch is above that of the transaction's batches, so one of its own
        epoch is a later one, which a late marker must not end (KIP-890). Raises
        `StaleProducerEpoch` or `StaleCoordinatorEpoch`.
        """
        producer = self._producers.get(marker.producer_id)
        if producer is None:
            return
        is_open = must_be_newer and marker.producer_id in self._open
        if marker.producer_epoch < producer.epoch + is_open:
            raise StaleProducerEpoch(marker.producer_id, producer.epoch, marker.producer_epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise StaleCoordinatorEpoch(
                marker.producer_id, producer.coordinator_epoch, marker.coordinator_epoch
            )

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction here, and it is of this epoch."""
        return producer_id in self._open and self._producers[producer_id].epoch == epoch

    def is_open_at(self, producer_id: int, offset: Offset) -> bool:
        """Whether the producer's transactional batch at `offset` is in an open transaction."""
        first_offset = self._open.get(producer_id)
        return first_offset is not None and first_offset <= offset

    def is_aborted_at(self, producer_id: int, offset: Offset) -> bool:
        """Whether the producer's transactional batch at `offset` was aborted."""
        return any(
            aborted.producer_id == producer_id for aborted in self.aborted(offset, offset + 1)
        )

    def apply(self, header: Header, marker: Marker | None = None) -> None:
        """Take a batch that is in the log; `marker` is the decoded control batch."""
        if header.producer_id < 0:
            return
        if header.is_control:
            if marker is not None:
                self._end_transaction(header, marker)
            return
        producer = self._touch(header)
        producer.window.append(_sent(header))
        if len(producer.window) > WINDOW_BATCHES:
            del producer.window[0]
        # Compaction leaves empty batches behind, and may drop the marker that went with them.
        if header.is_transactional and header.count and header.producer_id not in self._open:
            self._open[header.producer_id] = header.base_offset

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The end offset for readers of committed transactions.

        A transaction whose marker is not yet below the high watermark still counts as open, so
        that losing the marker with its leader does not move this end backwards.
        """
        closing = self._closing
        while closing and closing[0].marker_offset < high_watermark:
            closing.popleft()
        stable = min(high_watermark, next(iter(self._open.values()), high_watermark))
        return min(stable, closing[0].first_offset) if closing else stable

    def aborted(self, start: Offset, end: Offset) -> list[Aborted]:
        """The aborted transactions that overlap `start` to `end`, ordered by last offset."""
        return self._aborted.overlapping(start, end)

    def freeze_aborted(self) -> FrozenAborted:
        return self._aborted.freeze()

    def replace_aborted(self, frozen: FrozenAborted, columns: Sequence["array[int]"]) -> bool:
        """Drop transactions of which compaction left no record. Their markers must go later.

        `columns` are the frozen ones without them; False if others were forgotten meanwhile.
        """
        return self._aborted.replace(frozen, columns)

    def forget_before(self, start_offset: Offset) -> None:
        """The log starts here. Producers stay: only silence ends them, as in Kafka."""
        self._aborted.forget_before(start_offset)
        for producer_id, first_offset in self._open.items():
            if first_offset >= start_offset:
                break
            self._open[producer_id] = (
                start_offset  # Records below the log start need no protection.
            )
        if self._closing and self._closing[0].first_offset < start_offset:
            moved = [_Closing(at, max(first, start_offset)) for at, first in self._closing]
            self._closing = deque(
                closing for closing in moved if closing.marker_offset >= start_offset
            )

    def expire(self, now_ms: int, expiration_ms: int) -> int | None:
        """Forget producers that were silent for `expiration_ms`, except in a transaction.

        Returns when the next one may be due, if no batch comes before; None if none is left.

        Silence is counted by our clock from the first call that found it. Timestamps of batches
        come from clients: a backfill of old records would lose its idempotence at once.
        """
        expired: list[int] = []
        oldest_ms: int | None = None
        for producer_id, producer in self._producers.items():
            if producer_id in self._open:
                continue
            if producer.idle_since_ms == _NEVER or producer.idle_since_ms > now_ms:
                producer.idle_since_ms = now_ms
            elif now_ms - producer.idle_since_ms >= expiration_ms:
                expired.append(producer_id)
                continue
            if oldest_ms is None or producer.idle_since_ms < oldest_ms:
                oldest_ms = producer.idle_since_ms
        for producer_id in expired:
            del self._producers[producer_id]
        return None if oldest_ms is None else oldest_ms + expiration_ms

    def describe(self) -> list[ProducerView]:
        return [
            ProducerView(
                producer_id,
                producer.epoch,
                producer.window[-1].last_sequence if producer.window else _NEVER,
                producer.last_timestamp,
                producer.coordinator_epoch,
                self._open.get(producer_id, _NEVER),
                producer.window[-1].end_offset - 1 if producer.window else _NEVER,
            )
            for producer_id, producer in self._producers.items()
        ]

    def freeze(self) -> FrozenProducers:
        """The state as it is now; takes a few milliseconds for 100,000 producers."""
        self._unfrozen = set()
        return FrozenProducers(
            list(self._producers),
            list(self._producers.values()),
            list(self._open.items()),
            list(self._closing),
            self._aborted.freeze(),
        )

    def encode(self) -> bytes:
        """The whole state as a snapshot with version and checksum."""
        return b"".join(self.freeze().encode())

    @classmethod
    def decode(cls, data: Buffer, *, producer_ids_max: int = 100_000) -> "Producers":
        """Read what `encode` wrote; raise `DamagedLog` for anything else."""
        if len(data) < _PREFIX.size:
            raise DamagedLog(f"producer snapshot of {len(data)} bytes is cut short")
        magic, version, crc = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if magic != _MAGIC or version not in {1, _VERSION}:
            raise DamagedLog(f"not a producer snapshot of version {_VERSION}: {magic!r} {version}")
        if crc32.iscsi(body) != crc:
            raise DamagedLog("producer snapshot fails its checksum")
        try:
            snapshot: _Snapshot | _FirstSnapshot = (
                msgspec.msgpack.decode(body, type=_Snapshot)
                if version == _VERSION
                else msgspec.msgpack.decode(body, type=_FirstSnapshot)
            )
        except msgspec.DecodeError as problem:
            raise DamagedLog(f"producer snapshot is not readable: {problem}") from problem
        producers = cls(producer_ids_max=producer_ids_max)
        producers._producers = _decode_producers(snapshot.producers)
        producers._open = OrderedDict(snapshot.open)
        producers._closing = deque(snapshot.closing)
        producers._aborted = _decode_aborted(snapshot)
        producers._keep_within_bound()
        return producers

    def _touch(self, header: Header) -> _Producer:
        """The producer of this batch, at the batch's epoch and as the most recent one."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = _Producer(header.producer_epoch, [])
            self._producers[header.producer_id] = producer
            self._keep_within_bound()
        else:
            if self._unfrozen is not None and header.producer_id not in self._unfrozen:
                self._unfrozen.add(header.producer_id)
                producer = _copy(producer)
                self._producers[header.producer_id] = producer
            self._producers.move_to_end(header.producer_id)
            if producer.epoch != header.producer_epoch:
                producer.epoch = header.producer_epoch
                producer.window.clear()
        producer.last_timestamp = header.max_timestamp
        producer.idle_since_ms = _NEVER
        return producer

    def _end_transaction(self, header: Header, marker: Marker) -> None:
        self.guards.discard(header.producer_id)
        producer = self._touch(header)
        producer.coordinator_epoch = marker.coordinator_epoch
        first_offset = self._open.pop(header.producer_id, None)
        if first_offset is None:
            return
        self._keep_within_bound()
        marker_offset = header.last_offset
        self._remember_closing(_Closing(marker_offset, first_offset))
        if marker.kind is ControlKind.ABORT:
            self._aborted.append(
                Aborted(header.producer_id, first_offset, marker_offset),
                stable_offset=next(iter(self._open.values()), marker_offset + 1),
            )

    def _remember_closing(self, ended: _Closing) -> None:
        closing = self._closing
        # One that started later and ended earlier adds nothing to `ended`.
        while closing and closing[-1].first_offset >= ended.first_offset:
            closing.pop()
        closing.append(ended)
        if len(closing) > CLOSING_MAX:
            # As if they were one long transaction: readers wait longer, never too short.
            oldest, second = closing.popleft(), closing.popleft()
            closing.appendleft(_Closing(second.marker_offset, oldest.first_offset))

    def _keep_within_bound(self) -> None:
        """Forget the least recent producers, but none in a transaction: the log needs its end."""
        # One beyond the open ones: the newest may be about to open its own, and must stay.
        count_max = max(self._producer_ids_max, len(self._open) + 1)
        for _ in range(len(self._producers)):
            if len(self._producers) <= count_max:
                return
            producer_id = next(iter(self._producers))
            if producer_id in self._open:
                self._producers.move_to_end(producer_id)
            else:
                del self._producers[producer_id]


def _copy(producer: _Producer) -> _Producer:
    return _Producer(
        producer.epoch,
        list(producer.window),
        producer.coordinator_epoch,
        producer.last_timestamp,
        producer.idle_since_ms,
    )


def _decode_producers(encoded: Iterable[msgspec.Raw]) -> OrderedDict[int, _Producer]:
    decode = msgspec.msgpack.Decoder(tuple[int, _Producer]).decode
    try:
        return OrderedDict(map(decode, encoded))
    except msgspec.DecodeError as problem:
        raise DamagedLog(f"producer snapshot is not readable: {problem}") from problem


def _sent(header: Header) -> _Sent:
    return _Sent(
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.end_offset,
        header.max_timestamp,
    )


def _find_duplicate(producer: _Producer, header: Header) -> Duplicate | None:
    last_sequence = header.last_sequence
    for sent in reversed(producer.window):
        if sent.base_sequence == header.base_sequence and sent.last_sequence == last_sequence:
            return Duplicate(sent.base_offset, sent.end_offset, sent.timestamp)
    return None


def _next_sequence(producer: _Producer) -> int:
    """After a marker alone there is no batch to continue, and the producer starts at 0."""
    if not producer.window:
        return 0
    last = producer.window[-1].last_sequence
    return 0 if last == SEQUENCE_MAX else last + 1


def _decode_aborted(snapshot: _Snapshot | _FirstSnapshot) -> AbortedIndex:
    if isinstance(snapshot, _Snapshot):
        return AbortedIndex.decode(snapshot.aborted)
    if len(snapshot.aborted) != len(snapshot.aborted_stable):
        raise DamagedLog("producer snapshot disagrees with itself on aborted transactions")
    transactions = AbortedIndex()
    for aborted, stable_offset in zip(snapshot.aborted, snapshot.aborted_stable, strict=True):
        transactions.append(aborted, stable_offset=stable_offset)
    return transactions

"""Decides which records compaction keeps, batch by batch. The rules are Kafka's, with one more:

- A record stays if the log holds no newer one of its key. One without a key goes.
- A record of an aborted transaction goes.
- A tombstone gets a delete horizon when it is first cleaned, and goes some time after it. So does a
  marker all of whose records are gone.
- A record whose time to live is over goes, and takes the older ones of its key with it. In a topic
  that is not compacted that is all that goes.
- A batch stays, if need be empty, if it is the last of its epoch, of the segment that is written,
  or of a producer that the log knows: ends of epochs, logs and sequences must not move.

Owns the rules and nothing else: bytes in, bytes out.

Invariant: a tombstone, a marker or an expired record goes only if an *earlier* run has removed the
older records that it hides, and that run is known to be durable. A power cut within a run must not
bring a value back whose tombstone is gone.
"""

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from millstream.codec.batch import Header
from millstream.codec.lifetime import NEVER_MS, Lifetime
from millstream.codec.records import Record, decode_each
from millstream.codec.rewrite import filter_batch
from millstream.errors import RequestError
from millstream.model import Buffer, Offset
from millstream.storage.compaction.policy import NOTHING_DUE
from millstream.storage.log.aborted import Aborted

# Memory of a key in `KeyMap`: 125 to 153 bytes were measured for keys of 8 to 100 bytes, and a
# dictionary that has just grown takes more.
KEY_ENTRY_BYTES = 200
DIGEST_BYTES = 20
# How long a record may lie there past its time before the log is gone through for it again; for
# every `RECLAIM_PAUSE_BYTES` of the log, so that looking takes little of a disk.
RECLAIM_PAUSE_MS = 10 * 60 * 1000
RECLAIM_PAUSE_BYTES = 2**30

_TIMESTAMP_MAX = 2**63 - 1

_log = logging.getLogger(__name__)
_LAST_OFFSET = attrgetter("last_offset")


class ProducerEnd(NamedTuple):
    """Where a producer that the log knows wrote last; -1 if only markers speak of it."""

    last_offset: Offset
    epoch: int


class Remembered(NamedTuple):
    """Transactions in producer snapshots on disk; their markers must stay."""

    aborted_ends: frozenset[Offset]
    open_producers: frozenset[int]


class RulesContext(Struct, frozen=True, kw_only=True):
    """The state of the log when the run was planned."""

    start_offset: Offset
    dirty_start: Offset  # Below it an earlier run, which is durable, left every key once.
    now_ms: int
    delete_retention_ms: int
    aborted: Sequence[Aborted]
    producer_ends: Mapping[int, ProducerEnd]
    decompressed_bytes_max: int
    compacts: bool = True  # Else only expired records go.
    lifetime: Lifetime | None = None
    size_bytes: int = 0  # Of all that the run goes through.


class AbortedTransactions:
    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._by_producer: defaultdict[int, list[Aborted]] = defaultdict(list)
        for transaction in aborted:
            self._by_producer[transaction.producer_id].append(transaction)
        self._by_end = {transaction.last_offset: transaction for transaction in aborted}

    def covers(self, header: Header) -> bool:
        """Whether this batch was written in a transaction that was aborted."""
        if not header.is_transactional or header.is_control:
            return False
        aborted = self._by_producer.get(header.producer_id, [])
        at = bisect_left(aborted, header.base_offset, key=_LAST_OFFSET)
        return at < len(aborted) and aborted[at].first_offset <= header.base_offset

    def ending_at(self, offset: Offset) -> Aborted | None:
        return self._by_end.get(offset)


class KeyMap:
    """The newest offset of every key, as far as the memory goes."""

    def __init__(self, *, bytes_max: int) -> None:
        self._newest: dict[bytes, Offset] = {}
        self._count_max = max(1, bytes_max // KEY_ENTRY_BYTES)

    @property
    def is_full(self) -> bool:
        """Asked before each batch, so that one batch always fits and every run gets on."""
        return len(self._newest) >= self._count_max

    def add(self, batch: Buffer, *, decompressed_bytes_max: int) -> None:
        """Take the keys of a batch; none if it cannot be decoded, for then it stays as it is."""
        try:
            offsets = {
                _short(record.key): record.offset
                for record in decode_each(batch, decompressed_bytes_max=decompressed_bytes_max)
                if record.key is not None
            }
        except RequestError:
            return
        self._newest.update(offsets)

    def has_newer(self, key: bytes, offset: Offset) -> bool:
        return self._newest.get(_short(key), -1) > offset


class RetentionRules:
    """Must see all batches of the log in order. Those from `end_offset` on are left alone."""

    def __init__(
        self,
        context: RulesContext,
        keys: KeyMap,
        aborted: AbortedTransactions,
        *,
        end_offset: Offset,
        remembered: Callable[[], Remembered],
    ) -> None:
        self.end_offset = end_offset
        self.due_ms = NOTHING_DUE  # When the first tombstone or marker that was kept may go.
        self.forgotten: list[Aborted] = []  # Only the marker is left of them.
        self._context = context
        self._keys = keys
        self._aborted = aborted
        self._remembered = remembered
        self._with_records: set[int] = set()  # Producers whose transaction has records so far.
        self._pause_ms = RECLAIM_PAUSE_MS * (1 + context.size_bytes // RECLAIM_PAUSE_BYTES)
        self._horizon_ms = min(context.now_ms + context.delete_retention_ms, _TIMESTAMP_MAX)

    def retain(self, header: Header, batch: memoryview, *, must_stay: bool) -> Buffer | None:
        """The batch to keep: the same, a smaller one, or None. `must_stay` forbids None."""
        if header.base_offset >= self.end_offset:
            return batch
        must_stay = must_stay or self._ends_producer(header)
        if header.is_control:
            return self._retain_marker(header, batch, must_stay=must_stay)
        if header.is_transactional and header.count:
            self._with_records.add(header.producer_id)
        try:
            return self._retain_records(header, batch, must_stay=must_stay)
        except RequestError as problem:
            # The checksum is right, so a producer wrote this. Its keys are unknown.
            at = header.base_offset
            _log.warning("kept a batch that cannot be decoded offset=%d reason=%s", at, problem)
            return batch

    def _retain_records(
        self, header: Header, batch: memoryview, *, must_stay: bool
    ) -> Buffer | None:
        if not self._context.compacts:
            return self._drop_expired(header, batch, must_stay=must_stay)
        is_aborted = self._aborted.covers(header)
        is_due = self._is_due(header)
        start_offset, has_newer = self._context.start_offset, self._keys.has_newer
        is_clean = header.end_offset <= self._context.dirty_start
        has_tombstone = False

        def stays(record: Record) -> bool:
            nonlocal has_tombstone
            if is_aborted or record.key is None or record.offset < start_offset:
                return False
            if has_newer(record.key, record.offset):
                return False
            if self._has_ended(record, may_go=is_clean):
                return False
            if record.value is None:
                if is_due:
                    return False
                has_tombstone = True
            return True

        kept = self._filter(batch, stays, must_stay=must_stay)
        if has_tombstone:
            if not header.has_delete_horizon:
                kept = self._filter(batch, stays, horizon_ms=self._horizon_ms)
            self._note_due(header)
        return kept

    def _drop_expired(self, header: Header, batch: memoryview, *, must_stay: bool) -> Buffer | None:
        lifetime = self._context.lifetime
        if lifetime is None:
            return batch
        return filter_batch(
            batch,
            lambda record: not self._has_ended(record, may_go=True),
            decompressed_bytes_max=self._context.decompressed_bytes_max,
            prefilter=lambda data: None if lifetime.may_end(data) else True,
            keep_empty=must_stay,
        )

    def _has_ended(self, record: Record, *, may_go: bool) -> bool:
        """Whether the record goes because its time is over; if not yet, when to come back."""
        if self._context.lifetime is None:
            return False
        ends_ms, now_ms = self._context.lifetime.ends_ms(record), self._context.now_ms
        if ends_ms <= now_ms:
            if not may_go:
                self._note(now_ms)
            return may_go
        if ends_ms != NEVER_MS:
            self._note(max(ends_ms, now_ms + self._pause_ms))
        return False

    def _retain_marker(
        self, header: Header, batch: memoryview, *, must_stay: bool
    ) -> Buffer | None:
        if not self._context.compacts:
            return batch
        has_records = header.producer_id in self._with_records
        self._with_records.discard(header.producer_id)
        if has_records or must_stay or not header.has_producer:
            return batch
        aborted = self._aborted.ending_at(header.last_offset)
        if aborted is not None:
            self.forgotten.append(aborted)
        if not header.has_delete_horizon:
            self._note_due(header)
            return self._filter(batch, lambda _: True, horizon_ms=self._horizon_ms)
        if not self._is_due(header):
            self._note_due(header)
            return batch
        if aborted is not None or self._is_remembered(header):
            return batch
        return None

    def _filter(
        self,
        batch: memoryview,
        stays: Callable[[Record], bool],
        *,
        must_stay: bool = False,
        horizon_ms: int | None = None,
    ) -> bytes | None:
        return filter_batch(
            batch,
            stays,
            decompressed_bytes_max=self._context.decompressed_bytes_max,
            keep_empty=must_stay,
            delete_horizon_ms=horizon_ms,
        )

    def _is_due(self, header: Header) -> bool:
        """Whether the horizon has passed, and an earlier run removed what came before."""
        return (
            header.has_delete_horizon
            and header.base_timestamp <= self._context.now_ms
            and header.end_offset <= self._context.dirty_start
        )

    def _note_due(self, header: Header) -> None:
        self._note(header.base_timestamp if header.has_delete_horizon else self._horizon_ms)

    def _note(self, due_ms: int) -> None:
        if self.due_ms == NOTHING_DUE or due_ms < self.due_ms:
            self.due_ms = due_ms

    def _ends_producer(self, header: Header) -> bool:
        """Whether this batch is the source of the producer's sequence, or else of its epoch."""
        end = self._context.producer_ends.get(header.producer_id)
        if end is None:
            return False
        if end.last_offset >= 0:
            return header.last_offset == end.last_offset
        return header.is_control and header.producer_epoch == end.epoch

    def _is_remembered(self, header: Header) -> bool:
        """Whether a restart from a snapshot could miss this marker.

        A reader that gets an aborted transaction drops its producer's records until the marker; a
        transaction that is open in a snapshot would stay open for ever.
        """
        remembered = self._remembered()
        return (
            header.last_offset in remembered.aborted_ends
            or header.producer_id in remembered.open_producers
        )


def _short(key: bytes) -> bytes:
    """A digest is longer than any key that stands for itself, so the two never meet."""
    if len(key) < DIGEST_BYTES:
        return key
    return blake2b(key, digest_size=DIGEST_BYTES).digest()

"""Folds a log into state: proposes records, waits for their commit, applies all of them in order.

Owns the outcome of each proposal, and the offset up to which the log is folded. What a record means
is the owner's `apply`; `Transactional` handles records of open transactions, where there may be
any. The owner calls `fold` whenever the replica's high watermark has moved, or step by step while
it loads a long log, so that the event loop is never held up for long.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from sys import maxsize
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from millstream.codec.batch import Header, read_header, verify_batch
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import Marker, decode_marker
from millstream.codec.records import Record, decode_each
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    InvalidRequest,
    RequestError,
    StorageError,
    StorageUnavailable,
)
from millstream.model import NO_PRODUCER, Offset, Producer
from millstream.ports import Clock
from millstream.replication.replica import Replica

READ_BYTES_MAX = 2**16
FOLD_RETRY_S = 0.1  # After a read that storage refused for the moment.
# The broker writes its own topics uncompressed: no batch of theirs is ever unpacked.
UNPACKED_BYTES_MAX = 0

# Decoders raise these for a foreign record, or one of a later version. Text that is not UTF-8
# and too deep nesting raise errors that are not msgspec's.
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, struct.error)

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Entry(NamedTuple):
    """A record to propose. A null value is a tombstone."""

    key: bytes | None
    value: bytes | None


class Transactional(Protocol[R_co]):
    """Keeps the records of open transactions."""

    def pend(self, record: Record, producer_id: int) -> R_co:
        """Keep a record that does not count until its producer's transaction ends."""

    def end(self, marker: Marker) -> None:
        """Apply or drop the pending records of the producer, as the marker says."""


class Ledger(Generic[R]):
    """`apply` turns a record into its reply, or refuses it with a `RequestError`: either must
    follow from the record and the state alone, so that it is the same on every node. Without
    `transactions` nothing is ever pending: every record is applied where it stands.

    A record that `apply` cannot read goes to `unreadable`, and the fold goes on behind it; without
    that the log counts as damaged. `check` raises one of `UNREADABLE` for an entry that `apply`
    could not read, before it is written.
    """

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        apply: Callable[[Record], R],
        *,
        transactions: Transactional[R] | None = None,
        unreadable: Callable[[Record, Exception], None] | None = None,
        check: Callable[[Entry], object] | None = None,
        unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
    ) -> None:
        self.applied_offset: Offset = replica.log.start_offset  # Exclusive.
        self.written_offset: Offset = self.applied_offset  # Where the latest proposal ends.
        self._replica = replica
        self._clock = clock
        self._apply = apply
        self._transactions = transactions
        self._unreadable = unreadable
        self._check = check
        self._unpacked_bytes_max = unpacked_bytes_max
        self._replies: dict[Offset, asyncio.Future[R]] = {}
        self._unapplied: Iterator[tuple[Record, Header]] = iter(())

    def write(self, entries: Sequence[Entry], *, producer: Producer = NO_PRODUCER) -> Offset:
        """Propose a batch; return where it ends. It is agreed on when that offset is applied.

        With a `producer` it is part of that one's transaction, which it opens if need be. Raises
        `NotLeader`, `StorageUnavailable`, `BatchTooLarge`, `StaleProducerEpoch` or
        `InvalidRequest`, with nothing written.
        """
        self._check_readable(entries)
        is_transactional = producer != NO_PRODUCER
        assert not is_transactional or self._transactions is not None
        now_ms = self._clock.now_ms()
        data = encode_batch(
            [Record(at, now_ms, *entry) for at, entry in enumerate(entries)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            is_transactional=is_transactional,
        )
        size_max = self._replica.log.settings.segment_bytes
        if len(data) > size_max:
            raise BatchTooLarge(len(data), size_max)
        self.written_offset = self._replica.append(data, read_header(data)).end_offset
        return self.written_offset

    async def propose(self, entries: Sequence[Entry]) -> R:
        """Commit a batch and apply it here; return the reply to its last record.

        Raises that record's refusal, or what `write` raises. After `NotLeader` the batch may still
        be applied, as with every lost answer.
        """
        return await self.outcome(self.write(entries))

    async def outcome(self, end_offset: Offset) -> R:
        """The reply to the last record before `end_offset`, which was written just now."""
        reply: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._replies[end_offset - 1] = reply
        try:
            await self._replica.committed(end_offset, None)
            return await reply
        finally:
            self._replies.pop(end_offset - 1, None)
            if reply.done() and not reply.cancelled():
                reply.exception()  # Retrieved, or asyncio would log it after a loss of leadership.

    def fold(self, *, records_max: int = maxsize) -> bool:
        """Apply committed records, at most about `records_max`; say whether none is left.

        Raises `StorageError` for bytes that cannot be read, or are not what was written.
        """
        left = records_max
        try:
            while left > 0:
                for record, header in islice(self._unapplied, left):
                    self._answer(record, header)
                    left -= 1
                if left > 0:
                    left -= 1  # A batch without records costs a step too.
                    data = self._read()
                    if data is None:
                        return True
                    self._unapplied = self._records(data)
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedLog(f"{self._replica.id}: {problem}") from problem
        return False

    def retry(self, problem: StorageError, fold: Callable[[], None]) -> bool:
        """Call `fold` again in `FOLD_RETRY_S`, if the refusal may pass; say whether it may."""
        if not problem.is_transient:
            return False
        self._replica.refused(problem)
        asyncio.get_running_loop().call_later(FOLD_RETRY_S, fold)
        return True

    def close(self, problem: RequestError) -> None:
        """Stop folding, and answer all proposals that wait with `problem`."""
        self._unapplied = iter(())
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(problem)

    def _check_readable(self, entries: Sequence[Entry]) -> None:
        if self._check is None:
            return
        try:
            for entry in entries:
                self._check(entry)
        except UNREADABLE as problem:
            raise InvalidRequest(f"not written, it could not be read again: {problem}") from problem

    def _read(self) -> memoryview | None:
        end_offset = self._replica.high_watermark
        if self.applied_offset >= end_offset:
            return None
        chunk = self._replica.log.read(
            self.applied_offset, bytes_max=READ_BYTES_MAX, end_offset=end_offset
        )
        return None if chunk is None else memoryview(chunk.read())

    def _records(self, data: memoryview) -> Iterator[tuple[Record, Header]]:
        at = 0
        while at < len(data):
            header = read_header(data, at)
            if header.is_control:
                self._end(data, at)
            else:
                for record in decode_each(
                    data, at, decompressed_bytes_max=self._unpacked_bytes_max
                ):
                    if record.offset >= self.applied_offset:
                        yield record, header
            # Not the last record's end: compaction leaves gaps, even at the end of a batch.
            self.applied_offset = header.end_offset
            at += header.size

    def _end(self, data: memoryview, at: int) -> None:
        header = verify_batch(data, at)
        # Compaction may leave a marker empty, where the log needs a batch to end.
        if self._transactions is not None and header.count:
            self._transactions.end(decode_marker(data, at))

    def _answer(self, record: Record, header: Header) -> None:
        reply = self._replies.get(record.offset)
        try:
            if header.is_transactional and self._transactions is not None:
                result = self._transactions.pend(record, header.producer_id)
            else:
                result = self._apply(record)
        except RequestError as refusal:
            if reply is not None and not reply.done():
                reply.set_exception(refusal)
            return
        except UNREADABLE as problem:
            if self._unreadable is None:
                place = f"{self._replica.id}, record at offset {record.offset}"
                raise DamagedLog(f"{place}: {problem}") from problem
            self._unreadable(record, problem)
            if reply is not None and not reply.done():
                reply.set_exception(StorageUnavailable(f"unreadable: {problem}"))
            return
        if reply is not None and not reply.done():
            reply.set_result(result)

"""State as a fold over a log: propose records, have them agreed on, apply all of them in order.

Owns the way from a proposal to its outcome, and how far the log is folded. What a record means is
the owner's `apply`. The owner also calls `fold`: whenever the replica's high watermark has moved,
or step by step while it loads a long log, so that the event loop is never held up for long.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from sys import maxsize
from typing import Generic, NamedTuple, TypeVar

from millstream.codec.batch import read_header, verify
from millstream.codec.records import Record, build, iterate
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    RequestError,
)
from millstream.model import Offset
from millstream.ports import Clock
from millstream.replication.replica import Replica

READ_BYTES_MAX = 2**16
BATCH_BYTES_MAX = 64 * 2**20

R = TypeVar("R")


class Entry(NamedTuple):
    """A record to be proposed. A null value is a tombstone."""

    key: bytes | None
    value: bytes | None


class Ledger(Generic[R]):
    """`apply` turns a record into its reply, or refuses it with a `RequestError`: either must
    follow from the record and the state alone, so that it is the same on every node.
    """

    def __init__(self, replica: Replica, clock: Clock, apply: Callable[[Record], R]) -> None:
        self.applied_offset: Offset = replica.log.start_offset  # Exclusive.
        self.written_offset: Offset = self.applied_offset  # Where the latest proposal ends.
        self._replica = replica
        self._clock = clock
        self._apply = apply
        self._replies: dict[Offset, asyncio.Future[R]] = {}
        self._unapplied: Iterator[Record] = iter(())

    def write(self, entries: Sequence[Entry]) -> Offset:
        """Propose a batch; return where it ends. It is agreed on when that offset is applied.

        Raises `NotLeader`, `StorageUnavailable` or `BatchTooLarge`, with nothing written.
        """
        now_ms = self._clock.now_ms()
        data = build([Record(at, now_ms, *entry) for at, entry in enumerate(entries)])
        size_max = self._replica.log.records.settings.segment_bytes
        if len(data) > size_max:
            raise BatchTooLarge(len(data), size_max)
        self.written_offset = self._replica.append(data, read_header(data)).end_offset
        return self.written_offset

    async def propose(self, entries: Sequence[Entry]) -> R:
        """Have a batch agreed on and applied here; return the reply to its last record.

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
                reply.exception()  # Seen, even if leadership was lost in the meantime.

    def fold(self, *, records_max: int = maxsize) -> bool:
        """Apply committed records, at most about `records_max`; say whether none is left.

        Raises `StorageError` for bytes that cannot be read, or are not what was written.
        """
        left = records_max
        try:
            while left > 0:
                for record in islice(self._unapplied, left):
                    self._answer(record)
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

    def close(self, problem: RequestError) -> None:
        """Fold no more; whoever still waits for a reply gets `problem`."""
        self._unapplied = iter(())
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(problem)

    def _read(self) -> memoryview | None:
        end_offset = self._replica.high_watermark
        if self.applied_offset >= end_offset:
            return None
        found = self._replica.log.records.read(
            self.applied_offset, bytes_max=READ_BYTES_MAX, end_offset=end_offset
        )
        return None if found is None else memoryview(found.read())

    def _records(self, data: memoryview) -> Iterator[Record]:
        at = 0
        while at < len(data):
            header = read_header(data, at)
            if header.is_control:
                verify(data, at)
            else:
                for record in iterate(data, at, decompressed_bytes_max=BATCH_BYTES_MAX):
                    if record.offset >= self.applied_offset:
                        yield record
            # Not the last record's end: compaction leaves gaps, even at the end of a batch.
            self.applied_offset = header.end_offset
            at += header.size

    def _answer(self, record: Record) -> None:
        reply = self._replies.get(record.offset)
        try:
            result = self._apply(record)
        except RequestError as refusal:
            if reply is not None and not reply.done():
                reply.set_exception(refusal)
            return
        if reply is not None and not reply.done():
            reply.set_result(result)

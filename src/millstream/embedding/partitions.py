"""Appends and fetches records of an embedded broker, without a socket.

Converts plain records to batches and back. Readers see committed records only, and of transactions
only those that were committed.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from millstream.codec import records as codec
from millstream.codec.batch import verify_batches
from millstream.codec.encoding import encode_batch
from millstream.embedding import checks
from millstream.embedding.values import Fetched, NewRecord, Record
from millstream.engine.partitions.slices import FilteredBatches, Want
from millstream.model import Acks, Isolation, Session, TopicPartition
from millstream.ports import Clock
from millstream.server.node import Node
from millstream.storage.log.aborted import Aborted
from millstream.storage.sealing.ranges import LogRange

BYTES_MAX = 1 << 20  # Of one fetch, unless more is asked for; a larger batch is read whole.


# Unpacked by one fetch before it ends between two batches; at least one batch is returned whole.
UNPACKED_BYTES_MAX = 64 * 2**20
RECORD_BYTES = 200  # Of a record without its key and value, about.


@dataclass
class _Visible:
    records: list[Record] = field(default_factory=list)
    next_offset: int = 0


class Partitions:
    def __init__(self, session: Session, node: Node, *, clock: Clock) -> None:
        self._session = session
        self._node = node
        self._clock = clock
        self._decompressed_bytes_max = node.config.limits.batch_decompressed_bytes_max

    async def append(self, topic: str, partition: int, records: Sequence[NewRecord]) -> range:
        """Write records as one batch and return their offsets, once they are on stable storage."""
        target = _target(topic, partition)
        checked = checks.records(records)
        if not checked:
            return range(0)
        now_ms = self._clock.now_ms()
        batch = encode_batch(
            [
                codec.Record(
                    at,
                    now_ms if record.timestamp_ms is None else record.timestamp_ms,
                    record.key,
                    record.value,
                    record.headers,
                )
                for at, record in enumerate(checked)
            ]
        )
        appended = await self._node.partitions.append(self._session, target, batch, Acks.ALL)
        return range(appended.base_offset, appended.end_offset)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int = BYTES_MAX,
        wait_ms: int = 0,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> Fetched:
        """Read from `offset` on, waiting up to `wait_ms` if there is nothing yet.

        Raises `OffsetOutOfRange` or `UnknownTopic`.
        """
        target = _target(topic, partition)
        checks.whole_number("offset", offset, 0)
        checks.whole_number("bytes_max", bytes_max, 0, checks.INT32_MAX)
        checks.whole_number("wait_ms", wait_ms, 0, checks.INT32_MAX)
        if not isinstance(isolation, Isolation):
            raise TypeError(f"isolation is {isolation!r}, it takes a member of Isolation")
        [part] = await self._node.partitions.read(
            self._session,
            [Want(target, offset, bytes_max)],
            min_bytes=1 if wait_ms > 0 else 0,
            deadline=asyncio.get_running_loop().time() + wait_ms / 1000,
            isolation=isolation,
        )
        if part.error is not None:
            raise part.error
        visible, next_offset = _Visible(), offset
        if part.records is not None:
            # Read and unpacked on a thread: a few bytes may hold many MiB of records.
            visible = await self._node.partitions.unpacking.run(
                partial(self._visible, part.records, part.aborted, offset),
                packed_bytes=part.records.size,
            )
            next_offset = visible.next_offset
        committed = isolation is Isolation.READ_COMMITTED
        return Fetched(
            records=tuple(visible.records),
            next_offset=next_offset,
            start_offset=part.log_start_offset,
            end_offset=part.last_stable_offset if committed else part.high_watermark,
        )

    def _visible(
        self, batches: LogRange | FilteredBatches, aborted: Sequence[Aborted], offset: int
    ) -> _Visible:
        """The records that are not markers and not part of a transaction that was aborted.

        Blocks. Ends early, between two batches, after `UNPACKED_BYTES_MAX`.
        """
        data = batches.read()
        opening = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        aborted_ids: set[int] = set()
        visible = _Visible(next_offset=batches.end_offset)
        at = unpacked_bytes = 0
        for header in verify_batches(data):
            if unpacked_bytes > UNPACKED_BYTES_MAX:
                visible.next_offset = header.base_offset
                break
            while opening and opening[0].first_offset <= header.last_offset:
                aborted_ids.add(opening.popleft().producer_id)
            if header.is_control:
                aborted_ids.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted_ids):
                unpacked_bytes += self._take(data, at, offset, visible.records)
            at += header.size
        return visible

    def _take(self, data: bytes, at: int, offset: int, records: list[Record]) -> int:
        """Add the records of one batch from `offset` on; return their size, about."""
        size = 0
        for record in codec.decode_each(
            data, at, decompressed_bytes_max=self._decompressed_bytes_max
        ):
            if record.offset < offset:
                continue
            size += RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
            records.append(
                Record(
                    offset=record.offset,
                    timestamp_ms=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
            )
        return size


def _target(topic: object, partition: object) -> TopicPartition:
    number = checks.whole_number("partition", partition, 0, checks.INT32_MAX)
    return TopicPartition(checks.text("topic", topic), number)

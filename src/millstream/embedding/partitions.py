"""Records in and out of an embedded broker, without a socket between.

Owns the way from plain records to batches and back. The one thing to know: readers see what is
committed, and of transactions only those that were.
"""

import asyncio
from collections.abc import Iterator, Sequence

from millstream.codec import records as codec
from millstream.codec.batch import verify_batches
from millstream.codec.encoding import encode_batch
from millstream.embedding import checks
from millstream.embedding.values import Fetched, NewRecord, Record
from millstream.engine.partitions.slices import Slice, Want
from millstream.model import Acks, Isolation, Session, TopicPartition
from millstream.ports import Clock, Threads
from millstream.server.node import Node

BYTES_MAX = 1 << 20  # Of one fetch, unless more is asked for; a larger batch is read whole.


class Partitions:
    def __init__(self, session: Session, node: Node, *, clock: Clock, threads: Threads) -> None:
        self._session = session
        self._node = node
        self._clock = clock
        self._threads = threads
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
        records: list[Record] = []
        next_offset = offset
        if part.records is not None:
            data = await self._threads.run(part.records.read)
            records = [record for record in self._visible(data, part) if record.offset >= offset]
            next_offset = part.records.end_offset
        committed = isolation is Isolation.READ_COMMITTED
        return Fetched(
            records=tuple(records),
            next_offset=next_offset,
            start_offset=part.log_start_offset,
            end_offset=part.last_stable_offset if committed else part.high_watermark,
        )

    def _visible(self, data: bytes, part: Slice) -> Iterator[Record]:
        """The records that are not markers and not part of a transaction that was aborted."""
        opening = sorted(part.aborted, key=lambda transaction: transaction.first_offset)
        aborted: set[int] = set()
        at = 0
        for header in verify_batches(data):
            while opening and opening[0].first_offset <= header.last_offset:
                aborted.add(opening.pop(0).producer_id)
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                for record in codec.decode_each(
                    data, at, decompressed_bytes_max=self._decompressed_bytes_max
                ):
                    yield Record(
                        offset=record.offset,
                        timestamp_ms=record.timestamp,
                        key=record.key,
                        value=record.value,
                        headers=record.headers,
                    )
            at += header.size


def _target(topic: object, partition: object) -> TopicPartition:
    number = checks.whole_number("partition", partition, 0, checks.INT32_MAX)
    return TopicPartition(checks.text("topic", topic), number)

"""Writes records whose values can't be decoded to `<topic>.dlq`: the option onError=dlq.

Invariant: a record becomes a dead letter once for each group, however often a task or a batch is
run again. A reader does not learn of Spark's commits, so each task remembers how far it came: as an
offset of a consumer group, committed in the transaction that the letters are written in. A task
that runs the range again leaves those records out.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from millstream.codec.compression import Codec
from millstream.errors import MillstreamError, ProtocolError
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.coordinator import committed_with_metadata
from millstream.kafka_client.errors import TransientError
from millstream.kafka_client.settings import ClientSettings
from millstream.names import (
    DLQ_HEADER_PREFIX,
    DLQ_SUBJECT_PREFIX,
    DLQ_TOPIC_SUFFIX,
    OPTION_HEADERS,
    SUBJECT_HEADER,
)
from millstream.spark.errors import Fenced
from millstream.spark.options.sink import BATCH_BYTES, IN_FLIGHT_MAX, Guarantee, SinkOptions
from millstream.spark.read.arrow import HEADERS, gather, headers
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.rows import Rows
from millstream.spark.write import transactions
from millstream.spark.write.encoding import encode_rows
from millstream.spark.write.partitioner import Columns, Router
from millstream.spark.write.producing import Pipeline

log = logging.getLogger(__name__)

REASON = "schema"  # As the pipeline *validate* calls it.
# Letters of one transaction; a task that has more writes several.
LETTERS_MAX = 20_000
LETTERS_BYTES_MAX = 8 * 2**20
TRIES_MAX = 5  # Against other attempts at the same range.
TRANSACTION_MS_MAX = 60_000

Headers = list[tuple[str, bytes | None]]


class Letter(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Span(NamedTuple):
    """Offsets whose letters are written."""

    start: int
    end: int

    def joined(self, start: int, end: int) -> "Span":
        """The span with the next decoded offsets; offsets that do not touch it replace it."""
        if start > self.end or end < self.start:
            return Span(start, end)
        return Span(min(self.start, start), max(self.end, end))


class DeadLetters:
    """The dead letters of one range, which one task reads in order."""

    def __init__(
        self, cluster: Cluster, group: str, offset_range: OffsetRange, memories: Sequence[str] = ()
    ) -> None:
        """`memories` are the groups that remember, the one in use first; see `SourceOptions`."""
        self._cluster = cluster
        self._group = group
        self._memory, *self._former_memories = memories or (f"{group}{DLQ_TOPIC_SUFFIX}",)
        self._range = offset_range
        self._letters: list[Letter] = []
        self._size = 0

    def add(self, rows: Rows, whys: list[str]) -> None:
        """Put rows aside; every row before the last of them was decoded."""
        for letter in self._made(rows, whys):
            self._letters.append(letter)
            self._size += len(letter.key or b"") + len(letter.value or b"")
            if len(self._letters) >= LETTERS_MAX or self._size >= LETTERS_BYTES_MAX:
                self._flush(letter.offset + 1)

    def finish(self) -> None:
        """Write the letters that are left; the whole range was decoded."""
        if self._letters:
            self._flush(self._range.end)

    def _made(self, rows: Rows, whys: list[str]) -> list[Letter]:
        target = self._range.target
        columns = zip(
            rows.offsets.tolist(),
            gather(rows.data, rows.keys).to_pylist(),
            gather(rows.data, rows.values).to_pylist(),
            headers(rows, HEADERS).to_pylist(),
            whys,
            strict=True,
        )
        letters = []
        for offset, key, value, own, why in columns:
            facts = {
                "topic": target.topic.encode(),
                "partition": b"%d" % target.partition,
                "offset": b"%d" % offset,
                "group": self._group.encode(),
                "reason": REASON.encode(),
                "error": why.encode(),
            }
            pairs = _own([(header["key"], header["value"]) for header in own], target.topic)
            pairs += [(DLQ_HEADER_PREFIX + name, text) for name, text in facts.items()]
            letters.append(Letter(offset, key, value, pairs))
        return letters

    # -- writing -----------------------------------------------------------------------------------

    def _flush(self, decoded_to: int) -> None:
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                self._write(decoded_to)
                break
            except Fenced:
                # Another attempt at this range writes too: look up its letters, write the others.
                if not tries_left:
                    raise
        self._letters.clear()
        self._size = 0

    def _write(self, decoded_to: int) -> None:
        target = self._range.target
        name = f"{self._memory}-{target}"
        member = transactions.begin(self._cluster, name, TRANSACTION_MS_MAX)
        known = self._known()
        new = [letter for letter in self._letters if not known.start <= letter.offset < known.end]
        if not new:
            return
        pipeline = Pipeline(self._cluster, self._options, member.producer, name)
        try:
            rows, shares = Router(self._topic, self._cluster.partition_count).route(_columns(new))
            transactions.add_partitions(self._cluster, member, {share.target for share in shares})
            pipeline.send(encode_rows(rows, shares, bytes_max=BATCH_BYTES), shares)
            pipeline.flush()
            span = known.joined(self._range.start, decoded_to)
            transactions.remember(
                self._cluster, member, self._memory, target, span.end, note=str(span.start)
            )
            transactions.end(self._cluster, member, commits=True)
        except BaseException:
            with suppress(MillstreamError, OSError, ProtocolError, TransientError):
                transactions.end_now(self._cluster, member, commits=False)
            raise
        finally:
            pipeline.close()
        log.info("put records aside topic=%s count=%d", self._topic, len(new))

    def _known(self) -> Span:
        """The span that an earlier attempt, or another read of the same group, has written."""
        for memory in (self._memory, *self._former_memories):
            note = committed_with_metadata(self._cluster, memory, self._range.target)
            if note is not None and note.metadata.isdecimal():
                return Span(int(note.metadata), note.offset)
        return Span(self._range.start, self._range.start)

    @property
    def _topic(self) -> str:
        return f"{self._range.target.topic}{DLQ_TOPIC_SUFFIX}"

    @property
    def _options(self) -> SinkOptions:
        return _sink(self._cluster.settings, self._topic)


def _own(own: Headers, topic: str) -> Headers:
    """The record's own headers, as a dead letter has them."""
    kept = [
        header
        for header in own
        if header[0] not in OPTION_HEADERS and not header[0].startswith(DLQ_HEADER_PREFIX)
    ]
    subjects = [text for name, text in kept if name == SUBJECT_HEADER and text]
    pairs = [header for header in kept if header[0] != SUBJECT_HEADER]
    living = subjects[0] if subjects else topic.encode()
    pairs.append((SUBJECT_HEADER, DLQ_SUBJECT_PREFIX.encode() + living))
    return [*pairs, *((f"{DLQ_HEADER_PREFIX}subject", text) for text in subjects[:1])]


def _columns(letters: list[Letter]) -> Columns:
    return Columns(
        values=pa.array([letter.value for letter in letters], pa.binary()),
        keys=pa.array([letter.key for letter in letters], pa.binary()),
        headers=pa.array([letter.headers for letter in letters], HEADERS),
    )


def _sink(client: ClientSettings, topic: str) -> SinkOptions:
    return SinkOptions(
        client=client,
        topic=topic,
        transactional_id_prefix=None,
        checkpoint=None,
        batch_id=None,
        guarantee=Guarantee.EXACTLY_ONCE,
        assumes_deterministic_tasks=False,
        writes_headers=True,
        codec=Codec.NONE,
        batch_bytes_max=BATCH_BYTES,
        in_flight_max=IN_FLIGHT_MAX,
        transaction_timeout_ms=TRANSACTION_MS_MAX,
    )

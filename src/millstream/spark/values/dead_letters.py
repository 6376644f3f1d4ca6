"""Records whose values can't be read, put aside in `<topic>.dlq`: the option onError=dlq.

Owns when a dead letter is written, so that a record becomes one of them once for each group, no
matter how often a task or a batch is run again. A reader has no commit that Spark tells it of, so
each task remembers by itself how far it came: as an offset of a consumer group, committed in the
transaction that the letters are written in. Whoever runs the range again leaves those out.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from millstream.codec.compression import Codec
from millstream.errors import MillstreamError, ProtocolError
from millstream.spark.cluster import Again, Cluster
from millstream.spark.errors import Fenced
from millstream.spark.groups import noted
from millstream.spark.options.kafka import ClientSettings
from millstream.spark.options.sink import BATCH_BYTES, IN_FLIGHT_MAX, Guarantee, SinkOptions
from millstream.spark.queue_names import ACTING, DEAD_SUBJECT, DLQ_PREFIX, DLQ_SUFFIX, SUBJECT
from millstream.spark.read.arrow import HEADERS, gather, headers
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.rows import Rows
from millstream.spark.write import transactions
from millstream.spark.write.encoding import spell
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
        """With what was judged next; what does not touch it takes its place."""
        if start > self.end or end < self.start:
            return Span(start, end)
        return Span(min(self.start, start), max(self.end, end))


class DeadLetters:
    """Those of one range, which one task reads in order."""

    def __init__(
        self, cluster: Cluster, group: str, wanted: OffsetRange, memories: Sequence[str] = ()
    ) -> None:
        """`memories` are the groups that remember, the one in use first; see `SourceOptions`."""
        self._cluster = cluster
        self._group = group
        self._memory, *self._former_memories = memories or (f"{group}{DLQ_SUFFIX}",)
        self._wanted = wanted
        self._letters: list[Letter] = []
        self._size = 0

    def add(self, rows: Rows, whys: list[str]) -> None:
        """Put rows aside; every row before the last of them was judged."""
        for letter in self._made(rows, whys):
            self._letters.append(letter)
            self._size += len(letter.key or b"") + len(letter.value or b"")
            if len(self._letters) >= LETTERS_MAX or self._size >= LETTERS_BYTES_MAX:
                self._flush(letter.offset + 1)

    def finish(self) -> None:
        """Write what is left; the whole range was judged."""
        if self._letters:
            self._flush(self._wanted.end)

    def _made(self, rows: Rows, whys: list[str]) -> list[Letter]:
        target = self._wanted.target
        found = zip(
            rows.offsets.tolist(),
            gather(rows.data, rows.keys).to_pylist(),
            gather(rows.data, rows.values).to_pylist(),
            headers(rows, HEADERS).to_pylist(),
            whys,
            strict=True,
        )
        letters = []
        for offset, key, value, own, why in found:
            told = {
                "topic": target.topic.encode(),
                "partition": b"%d" % target.partition,
                "offset": b"%d" % offset,
                "group": self._group.encode(),
                "reason": REASON.encode(),
                "error": why.encode(),
            }
            pairs = _own([(one["key"], one["value"]) for one in own], target.topic)
            pairs += [(DLQ_PREFIX + name, text) for name, text in told.items()]
            letters.append(Letter(offset, key, value, pairs))
        return letters

    # -- writing -----------------------------------------------------------------------------------

    def _flush(self, judged_to: int) -> None:
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                self._write(judged_to)
                break
            except Fenced:
                # Another attempt at this range writes as well: see what it did, and do the rest.
                if not tries_left:
                    raise
        self._letters.clear()
        self._size = 0

    def _write(self, judged_to: int) -> None:
        target = self._wanted.target
        name = f"{self._memory}-{target}"
        member = transactions.begin(self._cluster, name, TRANSACTION_MS_MAX)
        known = self._known()
        new = [one for one in self._letters if not known.start <= one.offset < known.end]
        if not new:
            return
        pipeline = Pipeline(self._cluster, self._options, member.producer, name)
        try:
            rows, shares = Router(self._topic, self._cluster.partition_count).route(_columns(new))
            transactions.add_partitions(self._cluster, member, {one.target for one in shares})
            pipeline.send(spell(rows, shares, bytes_max=BATCH_BYTES), shares)
            pipeline.flush()
            span = known.joined(self._wanted.start, judged_to)
            transactions.remember(
                self._cluster, member, self._memory, target, span.end, note=str(span.start)
            )
            transactions.end(self._cluster, member, commits=True)
        except BaseException:
            with suppress(MillstreamError, OSError, ProtocolError, Again):
                transactions.end_now(self._cluster, member, commits=False)
            raise
        finally:
            pipeline.close()
        log.info("put records aside topic=%s count=%d", self._topic, len(new))

    def _known(self) -> Span:
        """What an earlier attempt, or another read of the same group, has written."""
        for memory in (self._memory, *self._former_memories):
            found = noted(self._cluster, memory, self._wanted.target)
            if found is not None and found.note.isdecimal():
                return Span(int(found.note), found.offset)
        return Span(self._wanted.start, self._wanted.start)

    @property
    def _topic(self) -> str:
        return f"{self._wanted.target.topic}{DLQ_SUFFIX}"

    @property
    def _options(self) -> SinkOptions:
        return _sink(self._cluster.settings, self._topic)


def _own(own: Headers, topic: str) -> Headers:
    """The record's own headers, as a dead letter has them."""
    kept = [one for one in own if one[0] not in ACTING and not one[0].startswith(DLQ_PREFIX)]
    subjects = [text for name, text in kept if name == SUBJECT and text]
    found = [one for one in kept if one[0] != SUBJECT]
    living = subjects[0] if subjects else topic.encode()
    found.append((SUBJECT, DEAD_SUBJECT.encode() + living))
    return [*found, *((f"{DLQ_PREFIX}subject", text) for text in subjects[:1])]


def _columns(letters: list[Letter]) -> Columns:
    return Columns(
        values=pa.array([one.value for one in letters], pa.binary()),
        keys=pa.array([one.key for one in letters], pa.binary()),
        headers=pa.array([one.headers for one in letters], HEADERS),
    )


def _sink(client: ClientSettings, topic: str) -> SinkOptions:
    return SinkOptions(
        client=client,
        topic=topic,
        transactional_id_prefix=None,
        checkpoint=None,
        guarantee=Guarantee.EXACTLY_ONCE,
        assumes_deterministic_tasks=False,
        writes_headers=True,
        codec=Codec.NONE,
        batch_bytes_max=BATCH_BYTES,
        in_flight_max=IN_FLIGHT_MAX,
        transaction_timeout_ms=TRANSACTION_MS_MAX,
    )

"""Reads pages of one topic for the latest request.

Owns one consumer without a group, so reading leaves no trace in the cluster. Its methods block and
may be called from any thread; one reads at a time. A reader takes a turn first, without blocking,
and the turn before it ends early, so that a key press never waits for the one before it.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Lock
from time import monotonic

from millstream.cli.explorer.core import paging
from millstream.cli.explorer.core.paging import Chunk, Haul, Page, Span, Spans
from millstream.client import Client, ClientError, Consumer, StartPoint, TimedOut, TopicPartition

POLL_S = 0.05
# A page takes milliseconds; a cluster that is slow or far away gets this long.
READ_S_MAX = 10.0
CLOSE_S_MAX = 2.0
# What librdkafka fetches ahead: the reader jumps about, and most of it would be thrown away.
FETCH_AHEAD_KIB_MAX = 16 * 1024
FETCH_AHEAD_RECORDS = 2_000
# How long it rests when that much is there: a whole second by default, which each jump would wait.
FETCH_REST_MS = 5
_ENDLESS, _UNKNOWN = 2**62, -1


class Reader:
    def __init__(self, client: Client, topic: str) -> None:
        self.topic = topic
        self._client = client
        self._lock = Lock()
        self._tickets = count(1)
        self._turn = 0
        self._consumer: Consumer | None = None
        self._next: dict[int, int] = {}  # Where each partition goes on without a seek.
        self._silent: set[TopicPartition] = set()

    def turn(self) -> int:
        """Take the turn: what others read from here on is nothing, and soon."""
        self._turn = next(self._tickets)
        return self._turn

    def bounds(self, partition: int | None = None) -> dict[int, Span]:
        """The offsets in use, of one partition or of all."""
        chosen = self.topic if partition is None else [TopicPartition(self.topic, partition)]
        begins = self._client.admin.offsets(chosen, "earliest")
        ends = self._client.admin.offsets(begins, "latest")
        return {at.partition: Span(begins[at], ends[at]) for at in sorted(begins)}

    def begin(self, turn: int, place: StartPoint, partition: int | None) -> Chunk:
        """The page that begins at a place; for the end, the page that ends there."""
        bounds = self.bounds(partition)
        if place == "latest":
            return self.older(turn, paging.at_end(bounds), bounds)
        offsets = self._client.admin.offsets([TopicPartition(self.topic, p) for p in bounds], place)
        goals = {at.partition: offset for at, offset in offsets.items()}
        if isinstance(place, int) or any(goals[p] < span.end for p, span in bounds.items()):
            here = paging.at_offsets(goals, bounds)
            chunk = self.newer(turn, here, bounds)
            if chunk.records:
                return chunk
        # There is nothing from there on: what is nearest is at the end.
        return self.older(turn, paging.at_end(bounds), bounds)

    def older(
        self, turn: int, held: Spans, bounds: Spans | None = None, *, is_search: bool = False
    ) -> Chunk:
        """The page in front of what is held; reaches further back over offsets without records."""
        known = self.bounds() if bounds is None else bounds
        count = reach = paging.quota(len(held), is_search=is_search)
        while True:
            page = paging.older(held, known, count, reach=reach)
            chunk = self._read(turn, page, known)
            is_beginning = all(span.start <= known[p].start for p, span in page.spans.items())
            was_cut = len(chunk.spans) < len(page.spans)
            if chunk.records or is_beginning or was_cut or reach >= paging.REACH_OFFSETS_MAX:
                # Partitions at their beginning bring nothing, and are held all the same.
                still = {p: Span(s.start, s.start) for p, s in held.items() if p not in page.spans}
                return Chunk(spans={**still, **chunk.spans}, records=chunk.records)
            reach = min(reach * paging.REACH_GROWTH, paging.REACH_OFFSETS_MAX)

    def newer(
        self, turn: int, held: Spans, bounds: Spans | None = None, *, is_search: bool = False
    ) -> Chunk:
        """The page behind what is held."""
        known = self.bounds() if bounds is None else bounds
        page = paging.newer(held, known, paging.quota(len(held), is_search=is_search))
        chunk = self._read(turn, page, known)
        still = {p: Span(s.end, s.end) for p, s in held.items() if p not in page.spans}
        return Chunk(spans={**still, **chunk.spans}, records=chunk.records)

    def follow(self, turn: int, held: Spans, wait_s: float) -> Chunk:
        """Read records behind those that are held, for at most that long."""
        spans = {partition: Span(span.end, _ENDLESS) for partition, span in held.items()}
        page = Page(spans=spans, quota=paging.quota(len(held)))
        return self._read(turn, page, {}, live_s=wait_s)

    def close(self) -> None:
        """Refuse further reads, and close the consumer; the client closes one held too long."""
        self.turn()
        if not self._lock.acquire(timeout=CLOSE_S_MAX):
            return
        try:
            self._drop()
        finally:
            self._lock.release()

    def _read(self, turn: int, page: Page, bounds: Spans, *, live_s: float | None = None) -> Chunk:
        """Read a page, or the part of it that comes before the next turn.

        With `live_s` it is what comes in that time, past the end of the log.
        """
        deadline = monotonic() + (READ_S_MAX if live_s is None else live_s)

        def is_enough() -> bool:
            return self._turn != turn or monotonic() > deadline

        with self._lock:
            haul = Haul(page)
            if not haul.open or self._turn != turn:
                return haul.chunk()
            try:
                self._fill(haul, bounds, is_enough, is_endless=live_s is not None)
                chunk = haul.chunk()
                is_late = live_s is None and haul.open and monotonic() > deadline
                if is_late and not chunk.records:
                    raise TimedOut(f"cannot read {self.topic!r}: no record in {READ_S_MAX:g} s.")
            except ClientError:
                self._drop()  # The next reading begins with a fresh one.
                raise
            return chunk

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(ClientError):
                consumer.close()

    def _fill(
        self, haul: Haul, bounds: Spans, is_enough: Callable[[], bool], *, is_endless: bool
    ) -> None:
        consumer = self._opened()
        self._aim(consumer, haul, is_endless=is_endless)
        while haul.open and not haul.is_full and not is_enough():
            record = consumer.poll(POLL_S)
            if record is not None and record.partition in haul.open:
                self._next[record.partition] = record.offset + 1
                haul.add(record)
                if record.partition in bounds and haul.open and record.partition not in haul.open:
                    self._park(consumer, record.at, bounds[record.partition].end)
            elif record is not None:
                self._next[record.partition] = _UNKNOWN  # It is let go.
            elif is_endless and haul.size_bytes:
                return  # What came so far is not kept waiting.
            elif not is_endless:
                # Only if nothing was at hand: what was fetched to the end may still wait there.
                for at in consumer.at_end:
                    haul.close(at.partition)

    def _park(self, consumer: Consumer, at: TopicPartition, end: int) -> None:
        """Wait at the end of a partition that is done, so that its records do not come before
        those of others. Pausing it would do as well, but librdkafka takes a second to resume.
        """
        consumer.seek(at, end)
        self._next[at.partition] = end

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = self._client.consumer(
                self.topic,
                from_="latest",
                queued_max_messages_kbytes=FETCH_AHEAD_KIB_MAX,
                queued_min_messages=FETCH_AHEAD_RECORDS,
                fetch_queue_backoff_ms=FETCH_REST_MS,
            )
            self._next, self._silent = {}, set()
        return self._consumer

    def _aim(self, consumer: Consumer, haul: Haul, *, is_endless: bool) -> None:
        """Point the consumer at the beginning of the page; partitions out of it are silent."""
        targets = {TopicPartition(self.topic, p) for p in haul.page.spans}
        silent = set(consumer.assignment) - targets
        if fresh := silent - self._silent:
            consumer.pause(*fresh)
        if heard := self._silent & targets:
            consumer.resume(*heard)
        self._silent = silent
        for partition in haul.open:
            at = TopicPartition(self.topic, partition)
            start = haul.page.spans[partition].start
            # An end that was seen earlier may not be the end any more: a seek sees it afresh.
            is_stale = at in consumer.at_end and not is_endless
            if is_stale or self._next.get(partition) != start:
                consumer.seek(at, start)
                self._next[partition] = start
                consumer.at_end.discard(at)

"""A search through `__audit`, in either direction, in bounded steps.

Reads one window of offsets of a partition at a time and decodes it on a thread. Backwards,
partitions are merged by the times of their events; forwards, they come one after the other, which
is the order in which their chains are verified.
"""

import asyncio
from collections import deque
from functools import partial

from millstream.codec.batch import read_header
from millstream.codec.records import Record, decode_all
from millstream.config import Limits
from millstream.engine.audit.trail import AuditPage, AuditQuery, FoundEvent
from millstream.errors import StorageError, StorageUnavailable
from millstream.model import Offset
from millstream.ports import Threads
from millstream.replication.replica import Replica
from millstream.security.audit import SYNONYMS, expand_events
from millstream.security.audit_events import TEXT_LENGTH_MAX, UNREADABLE, decode

WINDOW_OFFSETS = 1_000  # About 500 KB.
READ_BYTES = 2**20


class _Walk:
    """One partition; backwards `position` is where all that follows was looked at."""

    def __init__(self, partition: int, replica: Replica, position: Offset) -> None:
        self.partition = partition
        self.replica = replica
        self.position = position
        self.ready: deque[FoundEvent] = deque()  # Matching events, newest first.

    @property
    def start(self) -> Offset:
        return self.replica.log.start_offset

    @property
    def is_over(self) -> bool:
        return not self.ready and self.position <= self.start

    @property
    def next_position(self) -> Offset:
        """Where a later search goes on, backwards."""
        return self.ready[0].offset + 1 if self.ready else self.position


class Search:
    def __init__(
        self,
        query: AuditQuery,
        replicas: list[Replica],
        cursor: str,
        threads: Threads,
        limits: Limits,
        *,
        is_forward: bool = False,
    ) -> None:
        """Raises `ValueError` for a cursor or an event that does not exist."""
        self._query = query
        self._is_raw = is_forward and query == AuditQuery()
        self._names = _event_names(query)
        self._text = query.search.lower().encode()
        self._threads = threads
        self._decompressed_bytes_max = limits.batch_decompressed_bytes_max
        positions = _parse_cursor(cursor, len(replicas))
        self._walks: list[_Walk] = []
        for at, replica in enumerate(replicas):
            end = replica.high_watermark
            first = replica.log.start_offset if is_forward else end
            self._walks.append(_Walk(at, replica, min(positions.get(at, first), end)))

    async def backward(self, events_max: int, seconds_max: float) -> AuditPage:
        """Newest first, until there are enough or the time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds_max
        events: list[FoundEvent] = []
        while len(events) < events_max:
            empty = next((w for w in self._walks if not w.ready and not w.is_over), None)
            if empty is not None:
                if loop.time() >= until:
                    break
                await self._step_back(empty)
                continue
            walks = [walk for walk in self._walks if walk.ready]
            if not walks:
                break
            newest = max(walks, key=lambda walk: walk.ready[0].time)
            events.append(newest.ready.popleft())
        is_over = all(walk.is_over for walk in self._walks)
        return self._page(events, [] if is_over else [w.next_position for w in self._walks])

    async def forward(self, events_max: int, seconds_max: float) -> AuditPage:
        """Oldest first, partition by partition."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds_max
        events: list[FoundEvent] = []
        for walk in self._walks:
            walk.position = max(walk.position, walk.start)
            while walk.position < walk.replica.high_watermark and loop.time() < until:
                room = events_max - len(events)
                if room <= 0:
                    break
                start = walk.position
                end = min(start + min(WINDOW_OFFSETS, room), walk.replica.high_watermark)
                matches, _ = await self._window(walk, start, end)
                events += matches
                walk.position = end
        return self._page(events, [walk.position for walk in self._walks])

    def _page(self, events: list[FoundEvent], positions: list[Offset]) -> AuditPage:
        cursor = ".".join(map(str, positions))
        return AuditPage(events, cursor, [walk.start for walk in self._walks])

    async def _step_back(self, walk: _Walk) -> None:
        start = max(walk.start, walk.position - WINDOW_OFFSETS)
        matches, newest_ms = await self._window(walk, start, walk.position)
        walk.ready.extend(reversed(matches))
        # An event is written after it happened: all before these happened still earlier.
        is_enough = newest_ms < self._query.start_ms
        walk.position = walk.start if is_enough else start

    async def _window(
        self, walk: _Walk, start: Offset, end: Offset
    ) -> tuple[list[FoundEvent], int]:
        """The matching events from `start` to `end`, and when the newest record was written."""
        matches: list[FoundEvent] = []
        newest_ms, at = 0, start
        while at < end:
            try:
                # Whole batches: one of them may reach beyond the window.
                committed = walk.replica.high_watermark
                chunk = walk.replica.log.read(at, bytes_max=READ_BYTES, end_offset=committed)
            except StorageError as problem:
                raise StorageUnavailable(str(problem)) from problem
            if chunk is None:
                break
            data = await self._threads.run(chunk.read)
            decoding = partial(self._decode, data, walk.partition, start, end)
            some, written_ms, at = await self._threads.run(decoding)
            matches += some
            newest_ms = max(newest_ms, written_ms)
        return matches, newest_ms

    def _decode(
        self, data: bytes, partition: int, start: Offset, end: Offset
    ) -> tuple[list[FoundEvent], int, Offset]:
        """On a thread: the matches in some batches, their newest time, and where they end."""
        matches: list[FoundEvent] = []
        view, at, newest_ms, next_offset = memoryview(data), 0, 0, end
        while at < len(view):
            header = read_header(view, at)
            newest_ms, next_offset = max(newest_ms, header.max_timestamp), header.end_offset
            limit = self._decompressed_bytes_max
            for record in decode_all(view, at, decompressed_bytes_max=limit):
                if start <= record.offset < end:
                    match = self._match(partition, record)
                    if match is not None:
                        matches.append(match)
            at += header.size
        return matches, newest_ms, next_offset

    def _match(self, partition: int, record: Record) -> FoundEvent | None:
        value = record.value or b""
        if self._text not in value.lower():
            return None
        try:
            event = decode(value)
            at_ms = event.at_ms
        except UNREADABLE:
            return FoundEvent(partition, record.offset, value, None) if self._is_raw else None
        query, data = self._query, event.data
        is_meant = (
            (not query.start_ms or at_ms >= query.start_ms)
            and (not query.end_ms or at_ms < query.end_ms)
            and (not self._names or data.event in self._names)
            and query.principal in {"", data.principal, data.principal.partition(":")[2]}
            and query.resource in data.resource
            and query.result in {"", data.result}
        )
        return FoundEvent(partition, record.offset, value, event) if is_meant else None


def _event_names(query: AuditQuery) -> frozenset[str]:
    names: set[str] = set()
    for name in query.events:
        names.update(SYNONYMS.get(name) or expand_events((name[:TEXT_LENGTH_MAX],)))
    return frozenset(names)


def _parse_cursor(cursor: str, partitions: int) -> dict[int, Offset]:
    if not cursor:
        return {}
    parts = cursor.split(".")
    if len(parts) != partitions or not all(part.isdecimal() and len(part) < 20 for part in parts):
        raise ValueError("the cursor is not one that a query has answered with")
    return {at: int(part) for at, part in enumerate(parts)}

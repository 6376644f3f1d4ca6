"""Records of a topic: a page of them, and one."""

import heapq
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from millstream.codec.records import Record
from millstream.control.catalog import Topic
from millstream.engine.filters.filter import Filter, parse
from millstream.errors import OffsetOutOfRange
from millstream.model import TopicPartition
from millstream.protocols.http.admin.topics import TopicParams
from millstream.protocols.http.calls import Call, Limit, iso_time
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.display import Display, ShownRecord
from millstream.protocols.http.records.places import parse_place
from millstream.protocols.http.records.reading import Bounds, bounds_of, offset_at, read_chunk
from millstream.protocols.http.records.shown import Decode
from millstream.protocols.http.router import BYTES_TYPE, RawReply, Right, Route

BUDGET_MS = 2_000
VALUE_BYTES = 64 * 1024
BACK_STEP_MIN = 64  # Offsets that the first step backwards covers, at least.

PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class RecordsPage(TopicParams, frozen=True, kw_only=True):
    limit: Limit = 100
    after: str = ""
    start: str = msgspec.field(default="", name="from")
    until: str = ""
    partition: PartitionNumber | None = None
    filter: str = ""
    order: Literal["oldest", "newest"] = "oldest"
    decode: Decode = "auto"
    budget_ms: Annotated[int, msgspec.Meta(ge=1)] = BUDGET_MS
    value_bytes: Annotated[int, msgspec.Meta(ge=0)] = VALUE_BYTES


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    records: int  # Offsets that were looked at.
    bytes: int  # Of batches that the search had to send back.
    log_bytes: int  # Of the log that were read, also of batches that did not match.
    skipped_bytes: int  # Of the log that an index of keys or headers spared; an estimate.
    until: str | None  # The time of the last record that was looked at.


class RecordsFound(msgspec.Struct, frozen=True, kw_only=True):
    items: list[ShownRecord]
    next: str | None
    scanned: Scanned
    stopped: Literal["limit", "end", "time", "bytes"]


class RecordPlace(TopicParams, frozen=True, kw_only=True):
    partition: PartitionNumber
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    decode: Decode = "auto"
    raw: bool = False  # The bare value.
    value_bytes: Annotated[int, msgspec.Meta(ge=0)] = 2**20


# -- reading ---------------------------------------------------------------------------------------


async def list_records(call: Call, params: RecordsPage) -> RecordsFound:
    topic = call.services.topics.describe(call.session, params.topic)
    where = parse(params.filter) if params.filter else None
    search = await _open_search(call, params, topic, where)
    async with call.services.scans.turn():
        if params.order == "newest":
            await search.run_backwards()
        else:
            await search.run_forwards()
    return await search.result()


async def one_record(call: Call, params: RecordPlace) -> ShownRecord | RawReply:
    display = Display(call, params.decode, _value_bytes(call, params.value_bytes))
    target = TopicPartition(params.topic, params.partition)
    chunk = await read_chunk(call.services, call.session, target, params.offset, bytes_max=1)
    record = next((each for each in chunk.records if each.offset == params.offset), None)
    if record is None:
        bounds = await bounds_of(call.services, call.session, target)
        if not bounds.start <= params.offset < bounds.end:
            raise OffsetOutOfRange(target, params.offset, *bounds)
        raise HttpProblem(
            HTTPStatus.NOT_FOUND,
            "unknown_record",
            f"{target} has no record at offset {params.offset}: a marker, or compacted away",
        )
    if params.raw:
        display.refuse_raw(params.topic)
        return RawReply(record.value or b"", BYTES_TYPE)
    return await display.row(target, record)


class _Search:
    """One page: how far each partition was read, and the records that passed."""

    def __init__(
        self, call: Call, params: RecordsPage, where: Filter | None, windows: dict[int, Bounds]
    ) -> None:
        self._call = call
        self._params = params
        self._where = where
        self._windows = windows  # What is left of each partition.
        self._reached: dict[int, int] = {}  # Where reading forwards goes on.
        self._limit = call.limit(params.limit)
        self._value_bytes = _value_bytes(call, params.value_bytes)
        http = call.services.config.http
        self._deadline = call.services.elapsed_s() + min(params.budget_ms, http.scan_ms_max) / 1000
        self._bytes_left = http.scan_bytes_max
        self._page_bytes_left = http.page_bytes_max
        self._items: list[tuple[int, Record]] = []
        self._scanned_records = 0
        self._scanned_bytes = 0
        self._log_bytes = 0
        self._skipped_bytes = 0
        self._until_ms: int | None = None
        self._stopped: Literal["limit", "end", "time", "bytes"] = "end"

    async def run_forwards(self) -> None:
        """Merge partitions by time, reading each as far as the page needs it."""
        heads: list[tuple[int, int, int, Record, list[Record]]] = []
        for partition in self._windows:
            await self._refill(heads, partition)
        while heads:
            if len(self._items) >= self._limit:
                self._stopped = "limit"
                break
            if self._page_bytes_left <= 0:
                self._stopped = "bytes"
                break
            _, partition, _, record, chunk = heapq.heappop(heads)
            self._take(partition, record)
            self._windows[partition] = Bounds(record.offset + 1, self._windows[partition].end)
            if chunk:
                following = chunk.pop()
                heapq.heappush(heads, _head(partition, following, chunk))
            else:
                await self._refill(heads, partition)
        if (
            not heads
            and self._stopped == "end"
            and any(w.start < w.end for w in self._windows.values())
        ):
            self._stopped = "time" if self._is_late() else "bytes"

    async def run_backwards(self) -> None:
        """The newest records of each partition, then the newest of all."""
        collected: dict[int, list[Record]] = {}
        for partition, window in list(self._windows.items()):
            collected[partition] = await self._collect_back(partition, window)
        merged = sorted(
            (
                (record.timestamp, partition, record.offset, record)
                for partition, records in collected.items()
                for record in records
            ),
            key=lambda item: item[:3],
            reverse=True,
        )
        for _, partition, _, record in merged[: self._limit]:
            if self._page_bytes_left <= 0:
                self._stopped = "bytes"
                break
            self._take(partition, record)
            # What is left of a partition ends before the oldest record that is shown.
            self._windows[partition] = Bounds(self._windows[partition].start, record.offset)
        shown = {partition for partition, _ in self._items}
        for partition, records in collected.items():
            if partition not in shown and records:
                end = records[-1].offset + 1  # None of them was shown: they are next.
                self._windows[partition] = Bounds(self._windows[partition].start, end)
        if len(merged) > len(self._items) and self._stopped == "end":
            self._stopped = "limit"
        elif self._stopped == "end" and any(w.start < w.end for w in self._windows.values()):
            self._stopped = "limit" if len(self._items) >= self._limit else self._why()

    async def result(self) -> RecordsFound:
        left = {p: w for p, w in self._windows.items() if w.start < w.end}
        cursor = None
        if left:
            places = [(p, w.start, w.end) for p, w in self._windows.items()]
            cursor = cursor_of(self._params.order, places)
        return RecordsFound(
            items=await self._shown(),
            next=cursor,
            scanned=Scanned(
                records=self._scanned_records,
                bytes=self._scanned_bytes,
                log_bytes=self._log_bytes,
                skipped_bytes=self._skipped_bytes,
                until=None if self._until_ms is None else iso_time(max(0, self._until_ms)),
            ),
            stopped=self._stopped,
        )

    # -- parts -------------------------------------------------------------------------------------

    async def _shown(self) -> list[ShownRecord]:
        display = Display(self._call, self._params.decode, self._value_bytes)
        by_partition: dict[int, list[Record]] = {}
        for partition, record in self._items:
            by_partition.setdefault(partition, []).append(record)
        rows = {
            partition: iter(await display.rows(TopicPartition(self._params.topic, partition), some))
            for partition, some in by_partition.items()
        }
        return [next(rows[partition]) for partition, _ in self._items]

    def _take(self, partition: int, record: Record) -> None:
        self._items.append((partition, record))
        size = len(record.value or b"") + len(record.key or b"")
        self._page_bytes_left -= min(size, 2 * self._value_bytes) + 256

    async def _refill(
        self, heads: list[tuple[int, int, int, Record, list[Record]]], partition: int
    ) -> None:
        """Read on until there is a record, or no more, or the budget is used up."""
        end = self._windows[partition].end
        at = max(self._windows[partition].start, self._reached.get(partition, 0))
        while at < end and not self._is_used_up():
            records, at = await self._read(partition, at, end)
            self._reached[partition] = at
            if records:
                records.reverse()
                first = records.pop()
                heapq.heappush(heads, _head(partition, first, records))
                return
        self._windows[partition] = Bounds(at, end)

    async def _collect_back(self, partition: int, window: Bounds) -> list[Record]:
        collected: list[Record] = []
        end, step = window.end, max(BACK_STEP_MIN, self._limit)
        while end > window.start and len(collected) < self._limit and not self._is_used_up():
            start = max(window.start, end - step)
            part: list[Record] = []
            at = start
            while at < end and not self._is_used_up():
                records, at = await self._read(partition, at, end)
                part += records
            if at < end:
                break  # A part of the step was not looked at: it is looked at by the next page.
            collected = part + collected
            end, step = start, step * 4
        self._windows[partition] = Bounds(window.start, end)
        return collected[-self._limit :]

    async def _read(self, partition: int, start: int, end: int) -> tuple[list[Record], int]:
        """Records from `start` that pass, and where reading goes on."""
        call = self._call
        target = TopicPartition(self._params.topic, partition)
        chunk = await read_chunk(call.services, call.session, target, start, where=self._where)
        records = [record for record in chunk.records if record.offset < end]
        following = min(max(chunk.next_offset, start), end)
        if following == start and not records:
            following = end  # Nothing more is there: a window may end behind the log.
        self._scanned_records += following - start
        self._scanned_bytes += chunk.read_bytes
        self._log_bytes += chunk.log_bytes
        self._skipped_bytes += chunk.skipped_bytes
        self._bytes_left -= chunk.read_bytes
        if records:
            self._until_ms = records[-1].timestamp
        return records, following

    def _is_late(self) -> bool:
        return self._call.services.elapsed_s() >= self._deadline

    def _is_used_up(self) -> bool:
        return self._is_late() or self._bytes_left <= 0

    def _why(self) -> Literal["time", "bytes"]:
        return "time" if self._is_late() else "bytes"


def _head(
    partition: int, record: Record, following: list[Record]
) -> tuple[int, int, int, Record, list[Record]]:
    return record.timestamp, partition, record.offset, record, following


async def _open_search(
    call: Call, params: RecordsPage, topic: Topic, where: Filter | None
) -> _Search:
    place = place_of(params.after, str, list[tuple[int, int, int]])
    if place is not None:
        if place[0] != params.order:
            raise HttpProblem(
                HTTPStatus.BAD_REQUEST,
                "invalid_request",
                f"after is of a page with order={place[0]}",
                fields=("after",),
            )
        windows = {partition: Bounds(start, end) for partition, start, end in place[1]}
        for partition in windows:
            topic.log(partition)
        return _Search(call, params, where, windows)
    windows = {}
    for partition in partitions_of(topic, params.partition):
        target = TopicPartition(params.topic, partition)
        windows[partition] = await window_of(call, target, params.start, params.until)
    return _Search(call, params, where, windows)


def partitions_of(topic: Topic, partition: int | None) -> Sequence[int]:
    if partition is None:
        return range(topic.partition_count)
    topic.log(partition)
    return (partition,)


async def window_of(call: Call, target: TopicPartition, start: str, until: str) -> Bounds:
    """The offsets between two places, within what there is."""
    bounds = await bounds_of(call.services, call.session, target)
    first = await resolve(call, target, start, "from", bounds) if start else bounds.start
    last = await resolve(call, target, until, "until", bounds) if until else bounds.end
    return Bounds(max(first, bounds.start), min(max(last, bounds.start), bounds.end))


async def resolve(call: Call, target: TopicPartition, text: str, name: str, bounds: Bounds) -> int:
    place = parse_place(text, call.services.clock.now_ms(), name)
    if place.offset is not None:
        return place.offset
    if place.timestamp_ms is not None:
        return await offset_at(call.services, call.session, target, place.timestamp_ms, bounds.end)
    return bounds.start if place.word == "earliest" else bounds.end


def _value_bytes(call: Call, asked: int) -> int:
    return min(asked, call.services.config.http.value_bytes_max)


_TOPIC = "topic:{topic}"
_READ = (Right("READ", _TOPIC), Right("DESCRIBE", _TOPIC))

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics/{topic}/records",
        handler=list_records,
        summary="A page of records, by place, filter and order",
        params=RecordsPage,
        reply=RecordsFound,
        rights=_READ,
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}/records/{partition}/{offset}",
        handler=one_record,
        summary="One record, or with raw its bare value",
        params=RecordPlace,
        reply=ShownRecord,
        rights=_READ,
    ),
)

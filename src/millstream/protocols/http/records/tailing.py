"""Records as streams: a live tail of events, and an export of lines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from millstream.engine.filters.filter import parse
from millstream.engine.partitions.slices import Want
from millstream.model import Isolation, TopicPartition
from millstream.protocols.http.admin.topics import TopicParams
from millstream.protocols.http.calls import Call
from millstream.protocols.http.paging import cursor_of, place_of
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.display import Display, ShownRecord
from millstream.protocols.http.records.pages import (
    PartitionNumber,
    partitions_of,
    window_of,
)
from millstream.protocols.http.records.reading import decode_slice, read_chunk
from millstream.protocols.http.records.shown import Decode
from millstream.protocols.http.records.tables import csv_lines
from millstream.protocols.http.router import EVENTS_TYPE, NDJSON_TYPE, Right, Route
from millstream.protocols.http.streams import COMMENT_EVERY_S, Event

EVENTS_PER_TURN = 100
TAIL_CHUNK_BYTES = 256 * 1024
VALUE_BYTES = 64 * 1024
EXPORTED_VALUE_BYTES = 2**30  # An export leaves nothing out.


class Tail(TopicParams, frozen=True, kw_only=True):
    start: str = msgspec.field(default="latest", name="from")
    partition: PartitionNumber | None = None
    filter: str = ""
    decode: Decode = "auto"
    rate_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 5_000  # Records a second.
    value_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**20)] = VALUE_BYTES


class Export(TopicParams, frozen=True, kw_only=True):
    start: str = msgspec.field(default="earliest", name="from")
    until: str = "latest"
    partition: PartitionNumber | None = None
    filter: str = ""
    decode: Decode = "auto"
    format: Literal["ndjson", "csv"] = "ndjson"


async def tail(call: Call, params: Tail) -> AsyncIterator[Sequence[Event]]:
    """Events of records as they are written. A cursor holds the place in every partition."""
    services = call.services
    topic = services.topics.describe(call.session, params.topic)
    where = parse(params.filter) if params.filter else None
    places = await _tail_places(call, params, partitions_of(topic, params.partition))
    rate = _Rate(params.rate_max, services.elapsed_s)
    display = Display(call, params.decode, params.value_bytes)
    yield []
    while True:
        wants = [
            Want(TopicPartition(params.topic, partition), offset, TAIL_CHUNK_BYTES)
            for partition, offset in places.items()
        ]
        slices = await services.partitions.read(
            call.session,
            wants,
            min_bytes=1,
            bytes_max=TAIL_CHUNK_BYTES,
            deadline=asyncio.get_running_loop().time() + COMMENT_EVERY_S,
            isolation=Isolation.READ_COMMITTED,
            filter=where,
        )
        has_any = False
        for part in slices:
            partition = part.target.partition
            chunk = await decode_slice(services, part, places[partition])
            for start in range(0, len(chunk.records), EVENTS_PER_TURN):
                some = chunk.records[start : start + EVENTS_PER_TURN]
                places[partition] = some[-1].offset + 1
                taken = [record for record in some if rate.takes()]
                events = [
                    Event("record", shown) for shown in await display.rows(part.target, taken)
                ]
                skipped = rate.left_out()
                if skipped:
                    events.append(Event("skipped", {"count": skipped}))
                if events:
                    events[-1] = events[-1]._replace(cursor=cursor_of(list(places.items())))
                    has_any = True
                    yield events
                    await asyncio.sleep(0)
            places[partition] = max(places[partition], chunk.next_offset)
        if not has_any:
            yield []


async def export(call: Call, params: Export) -> AsyncIterator[bytes]:
    """All records of a range, a line each; a slow client slows it down."""
    services = call.services
    if not services.config.http.export:
        raise HttpProblem(
            HTTPStatus.FORBIDDEN, "export_off", "exports are turned off here (http.export)"
        )
    topic = services.topics.describe(call.session, params.topic)
    where = parse(params.filter) if params.filter else None
    display = Display(call, params.decode, EXPORTED_VALUE_BYTES)
    if params.format == "csv":
        yield b"partition,offset,timestamp,key,value,headers\r\n"
    for partition in partitions_of(topic, params.partition):
        target = TopicPartition(params.topic, partition)
        at, end = await window_of(call, target, params.start, params.until)
        while at < end:
            chunk = await read_chunk(services, call.session, target, at, where=where)
            records = [record for record in chunk.records if record.offset < end]
            for start in range(0, len(records), EVENTS_PER_TURN):
                some = records[start : start + EVENTS_PER_TURN]
                rows = await display.rows(target, some)
                yield _csv(rows) if params.format == "csv" else _lines(rows)
                await asyncio.sleep(0)
            if chunk.next_offset <= at:
                break
            at = chunk.next_offset


async def _tail_places(call: Call, params: Tail, partitions: Sequence[int]) -> dict[int, int]:
    place = place_of(call.cursor, list[tuple[int, int]])
    if place is not None:
        return {partition: offset for partition, offset in place[0] if partition in partitions}
    places = {}
    for partition in partitions:
        target = TopicPartition(params.topic, partition)
        places[partition] = (await window_of(call, target, params.start, "")).start
    return places


def _lines(rows: Sequence[ShownRecord]) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def _csv(rows: Sequence[ShownRecord]) -> bytes:
    return csv_lines(
        [
            row.partition,
            row.offset,
            row.timestamp,
            _cell(row.key),
            _cell(row.value),
            _headers_cell(row),
        ]
        for row in rows
    )


def _headers_cell(row: ShownRecord) -> str:
    headers = {header.name: _cell(header.value) for header in row.headers}
    return msgspec.json.encode(headers).decode() if headers else ""


def _cell(shown: object) -> str:
    for name in ("text", "base64", "json"):
        value = getattr(shown, name, None)
        if value is not None:
            return bytes(value).decode() if isinstance(value, msgspec.Raw) else str(value)
    return ""


class _Rate:
    """Lets through so many records a second, and counts the others."""

    def __init__(self, rate_max: int, elapsed_s: Callable[[], float]) -> None:
        self._rate_max = rate_max
        self._elapsed_s = elapsed_s
        self._second = 0
        self._count = 0
        self._skipped = 0

    def takes(self) -> bool:
        second = int(self._elapsed_s())
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        if self._count > self._rate_max:
            self._skipped += 1
            return False
        return True

    def left_out(self) -> int:
        skipped, self._skipped = self._skipped, 0
        return skipped


_TOPIC = "topic:{topic}"
_READ = (Right("READ", _TOPIC), Right("DESCRIBE", _TOPIC))

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics/{topic}/records/tail",
        handler=tail,
        summary="Records as they are written, as server-sent events",
        params=Tail,
        reply=ShownRecord,
        sends=EVENTS_TYPE,
        is_stream=True,
        rights=_READ,
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}/records/export",
        handler=export,
        summary="All records of a range, as NDJSON or CSV",
        params=Export,
        reply=ShownRecord,
        sends=NDJSON_TYPE,
        is_stream=True,
        rights=_READ,
    ),
)

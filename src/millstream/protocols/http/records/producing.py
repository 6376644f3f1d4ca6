"""Produces records: a list of them, or lines without an end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from millstream.engine.publish.publisher import Publication
from millstream.engine.publish.receipts import Receipt
from millstream.errors import RequestError
from millstream.errors.schemas import SchemaRefused
from millstream.names import DELAY_HEADER, DELIVER_AT_HEADER, MESSAGE_ID_HEADER, TTL_HEADER
from millstream.protocols.http.admin.topics import TopicParams
from millstream.protocols.http.calls import Call
from millstream.protocols.http.problems import HttpProblem, problem_of
from millstream.protocols.http.records.encoding import SchemaChoice, SchemaId, framed_bytes
from millstream.protocols.http.records.pages import PartitionNumber
from millstream.protocols.http.records.places import parse_place
from millstream.protocols.http.records.shown import SentBytes, sent_bytes
from millstream.protocols.http.router import Right, Route

RECORDS_MAX = 10_000  # In one POST.
LINES_PER_TURN = 200
RECORDS_PER_TURN = 200
LINE_BYTES_MAX = 2**20


class SentHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: SentBytes = None


class NewRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: SentBytes = None
    key: SentBytes = None
    headers: list[SentHeader] | dict[str, SentBytes] = []
    partition: PartitionNumber | None = None
    timestamp: str | None = None
    timestamp_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    deliver_at: str | None = None
    ttl_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    message_id: str | None = None
    schema: SchemaChoice | SchemaId | None = None  # Of the value, which is sent as JSON.
    key_schema: SchemaChoice | SchemaId | None = None


class NewRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    records: Annotated[list[NewRecord], msgspec.Meta(min_length=1, max_length=RECORDS_MAX)]


class Produced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a record went, or why it did not."""

    partition: int | None = None
    offset: int | None = None  # None while it is delayed.
    timestamp_ms: int | None = None
    is_duplicate: bool = False  # Then the place is the first copy's.
    delayed_id: str | None = None
    error: str | None = None
    message: str | None = None


class ProducedRecords(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Produced]


async def produce(call: Call, params: TopicParams, body: NewRecords) -> ProducedRecords:
    publications = []
    for at, record in enumerate(body.records):
        publications.append(await _publication(call, params.topic, record, f"$.records[{at}]", at))
        if at % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
            await asyncio.sleep(0)
    outcomes = await published(call, publications)
    problems = [outcome for outcome in outcomes if isinstance(outcome, RequestError)]
    if len(problems) == len(outcomes):
        raise problems[0]  # None was written, so the request failed.
    return ProducedRecords(items=[produced(outcome) for outcome in outcomes])


async def published(
    call: Call, publications: Sequence[Publication]
) -> list[Receipt | RequestError]:
    futures = call.services.publisher.publish(call.session, publications)
    outcomes: list[Receipt | RequestError] = []
    await asyncio.wait(futures)
    for future in futures:
        problem = future.exception()
        if problem is None:
            outcomes.append(future.result())
        elif isinstance(problem, RequestError):
            outcomes.append(problem)
        else:
            raise problem
    return outcomes


async def _publication(
    call: Call, topic: str, record: NewRecord, place: str, index: int
) -> Publication:
    """The same as `publication`, with the values of schemas encoded."""
    if record.schema is None and record.key_schema is None:
        return publication(call, topic, record, place, index)
    made = publication(
        call, topic, msgspec.structs.replace(record, key=None, value=None), place, index
    )
    value, key = f"{place}.value", f"{place}.key"
    return made._replace(
        value=sent_bytes(record.value, value)
        if record.schema is None
        else await framed_bytes(call, topic, "value", record.schema, record.value, value),
        key=sent_bytes(record.key, key)
        if record.key_schema is None
        else await framed_bytes(call, topic, "key", record.key_schema, record.key, key),
    )


def publication(call: Call, topic: str, record: NewRecord, place: str, index: int) -> Publication:
    """A record as the engine takes it; options become headers, as with every protocol."""
    now_ms = call.services.clock.now_ms()
    named: list[tuple[str, SentBytes]] = (
        list(record.headers.items())
        if isinstance(record.headers, dict)
        else [(header.name, header.value) for header in record.headers]
    )
    headers = [(name, sent_bytes(value, f"{place}.headers")) for name, value in named]
    options: dict[str, Any] = {
        DELAY_HEADER: record.delay_ms,
        DELIVER_AT_HEADER: _time(record.deliver_at, now_ms, f"{place}.deliver_at"),
        TTL_HEADER: record.ttl_ms,
        MESSAGE_ID_HEADER: record.message_id or (f"{call.key}/{index}" if call.key else None),
    }
    headers += [(name, str(value).encode()) for name, value in options.items() if value is not None]
    timestamp_ms = record.timestamp_ms
    if timestamp_ms is None:
        timestamp_ms = _time(record.timestamp, now_ms, f"{place}.timestamp")
    return Publication(
        topic,
        sent_bytes(record.value, f"{place}.value"),
        sent_bytes(record.key, f"{place}.key"),
        tuple(headers),
        record.partition,
        timestamp_ms,
    )


def produced(outcome: Receipt | RequestError) -> Produced:
    if isinstance(outcome, RequestError):
        problem = problem_of(outcome)
        return Produced(error=problem.error, message=problem.message)
    return Produced(
        partition=outcome.target.partition,
        offset=None if outcome.offset < 0 else outcome.offset,
        timestamp_ms=outcome.timestamp_ms,
        is_duplicate=outcome.is_duplicate,
        delayed_id=outcome.delayed_id,
    )


def _time(text: str | None, now_ms: int, place: str) -> int | None:
    return None if text is None else parse_place(text, now_ms, place).timestamp_ms


async def produce_lines(call: Call, params: TopicParams) -> AsyncIterator[bytes]:
    """A record a line in, its place or its refusal a line out, in the same order."""
    assert call.receive is not None
    decoder = msgspec.json.Decoder(NewRecord)
    buffered = b""
    index = 0
    while True:
        piece = await call.receive()
        buffered += piece or b""
        *lines, buffered = buffered.split(b"\n")
        if piece is None and buffered.strip():
            lines.append(buffered)
        if len(buffered) > LINE_BYTES_MAX:
            raise HttpProblem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "line_too_long",
                f"line {index + len(lines) + 1} has more than {LINE_BYTES_MAX} bytes",
            )
        for start in range(0, len(lines), LINES_PER_TURN):
            some = [line for line in lines[start : start + LINES_PER_TURN] if line.strip()]
            if some:
                yield await _produce_some(call, params.topic, some, decoder, index)
                index += len(some)
                await asyncio.sleep(0)
        if piece is None:
            return


async def _produce_some(
    call: Call,
    topic: str,
    lines: Sequence[bytes],
    decoder: "msgspec.json.Decoder[NewRecord]",
    first: int,
) -> bytes:
    results: list[Produced | None] = []
    publications = []
    for at, line in enumerate(lines, first):
        try:
            record = decoder.decode(line)
            publications.append(await _publication(call, topic, record, f"line {at + 1}", at))
            results.append(None)
        except msgspec.MsgspecError as mistake:
            results.append(Produced(error="invalid_request", message=f"line {at + 1}: {mistake}"))
        except (HttpProblem, SchemaRefused) as refusal:
            problem = problem_of(refusal)
            results.append(Produced(error=problem.error, message=problem.message))
    outcomes = iter(await published(call, publications) if publications else [])
    encode = msgspec.json.encode
    return b"".join(
        encode(produced(next(outcomes)) if result is None else result) + b"\n" for result in results
    )


ROUTES = (
    Route(
        method="POST",
        path="/v1/topics/{topic}/records",
        handler=produce,
        summary="Produce records; as NDJSON, a record a line, without an end",
        params=TopicParams,
        body=NewRecords,
        reply=ProducedRecords,
        takes_records=True,
        stream_handler=produce_lines,
        rights=(Right("WRITE", "topic:{topic}"),),
        example={"records": [{"key": "42", "value": {"json": {"id": 42}}}]},
    ),
)

"""Produces records by Confluent's REST proxy: JSON objects one after the other, both ways."""

import asyncio
import binascii
import json
from base64 import b64decode
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec

from millstream.engine.publish.publisher import Publication
from millstream.engine.publish.receipts import Receipt
from millstream.engine.schemas.parsing import Draft
from millstream.errors import RequestError
from millstream.errors.schemas import SchemaRefused
from millstream.protocols.http.calls import Call
from millstream.protocols.http.confluent.shapes import (
    JsonObject,
    TopicParams,
    check_cluster,
    route,
)
from millstream.protocols.http.problems import HttpProblem, problem_of
from millstream.protocols.http.records.encoding import (
    SchemaChoice,
    SchemaId,
    encoded,
    find_encoding,
)
from millstream.protocols.http.records.places import parse_place
from millstream.protocols.http.records.producing import published
from millstream.protocols.http.registry.handlers import changes_of, schemas_of
from millstream.protocols.http.router import JSON_TYPE, RawReply, Right
from millstream.schemas.definition import SchemaType

RECORDS_MAX = 10_000  # In one request.
SCHEMA_TYPES = {
    "AVRO": SchemaType.AVRO,
    "JSONSCHEMA": SchemaType.JSON,
    "PROTOBUF": SchemaType.PROTOBUF,
}
PARSED_PER_TURN = 100


class Header(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str | None = None  # In base64.


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A key or a value. With a schema, `data` is JSON: that of Avro or Protobuf as their own
    mappings have it. A schema that stands here as text is registered."""

    type: Literal["BINARY", "JSON", "STRING", "AVRO", "JSONSCHEMA", "PROTOBUF"] | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    subject: str | None = None
    subject_name_strategy: Literal["TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME"] | None = None
    schema_id: SchemaId | None = None
    schema_version: SchemaId | None = None
    schema: str | None = None

    @property
    def has_schema(self) -> bool:
        """Whether the data is a value of a schema. Without a type, text is base64."""
        if self.type is not None:
            return self.type in SCHEMA_TYPES
        named = (self.subject, self.schema_id, self.schema_version, self.schema)
        is_text = bytes(self.data)[:1] in {b'"', b"n"}
        return any(each is not None for each in named) or not is_text


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    partition_id: Annotated[int, msgspec.Meta(ge=0)] | None = None
    headers: list[Header] = []
    key: Part | None = None
    value: Part | None = None
    timestamp: str | int | None = None


async def produce(call: Call, params: TopicParams, body: bytes) -> RawReply:
    """An answer for each record, in order; one that is no record ends the request."""
    call.services.partitions.admit_append(call.session, params.topic)
    check_cluster(call, params)
    records: list[tuple[NewRecord, Publication]] = []
    problem: JsonObject | None = None
    try:
        for count, text in enumerate(_objects(body)):
            if count >= RECORDS_MAX:
                raise ValueError(f"more than {RECORDS_MAX} records")
            record = msgspec.json.decode(text, type=NewRecord)
            records.append((record, await _publication(call, params.topic, record)))
            if count % PARSED_PER_TURN == PARSED_PER_TURN - 1:
                await asyncio.sleep(0)
    except (HttpProblem, SchemaRefused) as refusal:
        problem = _refusal(HTTPStatus.BAD_REQUEST, problem_of(refusal).message)
    except (ValueError, msgspec.MsgspecError, RecursionError) as mistake:
        problem = _refusal(HTTPStatus.BAD_REQUEST, f"record {len(records) + 1}: {mistake}")
    outcomes = await published(call, [each for _, each in records]) if records else []
    answers = [
        _answer(call, params.topic, record, publication, outcome)
        for (record, publication), outcome in zip(records, outcomes, strict=True)
    ]
    if problem is not None:
        answers.append(problem)
    whole = b"\n".join(map(msgspec.json.encode, answers))
    # A single record that is refused is a refused request, as in the original.
    status = HTTPStatus(answers[0]["error_code"]) if len(answers) == 1 else HTTPStatus.OK
    return RawReply(whole, JSON_TYPE, status)


def _objects(body: bytes) -> Iterator[str]:
    """The texts of JSON values that follow each other, with or without space between."""
    text = body.decode()
    decoder, at = json.JSONDecoder(), 0
    is_empty = True
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text):
            if is_empty:
                raise ValueError("the body has no record")
            return
        _, end = decoder.raw_decode(text, at)
        yield text[at:end]
        at, is_empty = end, False


async def _publication(call: Call, topic: str, record: NewRecord) -> Publication:
    at_ms = record.timestamp if isinstance(record.timestamp, int) else None
    if isinstance(record.timestamp, str):
        at_ms = parse_place(
            record.timestamp, call.services.clock.now_ms(), "timestamp"
        ).timestamp_ms
    headers = tuple(
        (each.name, None if each.value is None else _from_base64(each.value))
        for each in record.headers
    )
    value = await _bytes(call, topic, "value", record.value)
    key = await _bytes(call, topic, "key", record.key)
    return Publication(topic, value, key, headers, record.partition_id, at_ms)


async def _bytes(call: Call, topic: str, name: str, part: Part | None) -> bytes | None:
    if part is None or bytes(part.data) == b"null":
        return None
    if part.has_schema:
        choice = await _choice(call, topic, name, part)
        encoding = await find_encoding(call, topic, name, choice, name)
        asked = SCHEMA_TYPES.get(part.type or "", encoding.type)
        if encoding.type is not asked:
            raise ValueError(f"{name}: schema {encoding.id} is {encoding.type.value}")
        return await encoded(call, encoding, bytes(part.data), name)
    if part.type == "JSON":
        return bytes(part.data)
    text = msgspec.json.decode(part.data, type=str)
    return text.encode() if part.type == "STRING" else _from_base64(text)


async def _choice(call: Call, topic: str, name: str, part: Part) -> SchemaChoice:
    """The schema that a part names, registered if it stands there as text."""
    strategy = part.subject_name_strategy or "TOPIC_NAME"
    subject = part.subject
    if subject is None and strategy == "TOPIC_NAME":
        subject = f"{topic}-{name}"
    if part.schema is None:
        if subject is None and part.schema_id is None:
            raise ValueError(f"{name}: {strategy} needs a subject, a schema_id or a schema")
        version = part.schema_version
        return SchemaChoice(
            id=part.schema_id, subject=subject, version="latest" if version is None else version
        )
    if part.type is None:
        raise ValueError(f"{name}: a schema needs a type")
    draft = Draft(SCHEMA_TYPES[part.type], part.schema)
    changes = changes_of(call)
    if subject is None:
        [record_name, *_] = await schemas_of(call).record_names(call.session, topic, draft) or [""]
        if not record_name:
            raise ValueError(f"{name}: {strategy} needs a schema that has a name")
        subject = record_name if strategy == "RECORD_NAME" else f"{topic}-{record_name}"
    registered = await changes.register(call.session, subject, draft)
    return SchemaChoice(id=registered.id, subject=subject)


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("data is not base64") from None


def _answer(
    call: Call,
    topic: str,
    record: NewRecord,
    publication: Publication,
    outcome: Receipt | RequestError,
) -> JsonObject:
    if isinstance(outcome, RequestError):
        problem = problem_of(outcome)
        return _refusal(problem.status, problem.message)
    answer: JsonObject = {
        "error_code": HTTPStatus.OK.value,
        "cluster_id": call.services.cluster_id,
        "topic_name": topic,
        "partition_id": outcome.target.partition,
        "offset": max(0, outcome.offset),
        "timestamp": outcome.timestamp_ms,
    }
    sizes = (("key", record.key, publication.key), ("value", record.value, publication.value))
    for name, part, data in sizes:
        if part is not None:
            answer[name] = {"type": part.type or "BINARY", "size": len(data or b"")}
    return answer


def _refusal(status: HTTPStatus, message: str) -> JsonObject:
    return {"error_code": status.value, "message": message}


ROUTES = (
    route(
        "POST",
        "/{cluster}/topics/{topic}/records",
        produce,
        "Produce records",
        params=TopicParams,
        body=bytes,
        reply=None,
        rights=(Right("WRITE", "topic:{topic}"),),
        is_raw=True,
        takes_records=True,
        example={"value": {"type": "JSON", "data": {"id": 1}}},
    ),
)

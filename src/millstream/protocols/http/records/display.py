"""Shows records as JSON: values behind a schema's frame decoded, parts that a topic masks hidden.

Masking spares eyes: it holds for REST and the console. Clients that read the topic get its bytes.
"""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec

from millstream.codec.records import Record
from millstream.engine.masks import MASK, Masks, masked
from millstream.engine.schemas.decoding import Decoding, Framed, framed_key, framed_value
from millstream.engine.schemas.validation import Named
from millstream.errors import RequestError
from millstream.model import TopicPartition
from millstream.protocols.http.calls import Call, iso_time
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.records.shown import Decode, Shown, show, show_text

RECORDS_PER_TURN = 100


class ShownHeader(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Shown | None


class ShownRecord(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    offset: int
    timestamp: str
    timestamp_ms: int
    key: Shown | None
    value: Shown | None
    headers: list[ShownHeader]


# Of a schema that a record names: how its bytes are read, or why they are not.
_Known = Decoding | str


class Display:
    """How one request shows records: in which form, how much of a value, what is hidden."""

    def __init__(self, call: Call, decode: Decode, value_bytes: int) -> None:
        self._call = call
        self._decode = decode
        self._value_bytes = value_bytes
        self._known: dict[tuple[Named, str], _Known] = {}  # By schema and subject.

    async def rows(self, target: TopicPartition, records: Sequence[Record]) -> list[ShownRecord]:
        """Records of one partition; in turns, if there are many."""
        masks = self._call.services.topics.masks(self._call.session, target.topic)
        rows: list[ShownRecord] = []
        for start in range(0, len(records), RECORDS_PER_TURN):
            some = records[start : start + RECORDS_PER_TURN]
            if start:
                await asyncio.sleep(0)
            rows += [await self._row(target, record, masks) for record in some]
        return rows

    async def row(self, target: TopicPartition, record: Record) -> ShownRecord:
        [row] = await self.rows(target, [record])
        return row

    def refuse_raw(self, topic: str) -> None:
        """Raise if a part of the topic's values is hidden: bare bytes would show it."""
        if self._call.services.topics.masks(self._call.session, topic).places:
            raise HttpProblem(
                HTTPStatus.FORBIDDEN,
                "masked",
                f"parts of the values of {topic} are masked here (mask.paths): raw would show them",
            )

    async def _row(self, target: TopicPartition, record: Record, masks: Masks) -> ShownRecord:
        most = self._value_bytes
        if masks.hides_key and record.key is not None:
            key: Shown | None = Shown(size=len(record.key), text=MASK)
        else:
            # A key is shown as it is best read, also where values are asked for as base64.
            key = await self._part(target.topic, "key", record.key, "auto", framed_key, record)
        value = await self._part(
            target.topic, "value", record.value, self._decode, framed_value, record
        )
        return ShownRecord(
            topic=target.topic,
            partition=target.partition,
            offset=record.offset,
            timestamp=iso_time(record.timestamp) if record.timestamp >= 0 else "",
            timestamp_ms=record.timestamp,
            key=key,
            value=value if value is None or not masks.places else _hide(value, masks),
            headers=[
                ShownHeader(
                    name=name,
                    value=Shown(size=len(data or b""), text=MASK)
                    if name in masks.headers
                    else show(data, bytes_max=most),
                )
                for name, data in record.headers
            ],
        )

    async def _part(
        self,
        topic: str,
        word: str,
        data: bytes | None,
        decode: Decode,
        framed_in: Callable[[Record], Framed | None],
        record: Record,
    ) -> Shown | None:
        framed = framed_in(record) if decode == "auto" else None
        if framed is None or self._call.services.schemas is None:
            return show(data, bytes_max=self._value_bytes, decode=decode)
        subject = f"{topic}-{word}"
        known = self._known.get((framed.named, subject))
        if known is None:
            known = await self._look_up(framed.named, subject)
            self._known[framed.named, subject] = known
        assert data is not None
        return _decoded(data, framed.payload, known, self._value_bytes)

    async def _look_up(self, named: Named, subject: str) -> _Known:
        assert self._call.services.schemas is not None
        try:
            decoding = await self._call.services.schemas.decoding(
                self._call.session, named, subject
            )
        except (RequestError, ValueError) as problem:
            return f"schema {named} cannot be used: {problem}"
        return f"schema {named} is not in the registry" if decoding is None else decoding


def _decoded(data: bytes, payload: bytes, known: _Known, bytes_max: int) -> Shown:
    if isinstance(known, str):
        shown = show(data, bytes_max=bytes_max, decode="base64")
        assert shown is not None
        return msgspec.structs.replace(shown, problem=known)
    try:
        text = msgspec.json.encode(known.decode(payload))
        shown = show_text(text, bytes_max=bytes_max, is_json=True)
        shown = msgspec.structs.replace(shown, size=len(data))
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as problem:
        bare = show(data, bytes_max=bytes_max, decode="base64")
        assert bare is not None
        shown = msgspec.structs.replace(bare, problem=f"not of schema {known.id}: {problem}")
    return msgspec.structs.replace(
        shown, schema_id=known.id, schema_type=known.type.value, subject=known.subject
    )


def _hide(value: Shown, masks: Masks) -> Shown:
    """The value without what is hidden; all of it, where it is not whole JSON."""
    if value.json is None:
        return Shown(size=value.size, text=MASK, schema_id=value.schema_id)
    try:
        parsed = msgspec.json.decode(value.json)
        for place in masks.places:
            parsed = masked(parsed, place)
        return msgspec.structs.replace(value, json=msgspec.Raw(msgspec.json.encode(parsed)))
    except (RecursionError, msgspec.MsgspecError):
        return Shown(size=value.size, text=MASK, schema_id=value.schema_id)

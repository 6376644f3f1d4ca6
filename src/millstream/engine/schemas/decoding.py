"""Decodes what stands behind the frame of a schema, for people who look at records.

Owns the readers by schema; a schema's id never means another one. Which session may see a schema
is the service's question.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.codec.records import Record
from millstream.engine.schemas.parsing import SchemaParser
from millstream.engine.schemas.validation import (
    KEY_HEADER,
    VALUE_HEADER,
    ByMessage,
    Named,
    name_in,
    payload_in,
)
from millstream.internal_topics.registry import RegistryState
from millstream.internal_topics.schemas import SchemaText
from millstream.schemas.definition import Schema, SchemaType

READERS_MAX = 1_000

# Any: JSON, and what msgspec writes as JSON.
Reader = Callable[[bytes], Any]


class Decoding(NamedTuple):
    """A schema that a record names, and how its bytes are read."""

    id: int
    type: SchemaType
    subject: str
    decode: Reader


class Framed(NamedTuple):
    """Bytes of a record that name their schema."""

    named: Named
    payload: bytes


def framed_value(record: Record) -> Framed | None:
    return _framed(record, record.value, VALUE_HEADER)


def framed_key(record: Record) -> Framed | None:
    return _framed(record, record.key, KEY_HEADER)


def _framed(record: Record, data: bytes | None, header: str) -> Framed | None:
    named = name_in(record, data, header)
    if data is None or named is None or named == 0:
        return None  # Ids count from 1: a number of eight bytes often begins with five zeros.
    return Framed(named, payload_in(record, data, header, named))


class Readers:
    """The functions that read values of registered schemas, made when they are first needed.

    `reader_of` is the schema's method that makes one: `value_decoder` or `value_checker`.
    """

    def __init__(
        self, parser: SchemaParser, reader_of: Callable[[Schema], Callable[[Sequence[int]], Reader]]
    ) -> None:
        self._parser = parser
        self._reader_of = reader_of
        self._kept: OrderedDict[tuple[str, int], Reader] = OrderedDict()

    async def of(
        self, state: RegistryState, context: str, number: int, schema: SchemaText
    ) -> Reader:
        """Raises `SchemaRefused` or `ValueError` for a schema that cannot be used here."""
        key = (context, number)
        reader = self._kept.get(key)
        if reader is not None:
            self._kept.move_to_end(key)
            return reader
        make = self._reader_of(await self._parser.parse_known(state, context, schema))
        reader = ByMessage(make) if schema.type is SchemaType.PROTOBUF else make(())
        self._kept[key] = reader
        if len(self._kept) > READERS_MAX:
            self._kept.popitem(last=False)
        return reader

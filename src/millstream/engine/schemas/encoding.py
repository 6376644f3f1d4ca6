"""Encodes JSON as bytes of a registered schema, behind the frame that names it.

For clients that have no serializer: a record is sent as JSON and stored as any producer with the
registry's serializers would store it.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from millstream.engine.schemas.parsing import SchemaParser
from millstream.engine.schemas.validation import ID_MAGIC
from millstream.internal_topics.registry import RegistryState
from millstream.internal_topics.schemas import SchemaText
from millstream.schemas.definition import SchemaType

ENCODERS_MAX = 1_000

Encoder = Callable[[bytes], bytes]


class Encoding(NamedTuple):
    """A schema, and the function from JSON to a framed value of it."""

    id: int
    type: SchemaType
    subject: str
    encode: Encoder  # Raises `ValueError` for JSON that is no value of the schema.


class Encoders:
    """The functions that make values of registered schemas, made when they are first needed."""

    def __init__(self, parser: SchemaParser) -> None:
        self._parser = parser
        self._kept: OrderedDict[tuple[str, int, str], Encoder] = OrderedDict()

    async def of(
        self, state: RegistryState, context: str, number: int, schema: SchemaText, message: str
    ) -> Encoder:
        """Raises `SchemaRefused` or `ValueError` for a schema that cannot be used here."""
        key = (context, number, message)
        encoder = self._kept.get(key)
        if encoder is not None:
            self._kept.move_to_end(key)
            return encoder
        parsed = await self._parser.parse_known(state, context, schema)
        encoder = self._kept[key] = _framed(number, parsed.value_encoder(message))
        if len(self._kept) > ENCODERS_MAX:
            self._kept.popitem(last=False)
        return encoder


def _framed(number: int, encode: Encoder) -> Encoder:
    frame = bytes([ID_MAGIC]) + number.to_bytes(4, "big")
    return lambda text: frame + encode(text)

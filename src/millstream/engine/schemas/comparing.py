"""Compares a new schema with the versions of its subject that a level asks for.

Long comparisons run on a thread, short ones on the loop, one version in each turn.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.engine.schemas.parsing import Parsed, SchemaParser
from millstream.engine.schemas.subjects import config_of
from millstream.errors.schemas import SchemaRefused, invalid_schema
from millstream.internal_topics.registry import RegistryState, context_of
from millstream.internal_topics.schemas import SchemaText, SchemaValue
from millstream.schemas.definition import Difference, InvalidSchema
from millstream.schemas.levels import Breach, Earlier, Level, breaches, verbose

_OTHER_TYPE = Difference(
    "/", "SCHEMA_TYPE_CHANGED", True, "Incompatible because of different schema type"
)
LENIENT_PASSES = "{compatibilityPolicy: 'LENIENT would accept this schema'}"

# JSON of any shape.
Json = Any


class Comparison:
    def __init__(self, parser: SchemaParser) -> None:
        self._parser = parser

    async def compare(
        self,
        state: RegistryState,
        subject: str,
        new: Parsed,
        earlier: Sequence[SchemaValue],
        level: Level,
    ) -> list[Breach]:
        """What `level` forbids. `earlier` is in the order of the versions."""
        if level is Level.NONE:
            return []
        group = config_of(state, subject, "compatibilityGroup")
        if isinstance(group, str):
            mine = properties_of(new.text).get(group)
            earlier = [each for each in earlier if properties_of(each.schema).get(group) == mine]
        is_lenient = config_of(state, subject, "compatibilityPolicy") == "LENIENT"
        broken: list[Breach] = []
        for value in reversed(earlier if level.is_transitive else earlier[-1:]):
            broken += await self._against(state, new, value, level, is_lenient=is_lenient)
            await asyncio.sleep(0)
        return broken

    async def _against(
        self,
        state: RegistryState,
        new: Parsed,
        value: SchemaValue,
        level: Level,
        *,
        is_lenient: bool,
    ) -> list[Breach]:
        old = value.schema
        if old.type is not new.text.type:
            return [Breach(value.version, old.text, [_OTHER_TYPE], are_old_readers=False)]
        try:
            schema = await self._parser.parse_known(state, context_of(value.subject), old)
        except SchemaRefused as problem:
            raise invalid_schema(f"version {value.version} cannot be read: {problem}") from None
        earlier = [Earlier(value.version, schema, old.text)]

        def work() -> list[Breach]:
            return list(breaches(new.schema, earlier, level, is_lenient=is_lenient))

        try:
            return await self._parser.run(work, text_length=len(old.text) + len(new.text.text))
        except InvalidSchema as problem:  # Comparisons have bounds too.
            raise invalid_schema(str(problem)) from None


def messages(broken: Sequence[Breach], level: Level) -> list[str]:
    """The differences as registry clients know them, and whether another policy would pass."""
    lines = verbose(broken, level)
    if broken and all(each.passes_lenient for breach in broken for each in breach.differences):
        lines.append(LENIENT_PASSES)
    return lines


def properties_of(schema: SchemaText) -> Mapping[str, Json]:
    """The properties in a schema's metadata."""
    properties = schema.metadata.get("properties") if isinstance(schema.metadata, dict) else None
    return properties if isinstance(properties, dict) else {}

"""Levels of compatibility: which versions are compared, who reads whom, what clients are told."""

import pytest

from millstream.schemas.avro.schema import AvroSchema
from millstream.schemas.json.schema import JsonSchema
from millstream.schemas.levels import Earlier, Level, breaches, verbose


def record(*fields: str) -> AvroSchema:
    listed = ",".join(fields)
    return AvroSchema(f'{{"type":"record","name":"R","fields":[{listed}]}}', {})


BARE = record()
REQUIRED = record('{"name":"a","type":"int"}')
DEFAULTED = record('{"name":"a","type":"int","default":1}')


def earlier(*schemas: AvroSchema) -> list[Earlier]:
    return [Earlier(n, each, each.canonical_text) for n, each in enumerate(schemas, start=1)]


@pytest.mark.parametrize(
    ("level", "new", "old", "versions"),
    [
        (Level.NONE, REQUIRED, [BARE], []),
        (Level.BACKWARD, REQUIRED, [BARE], [1]),
        (Level.BACKWARD, DEFAULTED, [BARE], []),
        (Level.BACKWARD, REQUIRED, [BARE, DEFAULTED], []),
        (Level.BACKWARD_TRANSITIVE, REQUIRED, [BARE, DEFAULTED], [1]),
        (Level.FORWARD, REQUIRED, [BARE], []),
        (Level.FORWARD, BARE, [REQUIRED], [1]),
        (Level.FORWARD_TRANSITIVE, BARE, [REQUIRED, DEFAULTED], [1]),
        (Level.FULL, BARE, [REQUIRED], [1]),
        (Level.FULL, REQUIRED, [BARE], [1]),
        (Level.FULL, DEFAULTED, [BARE], []),
        (Level.FULL_TRANSITIVE, DEFAULTED, [BARE, REQUIRED], []),
    ],
)
def test_a_level_says_which_versions_count_and_who_reads(
    level: Level, new: AvroSchema, old: list[AvroSchema], versions: list[int]
) -> None:
    assert [breach.version for breach in breaches(new, earlier(*old), level)] == versions


def test_clients_are_told_as_they_know_it() -> None:
    refused = breaches(REQUIRED, earlier(BARE), Level.BACKWARD)

    assert verbose(refused, Level.BACKWARD) == [
        (
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'a' at path "
            "'/fields/0' in the new schema has no default value and is missing in the old', "
            "additionalInfo:'a'}"
        ),
        "{oldSchemaVersion: 1}",
        """{oldSchema: '{"type":"record","name":"R","fields":[]}'}""",
        "{compatibility: 'BACKWARD'}",
    ]


def test_a_lenient_check_takes_properties_of_open_objects() -> None:
    new = JsonSchema('{"type":"object","properties":{"a":{"type":"string"}}}', {})
    old = [Earlier(1, JsonSchema('{"type":"object"}', {}), "")]

    (strict,) = breaches(new, old, Level.BACKWARD)
    lenient = list(breaches(new, old, Level.BACKWARD, is_lenient=True))

    broken = [each.rule for each in strict.differences]
    assert broken == ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]
    assert lenient == []

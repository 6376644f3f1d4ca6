"""`_schemas` in Confluent's bytes, and the registry that it folds into."""

import json

import pytest

from millstream.internal_topics import schemas as format_
from millstream.internal_topics.registry import RegistryState, context_of, in_context
from millstream.internal_topics.schemas import (
    DeletedSubject,
    Key,
    KeyType,
    SchemaText,
    SchemaValue,
    Value,
    guid,
)
from millstream.schemas.definition import Reference, SchemaType

TEXT = SchemaText(SchemaType.AVRO, '"string"')
OTHER = SchemaText(SchemaType.JSON, "{}", (Reference("other.json", "other", 1),))


def put(
    state: RegistryState, subject: str, version: int, number: int, schema: SchemaText = TEXT
) -> None:
    value = SchemaValue(subject, version, number, schema)
    state.apply(Key(KeyType.SCHEMA, subject, version), value)


def test_keys_have_the_bytes_of_the_original() -> None:
    assert format_.encode_key(Key(KeyType.SCHEMA, "orders-value", 2)) == (
        b'{"keytype":"SCHEMA","subject":"orders-value","version":2,"magic":1}'
    )
    assert format_.encode_key(Key(KeyType.CONFIG)) == (
        b'{"keytype":"CONFIG","subject":null,"magic":0}'
    )
    assert format_.encode_key(Key(KeyType.NOOP)) == b'{"keytype":"NOOP","magic":0}'


def test_keys_are_read_in_any_order_and_foreign_ones_left_alone() -> None:
    karapace = b'{"subject":"s","version":1,"magic":1,"keytype":"SCHEMA"}'

    assert format_.decode_key(karapace) == Key(KeyType.SCHEMA, "s", 1)
    assert format_.decode_key(b'{"keytype":"ENCRYPTION"}') is None
    assert format_.decode_key(None) is None


@pytest.mark.parametrize("schema", [TEXT, OTHER, TEXT._replace(metadata={"tags": {}})])
def test_a_value_is_read_as_it_was_written(schema: SchemaText) -> None:
    value = SchemaValue("orders-value", 3, 7, schema, is_deleted=True)

    data = format_.encode_schema(value)

    assert format_.decode_value(Key(KeyType.SCHEMA, "orders-value", 3), data) == value
    assert ("schemaType" in json.loads(data)) == (schema.type is not SchemaType.AVRO)


@pytest.mark.parametrize(
    ("key", "data", "value"),
    [
        (Key(KeyType.SCHEMA, "s", 1), b"", None),
        (Key(KeyType.CONFIG), b'{"compatibilityLevel":"FULL"}', {"compatibilityLevel": "FULL"}),
        (
            Key(KeyType.DELETE_SUBJECT, "s"),
            b'{"subject":"s","version":4}',
            DeletedSubject("s", 4),
        ),
    ],
)
def test_other_values_are_read(key: Key, data: bytes, value: Value) -> None:
    assert format_.decode_value(key, data) == value


def test_one_schema_has_one_id_in_a_context() -> None:
    state = RegistryState()
    put(state, "a", 1, 1)
    put(state, "b", 1, 1)
    put(state, ":.mill:a", 1, 1, OTHER)

    assert state.id_of(".", TEXT) == 1
    assert state.id_of(".mill", TEXT) is None
    assert [value.subject for value in state.places(".", 1)] == ["a", "b"]
    assert (state.next_id("."), state.next_id(".mill"), state.next_id(".new")) == (2, 2, 1)


def test_a_soft_delete_hides_versions_and_keeps_their_ids_and_numbers() -> None:
    state = RegistryState()
    put(state, "a", 1, 1)
    put(state, "a", 2, 2, OTHER)

    state.apply(Key(KeyType.DELETE_SUBJECT, "a"), DeletedSubject("a", 2))

    assert list(state.subjects()) == []
    assert list(state.subjects(with_deleted=True)) == ["a"]
    assert state.schema(".", 2) == OTHER
    assert state.next_version("a") == 3


def test_what_is_deleted_for_good_is_gone_and_its_id_is_not_given_again() -> None:
    state = RegistryState()
    put(state, "a", 1, 1)

    state.apply(Key(KeyType.SCHEMA, "a", 1), None)

    assert state.schema(".", 1) is None
    assert (state.next_id("."), state.next_version("a")) == (2, 1)
    assert list(state.subjects(with_deleted=True)) == []


def test_an_id_that_compaction_has_forgotten_is_not_given_again() -> None:
    state = RegistryState()
    state.raise_id(".", 41)

    assert state.next_id(".") == 42


def test_a_second_schema_under_a_taken_id_is_passed_over() -> None:
    state = RegistryState()
    put(state, "a", 1, 1)
    put(state, "b", 1, 1, OTHER)

    assert state.conflicts == 1
    assert state.versions("b") == []


def test_an_imported_version_may_come_after_later_ones() -> None:
    state = RegistryState()
    put(state, "a", 3, 3)
    put(state, "a", 1, 1, OTHER)

    assert [value.version for value in state.versions("a")] == [1, 3]
    assert (state.next_version("a"), state.next_id(".")) == (4, 4)


def test_a_version_that_is_written_again_leaves_nothing_of_its_first_schema() -> None:
    state = RegistryState()
    put(state, "a", 1, 1)
    put(state, "a", 1, 2, OTHER)

    assert state.schema(".", 1) is None
    assert state.lookup("a", TEXT) is None
    assert state.version_count == 1
    assert state.has_live("a", 2)


def test_subjects_that_come_and_go_do_not_disturb_a_listing() -> None:
    state = RegistryState()
    for name in "bdf":
        put(state, name, 1, 1)

    listing = state.subjects()
    listed = [next(listing)]
    put(state, "a", 1, 1)
    state.apply(Key(KeyType.SCHEMA, "d", 1), None)

    assert listed + list(listing) == ["b", "f"]


def test_a_schema_knows_its_users() -> None:
    state = RegistryState()
    put(state, "other", 1, 1)
    put(state, "a", 1, 2, OTHER)

    assert [value.subject for value in state.users("other", 1)] == ["a"]
    state.apply(Key(KeyType.SCHEMA, "a", 1), None)
    assert state.users("other", 1) == []


def test_the_same_schema_is_looked_up_whatever_its_version() -> None:
    state = RegistryState()
    put(state, "a", 1, 1)
    put(state, "a", 2, 2, OTHER)

    known = state.lookup("a", TEXT)

    assert known is not None
    assert known.version == 1
    assert state.lookup("a", TEXT._replace(metadata={"owner": "ann"})) is None


def test_settings_and_modes_come_and_go() -> None:
    state = RegistryState()
    state.apply(Key(KeyType.CONFIG, "a"), {"compatibilityLevel": "FULL"})
    state.apply(Key(KeyType.MODE), {"mode": "READONLY"})

    assert state.configs == {"a": {"compatibilityLevel": "FULL"}}
    assert state.modes == {None: "READONLY"}
    state.apply(Key(KeyType.CONFIG, "a"), None)
    state.apply(Key(KeyType.MODE), None)
    assert (state.configs, state.modes) == ({}, {})


@pytest.mark.parametrize(
    ("subject", "context"), [("a", "."), (":.mill:a", ".mill"), (":.:a", "."), (":a:b", ".")]
)
def test_the_context_of_a_subject_stands_before_it(subject: str, context: str) -> None:
    assert context_of(subject) == context
    assert context_of(in_context(context, "x")) == context


def test_a_guid_depends_on_all_of_a_schema() -> None:
    variants = [
        TEXT,
        OTHER,
        OTHER._replace(references=()),
        OTHER._replace(references=(Reference("other.json", "other", 2),)),
        TEXT._replace(metadata={"a": 1}),
        TEXT._replace(rule_set={"a": 2}),
    ]

    assert len({guid(each) for each in variants}) == len(variants)

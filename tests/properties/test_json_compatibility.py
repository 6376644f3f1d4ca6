"""The verdict on two JSON Schemas against documents that a validator judges."""

import json
from typing import Any

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.json.schema import JsonSchema
from tests.support.tiers import sized

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 12), st.sampled_from([0.5, 2.5]),
    st.sampled_from(["", "a", "ab", "abc", "b1"]),
)  # fmt: skip
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abxy"), inner, max_size=3)
    ),
    max_leaves=6,
)
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


def optional(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=keywords)


def schemas(depth: int) -> st.SearchStrategy[Any]:
    leaf = st.one_of(
        st.booleans(),
        optional(
            type=st.one_of(
                st.sampled_from(TYPES), st.lists(st.sampled_from(TYPES), min_size=1, unique=True)
            ),
            minimum=st.integers(-2, 5),
            exclusiveMinimum=st.integers(-2, 5),
            maximum=st.integers(0, 9),
            exclusiveMaximum=st.integers(0, 9),
            multipleOf=st.sampled_from([1, 2, 3, 4]),
            minLength=st.integers(0, 2),
            maxLength=st.integers(0, 3),
            pattern=st.sampled_from(["^a", "b"]),
            enum=st.lists(scalars, min_size=1, max_size=3, unique_by=repr),
            minItems=st.integers(0, 2),
            maxProperties=st.integers(0, 2),
        ),
    )
    if depth == 0:
        return leaf
    inner = schemas(depth - 1)
    branches = st.lists(inner, min_size=1, max_size=3)
    container = optional(
        properties=st.dictionaries(st.sampled_from("abx"), inner, max_size=2),
        patternProperties=st.dictionaries(st.sampled_from(["^a", "y"]), inner, max_size=1),
        additionalProperties=inner,
        required=st.lists(st.sampled_from("abx"), unique=True, max_size=2),
        dependentRequired=st.dictionaries(
            st.sampled_from("ab"), st.lists(st.sampled_from("xy"), unique=True), max_size=1
        ),
        prefixItems=branches,
        items=inner,
        uniqueItems=st.booleans(),
        allOf=branches,
        anyOf=branches,
        **{"not": inner},
        propertyNames=leaf,
    )
    return st.one_of(leaf, container)


def edited(schema: Any) -> st.SearchStrategy[Any]:
    """Schemas close to another: most pairs drawn apart are incompatible at once."""
    if not isinstance(schema, dict):
        return st.just(schema)
    without = [{k: v for k, v in schema.items() if k != name} for name in schema]
    return st.sampled_from([schema, *without])


pairs = schemas(2).flatmap(lambda old: st.tuples(st.just(old), st.one_of(edited(old), schemas(1))))


@settings(max_examples=sized(200))
@given(pairs, st.lists(documents, min_size=5, max_size=10))
def test_a_document_stays_valid_where_the_verdict_passes(
    pair: tuple[Any, Any], candidates: list[Any]
) -> None:
    old, new = pair
    reader, writer = JsonSchema(json.dumps(new), {}), JsonSchema(json.dumps(old), {})

    verdict = [each for each in reader.differences(writer) if each.breaks]

    if not verdict:
        was = jsonschema_rs.validator_for(old)
        now = jsonschema_rs.validator_for(new)
        for document in candidates:
            assert not was.is_valid(document) or now.is_valid(document), (old, new, document)


@settings(max_examples=sized(100))
@given(schemas(2))
def test_every_schema_reads_its_own_documents(schema: Any) -> None:
    text = json.dumps(schema)

    assert [d for d in JsonSchema(text, {}).differences(JsonSchema(text, {})) if d.breaks] == []

"""Paths into JSON against Python's own reading of the whole document."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.engine.filters.json_paths import ABSENT, SOMETHING, WHOLE_BYTES_MAX, Document
from tests.support.tiers import sized

names = st.sampled_from(["a", "b", "a b", 'a"b', "a\\", "\n", "ü", "😀", "", "0"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5).filter(lambda text: text.isprintable()),
    names,
)
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)
Step = str | int
paths = st.lists(st.one_of(names, st.integers(0, 4)), max_size=4)


def walked(document: object, path: list[Step]) -> object:
    for step in path:
        is_member = isinstance(document, dict) and isinstance(step, str)
        is_element = isinstance(document, list) and isinstance(step, int)
        if not is_member and not is_element:
            return ABSENT
        try:
            document = document[step]  # type: ignore[index]
        except (KeyError, IndexError):
            return ABSENT
    return SOMETHING if isinstance(document, dict | list) else document


@settings(max_examples=sized(400), deadline=None)
@given(
    wanted_paths=st.lists(paths, min_size=1, max_size=4),
    values=st.lists(documents, min_size=1, max_size=3),
    is_ascii=st.booleans(),
    indent=st.sampled_from([None, 1]),
    is_large=st.booleans(),
)
def test_every_path_finds_what_stands_there_in_every_document(
    wanted_paths: list[list[Step]],
    values: list[object],
    is_ascii: bool,
    indent: int | None,
    is_large: bool,
) -> None:
    reading = Document()
    slots = [reading.slot(path) for path in wanted_paths]

    for document in values:
        value = json.dumps(document, ensure_ascii=is_ascii, indent=indent).encode()
        if is_large:
            value = value.ljust(WHOLE_BYTES_MAX + 1)
        for slot, path in zip(slots, wanted_paths, strict=True):
            actual, expected = reading.at(value, slot), walked(document, path)
            assert type(actual) is type(expected)
            assert actual == expected


@settings(max_examples=sized(200), deadline=None)
@given(
    wanted_paths=st.lists(paths, min_size=1, max_size=3),
    document=documents,
    cut=st.integers(1, 20),
    is_large=st.booleans(),
)
def test_in_half_a_document_there_is_no_path(
    wanted_paths: list[list[Step]], document: object, cut: int, is_large: bool
) -> None:
    value = json.dumps([document, {"a": document}]).encode()[:-cut]
    if is_large:
        value = value.rjust(WHOLE_BYTES_MAX + 1)
    reading = Document()
    slots = [reading.slot([1, *path]) for path in wanted_paths]

    assert all(reading.at(value, slot) is ABSENT for slot in slots)

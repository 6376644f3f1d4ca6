"""JSON values become structs; a bad one costs nobody else."""

import pyarrow as pa
import pytest

from millstream.spark.errors import UnreadableValue
from millstream.spark.formats import json_reader
from millstream.spark.options import OnError

ORDER = pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


def read(values: list[bytes | None], on_error: OnError = OnError.FAIL) -> list[object]:
    found: list[object] = json_reader(ORDER, on_error)(pa.array(values, pa.binary())).to_pylist()
    return found


def test_objects_become_structs_and_null_stays_null() -> None:
    assert read([b'{"id": 1, "tags": ["x"]}', None, b'{"id": 2, "more": 5}']) == [
        {"id": 1, "tags": ["x"]},
        None,
        {"id": 2, "tags": None},
    ]


def test_an_object_may_have_line_breaks() -> None:
    assert read([b'{\n  "id": 1\n}', b'{"id": 2}']) == [
        {"id": 1, "tags": None},
        {"id": 2, "tags": None},
    ]


@pytest.mark.parametrize("bad", [b"", b"{", b"{}{}", b'{"id": "one"}', b"\xff", b"5", b"[]"])
def test_a_bad_value_is_null_if_asked_for_and_no_other_is(bad: bytes) -> None:
    good = [b'{"id": %d}' % number for number in range(20)]
    values: list[bytes | None] = [*good[:7], bad, *good[7:]]

    found = read(values, OnError.NULL)

    assert found[7] is None
    assert [row["id"] for row in found if row is not None] == list(range(20))  # type: ignore[index]


def test_a_bad_value_fails_with_what_it_is() -> None:
    with pytest.raises(UnreadableValue, match=r"the value b'oops' is not JSON"):
        read([b'{"id": 1}', b"oops"])


def test_no_values_are_no_structs() -> None:
    assert read([]) == []
    assert read([None]) == [None]

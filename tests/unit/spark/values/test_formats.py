"""JSON values become structs; a bad one costs no other."""

import pyarrow as pa
import pytest

from millstream.spark.values.decoding import Decoded
from millstream.spark.values.formats import json_reader

ORDER = pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


def decoded(values: list[bytes | None]) -> Decoded:
    return json_reader(ORDER)(pa.array(values, pa.binary()))


def read(values: list[bytes | None]) -> list[object]:
    decoded_rows = decoded(values)
    assert decoded_rows.failures == []
    rows: list[object] = decoded_rows.column.to_pylist()
    return rows


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
def test_a_bad_value_is_told_and_no_other_is_lost(bad: bytes) -> None:
    good = [b'{"id": %d}' % number for number in range(20)]
    values: list[bytes | None] = [None, *good[:7], bad, *good[7:]]

    decoded_rows = decoded(values)

    rows = decoded_rows.column.to_pylist()
    assert (rows[0], rows[8]) == (None, None)
    assert [row["id"] for row in rows if row is not None] == list(range(20))
    assert [failure.at for failure in decoded_rows.failures] == [8]
    assert decoded_rows.failures[0].why


def test_no_values_are_no_structs() -> None:
    assert read([]) == []
    assert read([None]) == [None]

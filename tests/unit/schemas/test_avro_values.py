"""Avro values are checked to their end, whatever their types allow."""

import json
from io import BytesIO
from typing import Any

import fastavro
import msgspec
import pytest

from millstream.schemas.avro.schema import AvroSchema
from millstream.schemas.avro.values import check_steps

LIST = '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}'
NULLS = '{"type":"array","items":"null"}'
ALL = """{"type":"record","name":"R","fields":[
  {"name":"i","type":"int"},{"name":"s","type":"string"},{"name":"b","type":"bytes"},
  {"name":"f","type":{"type":"fixed","name":"F","size":2}},
  {"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}},
  {"name":"a","type":{"type":"array","items":"long"}},
  {"name":"m","type":{"type":"map","values":"double"}},{"name":"u","type":["null","boolean"]}]}"""
VALUE: dict[str, Any] = {
    "i": -5, "s": "é", "b": b"x", "f": b"ab", "e": "B", "a": [1, 2], "m": {"k": 1.5}, "u": True,
}  # fmt: skip


def test_both_ways_take_what_fastavro_writes_and_no_part_of_it() -> None:
    out = BytesIO()
    schema = AvroSchema(ALL, {})
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(ALL)), VALUE)
    data = out.getvalue()

    schema.value_checker(())(data)
    check_steps(schema.type, data)

    for bad in (data[:-1], data + b"\0"):
        with pytest.raises(ValueError, match=r".+"):
            schema.value_checker(())(bad)
        with pytest.raises(ValueError, match=r".+"):
            check_steps(schema.type, bad)


@pytest.mark.slow
def test_a_list_of_a_million_entries_is_checked_without_recursion() -> None:
    check = AvroSchema(LIST, {}).value_checker(())

    check(b"\x02" * 1_000_000 + b"\0")
    with pytest.raises(ValueError, match="bytes"):
        check(b"\x02" * 1_000_000)


def test_values_without_bytes_are_bounded() -> None:
    with pytest.raises(ValueError, match="more than"):
        AvroSchema(NULLS, {}).value_checker(())(b"\x80\x80\x80\x80\x10\0")


def test_records_that_double_in_each_other_are_bounded() -> None:
    inner, known = '"null"', ""
    for at in range(40):
        name = f"T{at}"
        known = (
            f'{{"type":"record","name":"{name}","fields":['
            f'{{"name":"a","type":{inner if at == 0 else known}}},'
            f'{{"name":"b","type":{inner}}}]}}'
        )
        inner = f'"{name}"'
    with pytest.raises(ValueError, match="more than"):
        AvroSchema(known, {}).value_checker(())(b"")


def test_logical_types_are_decoded_and_what_has_no_such_value_is_the_number() -> None:
    schema = """{"type":"record","name":"R","fields":[
      {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
      {"name":"b","type":"bytes"}]}"""
    decode = AvroSchema(schema, {}).value_decoder(())

    def written(at: int) -> bytes:
        out = BytesIO()
        plain = json.loads(schema)
        plain["fields"][0]["type"] = "long"
        fastavro.schemaless_writer(out, fastavro.parse_schema(plain), {"at": at, "b": b"x"})
        return out.getvalue()

    assert msgspec.json.encode(decode(written(1_700_000_000_000))) == (
        b'{"at":"2023-11-14T22:13:20Z","b":"eA=="}'
    )
    assert decode(written(2**60)) == {"at": 2**60, "b": b"x"}
    with pytest.raises(ValueError, match="left behind"):
        decode(written(1) + b"x")


def test_a_list_is_decoded_as_far_as_the_stack_allows() -> None:
    decode = AvroSchema(LIST, {}).value_decoder(())

    assert decode(b"\x02\x02\0") == {"next": {"next": {"next": None}}}
    assert decode(b"\x02" * 200 + b"\0")
    with pytest.raises(ValueError, match="nested deeper than 500"):
        decode(b"\x02" * 1_000_000 + b"\0")

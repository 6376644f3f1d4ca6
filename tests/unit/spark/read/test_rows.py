"""Batches become Arrow with the same records in them that the codec reads one by one."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.batch import HEADER_BYTES, read_header, seal, stamp_time
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.errors import CorruptBatch, InvalidBatch, RequestError
from millstream.model import TopicPartition
from millstream.spark.read.arrow import record_batch
from millstream.spark.read.fetched import open_batches, select
from millstream.spark.read.rows import find_headers, find_rows
from tests.properties.test_codec_batches import CAP, codecs, some_records
from tests.support.source_tree import ROOT
from tests.unit.spark.schemas import ROW

ORDERS = TopicPartition("orders", 2)
FOREVER = 2**63 - 1


def rows_of(raw: bytes, start: int = 0, end: int = FOREVER) -> list[dict[str, object]]:
    collected = []  # type: ignore[var-annotated]
    for data, payloads in open_batches(raw, select(raw, start=start, end=end).batches):
        rows = find_rows(data, payloads).between(start, end)
        collected += record_batch(ORDERS, rows, ROW).to_pylist() if len(rows.offsets) else []
    return collected


def as_row(record: Record, timestamp_type: int = 0) -> dict[str, object]:
    return {
        "key": record.key,
        "value": record.value,
        "offset": record.offset,
        "timestampType": timestamp_type,
        "topic": "orders",
        "partition": 2,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
    }


def without_time(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: row[name] for name in row if name != "timestamp"} for row in rows]


def near_now(written: list[Record]) -> list[Record]:
    # Python's datetime ends with the year 9999; times have a test of their own.
    return [record._replace(timestamp=record.timestamp % 2**41) for record in written]


@settings(deadline=None)
@given(st.lists(st.tuples(some_records(gaps=True), codecs), min_size=1, max_size=4))
def test_rows_are_the_records_of_the_codec(
    drawn: list[tuple[list[Record], Codec]],
) -> None:
    raw, expected, base = b"", [], 0
    for written, codec in drawn:
        moved = [r._replace(offset=r.offset + base) for r in near_now(written)]
        batch = encode_batch(moved, base_offset=base, codec=codec)
        expected += decode_all(batch, decompressed_bytes_max=CAP)
        base = moved[-1].offset + 1
        raw += batch

    rows = rows_of(raw)

    assert without_time(rows) == [as_row(record) for record in expected]
    times = [row["timestamp"].timestamp() for row in rows]  # type: ignore[attr-defined]
    assert times == [record.timestamp / 1000 for record in expected]


@settings(deadline=None)
@given(some_records(gaps=True))
def test_times_are_those_of_the_codec_whatever_a_producer_made_up(written: list[Record]) -> None:
    raw = encode_batch(written)

    ((data, payloads),) = open_batches(raw, select(raw, start=0, end=FOREVER).batches)

    expected = decode_all(raw, decompressed_bytes_max=CAP)
    assert find_rows(data, payloads).timestamps_ms.tolist() == [r.timestamp for r in expected]


@settings(deadline=None)
@given(some_records(), st.data())
def test_bytes_that_the_codec_refuses_are_refused(
    written: list[Record], data: st.DataObject
) -> None:
    raw = encode_batch(written)
    payload = bytearray(raw[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    _, forged = seal(read_header(raw), payload)

    def outcome(read: Callable[[], list[tuple[object, ...]]]) -> object:
        try:
            return read()
        except (CorruptBatch, InvalidBatch):
            return "refused"

    def by_the_codec() -> list[tuple[object, ...]]:
        return [(r.offset, r.key, r.value) for r in decode_all(forged, decompressed_bytes_max=CAP)]

    def here() -> list[tuple[object, ...]]:
        ((piece, payloads),) = open_batches(forged, select(forged, start=0, end=FOREVER).batches)
        rows = find_rows(piece, payloads)
        find_headers(rows)
        batch = record_batch(ORDERS, rows, ROW.remove(5).remove(6))
        return [(r["offset"], r["key"], r["value"]) for r in batch.to_pylist()]

    assert outcome(here) == outcome(by_the_codec)


@pytest.mark.parametrize("size", [0, 5, 100, 20_000])
@pytest.mark.parametrize("count", [1, 255, 256, 3000])
def test_long_batches_of_equal_records_are_found(count: int, size: int) -> None:
    written = [
        Record(7 + i, 1_700_000_000_000 + i // 100, b"k%d" % (i % 7), b"v" * size)
        for i in range(count if size < 1000 else min(count, 300))
    ]

    rows = rows_of(encode_batch(written, base_offset=7))

    assert [(r["offset"], r["key"], r["value"]) for r in rows] == [
        (r.offset, r.key, r.value) for r in written
    ]


def test_long_batches_of_unequal_records_are_found() -> None:
    written = [Record(i, 5, None, b"v" * (i * 7919 % 333)) for i in range(3000)]

    rows = rows_of(encode_batch(written))

    assert [(r["key"], r["value"]) for r in rows] == [(None, r.value) for r in written]


def test_a_range_is_cut_to_the_offset() -> None:
    raw = encode_batch([Record(i, 5, None, b"%d" % i) for i in range(10, 20)], base_offset=10)

    assert [row["offset"] for row in rows_of(raw, 13, 17)] == [13, 14, 15, 16]


def test_append_time_is_the_time_of_every_record() -> None:
    raw = encode_batch([Record(0, 5, None, b"a"), Record(1, 6, None, b"b")])
    _, timed = stamp_time(raw, read_header(raw), 1_700_000_000_123)

    rows = rows_of(timed)

    assert [row["timestampType"] for row in rows] == [1, 1]
    assert {row["timestamp"].timestamp() for row in rows} == {1_700_000_000.123}  # type: ignore[attr-defined]


def test_a_header_key_that_is_not_text_is_replaced() -> None:
    raw = encode_batch([Record(0, 5, None, b"a", (("ab", b"x"),)), Record(1, 5, None, b"b")])
    _, forged = seal(read_header(raw), raw[HEADER_BYTES:].replace(b"ab", b"a\xff"))

    assert [row["headers"] for row in rows_of(forged)] == [[{"key": "a\ufffd", "value": b"x"}], []]


def test_only_the_columns_asked_for_are_built() -> None:
    raw = encode_batch([Record(3, 5, b"k", b"v")], base_offset=3)
    ((data, payloads),) = open_batches(raw, select(raw, start=0, end=FOREVER).batches)
    schema = ROW.empty_table().select(["offset", "value"]).schema

    batch = record_batch(ORDERS, find_rows(data, payloads), schema)

    assert batch.to_pylist() == [{"offset": 3, "value": b"v"}]


def test_a_count_that_no_bytes_can_hold_is_refused_before_anything_is_made() -> None:
    raw = encode_batch([Record(0, 5, None, b"a")])
    _, forged = seal(
        read_header(raw)._replace(count=2**30, last_offset_delta=2**30), raw[HEADER_BYTES:]
    )

    with pytest.raises(RequestError, match="records in"):
        rows_of(forged)


def test_positions_are_wide_enough_for_a_large_piece() -> None:
    raw = encode_batch([Record(i, 5, None, b"v" * 2**20) for i in range(3)])

    ((data, payloads),) = open_batches(raw, select(raw, start=0, end=FOREVER).batches)

    assert find_rows(data, payloads).values.sizes.dtype == np.int64


def test_rows_are_made_without_pandas_where_it_is_installed() -> None:
    """Arrow imports it for conveniences: half a second of every worker's first task."""
    code = (
        "import sys\n"
        "from tests.unit.spark.read.test_rows import *\n"
        "raw = encode_batch([Record(0, 5, None, b'v', (('h', b'x'),)), Record(1, 5, b'k', None)])\n"
        "((data, payloads),) = open_batches(raw, select(raw, start=0, end=9).batches)\n"
        "made = record_batch(ORDERS, find_rows(data, payloads), ROW)\n"
        "print(made.num_rows, 'pandas' in sys.modules)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert result.stdout.split() == ["2", "False"]

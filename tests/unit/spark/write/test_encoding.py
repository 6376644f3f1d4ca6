"""Rows become record batches that the broker's own reader reads back to the same rows."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.batch import HEADER_BYTES, verify_produced
from millstream.codec.compression import Codec
from millstream.codec.records import Record, decode_all, verify_records
from millstream.model import Producer, TopicPartition
from millstream.spark.errors import UnwritableRow
from millstream.spark.write.encoding import batch, encode_rows, next_sequence
from millstream.spark.write.partitioner import Columns, Share
from tests.support.tiers import sized

SIZE_MAX = 2**26
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

bodies = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=120, max_size=300))
rows_of = st.lists(
    st.tuples(
        bodies,
        bodies,
        st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), bodies), max_size=3)),
    ),
    min_size=1,
    max_size=40,
)


def columns(rows: list[Row], *, has_keys: bool = True, has_headers: bool = True) -> Columns:
    keys, values, headers = zip(*rows, strict=True)
    pairs = [
        None if some is None else [{"key": k, "value": v} for k, v in some] for some in headers
    ]
    return Columns(
        values=pa.array(values, pa.binary()),
        keys=pa.array(keys, pa.binary()) if has_keys else None,
        headers=pa.array(pairs, HEADERS) if has_headers else None,
        topics=None,
        partitions=None,
    )


def sealed(rows: Columns, counts: list[int], *, bytes_max: int, codec: Codec) -> list[list[bytes]]:
    """The batches of each share."""
    shares = [Share(TopicPartition("t", at), count) for at, count in enumerate(counts)]
    collected: list[list[bytes]] = [[] for _ in shares]
    for piece in encode_rows(rows, shares, bytes_max=bytes_max):
        data = batch(piece, Producer(7, 1), 5, codec=codec, is_transactional=True, now_ms=99)
        collected[piece.share_index].append(data)
    return collected


def read(data: list[bytes]) -> list[Record]:
    collected = []
    for row in data:
        assert verify_produced(row, size_max=SIZE_MAX).producer_id == 7
        verify_records(row, decompressed_bytes_max=SIZE_MAX)
        collected += decode_all(row, decompressed_bytes_max=SIZE_MAX)
    return collected


@settings(max_examples=sized(150), deadline=None)
@given(
    rows_of,
    st.integers(0, 40),
    st.sampled_from([1, 300, 10_000]),
    st.sampled_from(list(Codec)),
    st.booleans(),
    st.booleans(),
)
def test_what_is_spelt_is_read_back(
    rows: list[Row], cut: int, bytes_max: int, codec: Codec, has_keys: bool, has_headers: bool
) -> None:
    cut = min(cut, len(rows))
    given_rows = columns(rows, has_keys=has_keys, has_headers=has_headers)

    made = sealed(given_rows, [cut, len(rows) - cut], bytes_max=bytes_max, codec=codec)

    for data, expected in zip(made, (rows[:cut], rows[cut:]), strict=True):
        assert [(r.key, r.value, r.headers) for r in read(data)] == [
            (
                key if has_keys else None,
                value,
                tuple(headers or ()) if has_headers else (),
            )
            for key, value, headers in expected
        ]


@given(rows_of, st.sampled_from([400, 1_000]))
@settings(max_examples=sized(50), deadline=None)
def test_a_batch_of_several_records_stays_within_its_bound(rows: list[Row], bytes_max: int) -> None:
    (made,) = sealed(columns(rows), [len(rows)], bytes_max=bytes_max, codec=Codec.NONE)

    for data in made:
        count = len(read([data]))
        assert count == 1 or len(data) <= bytes_max + HEADER_BYTES


def test_a_slice_of_a_column_is_spelt_as_that_slice() -> None:
    rows = columns([(b"k%d" % at, b"v%d" % at, [("h", b"x%d" % at)]) for at in range(9)])
    part = Columns(*(None if column is None else column.slice(3, 4) for column in rows))

    (made,) = sealed(part, [4], bytes_max=10_000, codec=Codec.NONE)

    assert [(r.key, r.value, r.headers) for r in read(made)] == [
        (b"k%d" % at, b"v%d" % at, (("h", b"x%d" % at),)) for at in range(3, 7)
    ]


def test_the_header_says_who_wrote_when_and_in_which_order() -> None:
    ((data,),) = sealed(
        columns([(None, b"a", None), (None, b"b", None)]), [2], bytes_max=1_000, codec=Codec.NONE
    )

    header = verify_produced(data, size_max=SIZE_MAX)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert (header.base_timestamp, header.max_timestamp, header.is_transactional) == (99, 99, True)


times = st.one_of(st.integers(0, 2**42), st.integers(1_700_000_000_000, 1_700_000_000_050))


@settings(max_examples=sized(80), deadline=None)
@given(
    st.lists(st.tuples(times, st.none() | times, st.none() | st.integers(0, 2**40)), min_size=1),
    st.sampled_from([60, 10_000]),
    st.booleans(),
)
def test_times_and_what_the_broker_is_asked_for_are_read_back(
    asked: list[tuple[int, int | None, int | None]], bytes_max: int, has_headers: bool
) -> None:
    when, due, lives = zip(*asked, strict=True)
    own: list[tuple[str, bytes | None]] = [("h", b"x")]
    rows = columns([(b"k", b"v", own)] * len(asked), has_headers=has_headers)._replace(
        times_ms=pa.array(when, pa.int64()),
        due_ms=pa.array(due, pa.int64()),
        lives_ms=pa.array(lives, pa.int64()),
    )

    (made,) = sealed(rows, [len(asked)], bytes_max=bytes_max, codec=Codec.NONE)

    assert [(record.timestamp, record.headers) for record in read(made)] == [
        (
            at,
            (
                *(own if has_headers else ()),
                *([("ms-deliver-at", b"%d" % due_ms)] if due_ms is not None else ()),
                *([("ms-ttl-ms", b"%d" % life)] if life is not None else ()),
            ),
        )
        for at, due_ms, life in asked
    ]
    for data in made:
        newest = verify_produced(data, size_max=SIZE_MAX).max_timestamp
        assert newest == max(record.timestamp for record in read([data]))


def test_large_records_have_long_lengths() -> None:
    sizes = [63, 64, 8_191, 8_192, 2**20, 2**21 + 1]
    rows: list[Row] = [(b"k" * size, b"v" * size, None) for size in sizes]

    (made,) = sealed(columns(rows), [len(rows)], bytes_max=2**30, codec=Codec.NONE)

    assert [len(r.key or b"") for r in read(made)] == sizes


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    rows = Columns(pa.array([b"v"]), None, headers, None, None)

    with pytest.raises(UnwritableRow, match="null key"):
        encode_rows(rows, [Share(TopicPartition("t", 0), 1)], bytes_max=100)


def test_sequences_start_over_behind_the_last_one() -> None:
    assert next_sequence(5, 10) == 15
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 3, 10) == 7

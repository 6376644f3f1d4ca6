from collections.abc import Callable, Generator

import pytest

from millstream.codec.batch import (
    DELETE_HORIZON,
    HEADER_BYTES,
    Header,
    read_header,
    seal,
    stamp_time,
    verify_batch,
)
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, Marker, decode_marker, encode_marker
from millstream.codec.primitives import write_varint
from millstream.codec.records import (
    STEP_BYTES,
    Record,
    decode_all,
    decode_each,
    verify_records,
)
from millstream.codec.rewrite import filter_batch, filter_steps, recompress
from millstream.errors import BatchTooLarge, CorruptBatch, InvalidBatch, UnsupportedCompression

CAP = 2**20

RECORDS = [
    Record(0, 1_000, b"a", b"first", (("trace", b"1"), ("trace", None), ("", b""))),
    Record(1, 1_005, None, b""),
    Record(2, 990, b"", None),
    Record(3, 1_002, b"a", b"last"),
]


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def sealed(
    payload: bytes, *, count: int = 1, attributes: int = 0, last: int | None = None
) -> bytes:
    """A batch with any payload and a checksum that fits."""
    last = count - 1 if last is None else last
    header = Header(0, 0, 0, 0, attributes, last, 1_000, 1_000, -1, -1, -1, count)
    return seal(header, payload)[1]


def spelled(body: bytes, *, offset_delta: int = 0) -> bytes:
    """A record of a chosen body, behind the right length."""
    body = b"\0" + varint(0) + varint(offset_delta) + body
    return varint(len(body)) + body


NULL_KEY_AND_VALUE = varint(-1) + varint(-1)
NO_HEADERS = varint(0)
SMALLEST = NULL_KEY_AND_VALUE + NO_HEADERS


# -- building and reading --------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_built_is_read(codec: Codec) -> None:
    raw = encode_batch(RECORDS, codec=codec)

    assert decode_all(raw, decompressed_bytes_max=CAP) == RECORDS
    assert list(decode_each(raw, decompressed_bytes_max=CAP)) == RECORDS
    assert verify_batch(raw).codec is codec


def test_the_header_says_what_was_built() -> None:
    raw = encode_batch(
        RECORDS[1:],
        base_offset=0,
        epoch=4,
        producer_id=9,
        producer_epoch=1,
        base_sequence=30,
        is_transactional=True,
    )

    header = verify_batch(raw)
    assert (header.base_offset, header.last_offset, header.count) == (0, 3, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_005, 1_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 30)
    assert (header.epoch, header.is_transactional, header.is_control) == (4, True, False)


def test_null_and_empty_stay_apart() -> None:
    null, empty = Record(0, 0, None, None, (("h", None),)), Record(1, 0, b"", b"", (("h", b""),))

    assert decode_all(encode_batch([null, empty]), decompressed_bytes_max=CAP) == [null, empty]


def test_offsets_may_leave_gaps() -> None:
    gaps = [Record(12, 0, b"k", b"v"), Record(90, 0, b"k", b"v")]

    raw = encode_batch(gaps, base_offset=10)

    assert decode_all(raw, decompressed_bytes_max=CAP) == gaps
    assert (
        verify_batch(raw).base_offset,
        verify_batch(raw).end_offset,
        verify_batch(raw).count,
    ) == (10, 91, 2)


def test_a_batch_is_read_where_it_starts() -> None:
    raw = encode_batch(RECORDS)

    assert decode_all(b"before" + raw + b"behind", 6, decompressed_bytes_max=CAP) == RECORDS


def test_times_wrap_like_javas_so_that_any_two_fit_in_one_batch() -> None:
    extremes = [Record(0, -(2**63), None, b""), Record(1, 2**63 - 1, None, b"")]

    assert decode_all(encode_batch(extremes), decompressed_bytes_max=CAP) == extremes


def test_with_log_append_time_every_record_has_the_brokers_time() -> None:
    raw = encode_batch(RECORDS)

    _, timed = stamp_time(raw, verify_batch(raw), 5_000)

    assert decode_all(timed, decompressed_bytes_max=CAP) == [
        r._replace(timestamp=5_000) for r in RECORDS
    ]


def test_a_batch_with_a_wrong_checksum_is_not_opened() -> None:
    raw = bytearray(encode_batch(RECORDS))
    raw[-1] ^= 1

    with pytest.raises(CorruptBatch):
        decode_all(raw, decompressed_bytes_max=CAP)


def test_an_empty_batch_has_no_records_whatever_its_codec() -> None:
    header = read_header(encode_batch(RECORDS, codec=Codec.ZSTD))

    assert decode_all(seal(header._replace(count=0), b"")[1], decompressed_bytes_max=CAP) == []


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_an_unknown_codec_is_refused(bits: int) -> None:
    with pytest.raises(UnsupportedCompression):
        verify_records(sealed(spelled(SMALLEST), attributes=bits), decompressed_bytes_max=CAP)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_records_that_outgrow_the_cap_are_refused(codec: Codec) -> None:
    raw = encode_batch([Record(0, 0, None, bytes(10_000))], codec=codec)

    assert len(decode_all(raw, decompressed_bytes_max=10_100)) == 1
    with pytest.raises(BatchTooLarge):
        decode_all(raw, decompressed_bytes_max=9_999)


# -- validating ------------------------------------------------------------------------------------


def test_verify_records_returns_the_records_without_a_key() -> None:
    raw = encode_batch(RECORDS, codec=Codec.LZ4)

    assert verify_records(raw, decompressed_bytes_max=CAP) == [1]
    keyed = encode_batch(RECORDS[:1])
    assert verify_records(keyed, decompressed_bytes_max=CAP) == []


def test_a_record_is_its_fields_and_nothing_else() -> None:
    assert decode_all(sealed(spelled(SMALLEST)), decompressed_bytes_max=CAP) == [
        Record(0, 1_000, None, None)
    ]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="no bytes"),
        pytest.param(spelled(SMALLEST) + b"\0", id="a byte behind the last record"),
        pytest.param(spelled(SMALLEST) * 2, id="a record more than the count says"),
        pytest.param(spelled(SMALLEST)[:-1], id="the last byte is missing"),
        pytest.param(varint(-7) + spelled(SMALLEST), id="a negative record length"),
        pytest.param(varint(2**31 - 1) + SMALLEST * 3, id="a record length behind the end"),
        pytest.param(spelled(SMALLEST + b"\0"), id="a byte left over inside the record"),
        pytest.param(
            b"\x0a" + spelled(SMALLEST)[1:] + b"\0", id="a record shorter than its fields"
        ),
        pytest.param(spelled(varint(-2) + varint(-1) + NO_HEADERS), id="a key length of -2"),
        pytest.param(spelled(varint(9) + varint(-1) + NO_HEADERS), id="a key behind the end"),
        pytest.param(spelled(varint(-1) + varint(-2) + NO_HEADERS), id="a value length of -2"),
        pytest.param(spelled(varint(-1) + varint(9) + NO_HEADERS), id="a value behind the end"),
        pytest.param(spelled(NULL_KEY_AND_VALUE + varint(-1)), id="a negative header count"),
        pytest.param(spelled(NULL_KEY_AND_VALUE + varint(1)), id="a header that is not there"),
        pytest.param(
            spelled(NULL_KEY_AND_VALUE + varint(2**31 - 1) + bytes(64)), id="too many headers"
        ),
        pytest.param(
            spelled(NULL_KEY_AND_VALUE + varint(1) + varint(0) + varint(-2)),
            id="a header value length of -2",
        ),
        pytest.param(
            spelled(NULL_KEY_AND_VALUE + varint(1) + varint(30) + varint(-1)),
            id="a header key behind the end",
        ),
        pytest.param(b"\xff" * 20, id="varints without an end"),
    ],
)
def test_bytes_that_do_not_agree_with_their_lengths_are_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode_all(sealed(payload), decompressed_bytes_max=CAP)
    with pytest.raises(CorruptBatch):
        verify_records(sealed(payload), decompressed_bytes_max=CAP)


def test_a_field_may_not_reach_into_the_next_record() -> None:
    greedy = spelled(varint(12) + varint(-1) + NO_HEADERS)

    with pytest.raises(CorruptBatch):
        decode_all(
            sealed(greedy + spelled(bytes(40), offset_delta=1), count=2), decompressed_bytes_max=CAP
        )


def test_a_header_without_a_key_is_invalid() -> None:
    payload = spelled(NULL_KEY_AND_VALUE + varint(1) + varint(-1) + varint(-1))

    with pytest.raises(InvalidBatch):
        decode_all(sealed(payload), decompressed_bytes_max=CAP)


@pytest.mark.parametrize("count", [2, 3, 1_000, 2**31 - 1])
def test_a_count_above_the_records_that_are_there_is_corrupt(count: int) -> None:
    payload = spelled(SMALLEST) + spelled(SMALLEST, offset_delta=1)[:-1]

    with pytest.raises(CorruptBatch):
        decode_all(sealed(payload, count=count), decompressed_bytes_max=CAP)


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (1, 2), (-1, 0), (0, 2), (1, 1)])
def test_produced_offsets_count_from_zero_without_gaps(deltas: tuple[int, int]) -> None:
    payload = b"".join(spelled(SMALLEST, offset_delta=delta) for delta in deltas)

    with pytest.raises(InvalidBatch):
        verify_records(sealed(payload, count=2), decompressed_bytes_max=CAP)


def test_a_produced_batch_has_as_many_records_as_offsets() -> None:
    payload = spelled(SMALLEST) + spelled(SMALLEST, offset_delta=2)

    assert len(decode_all(sealed(payload, count=2, last=2), decompressed_bytes_max=CAP)) == 2
    with pytest.raises(InvalidBatch):
        verify_records(sealed(payload, count=2, last=2), decompressed_bytes_max=CAP)
    with pytest.raises(InvalidBatch):
        verify_records(sealed(b"", count=0, last=0), decompressed_bytes_max=CAP)


def test_a_header_key_that_is_not_text_is_refused_from_producers_and_replaced_for_readers() -> None:
    body = NULL_KEY_AND_VALUE + varint(1) + varint(2) + b"\xffx" + varint(-1)
    raw = sealed(spelled(body))

    with pytest.raises(InvalidBatch):
        verify_records(raw, decompressed_bytes_max=CAP)
    (record,) = decode_all(raw, decompressed_bytes_max=CAP)
    assert record.headers == (("\ufffdx", None),)


# -- filtering -------------------------------------------------------------------------------------


def is_odd(record: Record) -> bool:
    return record.offset % 2 == 1


@pytest.mark.parametrize("codec", list(Codec))
def test_filtering_drops_records_and_moves_no_offset(codec: Codec) -> None:
    raw = encode_batch(
        [record._replace(offset=record.offset + 40) for record in RECORDS],
        base_offset=40,
        epoch=3,
        codec=codec,
        producer_id=5,
        producer_epoch=1,
        base_sequence=8,
        is_transactional=True,
    )

    filtered = filter_batch(raw, is_odd, decompressed_bytes_max=CAP)

    assert filtered is not None
    kept = decode_all(filtered, decompressed_bytes_max=CAP)
    assert kept == [RECORDS[1]._replace(offset=41), RECORDS[3]._replace(offset=43)]
    before, after = verify_batch(raw), verify_batch(filtered)
    assert after == before._replace(size=after.size, crc=after.crc, count=2)


def test_the_newest_time_is_that_of_the_kept_records() -> None:
    filtered = filter_batch(
        encode_batch(RECORDS), lambda r: r.offset == 2, decompressed_bytes_max=CAP
    )

    assert filtered is not None
    assert verify_batch(filtered).max_timestamp == 990


def test_filtering_with_log_append_time_keeps_the_brokers_time() -> None:
    _, timed = stamp_time(encode_batch(RECORDS), verify_batch(encode_batch(RECORDS)), 5_000)

    filtered = filter_batch(timed, is_odd, decompressed_bytes_max=CAP)

    assert filtered is not None
    assert verify_batch(filtered).max_timestamp == 5_000
    assert [r.timestamp for r in decode_all(filtered, decompressed_bytes_max=CAP)] == [5_000, 5_000]


def test_keeping_everything_keeps_the_bytes() -> None:
    raw = encode_batch(RECORDS, codec=Codec.GZIP)

    assert filter_batch(raw, lambda _: True, decompressed_bytes_max=CAP) == raw
    assert filter_batch(raw + b"more", lambda _: True, decompressed_bytes_max=CAP) == raw


def test_a_kept_record_keeps_its_bytes_even_where_they_are_not_text() -> None:
    body = NULL_KEY_AND_VALUE + varint(1) + varint(2) + b"\xffx" + varint(-1)
    raw = sealed(spelled(SMALLEST) + spelled(body, offset_delta=1), count=2)

    filtered = filter_batch(raw, is_odd, decompressed_bytes_max=CAP)

    assert filtered is not None
    assert filtered[HEADER_BYTES:] == spelled(body, offset_delta=1)


def test_nothing_is_left_of_a_batch_without_records() -> None:
    assert filter_batch(encode_batch(RECORDS), lambda _: False, decompressed_bytes_max=CAP) is None


def test_an_empty_batch_can_be_kept_to_remember_its_offsets_and_producer() -> None:
    raw = encode_batch(RECORDS, codec=Codec.ZSTD, producer_id=5, producer_epoch=1, base_sequence=8)

    empty = filter_batch(raw, lambda _: False, decompressed_bytes_max=CAP, keep_empty=True)

    assert empty is not None
    assert len(empty) == HEADER_BYTES
    header = verify_batch(empty)
    assert (header.count, header.codec) == (0, Codec.NONE)
    assert (header.base_offset, header.end_offset) == (0, 4)
    assert (header.producer_id, header.last_sequence) == (5, 11)
    again = filter_batch(empty, is_odd, decompressed_bytes_max=CAP, keep_empty=True)
    assert again == empty
    assert filter_batch(empty, is_odd, decompressed_bytes_max=CAP) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_a_delete_horizon_replaces_the_base_timestamp_and_no_records_time(codec: Codec) -> None:
    raw = encode_batch(RECORDS, codec=codec)

    marked = filter_batch(
        raw, lambda _: True, decompressed_bytes_max=CAP, delete_horizon_ms=90_000_000
    )

    assert marked is not None
    assert verify_batch(marked).has_delete_horizon
    assert verify_batch(marked).base_timestamp == 90_000_000
    assert decode_all(marked, decompressed_bytes_max=CAP) == RECORDS


def test_a_delete_horizon_is_set_once() -> None:
    first = filter_batch(
        encode_batch(RECORDS), lambda _: True, decompressed_bytes_max=CAP, delete_horizon_ms=5_000
    )
    assert first is not None

    second = filter_batch(first, is_odd, decompressed_bytes_max=CAP, delete_horizon_ms=9_000)

    assert second is not None
    assert verify_batch(second).attributes == DELETE_HORIZON
    assert verify_batch(second).base_timestamp == 5_000
    assert decode_all(second, decompressed_bytes_max=CAP) == RECORDS[1::2]


# -- recompressing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_recompressing_changes_the_codec_and_no_record(source: Codec, target: Codec) -> None:
    raw = encode_batch(
        RECORDS, codec=source, producer_id=5, producer_epoch=1, is_transactional=True
    )

    changed = recompress(raw, target, decompressed_bytes_max=CAP)

    assert decode_all(changed, decompressed_bytes_max=CAP) == RECORDS
    before, after = verify_batch(raw), verify_batch(changed)
    assert (after.codec, after.is_transactional) == (target, True)
    assert after == before._replace(size=after.size, crc=after.crc, attributes=after.attributes)


# -- control batches -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(ControlKind))
def test_a_marker_is_read_as_it_was_written(kind: ControlKind) -> None:
    raw = encode_marker(
        kind,
        producer_id=7,
        producer_epoch=2,
        coordinator_epoch=11,
        timestamp=1_000,
        base_offset=50,
        epoch=6,
    )

    assert decode_marker(raw) == Marker(kind, 7, 2, 11)
    header = verify_batch(raw)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.end_offset, header.count) == (50, 51, 1)
    assert (header.base_sequence, header.max_timestamp, header.epoch) == (-1, 1_000, 6)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\1"),
        (b"\0\0\0", b"\0\0\0\0\0\1"),
        (b"\0\0\0\2", b"\0\0\0\0\0\1"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0"),
    ],
)
def test_a_control_record_that_is_no_marker_is_invalid(
    key: bytes | None, value: bytes | None
) -> None:
    raw = encode_batch([Record(0, 0, key, value)], producer_id=1, producer_epoch=0, is_control=True)

    with pytest.raises(InvalidBatch):
        decode_marker(raw)


def test_a_later_version_of_a_marker_may_have_more_fields() -> None:
    later = Record(0, 0, b"\0\1\0\1more", b"\0\1\0\0\0\x05more")
    raw = encode_batch([later], producer_id=1, producer_epoch=0, is_control=True)

    assert decode_marker(raw) == Marker(ControlKind.COMMIT, 1, 0, 5)


def test_data_is_not_read_as_a_marker() -> None:
    marker = Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\1")

    for raw in (
        encode_batch([marker], producer_id=1, producer_epoch=0),
        encode_batch([marker, marker._replace(offset=1)], is_control=True),
        encode_batch([marker], is_control=True, codec=Codec.GZIP),
    ):
        with pytest.raises(InvalidBatch):
            decode_marker(raw)


# -- filtering in steps ----------------------------------------------------------------------------


def drained(steps: Generator[None, None, bytes | None]) -> tuple[int, bytes | None]:
    """How many steps it took, and what came out."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def test_filtering_in_steps_gives_what_filtering_gives() -> None:
    data = encode_batch([Record(at, 0, None, b"v" * 100) for at in range(1_000)])

    def keep(record: Record) -> bool:
        return record.offset % 3 == 0

    steps, kept = drained(filter_steps(data, keep, decompressed_bytes_max=2**20))

    assert kept == filter_batch(data, keep, decompressed_bytes_max=2**20)
    assert steps == len(data) // (STEP_BYTES + 107)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_prefilter_of_the_unpacked_bytes_can_settle_it(codec: Codec) -> None:
    data = encode_batch([Record(0, 0, b"k", b"needle")], codec=codec)

    def prefilter(value: bytes) -> bool | None:
        return None if b"needle" in value else False

    def filtered(prefilter: Callable[[bytes], bool | None], *, keeps: bool) -> bytes | None:
        return filter_batch(
            data, lambda _: keeps, decompressed_bytes_max=2**20, prefilter=prefilter
        )

    assert filtered(prefilter, keeps=True) == data
    assert filtered(prefilter, keeps=False) is None
    assert filtered(lambda _: False, keeps=True) is None
    assert filtered(lambda _: True, keeps=False) == data

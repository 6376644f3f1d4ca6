from struct import pack

import pytest
from fastcrc import crc32

from millstream.codec import batch
from millstream.codec.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
    is_compressed,
    read_header,
    seal,
    stamp,
    stamp_time,
    verify_batch,
    verify_batches,
    verify_produced,
)
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record
from millstream.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidTimestamp,
    UnsupportedCompression,
)

SIZE_MAX = 2**20

RECORDS = [Record(index, 1_000 + index, b"key", b"value") for index in range(3)]
BATCH = encode_batch(RECORDS, producer_id=7, producer_epoch=2, base_sequence=40)


def with_header(**fields: int) -> bytes:
    """The batch with other header fields and a checksum that fits them."""
    return seal(read_header(BATCH)._replace(**fields), BATCH[HEADER_BYTES:])[1]


# -- reading ---------------------------------------------------------------------------------------


def test_every_field_is_read_from_its_place() -> None:
    checked = pack(">hiqqqhii", 0x50, 5, 100, 200, 7, 3, 9, 6) + b"payload"
    raw = pack(">qiibI", 11, 9 + len(checked), 4, 2, crc32.iscsi(checked)) + checked

    header = verify_batch(raw)

    assert header == Header(
        base_offset=11,
        size=len(raw),
        epoch=4,
        crc=crc32.iscsi(checked),
        attributes=0x50,
        last_offset_delta=5,
        base_timestamp=100,
        max_timestamp=200,
        producer_id=7,
        producer_epoch=3,
        base_sequence=9,
        count=6,
    )


def test_a_header_can_be_read_before_the_rest_of_the_batch_is_there() -> None:
    assert read_header(BATCH[:HEADER_BYTES]) == verify_batch(BATCH)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_will_do(kind: type) -> None:
    buffer = kind(BATCH)

    assert verify_batch(buffer) == read_header(buffer) == verify_produced(buffer, size_max=SIZE_MAX)
    assert verify_batches(buffer) == [verify_batch(BATCH)]
    assert stamp_time(buffer, verify_batch(buffer), 5) == stamp_time(BATCH, verify_batch(BATCH), 5)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_says_by_one_byte_whether_it_is_compressed(codec: Codec) -> None:
    data = encode_batch([Record(0, 0, None, b"value")], codec=codec)

    assert is_compressed(data) is (codec is not Codec.NONE)


def test_offsets_end_exclusively_and_last_inclusively() -> None:
    header = read_header(BATCH)._replace(base_offset=10, last_offset_delta=4)

    assert header.last_offset == 14
    assert header.end_offset == 15


def test_after_the_greatest_sequence_comes_zero() -> None:
    header = read_header(BATCH)._replace(base_sequence=2**31 - 2, last_offset_delta=1)

    assert header.last_sequence == 2**31 - 1
    assert header._replace(last_offset_delta=2).last_sequence == 0
    assert header._replace(last_offset_delta=5).last_sequence == 3


def test_a_batch_without_sequence_has_no_last_sequence() -> None:
    assert read_header(encode_batch(RECORDS)).last_sequence == -1


@pytest.mark.parametrize(
    ("bit", "claim"),
    [
        (LOG_APPEND_TIME, "has_log_append_time"),
        (TRANSACTIONAL, "is_transactional"),
        (CONTROL, "is_control"),
        (DELETE_HORIZON, "has_delete_horizon"),
    ],
)
def test_each_attribute_bit_is_one_claim(bit: int, claim: str) -> None:
    header = read_header(BATCH)

    assert not getattr(header, claim)
    assert getattr(header._replace(attributes=bit), claim)
    assert not getattr(header._replace(attributes=~bit), claim)


def test_a_producer_is_one_with_an_id() -> None:
    assert read_header(BATCH).has_producer
    assert not read_header(encode_batch(RECORDS)).has_producer


@pytest.mark.parametrize("codec", list(Codec))
def test_the_lowest_bits_name_the_codec(codec: Codec) -> None:
    assert read_header(BATCH)._replace(attributes=TRANSACTIONAL | codec).codec is codec


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_bits_that_name_no_codec_are_refused(bits: int) -> None:
    with pytest.raises(UnsupportedCompression):
        _ = read_header(BATCH)._replace(attributes=bits).codec


# -- verifying -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 16, 60])
def test_less_than_a_header_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(BATCH[:size])


def test_a_batch_that_ends_early_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        verify_batch(BATCH[:-1])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_that_cannot_hold_a_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(BATCH[:8] + pack(">i", length) + BATCH[12:])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_formats_are_invalid(magic: int) -> None:
    with pytest.raises(InvalidBatch):
        verify_batch(BATCH[:16] + bytes([magic]) + BATCH[17:])


def test_every_flipped_bit_is_refused_or_lies_outside_the_checksum() -> None:
    survived = set()

    for at in range(len(BATCH)):
        for bit in range(8):
            damaged = bytearray(BATCH)
            damaged[at] ^= 1 << bit
            try:
                header = verify_batch(damaged)
            except (CorruptBatch, InvalidBatch):
                continue
            survived.add(at)
            assert header._replace(base_offset=0, epoch=0) == verify_batch(BATCH)

    assert survived == {*range(8), *range(12, 16)}


def test_offset_and_epoch_lie_outside_the_checksum() -> None:
    moved = pack(">q", 99) + BATCH[8:12] + pack(">i", 5) + BATCH[16:]

    assert verify_batch(moved) == verify_batch(BATCH)._replace(base_offset=99, epoch=5)


def test_a_negative_base_offset_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        verify_batch(pack(">q", -1) + BATCH[8:])


@pytest.mark.parametrize(
    "fields",
    [{"count": -1}, {"count": 4}, {"last_offset_delta": -1}, {"last_offset_delta": -1, "count": 0}],
)
def test_counts_that_contradict_each_other_are_invalid(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidBatch):
        verify_batch(with_header(**fields))


def test_compaction_may_leave_fewer_records_than_offsets() -> None:
    assert verify_batch(with_header(last_offset_delta=9)).end_offset == 10
    assert verify_batch(seal(read_header(BATCH)._replace(count=0), b"")[1]).count == 0


def test_a_batch_is_verified_where_it_starts() -> None:
    assert verify_batch(b"other" + BATCH + b"bytes", 5) == verify_batch(BATCH)


# -- walking ---------------------------------------------------------------------------------------


def test_walking_visits_batch_after_batch() -> None:
    other = encode_batch(RECORDS[:1], base_offset=0)

    assert verify_batches(BATCH + other + BATCH) == [
        verify_batch(BATCH),
        verify_batch(other),
        verify_batch(BATCH),
    ]
    assert verify_batches(b"") == []


@pytest.mark.parametrize("cut", [1, HEADER_BYTES, len(BATCH) - 1])
def test_walking_does_not_step_over_a_torn_tail(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        verify_batches(BATCH + BATCH[:cut])


# -- admitting -------------------------------------------------------------------------------------


def test_a_producers_batch_is_admitted() -> None:
    assert verify_produced(BATCH, size_max=len(BATCH)) == verify_batch(BATCH)


def test_the_base_offset_a_producer_sends_does_not_matter() -> None:
    moved = pack(">q", 3) + BATCH[8:]

    assert verify_produced(moved, size_max=SIZE_MAX).base_offset == 3


def test_a_transactional_batch_of_a_known_producer_is_admitted() -> None:
    raw = with_header(attributes=TRANSACTIONAL)

    assert verify_produced(raw, size_max=SIZE_MAX).is_transactional


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"count": 0}, InvalidBatch),
        ({"count": 2}, InvalidBatch),
        ({"last_offset_delta": 3}, InvalidBatch),
        ({"attributes": CONTROL}, InvalidBatch),
        ({"attributes": CONTROL | TRANSACTIONAL}, InvalidBatch),
        ({"attributes": DELETE_HORIZON}, InvalidBatch),
        ({"attributes": LOG_APPEND_TIME}, InvalidTimestamp),
        ({"attributes": 5}, UnsupportedCompression),
        ({"attributes": 7}, UnsupportedCompression),
        ({"base_sequence": -1}, InvalidBatch),
        ({"producer_epoch": -1}, InvalidBatch),
        ({"attributes": TRANSACTIONAL, "producer_id": -1}, InvalidBatch),
    ],
)
def test_what_is_not_a_producers_to_send_is_refused(
    fields: dict[str, int], error: type[Exception]
) -> None:
    with pytest.raises(error):
        verify_produced(with_header(**fields), size_max=SIZE_MAX)


def test_exactly_one_batch_is_admitted() -> None:
    with pytest.raises(InvalidBatch):
        verify_produced(BATCH + BATCH, size_max=SIZE_MAX)
    with pytest.raises(InvalidBatch):
        verify_produced(BATCH + b"\0", size_max=SIZE_MAX)
    with pytest.raises(CorruptBatch):
        verify_produced(BATCH[:-1], size_max=SIZE_MAX)
    with pytest.raises(CorruptBatch):
        verify_produced(b"", size_max=SIZE_MAX)


def test_a_batch_over_the_limit_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(BatchTooLarge) as caught:
        verify_produced(b"x" * 101, size_max=100)

    assert (caught.value.size, caught.value.size_max) == (101, 100)


# -- stamping --------------------------------------------------------------------------------------


def test_stamping_replaces_offset_and_epoch_and_needs_no_new_checksum() -> None:
    header, prefix = stamp(verify_batch(BATCH), base_offset=500, epoch=9)

    assert len(prefix) == batch.PREFIX_BYTES
    stamped = prefix + BATCH[batch.PREFIX_BYTES :]
    assert verify_batch(stamped) == header
    assert header == verify_batch(BATCH)._replace(base_offset=500, epoch=9)


def test_stamping_the_time_makes_it_the_newest_and_renews_the_checksum() -> None:
    header, timed = stamp_time(BATCH, verify_batch(BATCH), 77)

    assert verify_batch(timed) == header
    assert header.has_log_append_time
    assert header.max_timestamp == 77
    assert timed[HEADER_BYTES:] == BATCH[HEADER_BYTES:]


def test_place_and_time_can_be_stamped_in_either_order() -> None:
    placed, _ = stamp(verify_batch(BATCH), base_offset=500, epoch=9)
    header, placed_then_timed = stamp_time(BATCH, placed, 77)

    timed, raw = stamp_time(BATCH, verify_batch(BATCH), 77)
    _, prefix = stamp(timed, base_offset=500, epoch=9)

    assert placed_then_timed == prefix + raw[batch.PREFIX_BYTES :]
    assert verify_batch(placed_then_timed) == header

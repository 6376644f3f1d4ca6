"""Bounded decompression against the codecs themselves: any data, any codec, any cut into pieces."""

import gzip
from struct import pack

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.codec.compression import (
    RATIO_FREE_BYTES,
    RATIO_MAX,
    SMALL_BYTES_MAX,
    Codec,
    compress,
    decompress,
    decompress_small,
    unpacked_bytes_max,
)
from millstream.errors import BatchTooLarge, CorruptBatch

COMPRESSED = st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
# Random bytes, and a run of one byte that becomes very little.
PARTS = st.tuples(st.binary(max_size=100), st.integers(0, 400_000)).map(
    lambda drawn: drawn[0] + b"z" * drawn[1]
)


def in_pieces(codec: Codec, parts: list[bytes]) -> bytes:
    """The parts one after the other in one stream, where the codec allows that."""
    match codec:
        case Codec.GZIP:
            return b"".join(gzip.compress(part) for part in parts)
        case Codec.SNAPPY:
            blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in parts]
            return XERIAL + b"".join(pack(">i", len(block)) + block for block in blocks)
        case Codec.ZSTD:
            return b"".join(bytes(cramjam.zstd.compress(part)) for part in parts)
        case _:
            return bytes(compress(codec, b"".join(parts)))


@given(COMPRESSED, st.lists(PARTS, min_size=1, max_size=4), st.integers(-3, 3))
def test_the_cap_holds_for_all_pieces_together(codec: Codec, parts: list[bytes], more: int) -> None:
    whole = b"".join(parts)
    packed, size_max = in_pieces(codec, parts), max(0, len(whole) + more)

    if size_max >= len(whole):
        assert decompress(codec, packed, size_max=size_max) == whole
    else:
        with pytest.raises(BatchTooLarge):
            decompress(codec, packed, size_max=size_max)


@given(COMPRESSED, st.lists(PARTS, min_size=1, max_size=4), st.integers(0, 2**21))
def test_what_is_small_is_the_same_and_what_is_not_is_left(
    codec: Codec, parts: list[bytes], size_max: int
) -> None:
    whole = b"".join(parts)
    packed = in_pieces(codec, parts)

    small = decompress_small(codec, packed, size_max=size_max)

    fits = len(whole) <= min(size_max, SMALL_BYTES_MAX[codec])
    assert small == (whole if fits and len(packed) <= SMALL_BYTES_MAX[codec] else None)


@given(COMPRESSED, st.lists(PARTS, min_size=1, max_size=3), st.data())
def test_spoiled_data_is_refused_or_within_the_cap(
    codec: Codec, parts: list[bytes], data: st.DataObject
) -> None:
    packed = bytearray(in_pieces(codec, parts))
    for at in data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=3)):
        packed[at] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    size_max = data.draw(st.sampled_from([0, 100, 2**16, 2**20]))

    for unpack in (decompress, decompress_small):
        try:
            unpacked = unpack(codec, packed, size_max=size_max)
        except (BatchTooLarge, CorruptBatch):
            continue
        assert unpacked is None or len(unpacked) <= size_max


@given(st.integers(0, 2**27), st.integers(0, 2**31))
def test_a_batch_may_become_as_much_as_its_size_and_the_limit_allow(
    packed_bytes: int, limit: int
) -> None:
    bound = unpacked_bytes_max(packed_bytes, limit)

    assert bound <= limit
    assert bound == limit or bound >= RATIO_FREE_BYTES
    assert bound <= max(RATIO_FREE_BYTES, RATIO_MAX * packed_bytes)

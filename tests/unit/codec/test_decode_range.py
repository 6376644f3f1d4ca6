"""A few records of a batch are those that reading all of it would have found there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all, decode_range
from millstream.codec.rewrite import filter_batch
from millstream.errors import CorruptBatch
from tests.support.tiers import sized

BYTES_MAX = 2**20
SIZES = st.sampled_from([0, 1, 50, 63, 64, 200, 9_000])


@settings(deadline=None, max_examples=sized(60))
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=20),
    base_offset=st.integers(0, 1_000),
    behind=st.integers(-5, 25),
    count_max=st.integers(0, 25),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
    has_gaps=st.booleans(),
)
def test_some_records_are_a_part_of_all(
    sizes: list[int], base_offset: int, behind: int, count_max: int, codec: Codec, has_gaps: bool
) -> None:
    batch = encode_batch(
        [
            Record(base_offset + at, 1_000 * at, b"k" * (at % 3) or None, bytes(size))
            for at, size in enumerate(sizes)
        ],
        base_offset=base_offset,
        codec=codec,
    )
    if has_gaps:
        kept = filter_batch(
            batch, lambda record: record.offset % 3 > 0, decompressed_bytes_max=BYTES_MAX
        )
        batch = kept or batch
    offset = base_offset + behind

    some = decode_range(b"pad" + batch, 3, offset, count_max, decompressed_bytes_max=BYTES_MAX)

    everything = decode_all(batch, decompressed_bytes_max=BYTES_MAX)
    assert some == [record for record in everything if record.offset >= offset][:count_max]


def test_a_batch_that_is_not_what_was_written_is_refused() -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, b"value")]))
    batch[-3] ^= 1

    with pytest.raises(CorruptBatch, match="checksum"):
        decode_range(batch, 0, 0, 1, decompressed_bytes_max=BYTES_MAX)

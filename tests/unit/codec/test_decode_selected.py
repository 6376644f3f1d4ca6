"""Single records out of a batch."""

import pytest

from millstream.codec.batch import read_header, seal
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_selected
from millstream.codec.rewrite import filter_batch
from millstream.errors import CorruptBatch, InvalidBatch

RECORDS = [Record(50 + at, 1_000 * at, b"k", b"v" * at * 40, (("h", None),)) for at in range(9)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("offsets", [set(), {50}, {53, 58}, {49, 59, 54}, set(range(100))])
def test_records_are_found_by_their_offsets(codec: Codec, offsets: set[int]) -> None:
    data = encode_batch(RECORDS, base_offset=50, codec=codec)

    selected = decode_selected(data, offsets.__contains__, decompressed_bytes_max=2**20)

    assert selected == [record for record in RECORDS if record.offset in offsets]


def test_records_are_found_among_gaps() -> None:
    data = encode_batch(RECORDS, base_offset=50)
    sparse = filter_batch(data, lambda record: record.offset % 2 == 1, decompressed_bytes_max=2**20)
    assert sparse is not None

    assert decode_selected(sparse, {52, 53, 57}.__contains__, decompressed_bytes_max=2**20) == [
        RECORDS[3],
        RECORDS[7],
    ]


@pytest.mark.parametrize("size", [1, 5, 30, 100])
def test_a_batch_that_ends_inside_a_record_is_refused(size: int) -> None:
    data = encode_batch(RECORDS, base_offset=50)
    cut = seal(read_header(data), data[61:-size])[1]

    with pytest.raises((CorruptBatch, InvalidBatch)):
        decode_selected(cut, lambda offset: True, decompressed_bytes_max=2**20)

import pytest

from millstream.errors import DamagedLog
from millstream.storage.log.index import PROOF_BYTES, Proof, Table, decode_proof, encode_index

PROOF = Proof(
    base_offset=90,
    first_offset=100,
    end_offset=2**40,
    size=5_000,
    opened_ms=7,
    max_timestamp=2**50,
    last_position=4_000,
    last_base_offset=2**40 - 1,
    last_epoch=3,
    last_crc=2**32 - 1,
    widest=0,
    entry_count=0,
    entries_crc=0,
)


def table() -> Table:
    made = Table()
    made.add(100, 0, -1)
    made.add(110, 1_000, 50)
    made.add(2**32, 4_000, 50)
    return made


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, 0), (100, 0), (109, 0), (110, 1), (2**32 - 1, 1), (2**40, 2)]
)
def test_an_offset_leads_to_the_last_entry_at_or_before_it(offset: int, expected: int) -> None:
    assert table().floor_offset(offset) == expected


@pytest.mark.parametrize(("position", "expected"), [(0, 0), (999, 0), (1_000, 1), (9_999, 2)])
def test_a_position_leads_to_the_last_entry_at_or_before_it(position: int, expected: int) -> None:
    assert table().floor_position(position) == expected


@pytest.mark.parametrize(("timestamp", "expected"), [(-1, 0), (0, 0), (50, 0), (51, 2)])
def test_a_time_leads_to_the_last_entry_with_only_older_batches_before_it(
    timestamp: int, expected: int
) -> None:
    assert table().floor_time(timestamp) == expected


def test_the_widest_stretch_is_remembered_and_found_again_after_a_cut() -> None:
    whole = table()

    assert whole.widest == 3_000
    assert whole.cut(4_000).widest == 1_000
    assert whole.cut(4_001).widest == 3_000
    assert len(whole.cut(1)) == 1


def test_an_index_reads_back_as_it_was_written() -> None:
    data = b"".join(encode_index(PROOF, table()))

    proof = decode_proof(data[:PROOF_BYTES])
    read = Table.decode(data[PROOF_BYTES:], proof)

    assert proof._replace(widest=0, entry_count=0, entries_crc=0) == PROOF
    assert [read.offset(at) for at in range(3)] == [100, 110, 2**32]
    assert list(read.positions) == [0, 1_000, 4_000]
    assert list(read.times) == [-1, 50, 50]
    assert read.widest == 3_000


def test_an_index_is_little_endian_and_takes_16_bytes_an_entry() -> None:
    data = b"".join(encode_index(PROOF, table()))

    assert len(data) == PROOF_BYTES + 3 * 16
    assert data[PROOF_BYTES : PROOF_BYTES + 8] == bytes([0, 0, 0, 0, 10, 0, 0, 0])


def test_no_flipped_bit_goes_unseen() -> None:
    data = bytearray(b"".join(encode_index(PROOF, table())))

    for at in range(len(data)):
        data[at] ^= 1 << (at % 8)
        with pytest.raises(DamagedLog):
            Table.decode(bytes(data[PROOF_BYTES:]), decode_proof(bytes(data[:PROOF_BYTES])))
        data[at] ^= 1 << (at % 8)


def test_no_cut_goes_unseen() -> None:
    data = b"".join(encode_index(PROOF, table()))

    for size in range(len(data)):
        cut = data[:size]
        with pytest.raises(DamagedLog):
            Table.decode(cut[PROOF_BYTES:], decode_proof(cut[:PROOF_BYTES]))

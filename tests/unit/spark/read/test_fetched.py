"""Which batches of a fetched piece a reader sees."""

import pytest

from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, encode_marker
from millstream.codec.records import Record
from millstream.errors import CorruptBatch
from millstream.kafka_client.answers import Aborted
from millstream.spark.read.fetched import PIECE_BYTES_MAX, open_batches, select

FOREVER = 2**63 - 1


def batch(base: int, count: int, *, producer: int = -1, codec: Codec = Codec.NONE) -> bytes:
    return encode_batch(
        [Record(base + i, 5, None, b"value") for i in range(count)],
        base_offset=base,
        codec=codec,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        is_transactional=producer >= 0,
    )


def marker(base: int, kind: ControlKind, producer: int) -> bytes:
    return encode_marker(
        kind,
        producer_id=producer,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=5,
        base_offset=base,
    )


def bases(raw: bytes, *, start: int = 0, end: int = FOREVER, aborted: tuple[Aborted, ...] = ()):
    selected = select(raw, start=start, end=end, aborted=aborted)
    return [header.base_offset for header, _ in selected.batches], selected.next_offset


def test_markers_are_no_rows_but_take_their_offset() -> None:
    raw = batch(0, 2, producer=7) + marker(2, ControlKind.COMMIT, 7) + batch(3, 1)

    assert bases(raw) == ([0, 3], 4)


def test_an_aborted_transaction_is_skipped_and_no_other() -> None:
    raw = (
        batch(0, 1, producer=7)
        + batch(1, 1, producer=8)
        + batch(2, 1)
        + marker(3, ControlKind.ABORT, 7)
        + marker(4, ControlKind.COMMIT, 8)
        + batch(5, 1, producer=7)
        + marker(6, ControlKind.COMMIT, 7)
    )

    assert bases(raw, aborted=(Aborted(7, 0),)) == ([1, 2, 5], 7)


def test_what_a_producer_wrote_before_the_aborted_transaction_is_seen() -> None:
    raw = (
        batch(0, 1, producer=7)
        + marker(1, ControlKind.COMMIT, 7)
        + batch(2, 1, producer=7)
        + marker(3, ControlKind.ABORT, 7)
    )

    assert bases(raw, aborted=(Aborted(7, 2),)) == ([0], 4)


def test_two_aborted_transactions_of_one_producer_are_both_skipped() -> None:
    raw = (
        batch(0, 1, producer=7)
        + marker(1, ControlKind.ABORT, 7)
        + batch(2, 1, producer=7)
        + marker(3, ControlKind.ABORT, 7)
        + batch(4, 1)
    )

    assert bases(raw, aborted=(Aborted(7, 2), Aborted(7, 0))) == ([4], 5)


def test_a_batch_that_was_cut_off_is_left_for_the_next_piece() -> None:
    whole = batch(0, 3)

    assert bases(whole + batch(3, 3)[:-1]) == ([0], 3)


def test_a_piece_without_one_whole_batch_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="without one whole batch"):
        select(batch(0, 3)[:-1], start=0, end=FOREVER)


def test_a_damaged_batch_is_refused() -> None:
    raw = bytearray(batch(0, 3))
    raw[-1] ^= 1

    with pytest.raises(CorruptBatch, match="checksum"):
        select(raw, start=0, end=FOREVER)


def test_a_range_whose_end_is_a_gap_is_done_at_the_first_batch_behind_it() -> None:
    raw = batch(0, 2) + batch(10, 2)

    assert bases(raw, end=5) == ([0], 10)


def test_batches_before_the_range_are_not_opened() -> None:
    raw = batch(0, 2) + batch(2, 2) + batch(4, 2)

    assert bases(raw, start=3, end=4) == ([2], 4)


def test_nothing_fetched_is_no_progress() -> None:
    assert bases(b"", start=3) == ([], 3)


def test_plain_batches_are_not_copied() -> None:
    raw = batch(0, 2) + batch(2, 2)

    ((data, payloads),) = open_batches(raw, select(raw, start=0, end=FOREVER).batches)

    assert memoryview(data).obj is raw
    assert [payload.header.base_offset for payload in payloads] == [0, 2]


def test_plain_and_compressed_batches_mix() -> None:
    raw = batch(0, 2) + batch(2, 2, codec=Codec.GZIP) + batch(4, 2) + batch(6, 2, codec=Codec.ZSTD)

    pieces = list(open_batches(raw, select(raw, start=0, end=FOREVER).batches))

    assert [[p.header.base_offset for p in payloads] for _, payloads in pieces] == [[0], [2, 4, 6]]


def test_what_expands_is_handed_out_in_pieces() -> None:
    large = Record(0, 5, None, bytes(PIECE_BYTES_MAX // 2 + 1))
    raw = b"".join(
        encode_batch([large._replace(offset=i)], base_offset=i, codec=Codec.LZ4) for i in range(3)
    )

    pieces = list(open_batches(raw, select(raw, start=0, end=FOREVER).batches))

    assert [len(payloads) for _, payloads in pieces] == [1, 1, 1]

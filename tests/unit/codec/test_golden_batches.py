"""The bytes of `tests/golden/batches`, written out for people, against what we read and write."""

from functools import partial

from millstream.codec.batch import verify_batch
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, Marker, decode_marker, encode_marker
from millstream.codec.records import Record, decode_all
from tests.support.golden import read_bytes

golden = partial(read_bytes, "batches")


def test_nulls_and_gaps_have_their_own_spelling() -> None:
    raw = golden("nulls_and_gaps_have_their_own_spelling")
    expected = [
        Record(100, 1_700_000_000_000, b"key", b"value", (("trace", b"\x01"), ("note", None))),
        Record(102, 1_700_000_000_500, None, b""),
        Record(103, 1_699_999_999_999, b"", None),
    ]

    assert decode_all(raw, decompressed_bytes_max=0) == expected
    built = encode_batch(
        expected, base_offset=100, epoch=5, producer_id=9, producer_epoch=1, base_sequence=40
    )
    assert built == raw


def test_a_commit_marker_is_a_control_batch_of_one_record() -> None:
    raw = golden("a_commit_marker_is_a_control_batch_of_one_record")

    assert decode_marker(raw) == Marker(ControlKind.COMMIT, 9, 1, 3)
    assert verify_batch(raw).end_offset == 105
    built = encode_marker(
        ControlKind.COMMIT,
        producer_id=9,
        producer_epoch=1,
        coordinator_epoch=3,
        timestamp=1_700_000_000_000,
        base_offset=104,
        epoch=5,
    )
    assert built == raw

"""What a client sees of a slice: the records that are no markers, and where it goes on."""

from millstream.codec.batch import Header, verify_batches
from millstream.codec.records import decode_all
from millstream.engine.partitions.slices import Slice


def shown(part: Slice) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the records that are no markers."""
    assert part.error is None
    data = b"" if part.records is None else part.records.read()
    records, at = [], 0
    for header in verify_batches(data):
        if not header.is_control:
            decoded = decode_all(data, at, decompressed_bytes_max=2**24)
            records += [(record.offset, record.value) for record in decoded]
        at += header.size
    return records


def headers_of(part: Slice) -> list[Header]:
    return [] if part.records is None else verify_batches(part.records.read())


def next_offset(part: Slice, offset: int) -> int:
    """Where a client goes on that knows nothing but the batches it got."""
    return headers_of(part)[-1].end_offset if part.records is not None else offset

"""Some records of a batch, found without decoding the others.

Owns the walk from length to length, which costs a tenth of decoding: for who looks up single
records by their offsets, or by bytes that stand in them. What is passed over is not checked.
"""

from collections.abc import Callable, Iterator

from millstream.codec.batch import Header
from millstream.codec.primitives import read_varint, read_varlong
from millstream.codec.records import STEP_BYTES
from millstream.codec.scanning import Record, open_batch, scan
from millstream.errors import CorruptBatch, ProtocolError
from millstream.model import Buffer


def pick(
    buffer: Buffer, wants: Callable[[int], bool], *, decompressed_bytes_max: int
) -> list[Record]:
    """Verify the batch and decode its records whose offsets are wanted."""
    header, data = open_batch(buffer, 0, decompressed_bytes_max)
    is_dense = header.count == header.last_offset_delta + 1
    one = header._replace(count=1)
    found: list[Record] = []
    at = 0
    for index in range(header.count):
        start = at
        body_at, at = _next(data, at)
        try:
            delta = index if is_dense else _delta(data, body_at)
        except IndexError:
            raise CorruptBatch("the data ends inside a record") from None
        if wants(header.base_offset + delta):
            found += [record for record, *_ in scan(one, data[start:at], utf8_errors="replace")]
    return found


def pick_stretches(header: Header, data: bytes, needle: bytes) -> Iterator[list[Record]]:
    """Decode the stretches of uncompressed records in which `needle` stands, one after the other.

    They are of `STEP_BYTES`, so that others can have a turn in between; of the rest there is
    nothing in the list.
    """
    at, left = 0, header.count
    while left:
        start, count = at, 0
        while left > count and at - start < STEP_BYTES:
            _, at = _next(data, at)
            count += 1
        left -= count
        if data.find(needle, start, at) < 0:
            yield []
            continue
        part = scan(header._replace(count=count), data[start:at], utf8_errors="replace")
        yield [record for record, *_ in part]


def _next(data: bytes, at: int) -> tuple[int, int]:
    """Where the record at `at` has its attributes, and where it ends."""
    start = at
    try:
        length, at = read_varint(data, at)
    except (IndexError, ProtocolError):
        raise CorruptBatch("the data ends inside a record") from None
    end = at + length
    if length < 0 or end > len(data):
        raise CorruptBatch(f"record of {length} bytes in {len(data) - start}")
    return at, end


def _delta(data: bytes, at: int) -> int:
    """The offset delta of a record whose attributes are at `at`."""
    _, at = read_varlong(data, at + 1)
    delta, _ = read_varint(data, at)
    return delta

"""A few records from anywhere in a batch, without reading the others.

Owns a third way to read a batch, for those who take some records at a time and come back for more:
what lies before them is stepped over by its length. What lies behind them is not looked at, so what
is wrong there is found by whoever gets that far; the checksum covers all of it.
"""

from itertools import islice

from millstream.codec.batch import Header
from millstream.codec.primitives import read_varint
from millstream.codec.scanning import Opened, Record, open_batch, scan
from millstream.errors import CorruptBatch, ProtocolError
from millstream.model import Buffer


def read_some(
    buffer: Buffer,
    at: int,
    offset: int,
    count_max: int,
    *,
    decompressed_bytes_max: int,
    opened: Opened | None = None,
) -> list[Record]:
    """Verify the batch at `at` and decode at most `count_max` of its records from `offset` on;
    `opened` if it was unpacked before."""
    header, data = opened or open_batch(buffer, at, decompressed_bytes_max)
    passed = _passed(header, offset)
    rest = header._replace(count=header.count - passed)
    found = scan(rest, data[_step_over(data, passed) :], utf8_errors="replace")
    wanted = (record for record, _, _, _ in found if record.offset >= offset)
    return list(islice(wanted, count_max))


def _passed(header: Header, offset: int) -> int:
    """How many records surely lie before the offset: known only where there are no gaps."""
    if header.count != header.last_offset_delta + 1:
        return 0
    return min(max(0, offset - header.base_offset), header.count)


def _step_over(data: bytes, count: int) -> int:
    at = 0
    try:
        for _ in range(count):
            low = data[at]
            if low < 0x80 and not low & 1:
                at += 1 + (low >> 1)
                continue
            length, at = read_varint(data, at)
            if length < 0:
                raise CorruptBatch(f"record of {length} bytes")
            at += length
    except (IndexError, ProtocolError):
        raise CorruptBatch("the data ends inside a record") from None
    return at

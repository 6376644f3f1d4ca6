"""All records of a batch at once, as fast as Python reads them.

Owns a second way to read a batch, for those who hand every record on: it reads what nearly all
batches hold and leaves everything else to `records`. The one thing to know: it decides nothing. As
soon as anything is unusual, the batch is read again by the careful way, which reads or refuses it.
"""

from millstream.codec.batch import Header
from millstream.codec.primitives import read_varint
from millstream.codec.records import Record, records
from millstream.codec.scanning import Opened, open_batch, read_headers
from millstream.errors import CorruptBatch, InvalidBatch, ProtocolError
from millstream.model import Buffer


class _Unusual(Exception):
    """Something that the fast way does not know."""


def read_batch(
    buffer: Buffer, at: int = 0, *, decompressed_bytes_max: int, opened: Opened | None = None
) -> list[Record]:
    """Verify the batch at `at` and decode all its records; `opened` if it was unpacked before."""
    header, data = opened or open_batch(buffer, at, decompressed_bytes_max)
    if not header.has_log_append_time:
        try:
            return _read_all(header, data)
        except (_Unusual, IndexError, CorruptBatch, InvalidBatch, ProtocolError):
            pass  # The careful way knows what is wrong, if anything is.
    return records(buffer, at, decompressed_bytes_max=decompressed_bytes_max)


def _read_all(header: Header, data: bytes) -> list[Record]:
    """Neighbours mostly have the same headers: what is spelled alike is read once."""
    base_offset, timestamp = header.base_offset, header.base_timestamp
    last_delta, data_size = header.last_offset_delta, len(data)
    new_record = tuple.__new__
    found = []
    raw_headers = b"\0"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    previous = -1
    at = 0
    for _ in range(header.count):
        size, at = _length(data, at)
        end = at + size
        if end > data_size or data[at + 1]:
            raise _Unusual  # Too long, or with a time of its own.
        delta, at = _length(data, at + 2)
        if not previous < delta <= last_delta:
            raise _Unusual
        previous = delta
        if data[at] == 1:
            key, at = None, at + 1
        else:
            size, at = _length(data, at)
            key, at = data[at : at + size], at + size
        if data[at] == 1:
            value, at = None, at + 1
        else:
            size, at = _length(data, at)
            value, at = data[at : at + size], at + size
        if at >= end:
            raise _Unusual
        if data[at:end] != raw_headers:
            raw_headers = data[at:end]
            headers, read_to = read_headers(data, at, end, "replace")
            if read_to != end:
                raise _Unusual
        at = end
        found.append(new_record(Record, (base_offset + delta, timestamp, key, value, headers)))
    if at != data_size:
        raise _Unusual
    return found


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A number that cannot be negative, most often of one or two bytes."""
    low = data[at]
    if low < 0x80:
        if low & 1:
            raise _Unusual
        return low >> 1, at + 1
    high = data[at + 1]
    if high < 0x80:
        if low & 1:
            raise _Unusual
        return high << 6 | (low & 0x7F) >> 1, at + 2
    value, at = read_varint(data, at)
    if value < 0:
        raise _Unusual
    return value, at

"""Rewrites a batch without its filtered-out records, or under another compression codec.

Invariant: offsets do not move, and the bytes of every kept record stay as the producer wrote them;
only a delete horizon replaces the timestamp deltas.
"""

from collections.abc import Callable, Generator

from millstream.codec.batch import CODEC_BITS, DELETE_HORIZON, seal
from millstream.codec.compression import Codec, compress
from millstream.codec.encoding import write_record
from millstream.codec.records import (
    INT64_MIN,
    NO_REQUIRED_SUBSTRINGS,
    STEP_BYTES,
    Record,
    RequiredSubstrings,
    Unpacked,
    scan_records,
    verify_and_unpack,
)
from millstream.cooperative import all_at_once
from millstream.model import Buffer


def filter_batch(
    buffer: Buffer,
    keep: Callable[[Record], bool],
    *,
    decompressed_bytes_max: int,
    prefilter: Callable[[bytes], bool | None] | None = None,
    keep_empty: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes | None:
    """Drop the records that `keep` refuses; None if none is left, unless `keep_empty`.

    Offsets do not move: base offset, last offset, epoch, producer and codec stay, and so do the
    bytes of every kept record. A delete horizon is set once, when there is none yet. `prefilter`
    gets the uncompressed bytes of all records; it returns True to keep all, False to drop all, and
    None to test each record.
    """
    steps = filter_steps(
        buffer,
        keep,
        decompressed_bytes_max=decompressed_bytes_max,
        prefilter=prefilter,
        keep_empty=keep_empty,
        delete_horizon_ms=delete_horizon_ms,
    )
    return all_at_once(steps)


def filter_steps(
    buffer: Buffer,
    keep: Callable[[Record], bool],
    *,
    decompressed_bytes_max: int,
    unpacked: Unpacked | None = None,
    prefilter: Callable[[bytes], bool | None] | None = None,
    required: RequiredSubstrings = NO_REQUIRED_SUBSTRINGS,
    keep_empty: bool = False,
    trims: bool = False,
    delete_horizon_ms: int | None = None,
) -> Generator[None, None, bytes | None]:
    """The same in steps of `STEP_BYTES`, for callers on the event loop.

    `unpacked` is the batch as `verify_and_unpack` returned it, if it was unpacked before. With
    `required` records without one of the substrings are dropped, and `keep` is not called for them.
    With `trims` a batch that lost its last records ends at the last record that it kept.
    """
    header, data = unpacked or verify_and_unpack(buffer, 0, decompressed_bytes_max)
    verdict = None if prefilter is None else prefilter(data)
    if verdict:
        return bytes(memoryview(buffer)[: header.size])
    horizon = None if header.has_delete_horizon else delete_horizon_ms
    body = bytearray()
    count = 0
    newest = INT64_MIN
    stepped = last_offset = 0
    scanned = () if verdict is False else scan_records(header, data, required=required)
    for record, start, delta_at, end in scanned:
        if start - stepped > STEP_BYTES:
            stepped = start
            yield
        if not keep(record):
            continue
        count += 1
        last_offset = record.offset
        newest = max(newest, record.timestamp)
        if horizon is None:
            body += data[start:end]
        else:
            write_record(body, record.timestamp - horizon, data[delta_at:end])
    if count == 0:
        if not keep_empty:
            return None
        return seal(header._replace(attributes=header.attributes & ~CODEC_BITS, count=0), b"")[1]
    if count == header.count and horizon is None:
        return bytes(memoryview(buffer)[: header.size])
    header = header._replace(count=count)
    if trims:
        header = header._replace(last_offset_delta=last_offset - header.base_offset)
    if not header.has_log_append_time:
        header = header._replace(max_timestamp=newest)
    if horizon is not None:
        # It takes the place of the base timestamp, so the deltas count from it.
        attributes = header.attributes | DELETE_HORIZON
        header = header._replace(attributes=attributes, base_timestamp=horizon)
    return seal(header, compress(header.codec, body))[1]


def recompress(
    buffer: Buffer, codec: Codec, *, decompressed_bytes_max: int, level: int | None = None
) -> bytes:
    """Compress the same records with another codec, without decoding them."""
    header, data = verify_and_unpack(buffer, 0, decompressed_bytes_max)
    attributes = header.attributes & ~CODEC_BITS | codec
    return seal(header._replace(attributes=attributes), compress(codec, data, level=level))[1]

"""Prepares a batch for its topic: checks it, stamps its time, recompresses it.

Owns the rules of Kafka's produce path that depend on the topic's settings. The common case reads
61 bytes and computes one checksum; records are decoded only where a setting asks about them.
Pure: a function of bytes, settings and the time passed in.
"""

from typing import NamedTuple

from millstream.codec.batch import (
    HEADER_BYTES,
    RECORD_BYTES_MIN,
    Header,
    stamp_time,
    verify_produced,
)
from millstream.codec.compression import Codec, decompress_small
from millstream.codec.records import verify_records
from millstream.codec.rewrite import recompress
from millstream.engine.produce.unpacking import NotSmall
from millstream.errors import BatchTooLarge, InvalidBatch, InvalidRecords, InvalidTimestamp
from millstream.model import Buffer
from millstream.settings import CompressionType, TimestampType, TopicSettings, ValidationType

NO_TIMESTAMP = -1
# Where records are read, these are in one step of the event loop: 2 ms, or 6 ms to compress them.
SMALL_RECORDS_MAX = 2_000
SMALL_BYTES_MAX = 256 * 2**10

CODECS: dict[CompressionType, Codec] = {
    CompressionType.UNCOMPRESSED: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}


class Admitted(NamedTuple):
    header: Header
    data: Buffer


def admit_batch(
    data: Buffer,
    settings: TopicSettings,
    *,
    now_ms: int,
    decompressed_bytes_max: int,
    is_on_loop: bool = False,
    header: Header | None = None,
) -> Admitted:
    """Return the batch as it will be stored, short of its offset and epoch, or refuse it.

    With `is_on_loop` raises `NotSmall` for a batch whose records take long to read. A batch that
    the broker encoded itself comes with its `header`, and is not verified.
    """
    if header is None:
        header = verify_produced(data, size_max=settings.max_message_bytes)
    elif header.size > settings.max_message_bytes:
        raise BatchTooLarge(header.size, settings.max_message_bytes)
    if header.size > settings.segment_bytes:
        raise BatchTooLarge(header.size, settings.segment_bytes)
    if header.count * RECORD_BYTES_MIN > decompressed_bytes_max:
        raise InvalidBatch(f"{header.count} records, more than a batch may hold unpacked")
    if (
        settings.message_validation_type is ValidationType.RECORDS
        or settings.compression_type is not CompressionType.PRODUCER
        or settings.cleanup_policy.compacts
    ):
        if is_on_loop and _reads_records(header, settings) and not _is_small(header, data):
            raise NotSmall
        header, data = _apply_record_rules(header, data, settings, decompressed_bytes_max)
    if settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        header, data = stamp_time(data, header, now_ms)
    else:
        _check_times(header, settings, now_ms)
    return Admitted(header, data)


def _apply_record_rules(
    header: Header, data: Buffer, settings: TopicSettings, decompressed_bytes_max: int
) -> Admitted:
    if settings.cleanup_policy.compacts:
        _check_keys(data, decompressed_bytes_max)
    elif settings.message_validation_type is ValidationType.RECORDS:
        verify_records(data, decompressed_bytes_max=decompressed_bytes_max)
    if settings.compression_type is not CompressionType.PRODUCER:
        codec = CODECS[settings.compression_type]
        if codec is not header.codec:
            return _recompress(data, codec, settings, decompressed_bytes_max)
    return Admitted(header, data)


def compression_level(settings: TopicSettings) -> int | None:
    """The level of the codec in `compression_type`; None where that codec has no levels."""
    match settings.compression_type:
        case CompressionType.GZIP:
            return settings.compression_gzip_level
        case CompressionType.LZ4:
            return settings.compression_lz4_level
        case CompressionType.ZSTD:
            return settings.compression_zstd_level
        case _:
            return None


def _reads_records(header: Header, settings: TopicSettings) -> bool:
    return (
        settings.cleanup_policy.compacts
        or settings.message_validation_type is ValidationType.RECORDS
        or (
            settings.compression_type is not CompressionType.PRODUCER
            and CODECS[settings.compression_type] is not header.codec
        )
    )


def _is_small(header: Header, data: Buffer) -> bool:
    if header.count > SMALL_RECORDS_MAX or header.size > SMALL_BYTES_MAX:
        return False
    if header.codec is Codec.NONE:
        return True
    packed = memoryview(data)[HEADER_BYTES : header.size]
    return decompress_small(header.codec, packed, size_max=SMALL_BYTES_MAX) is not None


def _check_keys(data: Buffer, decompressed_bytes_max: int) -> None:
    """A compacted topic keeps the newest record per key, so each record needs one."""
    keyless = verify_records(data, decompressed_bytes_max=decompressed_bytes_max)
    if keyless:
        raise InvalidRecords("has no key, but its topic is compacted", keyless)


def _recompress(
    data: Buffer, codec: Codec, settings: TopicSettings, decompressed_bytes_max: int
) -> Admitted:
    verify_records(data, decompressed_bytes_max=decompressed_bytes_max)
    rebuilt = recompress(
        data,
        codec,
        decompressed_bytes_max=decompressed_bytes_max,
        level=compression_level(settings),
    )
    return Admitted(verify_produced(rebuilt, size_max=settings.max_message_bytes), rebuilt)


def _check_times(header: Header, settings: TopicSettings, now_ms: int) -> None:
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp == NO_TIMESTAMP:
            continue
        if timestamp - now_ms > settings.message_timestamp_after_max_ms:
            raise InvalidTimestamp(
                f"timestamp {timestamp} is more than {settings.message_timestamp_after_max_ms} ms "
                f"after the broker's time {now_ms}"
            )
        if now_ms - timestamp > settings.message_timestamp_before_max_ms:
            raise InvalidTimestamp(
                f"timestamp {timestamp} is more than {settings.message_timestamp_before_max_ms} ms "
                f"before the broker's time {now_ms}"
            )

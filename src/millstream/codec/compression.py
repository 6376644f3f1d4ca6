"""Compresses and decompresses with the four codecs of Kafka, within a bound.

Owns the forms that Kafka's clients write and read, where they differ from a library's defaults, and
the ratio that a batch may unpack to.

Invariant: no size that a producer claims is allocated before it is proven. `size_max` bounds memory
while decompressing, not after it, and bytes behind the compressed data are refused.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from struct import Struct
from typing import Any

import lz4.frame

from millstream.errors import CorruptBatch, Overloaded, UnpackedTooLarge
from millstream.model import Buffer


class Codec(IntEnum):
    """The compression of a batch; the value is the one in its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS = tuple(Codec)

# A batch may unpack to `RATIO_MAX` times its size, or to `RATIO_FREE_BYTES` if that is more. gzip
# reaches 1,032, lz4 255, snappy 21, zstd tens of thousands. Java's producer fills a batch up to its
# compressed size, so 16 KiB of records that are all alike do become 16 MiB.
RATIO_MAX = 1_024
RATIO_FREE_BYTES = 16 * 2**20
# Members, chunks or frames that follow each other in one batch cost a microsecond of Python each.
PIECES_MAX = 16_384
# Unpacked in one step of the event loop: 0.5 ms of gzip, 0.6 ms of the others (text, one core of
# 2026-11). Larger batches of normal producers gain nothing from a thread below this.
SMALL_BYTES_MAX = {
    Codec.NONE: 2**20,
    Codec.GZIP: 2**18,
    Codec.SNAPPY: 2**20,
    Codec.LZ4: 2**20,
    Codec.ZSTD: 2**20,
}
SMALL_PIECES_MAX = 256


class _TooManyPieces(Exception):
    """The data has more pieces than the limit."""


def compress(codec: Codec, data: Buffer, *, level: int | None = None) -> Buffer:
    """Compress as Kafka's own producer does, so that every client can read it.

    The level is in Kafka's scale for the codec; None: Kafka's default.
    """
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: Buffer, *, size_max: int) -> bytes:
    """Decompress to at most `size_max` bytes.

    Raises `UnpackedTooLarge` for more, and `CorruptBatch` for bytes that the codec did not write.
    Uncompressed bytes are in memory already: no bound applies to them.
    """
    try:
        return _DECOMPRESS[codec](data, size_max, PIECES_MAX)
    except _TooManyPieces as problem:
        raise CorruptBatch(str(problem)) from None


def decompress_small(codec: Codec, data: Buffer, *, size_max: int) -> bytes | None:
    """Decompress within a millisecond or so; None for a batch that must go to a thread.

    None also for a batch beyond `size_max`: `decompress` raises its error.
    """
    small = SMALL_BYTES_MAX[codec]
    if len(data) > small:
        return None
    try:
        return _DECOMPRESS[codec](data, min(size_max, small), SMALL_PIECES_MAX)
    except (UnpackedTooLarge, _TooManyPieces):
        return None


def unpacked_bytes_max(packed_bytes: int, limit: int) -> int:
    """The most that so many compressed bytes may become where `limit` holds."""
    return min(limit, max(RATIO_FREE_BYTES, RATIO_MAX * packed_bytes))


# -- gzip ------------------------------------------------------------------------------------------

_GZIP = 16 + zlib.MAX_WBITS
# zlib copies the bytes behind a member. Small chunks keep many tiny members from costing a copy of
# the whole batch each.
_GZIP_CHUNK_BYTES = 16 * 1024


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    # Not gzip.compress: that writes the time into the header.
    level = zlib.Z_DEFAULT_COMPRESSION if level is None else level
    stream = zlib.compressobj(level, wbits=_GZIP)
    return stream.compress(data) + stream.flush()


def _decompress_gzip(data: Buffer, size_max: int, pieces_max: int) -> bytes:
    view = memoryview(data)
    out = bytearray()
    at = members = 0
    while at < len(view) or at == 0:
        members += 1
        if members > pieces_max:
            raise _TooManyPieces(f"gzip data of more than {pieces_max} members")
        member = zlib.decompressobj(wbits=_GZIP)
        while not member.eof:
            chunk = view[at : at + _GZIP_CHUNK_BYTES]
            if not chunk:
                raise CorruptBatch("gzip data ends inside a member")
            try:
                out += member.decompress(chunk, size_max + 1 - len(out))
            except zlib.error as problem:
                raise CorruptBatch(f"gzip: {problem}") from None
            if len(out) > size_max:
                raise UnpackedTooLarge(size_max)
            at += len(chunk) - len(member.unused_data)
    return bytes(out)


# -- the library of snappy and zstd ----------------------------------------------------------------


@cache
def _cramjam() -> Any:  # A module has no type that says more.
    """Loaded by the first batch that needs it: 1.4 MB of memory.

    Raises `Overloaded` while there is no descriptor or memory to load it with.
    """
    try:
        import cramjam
    except (ImportError, OSError) as problem:
        raise Overloaded(f"the library of snappy and zstd cannot be loaded: {problem}") from None
    return cramjam


# -- snappy ----------------------------------------------------------------------------------------

# Java writes snappy in the framing of the xerial library: this magic, two versions, then chunks
# behind their lengths. librdkafka and Go clients write one raw block. The magic is no raw block:
# its third byte would be a copy from before the start.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + bytes((0, 0, 0, 1)) + bytes((0, 0, 0, 1))
_XERIAL_CHUNK_BYTES = 32 * 1024
_XERIAL_LENGTH = Struct(">i")
# The densest element of the format: three bytes that copy 64.
_SNAPPY_DENSEST = (64, 3)


def _compress_snappy(data: Buffer, _: int | None) -> bytes:
    cramjam = _cramjam()
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_CHUNK_BYTES]))
        parts += (_XERIAL_LENGTH.pack(len(chunk)), chunk)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, size_max: int, pieces_max: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, size_max, size_max)
    at = len(_XERIAL_HEADER)
    if len(view) < at:
        raise CorruptBatch("snappy data ends inside its header")
    chunks: list[bytes] = []
    room = size_max
    while at < len(view):
        if len(chunks) == pieces_max:
            raise _TooManyPieces(f"snappy data of more than {pieces_max} chunks")
        if len(view) - at < _XERIAL_LENGTH.size:
            raise CorruptBatch("snappy data ends inside a length")
        (length,) = _XERIAL_LENGTH.unpack_from(view, at)
        at += _XERIAL_LENGTH.size
        if not 0 < length <= len(view) - at:
            raise CorruptBatch(f"snappy chunk of {length} bytes, {len(view) - at} are there")
        chunks.append(_decompress_snappy_block(view[at : at + length], room, size_max))
        room -= len(chunks[-1])
        at += length
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _decompress_snappy_block(block: memoryview, room: int, size_max: int) -> bytes:
    cramjam = _cramjam()
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > room:
            raise UnpackedTooLarge(size_max)
        most, least = _SNAPPY_DENSEST
        if claimed * least > len(block) * most:
            raise CorruptBatch(f"snappy block of {len(block)} bytes claims to hold {claimed}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as problem:
        raise CorruptBatch(str(problem)) from None


# -- lz4 -------------------------------------------------------------------------------------------

_LZ4_RATIO_MAX = 256  # No byte of a frame stands for more than 255.


_LZ4_FAST_LEVEL = 9  # Of Kafka's levels, the default: its fast compressor, the library's level 0.


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    is_fast = level is None or level == _LZ4_FAST_LEVEL
    # Java's reader refuses linked blocks, which are the library's default.
    frame: bytes = lz4.frame.compress(
        data, 0 if is_fast else level, block_linked=False, store_size=False
    )
    return frame


def _decompress_lz4(data: Buffer, size_max: int, pieces_max: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        # The library reserves the room it is allowed to fill: for small data less is faster.
        room = min(size_max, _LZ4_RATIO_MAX * len(data))
        out: bytes = stream.decompress(data, max_length=room + 1)
    except RuntimeError as problem:
        raise CorruptBatch(f"lz4: {problem}") from None
    if len(out) > size_max:
        raise UnpackedTooLarge(size_max)
    if not stream.eof:
        raise CorruptBatch("lz4 data ends inside the frame")
    if stream.unused_data:
        raise CorruptBatch("bytes behind the lz4 frame")
    return out


# -- zstd ------------------------------------------------------------------------------------------

_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_RLE, _ZSTD_COMPRESSED, _ZSTD_RESERVED = 1, 2, 3
_ZSTD_CHECKSUM = 0x04
_ZSTD_SINGLE_SEGMENT = 0x20
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZE_BYTES = (0, 2, 4, 8)


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return bytes(_cramjam().zstd.compress(data, level=level))


def _decompress_zstd(data: Buffer, size_max: int, pieces_max: int) -> bytes:
    cramjam = _cramjam()
    bound = _zstd_bound(data, size_max, pieces_max)
    out = bytearray(min(bound, size_max))
    try:
        size = cramjam.zstd.decompress_into(data, out)
    except cramjam.DecompressionError as problem:
        if bound > size_max:
            raise UnpackedTooLarge(size_max) from None
        raise CorruptBatch(f"zstd: {problem}") from None
    return bytes(memoryview(out)[:size])


def _zstd_bound(data: Buffer, size_max: int, pieces_max: int) -> int:
    """The most that all frames together can hold, by their blocks.

    Java's frames do not say how much they hold, and those that do may lie. Their blocks cannot.
    """
    bound = at = 0
    left = pieces_max
    while at < len(data):
        frame_bound, at, left = _zstd_frame_bound(data, at, left)
        bound += frame_bound
        if left > 0 or at >= len(data):
            continue
        if pieces_max < PIECES_MAX:
            raise _TooManyPieces(f"zstd data of more than {pieces_max} blocks")
        return size_max + 1  # Counting on would cost more than the room.
    return bound


def _zstd_frame_bound(data: Buffer, at: int, blocks_max: int) -> tuple[int, int, int]:
    """The most that the frame at `at` can hold, where it ends, how many blocks may follow: RFC
    8878, section 3.1.1. Stops inside the frame when no block is left to be looked at."""
    if len(data) - at < 6 or data[at : at + 4] != _ZSTD_MAGIC:
        raise CorruptBatch(f"no zstd frame at {at}")
    descriptor = data[at + 4]
    is_single, size_flag = bool(descriptor & _ZSTD_SINGLE_SEGMENT), descriptor >> 6
    # The window, or the shortest content size: one of the two is always there.
    size_at = at + 5 + (not is_single) + _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    size_bytes = _ZSTD_CONTENT_SIZE_BYTES[size_flag] or is_single
    at = size_at + size_bytes
    bound = 0
    is_last = False
    while not is_last:
        if blocks_max == 0:
            return bound, at, 0
        blocks_max -= 1
        if len(data) - at < 3:
            raise CorruptBatch("zstd data ends inside a frame")
        block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        is_last, kind, size = block & 1 == 1, block >> 1 & 3, block >> 3
        if kind == _ZSTD_RESERVED:
            raise CorruptBatch("zstd block of a reserved type")
        bound += _ZSTD_BLOCK_BYTES_MAX if kind == _ZSTD_COMPRESSED else size
        at += 3 + (1 if kind == _ZSTD_RLE else size)
    if size_bytes:
        # The library refuses a frame that holds more or less than it says.
        content = int.from_bytes(data[size_at : size_at + size_bytes], "little")
        bound = min(bound, content + 256 if size_flag == 1 else content)
    return bound, at + (4 if descriptor & _ZSTD_CHECKSUM else 0), blocks_max


_COMPRESS: dict[Codec, Callable[[Buffer, int | None], Buffer]] = {
    Codec.NONE: lambda data, _: data,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}

_DECOMPRESS: dict[Codec, Callable[[Buffer, int, int], bytes]] = {
    Codec.NONE: lambda data, _, __: bytes(data),
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}

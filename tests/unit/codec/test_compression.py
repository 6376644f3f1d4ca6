"""Compression, above all what it refuses. The bombs are real: each would fill 256 MiB or more."""

import gzip
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from struct import pack

import cramjam
import lz4.frame
import pytest
import zstandard

from millstream.codec.compression import (
    PIECES_MAX,
    SMALL_BYTES_MAX,
    SMALL_PIECES_MAX,
    Codec,
    _cramjam,
    compress,
    decompress,
    decompress_small,
)
from millstream.errors import BatchTooLarge, CorruptBatch, Overloaded

MIB = 2**20
CAP = 4 * MIB
# Above what a capped decompression needs, far below what any of the bombs would take.
GROWTH_MAX = 48 * MIB

TEXT = b'{"id": 17, "name": "millstream"} ' * 5_000
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def chunk(block: bytes) -> bytes:
    return pack(">i", len(block)) + block


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def zstd_block(kind: int, size: int, content: bytes, *, is_last: bool = False) -> bytes:
    return (size << 3 | kind << 1 | is_last).to_bytes(3, "little") + content


# -- round trips -----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(range(256)) * 1_000], ids=len)
def test_what_is_compressed_is_decompressed(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)

    assert decompress(codec, compressed, size_max=len(data)) == data
    assert decompress(codec, memoryview(bytearray(compressed)), size_max=CAP) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_text_becomes_smaller(codec: Codec) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 5


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_same_data_is_always_compressed_to_the_same_bytes(codec: Codec) -> None:
    assert compress(codec, TEXT) == compress(codec, bytearray(TEXT))


# -- the forms that clients write ------------------------------------------------------------------


def test_gzip_may_come_in_several_members() -> None:
    members = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(b"tail")

    assert decompress(Codec.GZIP, members, size_max=CAP) == TEXT + b"tail"


def test_many_tiny_gzip_members_do_not_cost_a_copy_of_the_rest_each() -> None:
    members = gzip.compress(b"x") * PIECES_MAX

    assert decompress(Codec.GZIP, members, size_max=CAP) == b"x" * PIECES_MAX


def test_snappy_is_read_raw_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, raw_snappy(TEXT), size_max=CAP) == TEXT


def test_snappy_is_written_in_the_framing_that_java_reads() -> None:
    data = bytes(range(256)) * 300

    framed = bytes(compress(Codec.SNAPPY, data))

    first = raw_snappy(data[: 32 * 1024])
    assert framed.startswith(XERIAL + chunk(first))


def test_the_versions_in_the_snappy_framing_are_not_looked_at() -> None:
    # Redpanda writes them little endian: kafka-python issue 2414.
    framed = b"\x82SNAPPY\x00\x01\x00\x00\x00\x01\x00\x00\x00" + chunk(raw_snappy(TEXT))

    assert decompress(Codec.SNAPPY, framed, size_max=CAP) == TEXT


def test_lz4_is_written_in_independent_blocks_of_unknown_total_as_java_wants_it() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))

    assert not info["block_linked"]
    assert info["content_size"] == 0


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("checked", [True, False])
def test_every_standard_lz4_frame_is_read(linked: bool, sized: bool, checked: bool) -> None:
    frame = lz4.frame.compress(
        TEXT,
        block_linked=linked,
        store_size=sized,
        content_checksum=checked,
        block_checksum=checked,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
    )

    assert decompress(Codec.LZ4, frame, size_max=CAP) == TEXT


def test_a_zstd_frame_without_content_size_is_read_as_java_writes_it() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    frame = stream.compress(TEXT) + stream.flush()
    assert zstandard.frame_content_size(frame) == -1

    assert decompress(Codec.ZSTD, frame, size_max=len(TEXT)) == TEXT


@pytest.mark.parametrize(("level", "checked"), [(1, True), (3, False), (19, True), (22, False)])
def test_every_zstd_level_is_read(level: int, checked: bool) -> None:
    stream = zstandard.ZstdCompressor(level=level, write_checksum=checked).compressobj()
    unsized = stream.compress(TEXT) + stream.flush()
    sized = zstandard.ZstdCompressor(level=level, write_checksum=checked).compress(TEXT)

    assert decompress(Codec.ZSTD, unsized, size_max=CAP) == TEXT
    assert decompress(Codec.ZSTD, sized, size_max=CAP) == TEXT


def test_zstd_may_come_in_several_frames() -> None:
    frames = zstandard.compress(TEXT) + zstandard.compress(b"tail")

    assert decompress(Codec.ZSTD, frames, size_max=CAP) == TEXT + b"tail"


@pytest.mark.parametrize("size", [1, 255, 256, 65_791, 65_792, 300_000])
def test_zstd_is_read_whatever_the_width_of_its_content_size(size: int) -> None:
    data = (TEXT * 2)[:size]

    assert decompress(Codec.ZSTD, zstandard.compress(data), size_max=size) == data


# -- garbage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("garbage", [b"", b"\1", b"garbage", b"\xff" * 100], ids=repr)
def test_garbage_is_corrupt(codec: Codec, garbage: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, garbage, size_max=CAP)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("tail", [b"\0", b"garbage" * 3])
def test_bytes_behind_the_compressed_data_are_corrupt(codec: Codec, tail: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, bytes(compress(codec, TEXT)) + tail, size_max=CAP)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_that_ends_early_is_corrupt(codec: Codec) -> None:
    whole = bytes(compress(codec, TEXT))

    for size in (1, 7, len(whole) // 2, len(whole) - 1):
        with pytest.raises(CorruptBatch):
            decompress(codec, whole[:size], size_max=CAP)


def test_raw_snappy_with_bytes_behind_it_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, raw_snappy(TEXT) + b"\0", size_max=CAP)


def test_two_lz4_frames_are_one_too_many_as_for_java() -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, bytes(compress(Codec.LZ4, TEXT)) * 2, size_max=CAP)


@pytest.mark.parametrize("length", [-1, 0, 100, 2**31 - 1, -(2**31)])
def test_a_snappy_chunk_length_is_not_believed(length: int) -> None:
    framed = XERIAL + pack(">i", length) + raw_snappy(b"some data")

    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, framed, size_max=CAP)


def test_a_gzip_checksum_is_checked() -> None:
    damaged = bytearray(gzip.compress(TEXT))
    damaged[-6] ^= 1

    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, damaged, size_max=CAP)


# -- bombs -----------------------------------------------------------------------------------------


def gzip_bomb() -> bytes:
    """One member of 512 MiB. A full flush makes its parts repeatable; the end is never reached."""
    stream = zlib.compressobj(9, wbits=31)
    start = stream.compress(bytes(MIB)) + stream.flush(zlib.Z_FULL_FLUSH)
    again = stream.compress(bytes(MIB)) + stream.flush(zlib.Z_FULL_FLUSH)
    return start + again * 511


def gzip_members_bomb() -> bytes:
    return gzip.compress(bytes(MIB)) * 512


def raw_snappy_bomb() -> bytes:
    return raw_snappy(bytes(256 * MIB))


def xerial_bomb() -> bytes:
    return XERIAL + chunk(raw_snappy(bytes(MIB))) * 256


def lz4_bomb() -> bytes:
    """512 MiB in one frame: its block of 4 MiB, again and again, without the end mark."""
    frame = lz4.frame.compress(
        bytes(4 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False
    )
    return frame[:7] + frame[7:-4] * 128


def lz4_sized_bomb() -> bytes:
    """A frame that says it holds as much as it does: 512 MiB."""
    stream = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
    return bytes(stream.begin(512 * MIB)) + lz4_bomb()[7:]


def zstd_bomb() -> bytes:
    """512 MiB of unsized frame, as a producer's stream would be."""
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join(stream.compress(bytes(MIB)) for _ in range(512)) + stream.flush()


def zstd_frames_bomb() -> bytes:
    return zstandard.compress(bytes(MIB)) * 512


def zstd_run_bomb() -> bytes:
    """512 MiB in 16 kB: every block is one byte and how often it comes."""
    blocks = zstd_block(1, 128 * 1024, b"a") * 4_095
    last = zstd_block(1, 128 * 1024, b"a", is_last=True)
    return bytes.fromhex("28b52ffd0058") + blocks + last


BOMBS: list[tuple[Codec, Callable[[], bytes]]] = [
    (Codec.GZIP, gzip_bomb),
    (Codec.GZIP, gzip_members_bomb),
    (Codec.SNAPPY, raw_snappy_bomb),
    (Codec.SNAPPY, xerial_bomb),
    (Codec.LZ4, lz4_bomb),
    (Codec.LZ4, lz4_sized_bomb),
    (Codec.ZSTD, zstd_bomb),
    (Codec.ZSTD, zstd_frames_bomb),
    (Codec.ZSTD, zstd_run_bomb),
]


class PeakMemory:
    """How far resident memory grew, at its highest. Native libraries hide from tracemalloc."""

    def __enter__(self) -> "PeakMemory":
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._peak()
        return self

    def __exit__(self, *_: object) -> None:
        self.growth = self._peak() - self._before

    def _peak(self) -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.parametrize(("codec", "bomb"), BOMBS, ids=lambda part: getattr(part, "__name__", part))
def test_a_bomb_is_refused_before_it_fills_memory(codec: Codec, bomb: Callable[[], bytes]) -> None:
    data = bomb()

    with PeakMemory() as memory, pytest.raises(BatchTooLarge):
        decompress(codec, data, size_max=CAP)

    assert memory.growth < GROWTH_MAX


@pytest.mark.parametrize("codec", COMPRESSED)
def test_one_byte_more_than_the_cap_is_too_large(codec: Codec) -> None:
    data = compress(codec, TEXT)

    with pytest.raises(BatchTooLarge):
        decompress(codec, data, size_max=len(TEXT) - 1)


@pytest.mark.parametrize("claim", ["ffffffff0f", "8080808008", "8080808001"])
def test_a_snappy_block_that_claims_gigabytes_is_too_large(claim: str) -> None:
    with PeakMemory() as memory, pytest.raises(BatchTooLarge):
        decompress(Codec.SNAPPY, bytes.fromhex(claim) + raw_snappy(TEXT), size_max=CAP)

    assert memory.growth < GROWTH_MAX


@pytest.mark.parametrize("frame", [lambda block: block, lambda block: XERIAL + chunk(block)])
@pytest.mark.parametrize("claimed", [0, 99, 101, 2_000, CAP])
def test_a_snappy_block_holds_what_it_claims_or_is_corrupt(
    frame: Callable[[bytes], bytes], claimed: int
) -> None:
    honest = raw_snappy(bytes(range(100)))
    assert honest[0] == 100
    lie = raw_snappy(bytes(claimed))[: 1 + (claimed > 127) + (claimed > 2**14) + (claimed > 2**21)]

    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, frame(lie + honest[1:]), size_max=CAP)


def test_many_snappy_chunks_share_one_cap() -> None:
    framed = XERIAL + chunk(raw_snappy(bytes(1_000))) * 10

    assert len(decompress(Codec.SNAPPY, framed, size_max=10_000)) == 10_000
    with pytest.raises(BatchTooLarge):
        decompress(Codec.SNAPPY, framed, size_max=9_999)


@pytest.mark.parametrize("claimed", [1, len(TEXT) - 1, len(TEXT) + 1, 2**40, 2**63 - 1])
def test_an_lz4_content_size_that_lies_is_refused(claimed: int) -> None:
    honest = lz4.frame.compress(TEXT, block_linked=False, store_size=False)
    stream = lz4.frame.LZ4FrameCompressor(block_linked=False)
    lying = bytes(stream.begin(claimed)) + honest[7:]

    with PeakMemory() as memory, pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, lying, size_max=CAP)

    assert memory.growth < GROWTH_MAX


@pytest.mark.parametrize("claimed", [0, 1, 999, 1_001, 2**40, 2**63])
def test_a_zstd_content_size_that_lies_is_refused(claimed: int) -> None:
    # Descriptor 0xC0: eight bytes of content size; then the window.
    lying = (
        bytes.fromhex("28b52ffdc058")
        + claimed.to_bytes(8, "little")
        + zstd_block(1, 1_000, b"a", is_last=True)
    )

    with PeakMemory() as memory, pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, lying, size_max=CAP)

    assert memory.growth < GROWTH_MAX


def test_a_zstd_window_of_128_mib_is_not_filled_for_a_few_bytes() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = stream.compress(b"few bytes") + stream.flush()

    with PeakMemory() as memory:
        assert decompress(Codec.ZSTD, frame, size_max=CAP) == b"few bytes"

    assert memory.growth < GROWTH_MAX


@pytest.mark.parametrize("window", [0x90, 0xF8])
def test_a_zstd_window_above_that_is_corrupt(window: int) -> None:
    frame = bytes.fromhex("28b52ffd00") + bytes([window]) + zstd_block(1, 5, b"a", is_last=True)

    with PeakMemory() as memory, pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, frame, size_max=CAP)

    assert memory.growth < GROWTH_MAX


# -- what is small, and what is in pieces ----------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSED)
def test_small_data_is_decompressed_at_once_and_more_is_left_to_a_thread(codec: Codec) -> None:
    small = SMALL_BYTES_MAX[codec]

    assert decompress_small(codec, compress(codec, bytes(small)), size_max=CAP) == bytes(small)
    assert decompress_small(codec, compress(codec, bytes(small + 1)), size_max=CAP) is None
    assert decompress_small(codec, compress(codec, TEXT), size_max=len(TEXT) - 1) is None


def pieces(codec: Codec, count: int) -> bytes:
    if codec is Codec.GZIP:
        return gzip.compress(b"x") * count
    if codec is Codec.SNAPPY:
        return XERIAL + chunk(raw_snappy(b"x")) * count
    blocks = zstd_block(0, 1, b"x") * (count - 1) + zstd_block(0, 1, b"x", is_last=True)
    return bytes.fromhex("28b52ffd") + bytes([0x00, 0x58]) + blocks


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_many_tiny_pieces_are_left_to_a_thread(codec: Codec) -> None:
    few, many = SMALL_PIECES_MAX, SMALL_PIECES_MAX + 1

    assert decompress_small(codec, pieces(codec, few), size_max=CAP) == b"x" * few
    assert decompress_small(codec, pieces(codec, many), size_max=CAP) is None
    assert decompress(codec, pieces(codec, many), size_max=CAP) == b"x" * many


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_the_pieces_of_an_attack_are_not_all_counted(codec: Codec) -> None:
    with pytest.raises(CorruptBatch, match=f"more than {PIECES_MAX}"):
        decompress(codec, pieces(codec, PIECES_MAX + 1), size_max=CAP)


def test_zstd_blocks_beyond_counting_are_read_within_the_cap() -> None:
    many = PIECES_MAX + 10

    assert decompress(Codec.ZSTD, pieces(Codec.ZSTD, many), size_max=CAP) == b"x" * many
    with pytest.raises(BatchTooLarge):
        decompress(Codec.ZSTD, pieces(Codec.ZSTD, many), size_max=many - 1)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.ZSTD])
def test_a_library_that_cannot_be_loaded_is_asked_for_later(
    monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    packed = compress(codec, TEXT)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cramjam", None)
        _cramjam.cache_clear()
        with pytest.raises(Overloaded, match="cannot be loaded"):
            decompress(codec, packed, size_max=MIB)

    assert decompress(codec, packed, size_max=MIB) == TEXT

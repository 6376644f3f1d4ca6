"""Any batch survives every codec, and bytes of any kind are refused in our own words."""

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    Header,
    read_header,
    seal,
    stamp,
    stamp_time,
    verify_batch,
    verify_batches,
    verify_produced,
)
from millstream.codec.compression import Codec, compress, decompress
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import decode_marker
from millstream.codec.records import Record, decode_all, decode_each, verify_records
from millstream.codec.rewrite import filter_batch, recompress
from millstream.errors import BatchTooLarge, CorruptBatch, RequestError
from tests.support.tiers import sized

CAP = 2**20
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)

codecs = st.sampled_from(list(Codec))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
blobs = st.none() | st.binary(max_size=200)
record_headers = st.lists(st.tuples(texts, blobs), max_size=4).map(tuple)
# Either as times are, close to one another, or as a hostile producer makes them up.
timestamps = st.integers(1_700_000_000_000, 1_700_000_100_000) | INT64


@st.composite
def some_records(draw: st.DrawFn, *, base_offset: int = 0, gaps: bool = False) -> list[Record]:
    count = draw(st.integers(1, 12))
    steps = [draw(st.integers(0, 2**20)) if gaps else 0 for _ in range(count)]
    return [
        Record(
            base_offset + index + sum(steps[: index + 1]),
            draw(timestamps),
            draw(blobs),
            draw(blobs),
            draw(record_headers),
        )
        for index in range(count)
    ]


@st.composite
def some_batch(draw: st.DrawFn) -> bytes:
    return encode_batch(
        draw(some_records()),
        codec=draw(codecs),
        producer_id=draw(st.integers(0, 2**63 - 1)),
        producer_epoch=draw(st.integers(0, 2**15 - 1)),
        base_sequence=draw(st.integers(0, 2**31 - 1)),
        is_transactional=draw(st.booleans()),
    )


# -- what is written is read -----------------------------------------------------------------------


@settings(deadline=None)
@given(st.data(), st.integers(0, 2**62), st.booleans(), codecs)
def test_what_is_built_is_read(data: st.DataObject, base: int, gaps: bool, codec: Codec) -> None:
    written = data.draw(some_records(base_offset=base, gaps=gaps))

    raw = encode_batch(written, base_offset=base, codec=codec)

    assert decode_all(raw, decompressed_bytes_max=CAP) == written
    header = verify_batch(raw)
    assert (header.base_offset, header.last_offset) == (base, written[-1].offset)
    assert (header.size, header.count) == (len(raw), len(written))
    assert header.max_timestamp == max(record.timestamp for record in written)


@settings(deadline=None)
@given(some_records(), codecs)
def test_a_built_batch_is_admitted_and_valid(written: list[Record], codec: Codec) -> None:
    raw = encode_batch(written, codec=codec)

    assert verify_produced(raw, size_max=len(raw)) == read_header(raw)
    keyless = [index for index, record in enumerate(written) if record.key is None]
    assert verify_records(raw, decompressed_bytes_max=CAP) == keyless


@settings(deadline=None)
@given(st.binary(max_size=100_000), codecs)
def test_any_bytes_survive_compression_and_fit_a_cap_of_their_own_size(
    data: bytes, codec: Codec
) -> None:
    assert decompress(codec, compress(codec, data), size_max=len(data)) == data


# -- what changes a batch changes only what it says ------------------------------------------------


@settings(deadline=None)
@given(some_batch(), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_stamping_keeps_the_checksum_right(raw: bytes, base_offset: int, epoch: int) -> None:
    header, prefix = stamp(read_header(raw), base_offset=base_offset, epoch=epoch)

    stamped = prefix + raw[PREFIX_BYTES:]

    assert (
        verify_batch(stamped)
        == header
        == verify_batch(raw)._replace(base_offset=base_offset, epoch=epoch)
    )


@settings(deadline=None)
@given(some_batch(), st.integers(0, 2**63 - 1))
def test_stamping_the_time_changes_every_time_and_nothing_else(raw: bytes, now_ms: int) -> None:
    header, timed = stamp_time(raw, read_header(raw), now_ms)

    assert verify_batch(timed) == header
    assert decode_all(timed, decompressed_bytes_max=CAP) == [
        record._replace(timestamp=now_ms) for record in decode_all(raw, decompressed_bytes_max=CAP)
    ]


@settings(deadline=None)
@given(
    st.data(),
    st.integers(0, 2**62),
    codecs,
    st.none() | st.integers(0, 2**63 - 1),
    st.booleans(),
)
def test_filtering_keeps_what_is_kept_and_where_it_is(
    data: st.DataObject, base: int, codec: Codec, horizon: int | None, keep_empty: bool
) -> None:
    written = data.draw(some_records(base_offset=base, gaps=True))
    kept = data.draw(st.lists(st.sampled_from(written), unique_by=lambda record: record.offset))
    raw = encode_batch(written, base_offset=base, codec=codec, producer_id=3, producer_epoch=1)

    offsets = {record.offset for record in kept}
    filtered = filter_batch(
        raw,
        lambda record: record.offset in offsets,
        decompressed_bytes_max=CAP,
        keep_empty=keep_empty,
        delete_horizon_ms=horizon,
    )

    if filtered is None:
        assert not kept
        assert not keep_empty
        return
    assert decode_all(filtered, decompressed_bytes_max=CAP) == sorted(kept)
    before, after = verify_batch(raw), verify_batch(filtered)
    assert (after.base_offset, after.end_offset) == (before.base_offset, before.end_offset)
    assert after.count == len(kept)
    assert after.producer_id == 3
    assert after.has_delete_horizon == (horizon is not None and len(kept) > 0)


@given(st.lists(some_batch(), max_size=4))
@settings(deadline=None)
def test_walking_finds_the_batches_that_were_put_together(batches: list[bytes]) -> None:
    assert verify_batches(b"".join(batches)) == [verify_batch(raw) for raw in batches]


# -- damage ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=sized(300))
@given(some_batch(), st.data(), st.integers(1, 255))
def test_a_flipped_byte_is_refused_or_lies_outside_the_checksum(
    raw: bytes, data: st.DataObject, flip: int
) -> None:
    at = data.draw(st.integers(0, len(raw) - 1))
    damaged = bytearray(raw)
    damaged[at] ^= flip

    try:
        header = verify_batch(damaged)
    except RequestError:
        return
    assert at < 8 or 12 <= at < 16
    header = header._replace(base_offset=0, epoch=0)
    assert header == verify_batch(raw)


@settings(deadline=None)
@given(some_batch(), st.data())
def test_every_cut_is_refused(raw: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(raw) - 1))

    for read in (verify_batch, lambda buffer: verify_produced(buffer, size_max=CAP)):
        try:
            read(raw[:cut])
        except CorruptBatch:
            continue
        raise AssertionError(f"{cut} of {len(raw)} bytes were taken for a batch")


def refuse_or_read(raw: bytes) -> None:
    """Do all that can be done to a batch; whatever is wrong with it must come as our own error."""
    for work in (
        lambda: verify_batch(raw),
        lambda: verify_batches(raw),
        lambda: verify_produced(raw, size_max=CAP),
        lambda: decode_all(raw, decompressed_bytes_max=CAP),
        lambda: list(decode_each(raw, decompressed_bytes_max=CAP)),
        lambda: verify_records(raw, decompressed_bytes_max=CAP),
        lambda: filter_batch(raw, lambda r: r.offset % 2 == 0, decompressed_bytes_max=CAP),
        lambda: filter_batch(
            raw, lambda _: True, decompressed_bytes_max=CAP, delete_horizon_ms=2**62
        ),
        lambda: recompress(raw, Codec.LZ4, decompressed_bytes_max=CAP),
        lambda: decode_marker(raw),
    ):
        try:
            work()
        except RequestError:
            continue


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused_in_our_own_words(raw: bytes) -> None:
    refuse_or_read(raw)


@settings(deadline=None, max_examples=sized(300))
@given(
    st.builds(
        Header, INT64, st.just(0), INT32, st.just(0), INT16, INT32, INT64, INT64, INT64, INT16,
        INT32, st.integers(-1, 20) | INT32,
    ),
    st.binary(max_size=200) | some_batch().map(lambda raw: raw[HEADER_BYTES:]),
)  # fmt: skip
def test_any_header_over_any_payload_is_refused_in_our_own_words(
    header: Header, payload: bytes
) -> None:
    refuse_or_read(seal(header, payload)[1])


@settings(deadline=None, max_examples=sized(500))
@given(some_batch(), st.data())
def test_damage_under_a_right_checksum_is_refused_in_our_own_words(
    raw: bytes, data: st.DataObject
) -> None:
    payload = bytearray(raw[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))

    refuse_or_read(seal(read_header(raw), payload)[1])


@settings(deadline=None, max_examples=sized(300))
@given(codecs, st.binary(max_size=2_000), st.data())
def test_damaged_compressed_data_is_refused_in_our_own_words_and_never_outgrows_its_cap(
    codec: Codec, content: bytes, data: st.DataObject
) -> None:
    compressed = bytearray(compress(codec, content))
    if compressed:
        compressed[data.draw(st.integers(0, len(compressed) - 1))] ^= data.draw(st.integers(1, 255))
    size_max = 4_000 if codec is not Codec.NONE else len(compressed)

    try:
        out = decompress(codec, compressed, size_max=size_max)
    except (CorruptBatch, BatchTooLarge):
        return
    assert len(out) <= size_max

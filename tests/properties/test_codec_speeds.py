"""The fast encoder and decoder against the complete ones."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.codec.batch import HEADER_BYTES, read_header, seal, verify_batch
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch, encode_many, encode_one, message_bytes_max
from millstream.codec.records import Record, decode_all, decode_each, decode_range
from millstream.errors import RequestError

CAP = 2**20

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
blobs = st.none() | st.binary(max_size=200) | st.just(bytes(9_000))
record_headers = st.lists(st.tuples(texts, blobs), max_size=3).map(tuple)
messages = st.lists(st.tuples(blobs, blobs, record_headers), min_size=1, max_size=12)
# Most often neighbours share their headers.
alike = st.tuples(record_headers, st.lists(st.tuples(blobs, blobs), min_size=1, max_size=80)).map(
    lambda both: [(key, value, both[0]) for key, value in both[1]]
)


# Differences to the first timestamp: most are none, or of a byte; Java's long wraps.
time_deltas = st.integers(0, 1) | st.integers(-70, 70) | st.integers(-(2**62), 2**62)


@given(messages | alike, st.integers(0, 2**62))
def test_encode_many_returns_the_bytes_of_encode_batch(
    listed: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    timestamp: int,
) -> None:
    header, encoded = encode_many(listed, timestamp)

    complete = encode_batch([Record(at, timestamp, *message) for at, message in enumerate(listed)])
    assert encoded == complete
    assert header == verify_batch(complete)
    assert len(encoded) <= HEADER_BYTES + sum(message_bytes_max(message) for message in listed)


@given(messages, st.integers(0, 2**62))
def test_encode_one_returns_what_encode_many_does(
    listed: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    timestamp: int,
) -> None:
    message = listed[0]

    assert encode_one(message, timestamp) == encode_many([message], timestamp)


@given(
    messages | alike,
    st.lists(st.integers(0, 3), min_size=80, max_size=80),
    st.lists(time_deltas, min_size=80, max_size=80),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]),
)
def test_decode_all_returns_the_encoded_records(
    listed: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    gaps: list[int],
    times: list[int],
    codec: Codec,
) -> None:
    offset, records = 5, []
    for at, message in enumerate(listed):
        offset += gaps[at]
        records.append(Record(offset, 1_000 + times[at], *message))
        offset += 1
    data = b"before" + encode_batch(records, base_offset=5, codec=codec)

    assert decode_all(data, 6, decompressed_bytes_max=CAP) == records
    assert list(decode_each(data, 6, decompressed_bytes_max=CAP)) == records


@given(messages, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_every_decoder_refuses_the_same_bytes_with_the_same_words(
    listed: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    changes: list[tuple[int, int]],
) -> None:
    """The checksum is right and the bytes are not: nothing else shields the readers."""
    encoded = bytearray(encode_many(listed, 1_000)[1])
    for place, byte in changes:
        encoded[HEADER_BYTES + place % (len(encoded) - HEADER_BYTES)] = byte
    data = seal(read_header(encoded), bytes(encoded[HEADER_BYTES:]))[1]

    outcomes: list[object] = []
    for decode in (
        lambda: decode_all(data, decompressed_bytes_max=CAP),
        lambda: list(decode_each(data, decompressed_bytes_max=CAP)),
        lambda: decode_range(data, 0, 0, len(listed) + 1, decompressed_bytes_max=CAP),
    ):
        try:
            outcomes.append(decode())
        except RequestError as problem:
            outcomes.append((type(problem), str(problem)))

    assert outcomes[0] == outcomes[1] == outcomes[2]

"""The fast ways to write and to read a batch against the careful ones."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.codec.batch import HEADER_BYTES, read_header, seal
from millstream.codec.compression import Codec
from millstream.codec.reading import read_batch
from millstream.codec.records import Record, build, records
from millstream.codec.spelling import message_bytes_max, spell_batch
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


@given(messages | alike, st.integers(0, 2**62))
def test_a_batch_is_spelled_the_same_either_way(
    listed: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    timestamp: int,
) -> None:
    spelled = spell_batch(listed, timestamp)

    careful = build([Record(at, timestamp, *message) for at, message in enumerate(listed)])
    assert spelled == careful
    assert len(spelled) <= HEADER_BYTES + sum(message_bytes_max(message) for message in listed)


@given(
    messages | alike,
    st.lists(st.integers(0, 3), min_size=80, max_size=80),
    st.lists(st.integers(0, 1), min_size=80, max_size=80),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]),
)
def test_a_batch_is_read_the_same_either_way(
    listed: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    gaps: list[int],
    times: list[int],
    codec: Codec,
) -> None:
    offset, given_records = 5, []
    for at, message in enumerate(listed):
        offset += gaps[at]
        given_records.append(Record(offset, 1_000 + times[at], *message))
        offset += 1
    data = b"before" + build(given_records, base_offset=5, codec=codec)

    assert read_batch(data, 6, decompressed_bytes_max=CAP) == given_records


@given(messages, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_what_one_way_refuses_the_other_refuses_too(
    listed: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]],
    changes: list[tuple[int, int]],
) -> None:
    """The checksum is right and the bytes are not: nothing else shields the readers."""
    spelled = bytearray(spell_batch(listed, 1_000))
    for place, byte in changes:
        spelled[HEADER_BYTES + place % (len(spelled) - HEADER_BYTES)] = byte
    data = seal(read_header(spelled), bytes(spelled[HEADER_BYTES:]))[1]

    outcomes = []
    for read in (read_batch, records):
        try:
            outcomes.append(read(data, decompressed_bytes_max=CAP))
        except RequestError as problem:
            outcomes.append((type(problem), str(problem)))

    assert outcomes[0] == outcomes[1]

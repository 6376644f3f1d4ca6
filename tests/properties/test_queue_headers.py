"""What a batch asks for, found by its bytes, against reading every record of it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.batch import read_header
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import Record, decode_all
from millstream.config import Limits
from millstream.cooperative import all_at_once
from millstream.engine.produce.options import (
    QueueOptions,
    read_batch,
    read_options,
    search,
    unpack,
)
from millstream.errors import InvalidBatch
from tests.support.nodes import NOW_MS
from tests.support.tiers import sized

NAMES = ["ms-delay-ms", "ms-deliver-at", "ms-ttl-ms", "ms-message-id"]
OTHERS = ["ms-subject", "ms-", "xms-ttl-ms", "ms-ttl-ms2", "", "h"]
DAY_MS = 24 * 60 * 60 * 1000
LIMITS = Limits(delay_ms_max=DAY_MS)

contents = st.sampled_from([b"5", b"17", b"x", b"", b"ms-ttl-ms", None])
headers = st.lists(
    st.tuples(st.sampled_from(NAMES + OTHERS), contents),
    max_size=3,
    unique_by=lambda header: header[0],
).map(tuple)
plain = st.builds(
    Record,
    st.just(0),
    st.just(NOW_MS),
    st.sampled_from([None, b"k", b"\x12ms-ttl-ms"]),
    st.one_of(st.none(), st.binary(max_size=20), st.integers(0, 9_000).map(bytes)),
)
made = st.one_of(
    plain, st.builds(lambda record, headers: record._replace(headers=headers), plain, headers)
)


@settings(max_examples=sized(300), deadline=None)
@given(
    records=st.lists(made, min_size=1, max_size=8),
    at=st.integers(0, 2**40),
    codec=st.sampled_from(list(Codec)),
)
def test_a_batch_asks_for_what_its_records_ask_for(
    records: list[Record], at: int, codec: Codec
) -> None:
    placed = [record._replace(offset=at + index) for index, record in enumerate(records)]
    data = encode_batch(placed, base_offset=at, codec=codec)
    header = read_header(data)
    try:
        expected = read_options(
            decode_all(data, decompressed_bytes_max=2**24), now_ms=NOW_MS, limits=LIMITS
        )
    except InvalidBatch as problem:
        expected = str(problem)  # type: ignore[assignment]

    payload = search(unpack(memoryview(data), header, bytes_max=2**24))
    try:
        options = QueueOptions({}, {}, False, {})
        if payload is not None:
            options = all_at_once(read_batch(header, payload, now_ms=NOW_MS, limits=LIMITS))
    except InvalidBatch as problem:
        options = str(problem)  # type: ignore[assignment]

    assert options == expected

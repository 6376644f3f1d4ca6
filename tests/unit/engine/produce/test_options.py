"""Headers that ask for something: found without decoding, read with care."""

import sys

import pytest

from millstream.codec.batch import HEADER_BYTES, read_header, seal
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.records import STEP_BYTES, Record, decode_all
from millstream.config import Limits
from millstream.cooperative import all_at_once
from millstream.engine.produce.options import (
    MESSAGE_ID_BYTES_MAX,
    QueueOptions,
    _searches,
    message_id_of,
    read_batch,
    read_options,
    search,
    unpack,
    unpack_small,
    when_due,
)
from millstream.errors import CorruptBatch, InvalidBatch, UnpackedTooLarge
from millstream.model import Buffer
from millstream.names import DELIVER_AT_HEADER
from tests.support.nodes import NOW_MS
from tests.support.queues import Message, batch_of, message

ASKING = [
    message(b"x", delay_ms=1),
    message(b"x", deliver_at=1),
    message(b"x", ttl_ms=1),
    message(b"x", message_id=b"a"),
]
DAY_MS = 24 * 60 * 60 * 1000


BYTES_MAX = 2**26


def searched(data: Buffer) -> Buffer | None:
    return search(unpack(data, read_header(data), bytes_max=BYTES_MAX))


def asked_of(*messages: Message, delay_ms_max: int = DAY_MS) -> QueueOptions:
    decoded = decode_all(batch_of(*messages), decompressed_bytes_max=2**20)
    return read_options(decoded, now_ms=NOW_MS, limits=Limits(delay_ms_max=delay_ms_max))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("asking", ASKING, ids=lambda message: message.headers[0][0])
@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "large"])
def test_a_header_is_found_whatever_the_codec_and_the_size(
    codec: Codec, asking: Message, size: int
) -> None:
    data = batch_of(Message(b"y" * size), asking, codec=codec)

    small = unpack_small(data, read_header(data), bytes_max=BYTES_MAX)
    assert small is not None
    assert search(small) is not None
    assert searched(memoryview(data)) is not None


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("count", [1, 2_000])
def test_what_only_speaks_of_headers_asks_for_nothing(codec: Codec, count: int) -> None:
    text = b"items-delay-ms ms-delay-ms ms-message-id ms-ttl-ms ms-deliver-at"
    plain = Message(text, (("ms-subject", b"of ms-ttl-ms"), ("traceparent", b"00-ab")))

    data = batch_of(*[plain] * count, codec=codec)

    assert searched(data) is None


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_header_is_found_in_as_much_as_may_be_unpacked(codec: Codec) -> None:
    large = Record(0, NOW_MS, None, bytes(15 * 2**20))
    asking = Record(1, NOW_MS, None, b"x", message(b"x", ttl_ms=1).headers)
    data = encode_batch([large, asking], codec=codec)

    assert unpack_small(data, read_header(data), bytes_max=BYTES_MAX) is None
    assert searched(data) is not None


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_more_than_may_be_unpacked_is_refused(codec: Codec) -> None:
    data = encode_batch([Record(0, NOW_MS, None, bytes(2**20))], codec=codec)

    with pytest.raises(UnpackedTooLarge, match="batch_decompressed_bytes_max"):
        unpack(data, read_header(data), bytes_max=2**20)
    assert unpack_small(data, read_header(data), bytes_max=2**20) is None


def test_a_few_bytes_may_not_become_very_many() -> None:
    bomb = encode_batch([Record(0, NOW_MS, None, bytes(2**25))], codec=Codec.ZSTD)

    with pytest.raises(UnpackedTooLarge):
        unpack(bomb, read_header(bomb), bytes_max=BYTES_MAX)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_its_codec_did_not_write_is_refused_for_good(codec: Codec) -> None:
    good = encode_batch([Record(0, NOW_MS, None, b"x")], codec=codec)
    spoiled = seal(read_header(good), b"\xff no such codec")[1]

    with pytest.raises(InvalidBatch, match="cannot be unpacked"):
        unpack(spoiled, read_header(spoiled), bytes_max=BYTES_MAX)
    with pytest.raises(InvalidBatch, match="cannot be unpacked"):
        unpack_small(spoiled, read_header(spoiled), bytes_max=BYTES_MAX)


def test_each_record_is_read_for_itself() -> None:
    asked = asked_of(
        message(b"plain"),
        message(b"soon", delay_ms=5_000),
        message(b"then", deliver_at=NOW_MS + 7),
        message(b"past", deliver_at=NOW_MS - 7),
        message(b"once", message_id=b"a", ttl_ms=1),
    )

    assert asked[:3] == ({1: NOW_MS + 5_000, 2: NOW_MS + 7, 3: NOW_MS - 7}, {4: b"a"}, True)
    assert [record.value for record in asked.records.values()] == [b"soon", b"then", b"past"]


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (message(b"x", delay_ms=b"soon"), "record 1 has ms-delay-ms = b'soon', which is no whole"),
        (message(b"x", delay_ms=b"-5"), "no whole number"),
        (message(b"x", delay_ms=b""), "no whole number"),
        (message(b"x", delay_ms=None), "no whole number"),
        (message(b"x", delay_ms=b"1e3"), "no whole number"),
        (message(b"x", delay_ms=b" 5"), "no whole number"),
        (message(b"x", delay_ms="٣"), "no whole number"),
        (message(b"x", deliver_at=b"9" * 19), "at most 999999999999999999"),
        (message(b"x", delay_ms=DAY_MS + 1), "at most 86400000"),
        (message(b"x", deliver_at=NOW_MS + DAY_MS + 1), "at most 86400000"),
        (message(b"x", delay_ms=1, deliver_at=1), "both ms-delay-ms and ms-deliver-at"),
        (message(b"x", ttl_ms=b"long"), "ms-ttl-ms = b'long'"),
        (message(b"x", message_id=b""), "of 0 bytes"),
        (message(b"x", message_id=None), "of 0 bytes"),
        (message(b"x", message_id=b"i" * (MESSAGE_ID_BYTES_MAX + 1)), "of 257 bytes"),
    ],
)
def test_a_value_that_says_nothing_sensible_is_refused(refused: Message, said: str) -> None:
    with pytest.raises(InvalidBatch, match=said):
        asked_of(message(b"fine"), refused)


def test_the_longest_delay_is_allowed() -> None:
    asked_of(message(b"x", delay_ms=DAY_MS), message(b"x", deliver_at=NOW_MS + DAY_MS))


def test_a_delayed_record_enters_its_topic_as_if_sent_when_due() -> None:
    record = Record(3, NOW_MS, b"k", b"v", (("a", b"1"), ("ms-delay-ms", b"5"), ("b", None)))

    assert when_due(record, NOW_MS + 5) == Record(
        3,
        NOW_MS + 5,
        b"k",
        b"v",
        (("a", b"1"), ("b", None), (DELIVER_AT_HEADER, b"%d" % (NOW_MS + 5))),
    )


def test_an_id_in_a_log_without_an_index_is_none() -> None:
    headers = (("ms-message-id", b"i" * (MESSAGE_ID_BYTES_MAX + 1)),)

    assert message_id_of(Record(0, 0, None, None, headers)) is None
    assert message_id_of(Record(0, 0, None, None, (("ms-message-id", b"i"),))) == b"i"


def test_of_several_headers_of_a_name_the_last_counts_now_and_after_a_restart() -> None:
    twice = Message(b"x", (("ms-message-id", b"a"), ("ms-message-id", b"b")))

    assert asked_of(twice).message_ids == {0: b"b"}
    assert message_id_of(Record(0, 0, None, None, twice.headers)) == b"b"


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_is_read_in_steps_and_only_where_headers_may_be(codec: Codec) -> None:
    asking = {7: message(b"x", message_id=b"a"), 1_999: message(b"y", delay_ms=5)}
    data = batch_of(*[asking.get(at, Message(b"z" * 50)) for at in range(2_000)], codec=codec)
    header = read_header(data)
    payload = searched(data)
    assert payload is not None

    reading = read_batch(header, payload, now_ms=NOW_MS, limits=Limits(delay_ms_max=DAY_MS))
    steps = 0
    while True:
        try:
            next(reading)
        except StopIteration as end:
            asked = end.value
            break
        steps += 1

    assert steps >= len(payload) / STEP_BYTES / 2
    assert (asked.message_ids, asked.due_ms) == ({7: b"a"}, {1_999: NOW_MS + 5})
    assert [record.value for record in asked.records.values()] == [b"y"]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_what_ends_inside_a_record_is_refused(cut: int) -> None:
    data = batch_of(*[message(b"x", message_id=b"a")] * 3)
    header, payload = read_header(data), data[HEADER_BYTES:-cut]

    with pytest.raises(CorruptBatch):
        all_at_once(read_batch(header, payload, now_ms=NOW_MS, limits=Limits(delay_ms_max=DAY_MS)))


@pytest.mark.parametrize("asking", [True, False])
def test_a_large_batch_is_searched_without_the_library_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, asking: bool
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    _searches.cache_clear()
    messages = [message(b"x" * 1_000) for _ in range(20)]
    if asking:
        messages.append(message(b"x", delay_ms=1))

    assert (searched(batch_of(*messages)) is not None) is asking

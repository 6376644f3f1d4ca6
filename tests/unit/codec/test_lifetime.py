"""How long records live: by their topic, by their own header, and the shorter of the two."""

import pytest

from millstream.codec.batch import HEADER_BYTES, read_header
from millstream.codec.encoding import encode_batch
from millstream.codec.lifetime import NEVER_MS, Lifetime, lifetime_of
from millstream.codec.records import Record
from millstream.settings import Switch, TopicSettings


def record(own: bytes | None = None, *, timestamp: int = 1_000) -> Record:
    return Record(0, timestamp, None, b"v", () if own is None else (("ms-ttl-ms", own),))


@pytest.mark.parametrize(
    ("default_ms", "reads_headers", "own", "ends_ms"),
    [
        (500, False, None, 1_500),
        (500, False, b"10", 1_500),
        (500, True, b"10", 1_010),
        (500, True, b"900", 1_500),
        (-1, True, b"10", 1_010),
        (-1, True, None, NEVER_MS),
        (-1, True, b"0", 1_000),
        (-1, True, b"soon", NEVER_MS),
        (-1, True, b"-5", NEVER_MS),
        (-1, True, b"", NEVER_MS),
        (-1, True, b"9" * 100, NEVER_MS),
        (NEVER_MS, True, None, NEVER_MS),
    ],
)
def test_the_shorter_of_the_topics_time_and_the_records_own_counts(
    default_ms: int, reads_headers: bool, own: bytes | None, ends_ms: int
) -> None:
    assert Lifetime(default_ms, reads_headers).ends_ms(record(own)) == ends_ms


@pytest.mark.parametrize(("last", "ends_ms"), [(b"10", 1_010), (b"soon", NEVER_MS)])
def test_of_several_times_the_last_counts(last: bytes, ends_ms: int) -> None:
    headers = (("ms-ttl-ms", b"5"), ("other", b"7"), ("ms-ttl-ms", last), ("other", b"8"))
    record = Record(0, 1_000, None, b"v", headers)

    assert Lifetime(-1, reads_headers=True).ends_ms(record) == ends_ms


def test_a_record_without_a_timestamp_has_no_end() -> None:
    assert Lifetime(0, reads_headers=True).ends_ms(record(b"0", timestamp=-1)) == NEVER_MS


def test_a_topic_says_whether_any_of_its_records_end() -> None:
    assert lifetime_of(TopicSettings()) is None
    assert lifetime_of(TopicSettings(message_ttl_ms=0)) == Lifetime(0, reads_headers=False)
    headers = TopicSettings(message_ttl_headers=Switch.ON)
    assert lifetime_of(headers) == Lifetime(-1, reads_headers=True)


def test_a_whole_batch_is_over_when_its_newest_record_is() -> None:
    header = read_header(encode_batch([record(), record(timestamp=2_000)._replace(offset=1)]))

    assert Lifetime(500, reads_headers=False).all_have_ended(header, 2_500)
    assert not Lifetime(500, reads_headers=False).all_have_ended(header, 2_499)
    assert not Lifetime(-1, reads_headers=True).all_have_ended(header, 10_000)


@pytest.mark.parametrize(
    ("lifetime", "own", "expected"),
    [
        (Lifetime(500, reads_headers=False), None, [True, False]),
        (Lifetime(500, reads_headers=False), b"1", [True, False]),
        (Lifetime(500, reads_headers=True), b"1", [False, False]),
        (Lifetime(-1, reads_headers=True), None, [True, True]),
        (Lifetime(-1, reads_headers=True), b"1", [False, False]),
    ],
)
def test_a_quick_look_tells_that_none_has_ended_by_the_oldest_record(
    lifetime: Lifetime, own: bytes | None, expected: list[bool]
) -> None:
    made = [record(timestamp=2_000), record(own, timestamp=1_000)._replace(offset=1)]
    batch = encode_batch(made)
    header, data = read_header(batch), batch[HEADER_BYTES:]

    assert [lifetime.none_has_ended(header, data, now_ms) for now_ms in (1_499, 1_500)] == expected


def test_a_record_without_a_timestamp_is_not_told_by_a_quick_look() -> None:
    batch = encode_batch([record(timestamp=2_000), record(timestamp=-1)._replace(offset=1)])

    lifetime = Lifetime(500, reads_headers=False)

    assert not lifetime.none_has_ended(read_header(batch), batch[HEADER_BYTES:], 1_000)


def test_bytes_without_the_header_need_no_look_unless_the_topic_has_a_time() -> None:
    assert not Lifetime(-1, reads_headers=True).may_end(b"nothing here")
    assert Lifetime(-1, reads_headers=True).may_end(b"..ms-ttl-ms..")
    assert Lifetime(5, reads_headers=False).may_end(b"")

"""What clients are told: one line each, whatever it says."""

import json

import pytest

from millstream.errors import BatchTooLarge, NotLeader, RequestError, StorageUnavailable
from millstream.protocols.flux.wire import replies
from millstream.protocols.flux.wire.headers import encode_headers, read_headers


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (NotLeader("orders-0", 2), b"-ERR NOT_LEADER leader=2\r\n"),
        (NotLeader("orders-0", None), b"-ERR NOT_LEADER leader=\r\n"),
        (StorageUnavailable("no space"), b"-ERR STORAGE no space\r\n"),
        (BatchTooLarge(9, 5), b"-ERR BATCH_TOO_LARGE batch of 9 bytes, at most 5 here\r\n"),
        (RequestError("a\r\n+OK\r\nb"), b"-ERR REQUEST_ERROR a  +OK  b\r\n"),
    ],
)
def test_an_error_of_the_broker_is_a_word_and_a_sentence(
    problem: RequestError, line: bytes
) -> None:
    assert replies.refusal(problem) == line


def test_a_long_error_is_cut() -> None:
    assert len(replies.error("x" * 10_000)) < 500


def test_figures_and_facts_are_json_on_one_line() -> None:
    line = replies.statistics({"a": "b\n"})

    assert line.count(b"\n") == 1
    assert json.loads(line.removeprefix(b"+STATS ")) == {"a": "b\n"}
    assert replies.info({"x": 1}) == b'INFO {"x":1}\r\n'


def test_a_message_says_its_length_and_then_its_number() -> None:
    assert replies.MESSAGE % (b"orders.us", b"s1", 5, 2, b"hello") == (
        b"MSG orders.us s1 5 2\r\nhello\r\n"
    )


def test_a_message_with_headers_counts_them_as_hpub_does() -> None:
    headers = (("ms-subject", b"a"), ("ms-message-id", b"7"), ("Trace-ID", b"t"))

    assert replies.message_with_headers(b"a", b"s", 3, b"hi", headers) == (
        b"HMSG a s 26 28 3\r\nMsg-ID: 7\r\nTrace-ID: t\r\n\r\nhi\r\n"
    )


def test_headers_are_read_as_they_are_spelled() -> None:
    headers = (("ms-message-id", b"7"), ("Empty", b""), ("Ü", b"\xff: x"))

    assert read_headers(encode_headers(headers)) == headers
    assert read_headers(encode_headers(())) == ()


def test_headers_of_other_protocols_cannot_break_the_block() -> None:
    assert encode_headers((("a\r\nb", b"c\r\n\r\nd"), ("null", None))) == (
        b"a  b: c    d\r\nnull: \r\n\r\n"
    )

"""Requests about delayed records: a broker that knows none, and answers from a stranger."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client import (
    ClientError,
    Delayed,
    DelayedPage,
    DelayedRecords,
    NotFound,
    NotSupported,
    Refused,
    own,
)
from millstream.client.delayed import CANCEL, DESCRIBE, LIST, LISTED_MAX
from tests.unit.client.fake_connection import API_VERSIONS, FINE, api_versions, asked_of

PLACE = b"\x07orders" + struct.pack(">iq", 1, 5_000)
ONE = Delayed(id="orders~7", topic="orders", partition=1, due_ms=5_000)


def test_a_broker_without_delays_is_told_from_one_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests, connection = asked_of(monkeypatch, {API_VERSIONS: api_versions(0, 1, 18)})
    delayed = DelayedRecords(requests)

    for call in (delayed.list, lambda: delayed.describe("a~1"), lambda: delayed.cancel("a~1")):
        with pytest.raises(NotSupported, match="delayed records are not supported by the broker"):
            call()

    assert {key for key, _ in connection.asked} == {API_VERSIONS}


def test_a_page_knows_where_the_next_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    page = FINE + b"\x02" + b"\x09orders~7" + PLACE + b"\0"
    requests, connection = asked_of(monkeypatch, {LIST: [page + b"\x09orders~7\0", page + b"\0\0"]})
    delayed = DelayedRecords(requests)

    assert delayed.list("orders", limit=1) == DelayedPage((ONE,), "orders~7")
    assert delayed.list(after="orders~7", limit=5_000) == DelayedPage((ONE,), None)

    bodies = [body for key, body in connection.asked if key == LIST]
    assert bodies[0] == b"\x07orders" + b"\0" + struct.pack(">i", 1) + b"\0"
    assert bodies[1] == b"\0" + b"\x09orders~7" + struct.pack(">i", LISTED_MAX) + b"\0"


def test_one_that_does_not_wait_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = b"\0" + struct.pack(">h", 91) + b"\x05gone" + b"\0" * 30
    delayed = DelayedRecords(asked_of(monkeypatch, {CANCEL: refusal})[0])

    with pytest.raises(NotFound, match=r"cannot cancel the delayed record 'orders~7': gone\."):
        delayed.cancel("orders~7")


def test_a_limit_of_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, connection = asked_of(monkeypatch, {})

    with pytest.raises(Refused, match="at least 1"):
        DelayedRecords(requests).list(limit=0)

    assert connection.asked == []


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_break_the_reader(data: bytes, has_head: bool) -> None:
    answer = (FINE if has_head else b"") + data
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(own, "PASSING", frozenset())  # Nobody waits for bytes to pass.
        answers = dict.fromkeys((LIST, DESCRIBE, CANCEL), answer)
        delayed = DelayedRecords(asked_of(patched, {**answers})[0])

        for call in (delayed.list, lambda: delayed.describe("a~1"), lambda: delayed.cancel("a~1")):
            with contextlib.suppress(ClientError):
                call()

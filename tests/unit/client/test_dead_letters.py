"""Requests about dead letters: a broker that knows none, and answers from a stranger."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client import (
    Busy,
    ClientError,
    DeadLetters,
    NotFound,
    NotSupported,
    Redriven,
    Refused,
    own,
)
from millstream.client import dead_letters as module
from millstream.client.dead_letters import DESCRIBE, LIST, PURGE, REDRIVE, REPLAY
from tests.unit.client.fake_connection import (
    API_VERSIONS,
    FINE,
    FakeConnection,
    api_versions,
    asked_of,
)


def letters_of(
    monkeypatch: pytest.MonkeyPatch, answers: dict[int, bytes | list[bytes]]
) -> tuple[DeadLetters, FakeConnection]:
    requests, connection = asked_of(monkeypatch, answers)
    return DeadLetters(requests), connection


def step(sent: int, skipped: int = 0) -> bytes:
    return FINE + struct.pack(">qq", sent, skipped) + b"\0"


@pytest.mark.parametrize("answer", [api_versions(0, 1, 18), b"\0\x23\0\0\0\0", api_versions()])
def test_a_broker_without_dead_letters_is_told_from_one_with_them(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    letters, connection = letters_of(monkeypatch, {API_VERSIONS: answer})

    with pytest.raises(NotSupported, match="localhost:9092"):
        letters.purge("orders")

    assert [key for key, _ in connection.asked] == [API_VERSIONS]


def test_it_is_asked_once_what_a_broker_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    purged = FINE + struct.pack(">q", 3) + b"\0"
    letters, connection = letters_of(monkeypatch, {PURGE: purged})

    assert [letters.purge("orders"), letters.purge("orders")] == [3, 3]

    assert [key for key, _ in connection.asked] == [API_VERSIONS, PURGE, PURGE]


def test_a_redrive_is_counted_first_and_sends_no_more_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[int, int]] = []
    steps = [step(2_500, 7), *map(step, (1_000, 1_000, 500, 1_000))]
    letters, connection = letters_of(monkeypatch, {REDRIVE: steps})

    done = letters.redrive("orders", progress=lambda *figures: told.append(figures))

    assert done == Redriven(sent=2_500, skipped=7)
    assert told == [(0, 2_500), (1_000, 2_500), (2_000, 2_500), (2_500, 2_500)]
    asked = [struct.unpack(">i?", body[-6:-1]) for key, body in connection.asked if key == REDRIVE]
    assert asked == [(2**31 - 1, True), (1_000, False), (1_000, False), (500, False)]


def test_a_redrive_ends_when_somebody_else_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    letters, _ = letters_of(monkeypatch, {REDRIVE: [step(10), step(4), step(0)]})

    assert letters.redrive("orders") == Redriven(sent=4, skipped=0)


def test_a_rate_is_kept_between_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(module, "sleep", waits.append)
    monkeypatch.setattr(module, "monotonic", lambda: 100.0 + sum(waits))
    letters, _ = letters_of(monkeypatch, {REDRIVE: [step(25), step(10), step(10), step(5)]})

    letters.redrive("orders", rate=10)

    assert sum(waits) == pytest.approx(2.0)  # After the first step and after the second.


@pytest.mark.parametrize("bad", [{"rate": 0}, {"rate": -1.0}, {"count": 0}])
def test_a_redrive_that_would_send_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, bad: dict[str, Any]
) -> None:
    letters, connection = letters_of(monkeypatch, {})

    with pytest.raises(Refused):
        letters.redrive("orders", **bad)

    assert connection.asked == []


@pytest.mark.parametrize(("code", "kind"), [(91, NotFound), (7, Busy), (42, Refused)])
def test_an_error_of_the_broker_is_typed_and_in_its_words(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[ClientError]
) -> None:
    refusal = b"\0" + struct.pack(">h", code) + b"\x05nope" + b"\0" * 30
    letters, _ = letters_of(monkeypatch, {REPLAY: refusal})

    with pytest.raises(kind, match=r"cannot send back orders-0@7: nope\.") as caught:
        letters.replay("orders", 0, 7)

    assert type(caught.value) is kind


def test_what_passes_by_itself_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    loading = b"\0" + struct.pack(">h", 14) + b"\0"
    purged = FINE + struct.pack(">q", 3) + b"\0"
    monkeypatch.setattr(own, "sleep", lambda seconds: None)
    letters, _ = letters_of(monkeypatch, {PURGE: [loading, loading, purged]})

    assert letters.purge("orders") == 3


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_break_the_reader(data: bytes, has_head: bool) -> None:
    answer = (FINE if has_head else b"") + data
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(own, "PASSING", frozenset())  # Nobody waits for bytes to pass.
        letters, _ = letters_of(patched, dict.fromkeys((LIST, DESCRIBE, REPLAY, PURGE), answer))

        for call in (
            lambda: letters.list("orders"),
            lambda: letters.stats("orders"),
            lambda: letters.replay("orders", 0, 0),
            lambda: letters.purge("orders"),
        ):
            with contextlib.suppress(ClientError):
                call()

"""The answer to ListTransactions, read from bytes that a stranger sent."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.errors import ClientError
from millstream.client.models import Transaction
from millstream.client.wire import parse

ANSWER = (
    b"\0"  # No tags in the header.
    b"\0\0\0\0\0\0"  # No throttling, no error.
    b"\x01"  # No unknown filters.
    b"\x02"  # One transaction:
    b"\x05mill\0\0\0\0\0\0\0\x07\x08Ongoing\0"
    b"\0"
)


def test_an_answer_is_read() -> None:
    assert parse(ANSWER, 3) == [
        Transaction(transactional_id="mill", producer_id=7, state="Ongoing", coordinator_id=3)
    ]


def test_an_error_is_told() -> None:
    with pytest.raises(ClientError, match="coordinator_load_in_progress"):
        parse(b"\0\0\0\0\0\0\x0e\x01\x01\0", 3)


@given(st.integers(0, len(ANSWER) - 2))
def test_an_answer_that_was_cut_is_refused(size: int) -> None:
    with pytest.raises(ClientError):
        parse(ANSWER[:size], 3)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    with contextlib.suppress(ClientError):
        parse(data, 3)

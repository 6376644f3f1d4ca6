"""Runs of messages that differ in their values only."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.records import Record, build
from millstream.codec.spelling import Run, message_bytes_max, spell_batch, spell_run

TIME_MS = 1_700_000_000_000
HEADERS = (("ms-subject", b"orders.us"), ("null", None))


def built(run: Run) -> bytes:
    return build([Record(at, TIME_MS, *message) for at, message in enumerate(run)])


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200, 8_191, 8_192, 8_193])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 8_192])
def test_values_of_one_size_are_spelled_as_ever(count: int, size: int) -> None:
    if count * size > 2**21:
        count = 2**21 // size
    run = Run(b"orders.us", [bytes([at % 256]) * size for at in range(count)], HEADERS)

    assert spell_run(run, TIME_MS) == built(run)


@settings(deadline=None)
@given(
    st.none() | st.binary(max_size=80),
    st.lists(st.binary(max_size=70), min_size=1, max_size=150),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=2),
)
def test_any_run_is_spelled_as_ever(
    key: bytes | None, values: list[bytes], headers: list[tuple[str, bytes | None]]
) -> None:
    run = Run(key, values, tuple(headers))

    spelled = spell_run(run, TIME_MS)

    assert spelled == spell_batch(list(run), TIME_MS) == built(run)
    assert len(spelled) <= 61 + run.bytes_max
    assert run.bytes_max == sum(map(message_bytes_max, run))


def test_messages_that_take_turns_are_spelled_as_ever() -> None:
    one, other = Run(b"a", [b"1", b"22"], HEADERS), Run(b"b", [b"3", b"44"], ())
    mixed = [message for pair in zip(one, other, strict=True) for message in pair]

    records = [Record(at, TIME_MS, *message) for at, message in enumerate(mixed)]

    assert spell_batch(mixed, TIME_MS) == build(records)


def test_a_run_is_a_sequence_of_messages() -> None:
    run = Run(b"k", [b"1", b"2", b"3"], HEADERS)

    assert list(run) == [(b"k", value, HEADERS) for value in (b"1", b"2", b"3")]
    assert run[1] == (b"k", b"2", HEADERS)
    assert list(run[1:]) == list(run)[1:]
    assert len(run) == 3

"""Messages of a few kinds: they are spelled at once, and no differently."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.records import Record, build
from millstream.codec.spelling import (
    Kind,
    Message,
    Mixture,
    message_bytes_max,
    pick,
    sizes_max,
    spell,
    spell_batch,
)

TIME_MS = 1_700_000_000_000
HEADERS = (("ms-subject", b"orders.us"), ("null", None))
COUNTS = [1, 2, 63, 64, 65, 200, 8_191, 8_192, 8_193]

headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=2)
kinds = st.builds(Kind, st.none() | st.binary(max_size=80), st.integers(0, 130), headers.map(tuple))


def built(messages: Mixture) -> bytes:
    return build([Record(at, TIME_MS, *message) for at, message in enumerate(messages)])


def filled(*order: Kind) -> Mixture:
    return Mixture(order, [bytes([at % 256]) * kind.size for at, kind in enumerate(order)])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", [0, 1, 63, 64, 8_192])
def test_messages_of_one_kind_are_spelled_as_ever(count: int, size: int) -> None:
    if count * size > 2**21:
        count = 2**21 // size
    run = filled(*[Kind(b"orders.us", size, HEADERS)] * count)

    assert spell(run, TIME_MS) == built(run)


@pytest.mark.parametrize("count", COUNTS)
def test_kinds_that_take_turns_are_spelled_as_ever(count: int) -> None:
    few = [Kind(b"a", 1, HEADERS), Kind(None, 60, ()), Kind(b"", 0, (("h", None),))]
    mixed = filled(*[few[at % 3] for at in range(count)])

    assert spell(mixed, TIME_MS) == built(mixed)


@settings(deadline=None)
@given(st.lists(kinds, min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1), st.data())
def test_any_mixture_is_spelled_as_ever(
    few: list[Kind], order: list[int], data: st.DataObject
) -> None:
    chosen = [few[number % len(few)] for number in order]
    values = [data.draw(st.binary(min_size=kind.size, max_size=kind.size)) for kind in chosen]
    mixed = Mixture(chosen, values)

    spelled = spell(mixed, TIME_MS)

    assert spelled == spell(list(mixed), TIME_MS) == spell_batch(mixed, TIME_MS) == built(mixed)
    assert len(spelled) <= 61 + sum(sizes_max(mixed))


@given(st.lists(kinds, min_size=1, max_size=9))
def test_how_much_messages_take_is_known_the_same_either_way(few: list[Kind]) -> None:
    mixed = filled(*few)

    each = list(map(message_bytes_max, mixed))

    assert list(sizes_max(mixed)) == list(sizes_max(list(mixed))) == each


def test_a_value_that_is_not_of_its_kind_is_not_spelled() -> None:
    one, other = Kind(b"a", 1, ()), Kind(b"b", 2, ())

    for mixed in (Mixture([one, one], [b"1", b"22"]), Mixture([one, other], [b"1", b"2"])):
        with pytest.raises(AssertionError):
            spell(mixed, TIME_MS)


def test_a_mixture_is_a_sequence_of_messages() -> None:
    one, other = Kind(b"k", 1, HEADERS), Kind(None, 2, ())
    mixed = Mixture([one, other, one], [b"1", b"22", b"3"])

    listed: list[Message] = [(b"k", b"1", HEADERS), (None, b"22", ()), (b"k", b"3", HEADERS)]
    assert list(mixed) == listed
    assert mixed[1] == listed[1]
    assert list(mixed[1:]) == listed[1:]
    assert list(pick(mixed, [0, 2])) == pick(listed, [0, 2]) == [listed[0], listed[2]]
    assert pick(mixed, range(3)) is mixed
    assert len(mixed) == 3

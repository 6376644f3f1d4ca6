"""One number for a record, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.publish.sequence_numbers import (
    OFFSET_MAX,
    PARTITION_MAX,
    TOPIC_NUMBER_MAX,
    place_of,
    sequence_of,
)
from millstream.errors import InvalidRequest


@given(st.integers(0, TOPIC_NUMBER_MAX), st.integers(0, PARTITION_MAX), st.integers(0, OFFSET_MAX))
def test_a_sequence_number_leads_back_to_its_record(topic: int, partition: int, at: int) -> None:
    number = sequence_of(topic, partition, at)

    assert 0 < number < 2**63
    assert place_of(number) == (topic, partition, at)


@given(st.integers(-(2**64), 2**64))
def test_a_number_belongs_to_one_record_at_most(number: int) -> None:
    place = place_of(number)

    assert place is None or sequence_of(*place) == number


def test_the_first_record_of_the_first_topic_is_number_one() -> None:
    assert sequence_of(0, 0, 0) == 1
    assert sequence_of(0, 0, 1) == 2
    assert place_of(0) is None
    assert place_of(1 << 36) is None


@pytest.mark.parametrize(
    "place", [(TOPIC_NUMBER_MAX + 1, 0, 0), (0, PARTITION_MAX + 1, 0), (0, 0, OFFSET_MAX + 1)]
)
def test_a_place_without_a_number_is_refused(place: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidRequest):
        sequence_of(*place)

"""Which delayed records an idempotent producer sent, by its sequence numbers."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.delayed.sent_records import SentRecords
from millstream.internal_topics.delayed import Sender

SEQUENCE_MAX = 2**31 - 1


def sender(sequence: int, producer_id: int = 7) -> Sender:
    return Sender(producer_id, 0, sequence & SEQUENCE_MAX)


def test_a_batch_of_any_size_takes_one_entry() -> None:
    sent = SentRecords(runs_max=3)
    for at in range(100_000):
        sent.add(0, sender(at), 500 + at)

    assert len(sent) == 1
    assert sent.find(0, sender(0)) == 500
    assert sent.find(0, sender(99_999)) == 100_499
    assert sent.find(0, sender(100_000)) is None
    assert sent.find(1, sender(0)) is None
    assert sent.find(0, sender(0, producer_id=8)) is None


def test_sequence_numbers_wrap() -> None:
    sent = SentRecords()
    for at in range(20):
        sent.add(0, sender(SEQUENCE_MAX - 9 + at), at)

    assert len(sent) == 1
    assert sent.find(0, sender(SEQUENCE_MAX)) == 9
    assert sent.find(0, sender(0)) == 10
    assert sent.find(0, sender(9)) == 19
    assert sent.find(0, sender(10)) is None


def test_the_producer_that_was_silent_longest_is_forgotten_first() -> None:
    sent = SentRecords(runs_max=10)
    for producer_id in range(20):
        sent.add(0, sender(0, producer_id), producer_id)

    kept = [number for number in range(20) if sent.find(0, sender(0, number)) is not None]

    assert kept == list(range(10, 20))
    assert len(sent) == 10


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), max_size=60), st.integers(0, 99))
def test_every_sequence_number_is_found_as_in_a_dictionary(
    steps: list[tuple[int, int]], offset: int
) -> None:
    sent, model = SentRecords(), dict[int, int]()
    sequence, number = SEQUENCE_MAX - 50, offset
    for sequence_step, number_step in steps:
        sequence += sequence_step
        number += number_step
        sent.add(0, sender(sequence), number)
        model[sequence & SEQUENCE_MAX] = number

    for near in range(SEQUENCE_MAX - 60, sequence + 5):
        assert sent.find(0, sender(near)) == model.get(near & SEQUENCE_MAX)

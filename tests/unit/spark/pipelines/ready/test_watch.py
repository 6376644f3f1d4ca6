"""When a key counts as silent, and when as back."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.pipelines.ready.watch import BACK, SILENT, Change, Seen, changes

AFTER_MS = 100
times = st.lists(st.integers(0, 2_000), max_size=20)


def test_silence_is_reported_once_and_its_end_too() -> None:
    reported, seen = changes(None, [0, 50], 140, after_ms=AFTER_MS)
    assert (reported, seen) == ([], Seen(50, is_silent=False))

    reported, seen = changes(seen, [], 151, after_ms=AFTER_MS)
    assert (reported, seen) == ([Change(SILENT, 150, 50)], Seen(50, is_silent=True))

    reported, seen = changes(seen, [], 500, after_ms=AFTER_MS)
    assert reported == []

    reported, seen = changes(seen, [600], 610, after_ms=AFTER_MS)
    assert (reported, seen) == ([Change(BACK, 600, 50)], Seen(600, is_silent=False))


def test_a_gap_between_rows_of_one_batch_is_a_silence() -> None:
    reported, _ = changes(None, [0, 500], 500, after_ms=AFTER_MS)

    assert reported == [Change(SILENT, 100, 0), Change(BACK, 500, 0)]


def test_rows_before_the_last_known_time_change_nothing() -> None:
    seen = Seen(300, is_silent=True)

    assert changes(seen, [0, 300], 350, after_ms=AFTER_MS) == ([], seen)


@given(times, times, st.integers(0, 3_000))
def test_how_rows_in_order_are_cut_into_batches_does_not_matter(
    first: list[int], second: list[int], now_ms: int
) -> None:
    ordered = sorted(first + second)
    middle = len(first)
    whole, seen_whole = changes(None, ordered, now_ms, after_ms=AFTER_MS)

    before, seen = changes(None, ordered[:middle], 0, after_ms=AFTER_MS)
    after, seen = changes(seen, ordered[middle:], now_ms, after_ms=AFTER_MS)

    assert (before + after, seen) == (whole, seen_whole)
    states = [change.state for change in whole]
    assert states == [SILENT, BACK] * (len(states) // 2) + [SILENT] * (len(states) % 2)

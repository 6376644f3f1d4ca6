"""When records arrived: a few points tell how old the oldest unread one is."""

from millstream.metrics.traffic import TIER_POINTS_MAX, TIERS_MS, Arrivals

DAY_MS = 24 * 60 * 60 * 1000


def steady(seconds: int, per_second: int = 10) -> Arrivals:
    arrivals = Arrivals([])
    for second in range(seconds):
        arrivals.note(second * per_second, second * 1000)
    return arrivals


def test_the_age_of_a_record_is_known_to_the_second_while_it_is_young() -> None:
    arrivals = steady(3600)

    for behind_s in (0, 1, 5, 20):
        age_ms = arrivals.age_ms((3599 - behind_s) * 10, 3_599_000)
        assert abs(age_ms - behind_s * 1000) <= 1000


def test_old_records_have_an_age_by_what_lies_around_them() -> None:
    arrivals = steady(40_000)

    for behind_s in (60, 600, 3600, 30_000):
        age_ms = arrivals.age_ms((39_999 - behind_s) * 10, 39_999_000)
        assert abs(age_ms - behind_s * 1000) < behind_s * 1000 * 0.1


def test_memory_is_bounded() -> None:
    arrivals = steady(100_000)

    assert all(len(offsets) <= TIER_POINTS_MAX for offsets in arrivals._offsets)
    assert len(arrivals._offsets) == len(TIERS_MS)


def test_records_from_before_the_start_are_as_old_as_their_segment_at_least() -> None:
    arrivals = Arrivals([(99, DAY_MS), (199, 2 * DAY_MS)])

    assert arrivals.age_ms(50, 3 * DAY_MS) == 2 * DAY_MS
    assert arrivals.age_ms(199, 3 * DAY_MS) == DAY_MS
    arrivals.note(200, 3 * DAY_MS)
    assert arrivals.age_ms(199, 3 * DAY_MS) == DAY_MS
    assert arrivals.age_ms(200, 3 * DAY_MS) == 0


def test_an_end_that_was_cut_off_is_forgotten() -> None:
    arrivals = Arrivals([])
    arrivals.note(100, 10_000)
    arrivals.note(50, 20_000)

    assert arrivals.age_ms(60, 30_000) == 10_000


def test_without_a_point_nothing_is_claimed() -> None:
    assert Arrivals([]).age_ms(5, 1000) == 0

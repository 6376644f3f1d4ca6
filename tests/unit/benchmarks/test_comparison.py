"""What turns rounds into figures and verdicts."""

import pytest
from benchmarks.kafka.comparison import Sample, Samples, at_least, below, percentile


def sample(peer: str, value: float, *, number: int = 0, setting: str = "cell") -> Sample:
    return Sample(
        peer=peer, durability="write", setting=setting, name="rate", round=number, value=value
    )


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.99, 99), (0.999, 100), (1, 100), (0.001, 1)]
)
def test_a_percentile_is_the_smallest_value_that_covers_its_share(
    share: float, expected: int
) -> None:
    assert percentile(range(1, 101), share) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7], 0.5) == percentile([7], 0.999) == 7


def test_a_ratio_is_taken_within_rounds_and_not_of_medians() -> None:
    ours = [sample("ours", value, number=at) for at, value in enumerate((10, 40, 90))]
    theirs = [sample("theirs", value, number=at) for at, value in enumerate((10, 20, 20))]
    samples = Samples(ours + theirs)

    assert samples.median("ours", "write", "cell", "rate") == 40
    assert samples.ratio("ours", "theirs", "write", "cell", "rate") == 2  # Of 1, 2 and 4.5.


def test_a_round_that_one_side_did_not_finish_is_left_out_of_the_ratio() -> None:
    samples = Samples(
        [sample("ours", 30), sample("ours", 1, number=1), sample("theirs", 10), sample("else", 5)]
    )

    assert samples.ratio("ours", "theirs", "write", "cell", "rate") == 3
    assert samples.ratio("ours", "nobody", "write", "cell", "rate") is None
    assert samples.median("nobody", "write", "cell", "rate") is None


def test_settings_keep_the_order_of_measuring() -> None:
    samples = Samples([sample("a", 1, setting="z"), sample("a", 1, setting="b")])
    samples.add(sample("b", 1, setting="z"))

    assert samples.settings("write", "rate") == ["z", "b"]
    assert samples.settings("sync", "rate") == []


def test_goals_are_judged_at_their_bounds_and_only_where_both_sides_exist() -> None:
    met, missed = at_least(1.2), at_least(1.19)
    assert met is not None
    assert missed is not None
    assert (met.is_met, missed.is_met) == (True, False)
    equal = below(5.0, 5.0, "p50")
    assert equal is not None
    assert not equal.is_met
    assert at_least(None) is None
    assert below(1.0, None, "p50") is None

"""The figures of starting: medians, extremes and verdicts."""

from benchmarks.startup import ACCEPTED, GOALS_MS, HELP, SETTINGS, figures


def runs(*helps_s: float) -> list[dict[str, float]]:
    return [dict.fromkeys(SETTINGS, 0.001) | {HELP: help_s} for help_s in helps_s]


def test_the_median_is_held_against_the_goal() -> None:
    collected = {figure.name: figure for figure in figures(runs(0.2, 0.29, 5.0), load=(0.5, 2.0))}

    assert (collected[HELP].value, collected[HELP].unit) == (290.0, "ms")
    assert (collected[HELP].goal, collected[HELP].is_met) == ("< 300", True)
    assert (
        "median of 3 runs, 200 to 5000 ms; load 0.5 before, 2.0 after" in collected[HELP].settings
    )


def test_a_goal_that_is_missed_is_said_to_be() -> None:
    (matching,) = [figure for figure in figures(runs(0.31), load=(0.0, 0.0)) if figure.name == HELP]

    assert matching.is_met is False


def test_what_has_no_goal_is_neither_met_nor_missed() -> None:
    (matching,) = [
        figure for figure in figures(runs(0.2), load=(0.0, 0.0)) if figure.name == ACCEPTED
    ]

    assert (matching.goal, matching.is_met) == ("", None)
    assert set(GOALS_MS) < set(SETTINGS)

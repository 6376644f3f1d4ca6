"""The history of lags: bounded in time and in groups."""

from millstream.protocols.http.operate.history import (
    LAG_GROUPS_MAX,
    LAG_POINTS,
    LagHistory,
    LagPoint,
)


def test_the_last_hour_of_a_group_is_kept() -> None:
    history = LagHistory()
    for at in range(LAG_POINTS + 5):
        history.note({"readers": LagPoint(at, 2 * at, 3 * at)})

    points = history.of("readers")

    assert len(points) == LAG_POINTS
    assert (points[0], points[-1]) == (LagPoint(5, 10, 15), LagPoint(244, 488, 732))
    assert history.of("others") == []


def test_groups_have_a_bound_and_those_that_are_gone_make_room() -> None:
    history = LagHistory()
    history.note({f"g{at}": LagPoint(1, 1, 1) for at in range(LAG_GROUPS_MAX + 1)})
    history.note({"new": LagPoint(2, 2, 2)})

    assert history.of("g0") == []
    assert history.of("new") == [LagPoint(2, 2, 2)]

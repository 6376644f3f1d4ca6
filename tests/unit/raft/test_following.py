"""What a follower does with what its leader says."""

import pytest

from millstream.errors import NoSpace
from millstream.model import ORIGIN
from millstream.raft.messages import Alive, Diverged, Fetch, Lead, Reset
from tests.unit.raft.replicas import TWO, Replica, at, batch, boundary


def test_a_leader_that_makes_itself_known_is_asked_for_records() -> None:
    follower = Replica()

    sent = follower.hear(TWO, Lead(1))

    assert sent == [(TWO, Fetch(1, ORIGIN, 0))]
    assert follower.core.leader == TWO


def test_what_came_is_acknowledged_only_when_it_is_durable() -> None:
    follower = Replica()

    assert follower.follow(TWO, [boundary(1, 0)], [batch(1, 0)]) == []
    assert follower.sync() == [(TWO, Fetch(1, at(1, 1), 0))]


def test_a_boundary_alone_is_acknowledged_only_when_it_is_durable() -> None:
    follower = Replica()

    assert follower.follow(TWO, [boundary(1, 0)]) == []
    assert follower.sync() == [(TWO, Fetch(1, at(1, 0), 0))]


def test_a_heartbeat_is_answered_with_the_next_fetch() -> None:
    follower = Replica()

    assert follower.follow(TWO) == [(TWO, Fetch(1, ORIGIN, 0))]


def test_a_fetch_that_stays_unanswered_is_sent_again() -> None:
    follower = Replica()
    follower.hear(TWO, Lead(1))

    assert follower.tick(3) == []
    assert follower.tick() == [(TWO, Fetch(1, ORIGIN, 0))]


def test_a_follower_with_a_busy_disk_says_that_it_lives() -> None:
    follower = Replica()
    follower.follow(TWO, [boundary(1, 0)], [batch(1, 0)])

    assert follower.tick(4) == [(TWO, Alive(1))]
    assert follower.hear(TWO, Lead(1)) == []


def test_the_high_watermark_follows_as_far_as_the_log_reaches() -> None:
    follower = Replica()

    follower.follow(TWO, [boundary(1, 0)], [batch(1, 0)], high_watermark=9)

    assert follower.core.high_watermark == 1


def test_the_log_start_follows_as_far_as_is_committed_and_durable() -> None:
    follower = Replica()
    follower.follow(
        TWO, [boundary(1, 0)], [batch(1, 0, records=5)], high_watermark=4, start_offset=9
    )
    assert follower.log.start_offset == 0

    follower.sync()
    follower.follow(TWO, high_watermark=4, start_offset=9)
    assert follower.log.start_offset == 4


def test_the_log_start_never_goes_back() -> None:
    follower = Replica()
    follower.follow(TWO, [boundary(1, 0)], [batch(1, 0, records=5)])
    follower.sync()
    follower.follow(TWO, high_watermark=5, start_offset=3)
    follower.sync()

    follower.follow(TWO, high_watermark=5, start_offset=1)

    assert follower.log.start_offset == 3


def _follower_of_two_epochs() -> Replica:
    """Three records of epoch 1, two of epoch 3, all durable, nothing known to be committed."""
    follower = Replica()
    follower.follow(
        TWO,
        [boundary(1, 0), boundary(3, 3)],
        [batch(1, 0, records=3), batch(3, 3, records=2)],
        epoch=3,
    )
    follower.sync()
    return follower


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (at(3, 4), at(3, 4)),  # The same epoch ended earlier there.
        (at(2, 3), at(1, 3)),  # An epoch that is unknown here: back to the one before.
        (at(1, 2), at(1, 2)),
        (at(1, 9), at(1, 3)),  # It went on there: everything of it here is shared.
        (ORIGIN, ORIGIN),
    ],
)
def test_a_diverged_log_is_cut_to_the_last_place_both_may_share(
    end: tuple[int, int], left: tuple[int, int]
) -> None:
    follower = Replica()
    follower.follow(
        TWO,
        [boundary(1, 0), boundary(3, 3)],
        [batch(1, 0), batch(1, 1), batch(1, 2), batch(3, 3), batch(3, 4)],
        epoch=3,
    )
    follower.sync()

    sent = follower.hear(TWO, Diverged(4, at(3, 5), end))

    assert follower.log.last == left
    assert sent == [(TWO, Fetch(4, left, 0))]


def test_committed_records_are_never_cut() -> None:
    follower = _follower_of_two_epochs()
    follower.follow(TWO, epoch=3, high_watermark=5)

    with pytest.raises(AssertionError, match="would cut off committed records"):
        follower.hear(TWO, Diverged(3, at(3, 5), at(1, 3)))


def test_a_stale_divergence_cuts_nothing() -> None:
    follower = _follower_of_two_epochs()

    follower.hear(TWO, Diverged(3, at(3, 4), at(1, 3)))

    assert follower.log.last == at(3, 5)


def test_a_reset_starts_over_and_is_acknowledged_when_durable() -> None:
    follower = _follower_of_two_epochs()
    kept = (boundary(3, 3), boundary(4, 20))

    assert follower.hear(TWO, Reset(4, at(3, 5), 20, kept)) == []
    assert follower.log.last == at(4, 20)
    assert follower.log.start_offset == 20
    assert follower.core.high_watermark == 20
    assert follower.sync() == [(TWO, Fetch(4, at(4, 20), 20))]


def test_a_reset_may_lower_the_offset_but_never_the_epoch() -> None:
    follower = _follower_of_two_epochs()

    with pytest.raises(AssertionError, match="must not forget an epoch"):
        follower.hear(TWO, Reset(4, at(3, 5), 4, (boundary(2, 1),)))

    follower.hear(TWO, Reset(4, at(3, 5), 4, (boundary(4, 2),)))
    assert follower.log.last == at(4, 4)


def test_records_that_the_disk_refused_are_asked_for_again() -> None:
    follower = Replica()
    follower.hear(TWO, Lead(1))
    follower.log.is_full = True
    with pytest.raises(NoSpace):
        follower.follow(TWO, [boundary(1, 0)], [batch(1, 0)])

    follower.log.is_full = False

    assert follower.log.last == ORIGIN
    assert follower.tick(4) == [(TWO, Fetch(1, ORIGIN, 0))]


def test_a_sync_of_something_that_is_not_there_stops_the_node() -> None:
    follower = _follower_of_two_epochs()

    with pytest.raises(AssertionError, match="synced what is not there"):
        follower.core.durable(at(3, 9))

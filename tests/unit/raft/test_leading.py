"""What a leader does for its followers, and with them."""

import pytest

from millstream.errors import ChangeRefused, DamagedLog
from millstream.model import ORIGIN, Boundary, Position
from millstream.raft import Refusal, Role
from millstream.raft.messages import (
    Alive,
    Diverged,
    Fetch,
    FetchReply,
    Hint,
    Lead,
    Reset,
    TakeOver,
    Vote,
    VoteGranted,
)
from tests.simulation.core_log import Batch, FakeLog
from tests.unit.raft.replicas import FOUR, ONE, THREE, TWO, Replica, at, batch, boundary, nodes


def test_a_fetch_is_answered_with_what_follows_it() -> None:
    leader = Replica().lead(TWO)
    leader.propose(records=3)

    ((to, reply),) = leader.fetch(TWO, ORIGIN).messages

    assert to == TWO
    assert isinstance(reply, FetchReply)
    assert reply.base == ORIGIN
    assert reply.boundaries == (boundary(1, 0),)
    assert reply.records == leader.log.records.batches


def test_a_fetch_that_finds_nothing_new_waits_for_the_next_record() -> None:
    leader = Replica().lead(TWO).establish(TWO)
    assert leader.fetch(TWO, leader.log.last).messages == []

    ((to, reply),) = leader.propose()

    assert to == TWO
    assert isinstance(reply, FetchReply)
    assert reply.base == at(1, 0)
    assert reply.records == leader.log.records.batches


class HalfReadable(FakeLog):
    """A log with a place that the disk does not give back."""

    def read(self, after: Position) -> tuple[tuple[Boundary, ...], tuple[Batch, ...]]:
        if after == at(1, 0):
            raise DamagedLog("a bad sector")
        return super().read(after)


def test_what_was_proposed_is_in_the_log_though_it_cannot_be_read_for_a_follower() -> None:
    leader = Replica(log=HalfReadable(nodes(1, 2, 3))).lead(TWO).establish(TWO)
    leader.fetch(TWO, leader.log.last)

    effects = leader.core.propose((batch(1, 0),))

    assert leader.log.last == at(1, 1)
    assert isinstance(effects.unreadable, DamagedLog)
    assert effects.messages == []


def test_one_follower_that_cannot_be_served_does_not_keep_the_others_from_their_news() -> None:
    leader = Replica(log=HalfReadable(nodes(1, 2, 3))).lead(TWO).establish(TWO)
    leader.propose()
    leader.sync()
    leader.fetch(TWO, at(1, 0))  # Not answered: the place is bad.
    assert leader.fetch(THREE, at(1, 1)).unreadable is None
    assert leader.core.high_watermark == 1

    leader.fetch(THREE, at(1, 1), high_watermark=1)
    effects = leader.core.propose((batch(1, 1),))

    assert [to for to, _ in effects.messages] == [THREE]


def test_a_commit_stands_though_a_waiting_follower_cannot_be_told() -> None:
    leader = Replica(log=HalfReadable(nodes(1, 2, 3))).lead(TWO).establish(TWO, THREE)
    leader.fetch(TWO, at(1, 0))
    leader.core.propose((batch(1, 0),))
    leader.fetch(THREE, at(1, 1))

    durable = leader.log.end_sync(leader.log.begin_sync())
    assert durable is not None
    effects = leader.core.durable(durable)

    assert leader.core.high_watermark == 1
    assert [to for to, _ in effects.messages] == [THREE]


def test_a_waiting_fetch_is_answered_once() -> None:
    leader = Replica().lead(TWO).establish(TWO)
    leader.fetch(TWO, leader.log.last)
    leader.propose()

    assert leader.propose() == []


def test_a_waiting_fetch_is_answered_when_the_high_watermark_moves() -> None:
    leader = Replica().lead(TWO).establish(TWO)
    leader.propose()
    leader.sync()
    leader.fetch(THREE, at(1, 1))
    assert leader.core.high_watermark == 1
    leader.propose()
    leader.fetch(TWO, at(1, 2), high_watermark=1)

    sent = leader.sync()

    assert leader.core.high_watermark == 2
    assert [(to, type(m), m.high_watermark) for to, m in sent] == [(TWO, FetchReply, 2)]  # type: ignore[union-attr]


def test_a_follower_that_does_not_know_the_high_watermark_is_answered_at_once() -> None:
    leader = Replica().lead(TWO)
    leader.propose()
    leader.sync()

    ((_, reply),) = leader.fetch(TWO, at(1, 1), high_watermark=0).messages

    assert isinstance(reply, FetchReply)
    assert reply.high_watermark == 1


def test_a_waiting_fetch_is_answered_after_a_while_as_a_heartbeat() -> None:
    leader = Replica().lead(TWO).establish(TWO)
    leader.fetch(TWO, leader.log.last)

    assert [to for to, _ in leader.tick()] == []
    beats = [(to, message) for to, message in leader.tick() if isinstance(message, FetchReply)]

    assert [(to, beat.records) for to, beat in beats] == [(TWO, ())]


def test_a_voter_that_is_not_heard_is_told_again_who_leads() -> None:
    leader = Replica().lead(TWO)

    sent = leader.tick(4)

    assert sent == [(TWO, Lead(1)), (THREE, Lead(1))]


def test_a_follower_with_a_busy_disk_counts_as_heard_and_gets_no_records() -> None:
    leader = Replica().lead(TWO)
    leader.propose()

    for _ in range(30):
        leader.tick()
        assert leader.hear(TWO, Alive(1)) == [(TWO, Lead(1))]

    assert leader.core.role is Role.LEADER


def test_nothing_is_committed_before_the_own_epoch_is_on_a_majority() -> None:
    leader = Replica().lead(TWO)
    leader.propose()
    leader.sync()

    leader.fetch(TWO, ORIGIN)
    assert leader.core.high_watermark == 0
    assert not leader.core.is_established

    leader.fetch(TWO, at(1, 1))
    assert leader.core.high_watermark == 1
    assert leader.core.is_established


def test_the_leaders_own_disk_counts_only_when_it_is_done() -> None:
    leader = Replica(1, 2).lead(TWO)
    leader.propose()
    leader.fetch(TWO, at(1, 1))
    assert leader.core.high_watermark == 0

    leader.sync()
    assert leader.core.high_watermark == 1


def test_an_old_fetch_that_comes_late_takes_nothing_back() -> None:
    leader = Replica().lead(TWO)
    leader.propose()
    leader.sync()
    leader.fetch(TWO, at(1, 1))

    leader.fetch(TWO, at(1, 0))

    assert leader.core.lags() == {TWO: 0, THREE: 1}
    assert leader.core.high_watermark == 1


def test_a_place_the_leader_does_not_know_is_answered_with_where_its_epoch_ends() -> None:
    leader = Replica().lead(TWO)
    leader.propose(records=2)

    assert leader.fetch(TWO, at(1, 5)).messages == [(TWO, Diverged(1, at(1, 5), at(1, 2)))]


def test_a_place_that_was_deleted_is_answered_with_a_reset() -> None:
    leader = Replica(1).lead()
    leader.propose(records=4)
    leader.propose(records=4)
    leader.sync()
    leader.log.advance_start(6)

    reset = Reset(1, ORIGIN, 4, (boundary(1, 0, 1),))
    assert leader.fetch(TWO, ORIGIN).messages == [(TWO, reset)]


def test_the_log_start_may_move_up_to_what_is_committed_and_durable() -> None:
    leader = Replica(1, 2, 3).lead(TWO)
    leader.propose(records=4)
    assert leader.core.start_offset_max == 0

    leader.fetch(TWO, at(1, 4))
    leader.fetch(THREE, at(1, 4))
    assert leader.core.high_watermark == 4
    assert leader.core.start_offset_max == 0

    leader.sync()
    assert leader.core.start_offset_max == 4


def test_a_successor_takes_over_when_it_holds_everything() -> None:
    leader = Replica().lead(TWO).establish(TWO)
    leader.propose()

    assert leader.core.transfer(THREE).messages == []
    assert not leader.core.takes_proposals
    assert (THREE, TakeOver(1)) in leader.fetch(THREE, at(1, 1)).messages


def test_a_transfer_is_given_up_after_an_election_timeout() -> None:
    leader = Replica().lead(TWO).establish(TWO)
    leader.core.transfer(THREE)

    for _ in range(10):
        leader.tick()
        leader.fetch(TWO, at(1, 0))

    assert leader.core.takes_proposals


def test_a_leader_hands_over_to_itself_by_doing_nothing() -> None:
    leader = Replica().lead(TWO)

    assert leader.core.transfer(ONE).messages == []
    assert leader.core.takes_proposals


def test_only_a_voter_can_be_handed_over_to() -> None:
    leader = Replica().lead(TWO)

    with pytest.raises(ChangeRefused) as refused:
        leader.core.transfer(FOUR)

    assert refused.value.reason is Refusal.NOT_VOTER


@pytest.mark.parametrize(
    ("is_established", "is_transferring", "refusal"),
    [
        (False, False, Refusal.NOT_ESTABLISHED),
        (True, True, Refusal.TRANSFERRING),
    ],
)
def test_voters_are_not_changed_while_something_else_is_open(
    is_established: bool, is_transferring: bool, refusal: Refusal
) -> None:
    leader = Replica().lead(TWO)
    if is_established:
        leader.establish(TWO)
    if is_transferring:
        leader.core.transfer(THREE)

    with pytest.raises(ChangeRefused) as refused:
        leader.core.change_voters(nodes(1, 2))

    assert refused.value.reason is refusal
    assert leader.core.role is Role.LEADER


def test_the_old_voters_elect_and_the_new_ones_commit() -> None:
    leader = Replica(1, 2, 3).lead(TWO).establish(TWO, THREE)
    leader.fetch(FOUR, at(1, 0))

    effects = leader.core.change_voters(nodes(1, 2, 3, 4))
    votes = [(node, Vote(2, at(1, 0))) for node in (TWO, THREE)]
    assert effects.messages == [(FOUR, Hint(2, None)), *votes]  # No fetch stays unanswered.
    assert leader.core.role is Role.CANDIDATE

    leader.hear(TWO, VoteGranted(2))
    assert leader.core.voters == nodes(1, 2, 3, 4)
    leader.sync()
    leader.fetch(TWO, at(2, 0))
    assert not leader.core.is_established

    leader.fetch(FOUR, at(2, 0))
    assert leader.core.is_established


def test_a_change_whose_campaign_is_lost_has_not_happened() -> None:
    leader = Replica(1, 2, 3).lead(TWO).establish(TWO, THREE)
    leader.core.change_voters(nodes(1, 2))

    leader.tick(20)

    assert leader.core.role is Role.PROSPECT
    assert leader.core.voters == nodes(1, 2, 3)


def test_a_lone_voter_adds_another_in_one_step() -> None:
    leader = Replica(1).lead()
    leader.fetch(TWO, at(1, 0))

    leader.core.change_voters(nodes(1, 2))

    assert leader.core.role is Role.LEADER
    assert leader.log.last == at(2, 0)
    assert leader.core.voters == nodes(1, 2)


def test_a_leader_that_removed_itself_leads_until_that_is_committed() -> None:
    leader = Replica(1, 2, 3).lead(TWO).establish(TWO, THREE)
    leader.core.change_voters(nodes(2, 3))
    leader.hear(TWO, VoteGranted(2))
    leader.sync()

    leader.fetch(TWO, at(2, 0))
    assert leader.core.role is Role.LEADER

    sent = leader.fetch(THREE, at(2, 0)).messages
    assert leader.core.role is Role.FOLLOWER
    assert (TWO, TakeOver(2)) in sent


def test_the_removed_voter_is_told_of_the_epoch_that_removes_it() -> None:
    leader = Replica(1, 2, 3).lead(TWO).establish(TWO, THREE)
    leader.core.change_voters(nodes(1, 2))

    sent = leader.hear(TWO, VoteGranted(2))

    assert sent == [(TWO, Lead(2)), (THREE, Lead(2))]


def test_the_lags_of_followers_can_be_seen() -> None:
    leader = Replica().lead(TWO)
    leader.propose(records=5)
    leader.hear(FOUR, Fetch(1, at(1, 0), 0))
    leader.fetch(TWO, at(1, 5))

    assert leader.core.lags() == {TWO: 0, THREE: 5, FOUR: 5}


def test_a_leader_that_resigns_answers_the_fetches_that_wait() -> None:
    leader = Replica(1, 2, 3).lead(TWO).establish(TWO, THREE)
    leader.fetch(TWO, at(1, 0))

    effects = leader.hear(THREE, Hint(5, None))

    assert leader.core.role is Role.FOLLOWER
    assert (TWO, Hint(5, None)) in effects

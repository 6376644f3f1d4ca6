"""How a replica comes to lead, to follow and to vote."""

import pytest

from millstream.errors import ChangeRefused, NoSpace
from millstream.model import ORIGIN, HardState, ReplicaId
from millstream.raft import Refusal, Role
from millstream.raft.messages import (
    Fetch,
    FetchReply,
    Hint,
    Lead,
    PreVote,
    PreVoteGranted,
    TakeOver,
    Vote,
    VoteGranted,
)
from tests.simulation.core_log import FakeLog
from tests.unit.raft.replicas import FOUR, ONE, THREE, TWO, Replica, at, batch, boundary, nodes


def test_a_lone_voter_leads_after_its_first_tick() -> None:
    alone = Replica(1)

    effects = alone.core.tick()

    assert alone.core.role is Role.LEADER
    assert alone.log.boundaries == (boundary(1, 0, 1),)
    assert effects.hard_state == HardState(1, ONE)
    assert effects.messages == []


def test_a_leader_without_followers_needs_no_ticks_until_an_observer_comes() -> None:
    alone = Replica(1)
    assert alone.core.needs_ticks

    alone.lead()
    assert not alone.core.needs_ticks

    alone.fetch(TWO, ORIGIN)
    assert alone.core.needs_ticks

    alone.tick(10)
    assert not alone.core.needs_ticks


def test_the_vote_is_in_the_journal_before_the_boundary() -> None:
    written: list[str] = []

    class Noting(FakeLog):
        def vote(self, hard_state: HardState) -> None:
            written.append("vote")
            super().vote(hard_state)

        def open_epoch(self, opened: object) -> None:
            written.append("boundary")
            super().open_epoch(opened)

    Replica(log=Noting(nodes(1))).tick()

    assert written == ["vote", "boundary"]


def test_silence_makes_a_voter_ask_before_it_enters_an_epoch() -> None:
    replica = Replica()

    sent = replica.tick(20)

    assert replica.core.role is Role.PROSPECT
    assert replica.core.epoch == 0
    assert sent == [(node, PreVote(0, ORIGIN)) for node in (TWO, THREE)]


def test_a_prospect_with_a_majority_campaigns_and_a_candidate_with_a_majority_leads() -> None:
    replica = Replica()
    replica.tick(20)

    assert replica.hear(TWO, PreVoteGranted(0)) == [
        (node, Vote(1, ORIGIN)) for node in (TWO, THREE)
    ]
    assert replica.core.role is Role.CANDIDATE
    assert replica.hear(THREE, VoteGranted(1)) == [(node, Lead(1)) for node in (TWO, THREE)]
    assert replica.core.role is Role.LEADER
    assert replica.core.leader == ONE


def test_an_unanswered_campaign_begins_anew_with_a_pre_vote() -> None:
    replica = Replica()
    replica.tick(20)
    replica.hear(TWO, PreVoteGranted(0))

    replica.tick(20)

    assert replica.core.role is Role.PROSPECT
    assert replica.core.epoch == 1


def test_a_granted_question_of_an_earlier_epoch_does_not_count() -> None:
    replica = Replica()
    replica.tick(20)
    replica.hear(TWO, PreVoteGranted(0))
    replica.tick(20)

    replica.hear(TWO, PreVoteGranted(0))

    assert replica.core.role is Role.PROSPECT


def test_a_voter_votes_once_in_an_epoch() -> None:
    replica = Replica()

    assert replica.hear(TWO, Vote(1, ORIGIN)) == [(TWO, VoteGranted(1))]
    assert replica.hear(THREE, Vote(1, ORIGIN)) == [(THREE, Hint(1, None))]
    assert replica.hear(TWO, Vote(1, ORIGIN)) == [(TWO, VoteGranted(1))]
    assert replica.core.hard_state == HardState(1, TWO)


def test_a_vote_survives_a_restart() -> None:
    replica = Replica()
    replica.hear(TWO, Vote(1, ORIGIN))

    again = Replica(log=replica.log, hard_state=replica.core.hard_state)

    assert again.hear(THREE, Vote(1, ORIGIN)) == [(THREE, Hint(1, None))]


@pytest.mark.parametrize(
    ("candidate", "is_enough"),
    [((1, 9), False), ((2, 3), False), ((2, 4), True), ((2, 5), True), ((3, 0), True)],
)
def test_a_candidate_must_stand_at_or_behind_the_voters_place(
    candidate: tuple[int, int], is_enough: bool
) -> None:
    replica = Replica()
    replica.follow(TWO, [boundary(2, 0)], [batch(2, 0, records=4)], epoch=2)

    sent = replica.hear(THREE, Vote(5, at(*candidate)))

    assert sent == [(THREE, VoteGranted(5) if is_enough else Hint(5, None))]


def test_a_follower_that_hears_its_leader_does_not_encourage_others() -> None:
    replica = Replica()
    replica.hear(TWO, Lead(1))

    assert replica.hear(THREE, PreVote(1, at(9, 9))) == [(THREE, Hint(1, TWO))]
    replica.tick(10)
    assert replica.hear(THREE, PreVote(1, at(9, 9))) == [(THREE, PreVoteGranted(1))]


def test_a_leader_does_not_encourage_others() -> None:
    leader = Replica().lead(TWO)

    assert leader.hear(THREE, PreVote(1, at(9, 9))) == [(THREE, Hint(1, ONE))]


def test_a_message_of_a_lower_epoch_is_answered_with_the_own_epoch() -> None:
    replica = Replica(hard_state=HardState(7, None))

    assert replica.hear(TWO, Lead(3)) == [(TWO, Hint(7, None))]
    assert replica.hear(TWO, Hint(3, THREE)) == []


def test_a_leader_that_hears_of_a_higher_epoch_moves_on() -> None:
    leader = Replica().lead(TWO)

    leader.hear(THREE, Hint(4, None))

    assert leader.core.role is Role.FOLLOWER
    assert leader.core.epoch == 4
    assert leader.core.leader is None


def test_a_leader_that_hears_no_majority_resigns() -> None:
    leader = Replica(1, 2, 3).lead(TWO)

    leader.tick(9)
    assert leader.core.role is Role.LEADER

    leader.tick()
    assert leader.core.role is Role.FOLLOWER


def test_a_leader_that_hears_a_majority_stays() -> None:
    leader = Replica(1, 2, 3).lead(TWO)

    for _ in range(30):
        leader.tick()
        leader.fetch(THREE, ORIGIN)

    assert leader.core.role is Role.LEADER


def test_a_leader_told_of_another_leader_in_its_epoch_stops_the_node() -> None:
    leader = Replica().lead(TWO)

    with pytest.raises(AssertionError, match="leader of this epoch was heard"):
        leader.hear(THREE, Lead(1))


def test_an_observer_asks_the_voters_at_once_and_never_campaigns() -> None:
    observer = Replica(1, 2, 3, me=4)

    assert observer.tick() == [(node, Fetch(0, ORIGIN, 0)) for node in (ONE, TWO, THREE)]
    observer.tick(100)
    assert observer.core.role is Role.FOLLOWER
    assert observer.core.epoch == 0


def test_an_observer_keeps_a_leader_that_it_hears_before_its_first_tick() -> None:
    observer = Replica(1, 2, 3, me=4)
    observer.hear(TWO, Lead(1))

    observer.tick()

    assert observer.core.leader == TWO


def test_a_replica_that_does_not_lead_hints_at_who_does() -> None:
    replica = Replica()
    replica.hear(TWO, Lead(1))

    assert replica.hear(FOUR, Fetch(1, ORIGIN, 0)) == [(FOUR, Hint(1, TWO))]


def test_a_hint_is_followed_by_a_question_but_not_believed() -> None:
    observer = Replica(1, 2, 3, me=4)

    sent = observer.hear(TWO, Hint(1, THREE))

    assert sent == [(THREE, Fetch(1, ORIGIN, 0))]
    assert observer.core.leader is None


def test_a_replica_that_missed_its_removal_finds_the_leader_by_the_hints() -> None:
    removed = Replica(1, 2, 3)
    removed.tick(20)

    sent = removed.hear(TWO, Hint(5, THREE))

    assert sent == [(THREE, Fetch(5, ORIGIN, 0))]


def test_a_follower_told_to_take_over_campaigns_at_once() -> None:
    replica = Replica()
    replica.hear(TWO, Lead(1))

    sent = replica.hear(TWO, TakeOver(1))

    assert sent == [(node, Vote(2, ORIGIN)) for node in (TWO, THREE)]


def test_an_observer_told_to_take_over_does_not() -> None:
    observer = Replica(1, 2, 3, me=4)

    assert observer.hear(ONE, TakeOver(0)) == []


def test_a_full_disk_leaves_the_replica_as_it_was_until_there_is_space() -> None:
    replica = Replica()
    replica.log.is_full = True

    with pytest.raises(NoSpace):
        replica.hear(TWO, Vote(1, ORIGIN))
    assert replica.core.hard_state == HardState(0, None)

    replica.log.is_full = False
    assert replica.hear(TWO, Vote(1, ORIGIN)) == [(TWO, VoteGranted(1))]


def test_a_candidate_that_cannot_write_its_boundary_does_not_lead() -> None:
    replica = Replica()
    replica.tick(20)
    replica.hear(TWO, PreVoteGranted(0))
    replica.log.is_full = True

    with pytest.raises(NoSpace):
        replica.hear(TWO, VoteGranted(1))
    assert replica.core.role is Role.CANDIDATE

    replica.log.is_full = False
    replica.hear(THREE, VoteGranted(1))
    assert replica.core.role is Role.LEADER


def test_what_was_decided_before_the_disk_refused_comes_with_the_next_input() -> None:
    class RefusingBoundaries(FakeLog):
        def open_epoch(self, opened: object) -> None:
            raise NoSpace("no room for a boundary")

    replica = Replica(log=RefusingBoundaries(nodes(1)))
    with pytest.raises(NoSpace):
        replica.core.tick()

    effects = replica.core.step(TWO, Hint(0, None))

    assert effects.hard_state == HardState(1, ONE)


def test_only_a_leader_changes_voters_or_hands_over() -> None:
    replica = Replica()

    for act in (
        lambda: replica.core.change_voters(nodes(1, 2)),
        lambda: replica.core.transfer(TWO),
    ):
        with pytest.raises(ChangeRefused) as refused:
            act()
        assert refused.value.reason is Refusal.NOT_LEADER


def test_a_replica_starts_where_its_log_starts() -> None:
    log = FakeLog(nodes(1, 2, 3))
    log.vote(HardState(1, None))
    log.extend([boundary(1, 0)], [batch(1, 0, records=9)])
    log.advance_start(5)

    replica = Replica(log=log, hard_state=HardState(1, None))

    assert replica.core.high_watermark == 5


def test_a_log_with_an_epoch_that_was_never_entered_stops_the_node() -> None:
    log = FakeLog(nodes(1))
    log.open_epoch(boundary(3, 0, 1))

    with pytest.raises(AssertionError, match="before it was entered"):
        Replica(log=log)


def test_a_stale_reply_of_the_same_leader_is_only_a_sign_of_life() -> None:
    replica = Replica()
    replica.follow(TWO, [boundary(1, 0)], [batch(1, 0)])
    stale = FetchReply(
        epoch=1,
        base=ORIGIN,
        boundaries=(boundary(1, 0),),
        records=(batch(1, 0),),
        high_watermark=1,
        start_offset=0,
    )

    assert replica.hear(TWO, stale) == []
    assert replica.log.last == at(1, 1)
    assert replica.core.leader == ReplicaId(2)

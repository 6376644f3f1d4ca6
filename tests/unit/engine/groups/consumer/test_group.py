"""A consumer group as its members meet it: epochs, fencing, static members, patterns, restarts."""

from dataclasses import replace

import pytest

from millstream.engine.groups.consumer.group import CROWD_MIN
from millstream.engine.groups.consumer.reconciliation import AWAY
from millstream.engine.groups.consumer.vocabulary import ConsumerRules, ConsumersState
from millstream.errors.groups import (
    FencedInstance,
    FencedMember,
    GroupFull,
    InvalidPattern,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from millstream.model import LogId
from tests.support.consumers import REBALANCE_MS, Hall, Reader, Topics, settle

SESSION_MS = ConsumerRules().session_timeout_ms
ALL = Topics(orders=4).partitions()
FIRST = min(ALL)


def pair() -> tuple[Hall, Reader, Reader]:
    """A group at rest, of two."""
    hall = Hall()
    one, two = Reader(hall, "one"), Reader(hall, "two")
    one.join()
    two.join()
    settle(one, two)
    return hall, one, two


# -- sharing ---------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once() -> None:
    hall = Hall()

    answer = Reader(hall, "one").join()

    assert (answer.epoch, answer.assignment) == (1, ALL)
    assert answer.heartbeat_interval_ms == 5_000
    assert hall.group.state is ConsumersState.STABLE


def test_a_newcomer_gets_its_part_when_the_other_has_given_it_up() -> None:
    hall = Hall()
    one, two = Reader(hall, "one"), Reader(hall, "two")
    one.join()

    assert two.join().assignment == frozenset()
    assert hall.group.state is ConsumersState.RECONCILING
    asked = one.beat()
    assert (asked.epoch, len(asked.assignment or ())) == (1, 2)
    assert two.beat().assignment is None
    assert one.beat().epoch == 2
    assert two.beat().assignment == ALL - one.owned
    assert hall.group.state is ConsumersState.STABLE


def test_a_member_that_has_what_it_should_have_is_not_told_again() -> None:
    _, one, _ = pair()

    assert one.beat().assignment is None


def test_a_full_heartbeat_is_answered_in_full() -> None:
    _, one, _ = pair()

    answer = one.beat(names=("orders",), rebalance_timeout_ms=REBALANCE_MS)

    assert answer.assignment == one.owned


def test_a_crowd_does_not_have_its_shares_worked_out_for_each_one() -> None:
    hall = Hall(Topics(orders=300))
    crowd = [Reader(hall, f"m{number}") for number in range(CROWD_MIN + 50)]
    for reader in crowd:
        assert reader.join().epoch > 0
    assert hall.group.target_epoch == CROWD_MIN - 1
    assert hall.group.state is ConsumersState.ASSIGNING

    hall.pass_ms(len(crowd))
    settle(*crowd)

    assert hall.group.target_epoch == CROWD_MIN
    assert {len(reader.owned) for reader in crowd} == {2}


def test_what_a_member_leaves_goes_to_the_others() -> None:
    hall, one, two = pair()

    assert one.leave().epoch == -1
    assert hall.group.state is ConsumersState.ASSIGNING
    settle(two)

    assert two.owned == ALL


def test_a_group_that_everyone_left_is_empty_and_goes_on_counting() -> None:
    hall, one, two = pair()
    epoch = hall.group.epoch

    one.leave()
    two.leave()

    assert hall.group.state is ConsumersState.EMPTY
    assert Reader(hall, "three").join().epoch > epoch


def test_most_members_choose_the_assignor() -> None:
    hall = Hall()
    readers = [
        Reader(hall, "one", assignor="range"),
        Reader(hall, "two", assignor="range"),
        Reader(hall, "three", assignor="uniform"),
    ]
    for reader in readers:
        reader.join()

    assert hall.group.assignor == "range"


def test_an_assignor_that_does_not_exist_is_refused() -> None:
    hall = Hall()

    with pytest.raises(UnsupportedAssignor, match="uniform, range"):
        Reader(hall, "one", assignor="sticky").join()

    assert len(hall.group.members) == 0


def test_a_group_takes_only_so_many_members() -> None:
    hall = Hall(rules=ConsumerRules(members_max=1))
    one = Reader(hall, "one")
    one.join()

    with pytest.raises(GroupFull):
        Reader(hall, "two").join()

    one.join()


# -- topics ----------------------------------------------------------------------------------------


def test_partitions_that_are_added_join_the_group() -> None:
    hall, one, two = pair()

    hall.topics.put("orders", 6)
    settle(one, two)

    assert one.owned | two.owned == hall.topics.partitions()
    assert len(one.owned) == len(two.owned) == 3


def test_a_topic_that_is_made_later_joins_the_group() -> None:
    hall = Hall(Topics(orders=1))
    one = Reader(hall, "one", "orders", "payments")
    one.join()

    hall.topics.put("payments", 2)
    settle(one)

    assert one.owned == hall.topics.partitions()


def test_a_topic_that_is_deleted_and_made_again_is_another() -> None:
    hall, one, two = pair()

    hall.topics.remove("orders")
    settle(one, two)
    assert one.owned | two.owned == frozenset()
    hall.topics.put("orders", 4)
    settle(one, two)

    assert one.owned | two.owned == hall.topics.partitions()
    assert (one.owned | two.owned).isdisjoint(ALL)


def test_a_topic_without_readers_changes_nothing() -> None:
    hall, one, _ = pair()
    epoch = hall.group.epoch

    hall.topics.put("other", 3)
    one.beat()

    assert hall.group.epoch == epoch


def test_a_member_may_change_what_it_reads() -> None:
    hall = Hall(Topics(orders=2, payments=2))
    one = Reader(hall, "one", "orders")
    one.join()

    one.beat(names=("payments",))
    settle(one)

    assert one.owned == hall.topics.partitions("payments")


def test_a_pattern_finds_topics_now_and_later() -> None:
    hall = Hall(Topics(**{"eu.a": 1, "eu.b": 1, "us.a": 1}))
    one = Reader(hall, "one", names=None, pattern=r"eu\..*")
    one.join()
    assert one.owned == hall.topics.partitions("eu.a", "eu.b")

    hall.topics.put("eu.c", 1)
    settle(one)

    assert one.owned == hall.topics.partitions("eu.a", "eu.b", "eu.c")


def test_a_pattern_is_read_besides_names_and_can_be_taken_back() -> None:
    hall = Hall(Topics(orders=1, payments=1))
    one = Reader(hall, "one", pattern="pay.*")
    one.join()
    assert one.owned == hall.topics.partitions()

    one.beat(pattern="")
    settle(one)

    assert one.owned == hall.topics.partitions("orders")


def test_one_that_joins_again_without_its_pattern_has_none() -> None:
    hall = Hall(Topics(orders=1, payments=1))
    one = Reader(hall, "one", pattern="pay.*")
    one.join()

    one.joining = replace(one.joining, pattern=None)
    one.join()

    assert one.owned == hall.topics.partitions("orders")


def test_a_pattern_that_is_none_changes_nothing() -> None:
    hall, one, _ = pair()
    before = hall.group.changes(0)

    with pytest.raises(InvalidPattern):
        one.beat(pattern="(")
    with pytest.raises(InvalidPattern):
        Reader(hall, "three", names=None, pattern="(").join()

    assert hall.group.changes(0) == before == []
    assert len(hall.group.members) == 2


# -- epochs ----------------------------------------------------------------------------------------


def test_a_member_from_the_future_is_fenced() -> None:
    _, one, _ = pair()

    with pytest.raises(FencedMember):
        one.beat(epoch=one.epoch + 1)


def test_a_member_from_long_ago_is_fenced() -> None:
    hall, one, two = pair()
    hall.topics.put("orders", 6)
    settle(one, two)

    with pytest.raises(FencedMember):
        one.beat(epoch=1)


def test_a_member_that_missed_an_answer_goes_on_from_its_previous_epoch() -> None:
    hall, one, two = pair()
    hall.topics.put("orders", 6)
    epoch = one.epoch
    response = one.beat(is_answer_lost=True)

    again = one.beat()

    assert one.epoch == epoch + 1
    assert (again.epoch, again.assignment) == (response.epoch, response.assignment)
    settle(one, two)


def test_a_member_that_missed_what_it_is_to_give_up_is_told_again() -> None:
    hall = Hall()
    one, two = Reader(hall, "one"), Reader(hall, "two")
    one.join()
    two.join()
    response = one.beat(is_answer_lost=True)

    assert one.beat().assignment == response.assignment
    settle(one, two)


@pytest.mark.parametrize("owned", [None, frozenset({LogId(FIRST.topic_id, 99)})])
def test_a_member_in_its_previous_epoch_must_own_what_it_may(
    owned: frozenset[LogId] | None,
) -> None:
    hall, one, _ = pair()
    hall.topics.put("orders", 6)
    one.beat(is_answer_lost=True)

    with pytest.raises(FencedMember):
        one.beat(owned=owned)


def test_a_join_whose_answer_was_lost_is_repeated() -> None:
    hall = Hall()
    one = Reader(hall, "one")
    one.join(is_answer_lost=True)

    assert one.join().assignment == ALL
    assert len(hall.group.members) == 1


def test_a_fenced_member_that_joins_again_owns_nothing_and_gets_its_part() -> None:
    hall, one, two = pair()
    hall.topics.put("orders", 8)
    settle(one, two)

    assert one.join().assignment == one.owned
    assert len(one.owned) == 4


def test_a_stranger_is_told_so() -> None:
    hall, one, _ = pair()

    with pytest.raises(UnknownMember):
        one.beat(member_id="nobody")
    with pytest.raises(UnknownMember):
        Reader(hall, "nobody").leave()


# -- time ------------------------------------------------------------------------------------------


def test_a_silent_member_loses_its_place() -> None:
    hall, one, two = pair()
    hall.pass_ms(SESSION_MS - 1)
    two.beat()

    assert hall.pass_ms(1) == ["one"]
    settle(two)

    assert two.owned == ALL
    with pytest.raises(UnknownMember):
        one.beat()


def test_a_member_that_does_not_give_up_in_time_loses_its_place() -> None:
    hall = Hall()
    one, two = Reader(hall, "one", rebalance_timeout_ms=10_000), Reader(hall, "two")
    one.join()
    two.join()
    one.beat()

    hall.pass_ms(9_999)
    one.beat(owned=ALL)
    two.beat()
    assert hall.pass_ms(1) == ["one"]

    settle(two)
    assert two.owned == ALL


def test_a_member_that_gave_up_in_time_keeps_its_place() -> None:
    hall = Hall()
    one, two = Reader(hall, "one", rebalance_timeout_ms=10_000), Reader(hall, "two")
    one.join()
    two.join()
    settle(one, two)

    assert hall.pass_ms(20_000) == []


# -- static members --------------------------------------------------------------------------------


def test_a_static_member_that_goes_for_a_while_keeps_its_partitions() -> None:
    hall = Hall()
    old, other = Reader(hall, "old", instance_id="i"), Reader(hall, "other")
    old.join()
    other.join()
    settle(old, other)
    owned, epoch = old.owned, hall.group.epoch

    assert old.leave(AWAY).epoch == AWAY
    settle(other)
    new = Reader(hall, "new", instance_id="i")
    new.join()

    assert new.owned == owned
    assert hall.group.epoch == epoch
    with pytest.raises(FencedInstance):
        old.beat()


def test_a_static_member_that_does_not_come_back_loses_its_partitions() -> None:
    hall = Hall()
    old, other = Reader(hall, "old", instance_id="i"), Reader(hall, "other")
    old.join()
    other.join()
    settle(old, other)
    old.leave(AWAY)

    hall.pass_ms(SESSION_MS - 1)
    other.beat()
    hall.pass_ms(1)
    settle(other)

    assert other.owned == ALL


def test_a_static_member_that_goes_for_good_gives_its_name_free() -> None:
    hall = Hall()
    old = Reader(hall, "old", instance_id="i")
    old.join()
    old.leave()

    assert Reader(hall, "new", instance_id="i").join().assignment == ALL


def test_a_name_in_use_is_not_given_to_another() -> None:
    hall = Hall()
    Reader(hall, "old", instance_id="i").join()

    with pytest.raises(UnreleasedInstance):
        Reader(hall, "new", instance_id="i").join()


def test_a_member_that_takes_a_name_begins_anew() -> None:
    hall = Hall()
    Reader(hall, "one").join()

    Reader(hall, "one", instance_id="i").join()

    assert [member.subscription.instance_id for member in hall.group.members] == ["i"]


def test_one_that_is_away_may_not_beat() -> None:
    hall = Hall()
    old = Reader(hall, "old", instance_id="i")
    old.join()
    old.leave(AWAY)

    with pytest.raises(FencedMember):
        old.beat()


# -- commits ---------------------------------------------------------------------------------------


def test_a_member_commits_in_its_epoch() -> None:
    hall, one, _ = pair()

    hall.group.check_commit("one", one.epoch, min(one.owned))
    with pytest.raises(StaleMemberEpoch):
        hall.group.check_commit("one", one.epoch + 1, min(one.owned))
    with pytest.raises(UnknownMember):
        hall.group.check_commit("nobody", one.epoch, min(one.owned))
    with pytest.raises(UnknownMember):
        hall.group.check_commit("", -1, min(one.owned))


def test_a_commit_of_an_older_epoch_counts_for_what_it_had_then_and_has_still() -> None:
    hall, one, two = pair()
    old_epoch, kept = one.epoch, min(one.owned)
    hall.topics.put("orders", 8)
    settle(one, two)
    gained = max(one.owned)

    hall.group.check_commit("one", old_epoch, kept)
    for partition in (gained, min(two.owned)):
        with pytest.raises(StaleMemberEpoch):
            hall.group.check_commit("one", old_epoch, partition)


def test_anyone_may_commit_for_a_group_without_members() -> None:
    hall = Hall()

    hall.group.check_commit("", -1, FIRST)


def test_a_question_must_be_of_the_very_epoch() -> None:
    hall, one, _ = pair()

    hall.group.check_member("one", one.epoch)
    with pytest.raises(StaleMemberEpoch):
        hall.group.check_member("one", one.epoch - 1)


# -- restarts --------------------------------------------------------------------------------------


def test_a_restart_is_not_noticed() -> None:
    hall, one, two = pair()
    epoch = hall.group.epoch

    hall.restart()

    assert hall.group.state is ConsumersState.STABLE
    assert one.beat().assignment is None
    assert (hall.group.epoch, one.epoch) == (epoch, epoch)
    settle(one, two)


def test_a_restart_in_the_midst_of_a_rebalance_loses_nothing() -> None:
    hall = Hall()
    one, two = Reader(hall, "one"), Reader(hall, "two")
    one.join()
    two.join()
    one.beat()

    hall.restart()
    assert two.beat().assignment is None
    settle(one, two)

    assert one.owned | two.owned == ALL
    assert one.owned.isdisjoint(two.owned)


def test_after_a_restart_everybody_has_a_session_to_be_heard_of() -> None:
    hall, _, two = pair()
    hall.pass_ms(SESSION_MS - 1)

    hall.restart()
    hall.pass_ms(SESSION_MS - 1)
    two.beat()

    assert hall.pass_ms(1) == ["one"]


def test_one_that_did_not_give_up_is_still_due_after_a_restart() -> None:
    hall = Hall()
    one, two = Reader(hall, "one", rebalance_timeout_ms=10_000), Reader(hall, "two")
    one.join()
    two.join()
    one.beat()

    hall.restart()

    assert hall.pass_ms(10_000) == ["one"]


def test_what_was_not_saved_is_saved_the_next_time() -> None:
    hall = Hall()
    one = Reader(hall, "one")
    hall.group.beat(one.joining, hall.topics, hall.now_ms)  # And then the log refused.

    one.join()
    hall.restart()

    assert one.beat().epoch == 1

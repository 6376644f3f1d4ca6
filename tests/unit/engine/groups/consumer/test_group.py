"""A consumer group as its members meet it: epochs, fencing, static members, patterns, restarts."""

import pytest
from msgspec.structs import replace

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
    first, second = Reader(hall, "one"), Reader(hall, "two")
    first.join()
    second.join()
    settle(first, second)
    return hall, first, second


# -- sharing ---------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once() -> None:
    hall = Hall()

    answer = Reader(hall, "one").join()

    assert (answer.epoch, answer.assignment) == (1, ALL)
    assert answer.heartbeat_interval_ms == 5_000
    assert hall.group.state is ConsumersState.STABLE


def test_a_newcomer_gets_its_part_when_the_other_has_given_it_up() -> None:
    hall = Hall()
    first, second = Reader(hall, "one"), Reader(hall, "two")
    first.join()

    assert second.join().assignment == frozenset()
    assert hall.group.state is ConsumersState.RECONCILING
    asked = first.beat()
    assert (asked.epoch, len(asked.assignment or ())) == (1, 2)
    assert second.beat().assignment is None
    assert first.beat().epoch == 2
    assert second.beat().assignment == ALL - first.owned
    assert hall.group.state is ConsumersState.STABLE


def test_a_member_that_has_what_it_should_have_is_not_told_again() -> None:
    _, first, _ = pair()

    assert first.beat().assignment is None


def test_a_full_heartbeat_is_answered_in_full() -> None:
    _, first, _ = pair()

    answer = first.beat(names=("orders",), rebalance_timeout_ms=REBALANCE_MS)

    assert answer.assignment == first.owned


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
    hall, first, second = pair()

    assert first.leave().epoch == -1
    assert hall.group.state is ConsumersState.ASSIGNING
    settle(second)

    assert second.owned == ALL


def test_a_group_that_everyone_left_is_empty_and_goes_on_counting() -> None:
    hall, first, second = pair()
    epoch = hall.group.epoch

    first.leave()
    second.leave()

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
    reader = Reader(hall, "one")
    reader.join()

    with pytest.raises(GroupFull):
        Reader(hall, "two").join()

    reader.join()


# -- topics ----------------------------------------------------------------------------------------


def test_partitions_that_are_added_join_the_group() -> None:
    hall, first, second = pair()

    hall.topics.put("orders", 6)
    settle(first, second)

    assert first.owned | second.owned == hall.topics.partitions()
    assert len(first.owned) == len(second.owned) == 3


def test_a_topic_that_is_made_later_joins_the_group() -> None:
    hall = Hall(Topics(orders=1))
    reader = Reader(hall, "one", "orders", "payments")
    reader.join()

    hall.topics.put("payments", 2)
    settle(reader)

    assert reader.owned == hall.topics.partitions()


def test_a_topic_that_is_deleted_and_made_again_is_another() -> None:
    hall, first, second = pair()

    hall.topics.remove("orders")
    settle(first, second)
    assert first.owned | second.owned == frozenset()
    hall.topics.put("orders", 4)
    settle(first, second)

    assert first.owned | second.owned == hall.topics.partitions()
    assert (first.owned | second.owned).isdisjoint(ALL)


def test_a_topic_without_readers_changes_nothing() -> None:
    hall, first, _ = pair()
    epoch = hall.group.epoch

    hall.topics.put("other", 3)
    first.beat()

    assert hall.group.epoch == epoch


def test_a_member_may_change_what_it_reads() -> None:
    hall = Hall(Topics(orders=2, payments=2))
    reader = Reader(hall, "one", "orders")
    reader.join()

    reader.beat(names=("payments",))
    settle(reader)

    assert reader.owned == hall.topics.partitions("payments")


def test_a_pattern_finds_topics_now_and_later() -> None:
    hall = Hall(Topics(**{"eu.a": 1, "eu.b": 1, "us.a": 1}))
    reader = Reader(hall, "one", names=None, pattern=r"eu\..*")
    reader.join()
    assert reader.owned == hall.topics.partitions("eu.a", "eu.b")

    hall.topics.put("eu.c", 1)
    settle(reader)

    assert reader.owned == hall.topics.partitions("eu.a", "eu.b", "eu.c")


def test_a_pattern_is_read_besides_names_and_can_be_taken_back() -> None:
    hall = Hall(Topics(orders=1, payments=1))
    reader = Reader(hall, "one", pattern="pay.*")
    reader.join()
    assert reader.owned == hall.topics.partitions()

    reader.beat(pattern="")
    settle(reader)

    assert reader.owned == hall.topics.partitions("orders")


def test_one_that_joins_again_without_its_pattern_has_none() -> None:
    hall = Hall(Topics(orders=1, payments=1))
    reader = Reader(hall, "one", pattern="pay.*")
    reader.join()

    reader.joining = replace(reader.joining, pattern=None)
    reader.join()

    assert reader.owned == hall.topics.partitions("orders")


def test_a_pattern_that_is_none_changes_nothing() -> None:
    hall, first, _ = pair()
    before = hall.group.changes(0)

    with pytest.raises(InvalidPattern):
        first.beat(pattern="(")
    with pytest.raises(InvalidPattern):
        Reader(hall, "three", names=None, pattern="(").join()

    assert hall.group.changes(0) == before == []
    assert len(hall.group.members) == 2


# -- epochs ----------------------------------------------------------------------------------------


def test_a_member_from_the_future_is_fenced() -> None:
    _, first, _ = pair()

    with pytest.raises(FencedMember):
        first.beat(epoch=first.epoch + 1)


def test_a_member_from_long_ago_is_fenced() -> None:
    hall, first, second = pair()
    hall.topics.put("orders", 6)
    settle(first, second)

    with pytest.raises(FencedMember):
        first.beat(epoch=1)


def test_a_member_that_missed_an_answer_goes_on_from_its_previous_epoch() -> None:
    hall, first, second = pair()
    hall.topics.put("orders", 6)
    epoch = first.epoch
    response = first.beat(is_answer_lost=True)

    again = first.beat()

    assert first.epoch == epoch + 1
    assert (again.epoch, again.assignment) == (response.epoch, response.assignment)
    settle(first, second)


def test_a_member_that_missed_what_it_is_to_give_up_is_told_again() -> None:
    hall = Hall()
    first, second = Reader(hall, "one"), Reader(hall, "two")
    first.join()
    second.join()
    response = first.beat(is_answer_lost=True)

    assert first.beat().assignment == response.assignment
    settle(first, second)


@pytest.mark.parametrize("owned", [None, frozenset({LogId(FIRST.topic_id, 99)})])
def test_a_member_in_its_previous_epoch_must_own_what_it_may(
    owned: frozenset[LogId] | None,
) -> None:
    hall, first, _ = pair()
    hall.topics.put("orders", 6)
    first.beat(is_answer_lost=True)

    with pytest.raises(FencedMember):
        first.beat(owned=owned)


def test_a_join_whose_answer_was_lost_is_repeated() -> None:
    hall = Hall()
    reader = Reader(hall, "one")
    reader.join(is_answer_lost=True)

    assert reader.join().assignment == ALL
    assert len(hall.group.members) == 1


def test_a_fenced_member_that_joins_again_owns_nothing_and_gets_its_part() -> None:
    hall, first, second = pair()
    hall.topics.put("orders", 8)
    settle(first, second)

    assert first.join().assignment == first.owned
    assert len(first.owned) == 4


def test_a_stranger_is_told_so() -> None:
    hall, first, _ = pair()

    with pytest.raises(UnknownMember):
        first.beat(member_id="nobody")
    with pytest.raises(UnknownMember):
        Reader(hall, "nobody").leave()


# -- time ------------------------------------------------------------------------------------------


def test_a_silent_member_loses_its_place() -> None:
    hall, first, second = pair()
    hall.pass_ms(SESSION_MS - 1)
    second.beat()

    assert hall.pass_ms(1) == ["one"]
    settle(second)

    assert second.owned == ALL
    with pytest.raises(UnknownMember):
        first.beat()


def test_a_member_that_does_not_give_up_in_time_loses_its_place() -> None:
    hall = Hall()
    first, second = Reader(hall, "one", rebalance_timeout_ms=10_000), Reader(hall, "two")
    first.join()
    second.join()
    first.beat()

    hall.pass_ms(9_999)
    first.beat(owned=ALL)
    second.beat()
    assert hall.pass_ms(1) == ["one"]

    settle(second)
    assert second.owned == ALL


def test_a_member_that_gave_up_in_time_keeps_its_place() -> None:
    hall = Hall()
    first, second = Reader(hall, "one", rebalance_timeout_ms=10_000), Reader(hall, "two")
    first.join()
    second.join()
    settle(first, second)

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
    hall, first, _ = pair()

    hall.group.check_commit("one", first.epoch, min(first.owned))
    with pytest.raises(StaleMemberEpoch):
        hall.group.check_commit("one", first.epoch + 1, min(first.owned))
    with pytest.raises(UnknownMember):
        hall.group.check_commit("nobody", first.epoch, min(first.owned))
    with pytest.raises(UnknownMember):
        hall.group.check_commit("", -1, min(first.owned))


def test_a_commit_of_an_older_epoch_counts_for_what_it_had_then_and_has_still() -> None:
    hall, first, second = pair()
    old_epoch, kept = first.epoch, min(first.owned)
    hall.topics.put("orders", 8)
    settle(first, second)
    gained = max(first.owned)

    hall.group.check_commit("one", old_epoch, kept)
    for partition in (gained, min(second.owned)):
        with pytest.raises(StaleMemberEpoch):
            hall.group.check_commit("one", old_epoch, partition)


def test_anyone_may_commit_for_a_group_without_members() -> None:
    hall = Hall()

    hall.group.check_commit("", -1, FIRST)


def test_a_question_must_be_of_the_very_epoch() -> None:
    hall, first, _ = pair()

    hall.group.check_member("one", first.epoch)
    with pytest.raises(StaleMemberEpoch):
        hall.group.check_member("one", first.epoch - 1)


# -- restarts --------------------------------------------------------------------------------------


def test_a_restart_is_not_noticed() -> None:
    hall, first, second = pair()
    epoch = hall.group.epoch

    hall.restart()

    assert hall.group.state is ConsumersState.STABLE
    assert first.beat().assignment is None
    assert (hall.group.epoch, first.epoch) == (epoch, epoch)
    settle(first, second)


def test_a_restart_in_the_midst_of_a_rebalance_loses_nothing() -> None:
    hall = Hall()
    first, second = Reader(hall, "one"), Reader(hall, "two")
    first.join()
    second.join()
    first.beat()

    hall.restart()
    assert second.beat().assignment is None
    settle(first, second)

    assert first.owned | second.owned == ALL
    assert first.owned.isdisjoint(second.owned)


def test_after_a_restart_everybody_has_a_session_to_be_heard_of() -> None:
    hall, _, second = pair()
    hall.pass_ms(SESSION_MS - 1)

    hall.restart()
    hall.pass_ms(SESSION_MS - 1)
    second.beat()

    assert hall.pass_ms(1) == ["one"]


def test_one_that_did_not_give_up_is_still_due_after_a_restart() -> None:
    hall = Hall()
    first, second = Reader(hall, "one", rebalance_timeout_ms=10_000), Reader(hall, "two")
    first.join()
    second.join()
    first.beat()

    hall.restart()

    assert hall.pass_ms(10_000) == ["one"]


def test_what_was_not_saved_is_saved_the_next_time() -> None:
    hall = Hall()
    reader = Reader(hall, "one")
    hall.group.beat(reader.joining, hall.topics, hall.now_ms)  # And then the log refused.

    reader.join()
    hall.restart()

    assert reader.beat().epoch == 1

"""The rules of classic groups, one claim each, without a clock, a log or a network."""

from collections.abc import Callable
from typing import Any

import pytest

from millstream.engine.groups.classic.membership import Membership
from millstream.engine.groups.classic.vocabulary import (
    TRANSITIONS,
    GroupEvent,
    GroupState,
    Leaver,
    Rules,
)
from millstream.errors import NotCoordinator, RequestError
from millstream.errors.groups import (
    FencedInstance,
    GroupFull,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    StaleGeneration,
    UnknownMember,
)
from millstream.internal_topics.groups import Protocol
from tests.support.membership import RANGE, REBALANCE_MS, SESSION_MS, Room, own_names

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
DELAY_MS = 3_000


# -- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("event", GroupEvent)
def test_every_state_and_event_is_a_transition_or_impossible(
    state: GroupState, event: GroupEvent
) -> None:
    group = Membership(Rules()).group
    group.state = state

    if (state, event) in TRANSITIONS:
        group._move(event)
        assert group.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(KeyError):
            group._move(event)


def in_state(state: GroupState) -> Room:
    """A room with members a (leading) and b where the state allows any."""
    room = Room()
    if state is EMPTY:
        return room
    room.stable("a", "b")
    if state is PREPARING:
        room.join("c")
    if state is COMPLETING:
        room.join("c")
        room.join(member_id="a")
        room.join(member_id="b")
    if state is DEAD:
        room.close(NotCoordinator("g", None))
    assert room.state is state
    return room


Ask = Callable[[Room], object]

ASKS: dict[str, Ask] = {
    "new join": lambda room: room.join("n"),
    "known join": lambda room: room.join(member_id="b"),
    "stranger joins": lambda room: room.join(member_id="x"),
    "sync": lambda room: room.sync("b"),
    "heartbeat": lambda room: room.heartbeat("b"),
    "old heartbeat": lambda room: room.heartbeat("b", generation=77),
    "commit": lambda room: room.commit("b", room.group.generation),
    "lone commit": lambda room: room.commit(),
    "leave": lambda room: room.leave("b")[0],
    "stranger leaves": lambda room: room.leave("x")[0],
}

PARKED, DONE = "parked", "done"
OUTCOMES: dict[tuple[str, GroupState], object] = {
    ("new join", EMPTY): PARKED,
    ("new join", PREPARING): PARKED,
    ("new join", COMPLETING): PARKED,
    ("new join", STABLE): PARKED,
    ("known join", EMPTY): UnknownMember,
    ("known join", PREPARING): PARKED,
    ("known join", COMPLETING): DONE,
    ("known join", STABLE): DONE,
    ("stranger joins", EMPTY): UnknownMember,
    ("stranger joins", PREPARING): UnknownMember,
    ("stranger joins", COMPLETING): UnknownMember,
    ("stranger joins", STABLE): UnknownMember,
    ("sync", EMPTY): UnknownMember,
    ("sync", PREPARING): RebalanceInProgress,
    ("sync", COMPLETING): PARKED,
    ("sync", STABLE): DONE,
    ("heartbeat", EMPTY): UnknownMember,
    ("heartbeat", PREPARING): RebalanceInProgress,
    ("heartbeat", COMPLETING): DONE,
    ("heartbeat", STABLE): DONE,
    ("old heartbeat", EMPTY): UnknownMember,
    ("old heartbeat", PREPARING): StaleGeneration,
    ("old heartbeat", COMPLETING): StaleGeneration,
    ("old heartbeat", STABLE): StaleGeneration,
    ("commit", EMPTY): UnknownMember,
    ("commit", PREPARING): DONE,
    ("commit", COMPLETING): RebalanceInProgress,
    ("commit", STABLE): DONE,
    ("lone commit", EMPTY): DONE,
    ("lone commit", PREPARING): UnknownMember,
    ("lone commit", COMPLETING): UnknownMember,
    ("lone commit", STABLE): UnknownMember,
    ("leave", EMPTY): UnknownMember,
    ("leave", PREPARING): DONE,
    ("leave", COMPLETING): DONE,
    ("leave", STABLE): DONE,
    ("stranger leaves", EMPTY): UnknownMember,
    ("stranger leaves", PREPARING): UnknownMember,
    ("stranger leaves", COMPLETING): UnknownMember,
    ("stranger leaves", STABLE): UnknownMember,
}


@pytest.mark.parametrize("state", [state for state in GroupState if state is not DEAD])
@pytest.mark.parametrize("ask", ASKS)
def test_every_question_in_every_state_has_its_answer(ask: str, state: GroupState) -> None:
    room = in_state(state)

    try:
        result = ASKS[ask](room)
    except RequestError as refusal:
        result = refusal

    if isinstance(result, int):  # A ticket.
        result = room.answers.get(result, PARKED)  # type: ignore[call-overload]
    if isinstance(result, RequestError):
        result = type(result)
    assert (result if result == PARKED or isinstance(result, type) else DONE) == OUTCOMES[
        ask, state
    ]


@pytest.mark.parametrize("ask", ASKS)
def test_a_dead_group_is_never_asked(ask: str) -> None:
    room = in_state(DEAD)

    with pytest.raises(AssertionError, match="dead group"):
        ASKS[ask](room)


# -- joining ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, 5_999, 30 * 60 * 1000 + 1])
def test_a_session_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    room = Room()

    assert room.refusal(room.join("a", session_timeout_ms=timeout_ms)) is InvalidSessionTimeout
    assert room.state is EMPTY


def test_a_new_dynamic_member_is_told_its_id_and_joins_with_it() -> None:
    room = Room()

    asked = room.join("app-1", needs_known_id=True)
    waiting = room.join(member_id="app-1", needs_known_id=True)
    room.pass_ms(DELAY_MS)

    answer = room.answers[asked]
    assert isinstance(answer, MemberIdRequired)
    assert answer.member_id == "app-1"
    assert room.joined(waiting).member_id == "app-1"


def test_a_static_member_needs_no_known_id() -> None:
    room = Room()

    waiting = room.join("a", instance_id="i", needs_known_id=True)
    room.pass_ms(DELAY_MS)

    assert room.joined(waiting).member_id == "a"


def test_a_pending_member_holds_up_the_rebalance_for_one_session_at_most() -> None:
    room = Room().stable("a")
    room.known_id("late")
    waiting = room.join(member_id="a")

    room.pass_ms(SESSION_MS - 1)
    assert waiting not in room.answers
    room.pass_ms(1)

    assert room.joined(waiting).generation == 2
    assert room.refusal(room.join(member_id="late")) is UnknownMember


def test_a_pending_member_that_leaves_no_longer_holds_up_the_rebalance() -> None:
    room = Room().stable("a")
    room.known_id("late")
    waiting = room.join(member_id="a")

    assert room.leave("late") == [None]

    assert room.joined(waiting).generation == 2


def test_the_first_rebalance_waits_for_more_members_and_no_longer_if_none_come() -> None:
    room = Room()
    waiting = room.join("a")

    room.pass_ms(DELAY_MS - 1)
    assert waiting not in room.answers
    room.pass_ms(1)

    assert room.joined(waiting).generation == 1


def test_the_first_wait_is_extended_while_members_arrive_up_to_the_rebalance_timeout() -> None:
    room = Room()
    first = room.join("m0", rebalance_timeout_ms=8_000)
    for number in range(1, 20):
        room.pass_ms(1_000)
        if first in room.answers:
            break
        room.join(f"m{number}", rebalance_timeout_ms=8_000)

    assert room.now_ms == 8_000
    assert len(room.joined(first).members) == 8


def test_without_an_initial_delay_a_lone_member_joins_at_once() -> None:
    room = Room(Rules(initial_rebalance_delay_ms=0))

    assert room.joined(room.join("a")).generation == 1


def test_only_the_leader_gets_the_members_and_there_is_one() -> None:
    room = Room()
    tickets = [room.join(member_id) for member_id in "abc"]
    room.pass_ms(2 * DELAY_MS)

    answers = [room.joined(ticket) for ticket in tickets]
    assert [len(answer.members) for answer in answers] == [3, 0, 0]
    assert {answer.leader for answer in answers} == {"a"}
    assert [m.metadata for m in answers[0].members] == [b"r"] * 3


def test_a_rebalance_ends_as_soon_as_all_known_members_rejoined() -> None:
    room = Room().stable("a", "b")

    newcomer = room.join("c")
    room.join(member_id="a")
    assert newcomer not in room.answers
    room.join(member_id="b")

    assert room.joined(newcomer).generation == 2


def test_absent_dynamic_members_are_removed_at_the_longest_rebalance_timeout() -> None:
    room = Room().stable("a", "b", session_timeout_ms=30 * 60 * 1000)
    waiting = room.join(member_id="a", session_timeout_ms=30 * 60 * 1000)

    room.pass_ms(REBALANCE_MS - 1)
    assert waiting not in room.answers
    room.pass_ms(1)

    assert [m.member_id for m in room.joined(waiting).members] == ["a"]
    with pytest.raises(UnknownMember):
        room.heartbeat("b")


def test_absent_static_members_are_kept() -> None:
    room = Room()
    room.stable("a")
    room.join("s", instance_id="i")
    room.join(member_id="a")
    room.sync("s")
    room.sync("a", assignments=own_names("a", "s"))
    long: dict[str, Any] = {"session_timeout_ms": 30 * 60 * 1000}
    room.join(member_id="s", instance_id="i", protocols=(*RANGE, Protocol("x", b"")), **long)
    room.join(member_id="a", **long)
    room.sync("a")
    room.sync("s")
    waiting = room.join(member_id="a", **long)

    room.pass_ms(REBALANCE_MS)

    assert {m.member_id for m in room.joined(waiting).members} == {"a", "s"}


def test_if_the_leader_stays_away_another_member_leads() -> None:
    room = Room().stable("a", "b", session_timeout_ms=30 * 60 * 1000)
    waiting = room.join("c")
    room.join(member_id="b")

    room.pass_ms(REBALANCE_MS)

    assert room.joined(waiting).leader == "b"


def test_a_static_leader_that_stays_away_keeps_its_place_but_does_not_lead() -> None:
    long = {"session_timeout_ms": 30 * 60 * 1000}
    room = Room()
    room.join("s", instance_id="i", **long)
    room.pass_ms(DELAY_MS)
    room.sync("s", instance_id="i")
    waiting = room.join("b", **long)

    room.pass_ms(REBALANCE_MS)

    assert room.joined(waiting).leader == "b"
    assert [m.member_id for m in room.joined(waiting).members] == ["s", "b"]


def test_a_group_is_bounded_and_pending_members_count() -> None:
    room = Room(Rules(members_max=2))
    room.join("a")
    room.known_id("b")

    assert room.refusal(room.join("c")) is GroupFull
    assert room.refusal(room.join("d", needs_known_id=True)) is GroupFull


def test_a_new_member_that_waits_too_long_is_given_up() -> None:
    room = Room().stable("a", rebalance_timeout_ms=3_600_000, session_timeout_ms=1_800_000)
    waiting = room.join("b", rebalance_timeout_ms=3_600_000, session_timeout_ms=1_800_000)

    room.pass_ms(5 * 60 * 1000)

    assert room.refusal(waiting) is UnknownMember


def test_a_join_that_is_sent_again_answers_the_first_one_too() -> None:
    room = Room()
    first = room.join("a")
    second = room.join(member_id="a")
    room.pass_ms(DELAY_MS)

    assert room.refusal(first) is RebalanceInProgress
    assert room.joined(second).generation == 1


# -- protocols -------------------------------------------------------------------------------------


def protocols(*names: str) -> tuple[Protocol, ...]:
    return tuple(Protocol(name, name.encode()) for name in names)


def test_the_protocol_most_members_prefer_among_the_common_ones_is_taken() -> None:
    room = Room()
    first = room.join("a", protocols=protocols("sticky", "range", "robin"))
    room.join("b", protocols=protocols("robin", "range"))
    room.join("c", protocols=protocols("robin", "range"))
    room.pass_ms(2 * DELAY_MS)

    joined = room.joined(first)
    assert joined.protocol == "robin"
    assert [m.metadata for m in joined.members] == [b"robin"] * 3


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": protocols("robin")},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
)
def test_a_member_without_a_common_protocol_is_refused(changes: dict[str, object]) -> None:
    room = Room()
    room.join("a")

    assert room.refusal(room.join("b", **changes)) is InconsistentProtocol


@pytest.mark.parametrize("changes", [{"protocols": ()}, {"protocol_type": ""}])
def test_the_first_member_must_offer_something(changes: dict[str, object]) -> None:
    room = Room()

    assert room.refusal(room.join("a", **changes)) is InconsistentProtocol
    assert room.state is EMPTY


def test_any_protocol_type_is_served_and_assignments_are_opaque() -> None:
    room = Room()
    waiting = room.join("w", protocol_type="connect", protocols=protocols("sessioned"))
    room.pass_ms(DELAY_MS)
    synced = room.sync("w", assignments={"w": b"\0\xff" * 9})

    assert room.joined(waiting).protocol_type == "connect"
    assert room.assignment(synced) == b"\0\xff" * 9


def test_a_group_that_became_empty_may_take_another_protocol_type() -> None:
    room = Room().stable("a")
    room.leave("a")

    waiting = room.join("b", protocol_type="connect", protocols=protocols("x"))
    room.pass_ms(DELAY_MS)

    assert room.joined(waiting).protocol_type == "connect"


# -- rejoining -------------------------------------------------------------------------------------


def test_a_follower_that_rejoins_unchanged_gets_the_current_generation_at_once() -> None:
    room = Room().stable("a", "b")

    again = room.joined(room.join(member_id="b"))

    assert (again.generation, again.leader, again.members) == (1, "a", ())
    assert room.state is STABLE


def test_a_follower_that_changed_its_metadata_starts_a_rebalance() -> None:
    room = Room().stable("a", "b")

    waiting = room.join(member_id="b", protocols=(Protocol("range", b"other"),))

    assert waiting not in room.answers
    assert room.state is PREPARING


def test_a_leader_that_rejoins_always_starts_a_rebalance() -> None:
    room = Room().stable("a", "b")

    room.join(member_id="a")

    assert room.state is PREPARING


@pytest.mark.parametrize(("member_id", "count"), [("a", 3), ("b", 0)])
def test_anyone_who_rejoins_unchanged_while_completing_is_answered_at_once(
    member_id: str, count: int
) -> None:
    room = in_state(COMPLETING)

    again = room.joined(room.join(member_id=member_id))

    assert (again.generation, len(again.members)) == (2, count)
    assert room.state is COMPLETING


def test_a_rebalance_sends_those_who_wait_for_the_leader_back_to_joining() -> None:
    room = in_state(COMPLETING)
    waiting = room.sync("b")

    room.join("d")

    assert room.refusal(waiting) is RebalanceInProgress


# -- syncing ---------------------------------------------------------------------------------------


def test_followers_wait_for_the_leader_and_who_is_left_out_gets_nothing() -> None:
    room = Room()
    for member_id in "abc":
        room.join(member_id)
    room.pass_ms(2 * DELAY_MS)

    early = room.sync("b")
    assert early not in room.answers
    leading = room.sync("a", assignments={"a": b"1", "b": b"2", "stranger": b"3"})
    late = room.sync("c")

    assert [room.assignment(t) for t in (leading, early, late)] == [b"1", b"2", b""]
    assert room.state is STABLE
    assert room.saves == 1


def test_assignments_that_a_follower_brings_are_ignored() -> None:
    room = Room()
    room.join("a")
    room.join("b")
    room.pass_ms(2 * DELAY_MS)

    room.sync("b", assignments={"a": b"mine", "b": b"all mine"})

    assert room.state is COMPLETING


def test_a_sync_in_stable_gives_the_current_assignment_again() -> None:
    room = Room().stable("a", "b")

    assert room.assignment(room.sync("b")) == b"b"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "x"}, UnknownMember),
        ({"generation": 0}, StaleGeneration),
        ({"generation": 2}, StaleGeneration),
        ({"protocol": "robin"}, InconsistentProtocol),
        ({"protocol_type": "connect"}, InconsistentProtocol),
        ({"instance_id": "i"}, UnknownMember),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(
    changes: dict[str, object], error: type[RequestError]
) -> None:
    room = Room().stable("a")

    arguments = {"member_id": "a", "protocol": "range", "protocol_type": "consumer", **changes}
    assert room.refusal(room.sync(**arguments)) is error  # type: ignore[arg-type]


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout() -> None:
    long = {"session_timeout_ms": 30 * 60 * 1000}
    room = Room()
    for member_id in "abc":
        room.join(member_id, **long)
    room.pass_ms(2 * DELAY_MS)
    waiting = room.sync("b")

    room.pass_ms(REBALANCE_MS)

    assert room.refusal(waiting) is RebalanceInProgress
    assert room.state is PREPARING
    assert [member.member_id for member in room.group.roster] == ["b"]


def test_a_group_whose_last_member_never_syncs_is_empty_at_once() -> None:
    """Although an id was given out with which another member may come."""
    room = Room()
    room.join("m0", rebalance_timeout_ms=10_000)
    room.pass_ms(9_999)
    room.heartbeat("m0")
    room.join("m1", needs_known_id=True)

    room.pass_ms(3_001)

    assert room.state is GroupState.EMPTY
    assert room.group.wake_ms == 9_999 + SESSION_MS


def test_a_follower_that_never_syncs_is_removed_even_when_the_group_is_stable() -> None:
    long = {"session_timeout_ms": 30 * 60 * 1000}
    room = Room()
    room.join("a", **long)
    room.join("b", **long)
    room.pass_ms(2 * DELAY_MS)
    room.sync("a")
    assert room.state is STABLE

    room.pass_ms(REBALANCE_MS)

    assert [member.member_id for member in room.group.roster] == ["a"]


def test_assignments_that_could_not_be_saved_do_not_count() -> None:
    room = Room().stable("a", "b")

    room.fail_to_save()

    assert room.state is PREPARING
    with pytest.raises(RebalanceInProgress):
        room.heartbeat("a")


# -- sessions --------------------------------------------------------------------------------------


def test_a_silent_member_is_removed_and_the_rest_rebalances() -> None:
    room = Room().stable("a", "b")
    for _ in range(4):
        room.pass_ms(SESSION_MS // 3)
        if room.state is STABLE:
            room.heartbeat("a")

    assert room.state is PREPARING
    with pytest.raises(UnknownMember):
        room.heartbeat("b")


@pytest.mark.parametrize("renew", ["heartbeat", "commit", "sync", "join"])
def test_whatever_a_member_asks_for_renews_its_session(renew: str) -> None:
    room = Room().stable("a", "b")
    for _ in range(10):
        room.pass_ms(SESSION_MS - 1)
        room.heartbeat("a")
        if renew == "heartbeat":
            room.heartbeat("b")
        elif renew == "commit":
            room.commit("b", room.group.generation)
        elif renew == "sync":
            room.sync("b")
        else:
            room.join(member_id="b")

    assert room.state is STABLE
    assert len(room.group.roster) == 2


def test_a_heartbeat_while_preparing_renews_the_session_although_it_is_refused() -> None:
    room = Room().stable("a", "b")
    waiting = room.join("c")
    room.join(member_id="a")
    for _ in range(5):
        room.pass_ms(SESSION_MS - 1)
        with pytest.raises(RebalanceInProgress):
            room.heartbeat("b")

    assert waiting not in room.answers
    assert len(room.group.roster) == 3


def test_a_member_does_not_expire_while_its_request_is_pending() -> None:
    room = Room().stable("a", "b")
    room.join(member_id="a", session_timeout_ms=SESSION_MS)
    room.pass_ms(SESSION_MS - 1)
    with pytest.raises(RebalanceInProgress):
        room.heartbeat("b")
    room.pass_ms(SESSION_MS - 1)

    assert len(room.group.roster) == 2


def test_a_group_whose_members_are_all_gone_is_empty_in_the_next_generation_and_saved() -> None:
    room = Room().stable("a", "b")
    saves = room.saves

    room.pass_ms(10 * REBALANCE_MS)

    assert (room.state, room.group.generation, room.group.leader) == (EMPTY, 2, None)
    assert room.saves == saves + 1
    assert room.group.wake_ms is None


# -- leaving ---------------------------------------------------------------------------------------


def test_members_leave_in_a_batch_with_an_outcome_each() -> None:
    room = Room().stable("a", "b", "c")

    outcomes = room.leave("b", "stranger", "c")

    assert [type(outcome) for outcome in outcomes] == [type(None), UnknownMember, type(None)]
    assert [member.member_id for member in room.group.roster] == ["a"]
    assert room.state is PREPARING


def test_the_last_member_that_leaves_empties_the_group_at_once() -> None:
    room = Room().stable("a")

    room.leave("a")

    assert (room.state, room.group.generation) == (EMPTY, 2)


def test_a_parked_join_of_a_member_that_leaves_is_answered() -> None:
    room = Room().stable("a")
    waiting = room.join("b")

    room.leave("b")

    assert room.refusal(waiting) is UnknownMember


def test_when_the_group_closes_everyone_who_waits_is_told() -> None:
    room = in_state(COMPLETING)
    syncing = room.sync("b")

    room.close(NotCoordinator("g", 2))

    assert room.refusal(syncing) is NotCoordinator
    assert room.state is DEAD


# -- static members --------------------------------------------------------------------------------


def static_room() -> Room:
    """Leader `a` and follower `s1`, which is instance `i`."""
    room = Room()
    room.join("a")
    room.join("s1", instance_id="i")
    room.pass_ms(2 * DELAY_MS)
    room.sync("s1", instance_id="i")
    room.sync("a", assignments=own_names("a", "s1"))
    return room


def test_a_restarted_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    room = static_room()
    saves = room.saves

    joined = room.joined(room.join("s2", instance_id="i"))
    synced = room.sync("s2", instance_id="i")

    assert (joined.member_id, joined.generation, joined.leader) == ("s2", 1, "a")
    assert room.assignment(synced) == b"s1"
    assert room.state is STABLE
    assert room.saves == saves + 1


def test_the_process_that_was_replaced_is_fenced_everywhere() -> None:
    room = static_room()
    room.join("s2", instance_id="i")

    with pytest.raises(FencedInstance):
        room.heartbeat("s1", instance_id="i")
    with pytest.raises(FencedInstance):
        room.commit("s1", 1, instance_id="i")
    assert room.refusal(room.sync("s1", instance_id="i")) is FencedInstance
    assert room.refusal(room.join(member_id="s1", instance_id="i")) is FencedInstance
    assert [type(o) for o in room.leave(Leaver("s1", "i"))] == [FencedInstance]
    with pytest.raises(UnknownMember):
        room.heartbeat("s1")


def test_what_the_replaced_process_waits_for_is_fenced_too() -> None:
    room = Room()
    room.join("a")
    waiting = room.join("s1", instance_id="i")

    room.join("s2", instance_id="i")

    assert room.refusal(waiting) is FencedInstance


def test_a_restarted_static_member_with_another_protocol_starts_a_rebalance() -> None:
    room = Room()
    both = protocols("range", "robin")
    room.join("a", instance_id="j", protocols=both)
    room.pass_ms(DELAY_MS)
    room.sync("a", instance_id="j")

    room.join("a2", instance_id="j", protocols=protocols("robin"))

    assert room.state is COMPLETING  # It was alone, so all have joined already.
    assert room.group.generation == 2


def test_a_static_member_restarted_while_completing_starts_a_rebalance() -> None:
    room = Room()
    room.join("a")
    room.join("s1", instance_id="i")
    room.pass_ms(2 * DELAY_MS)
    assert room.state is COMPLETING

    waiting = room.join("s2", instance_id="i")

    assert waiting not in room.answers
    assert room.state is PREPARING


@pytest.mark.parametrize(
    ("can_skip", "leader", "skips", "count"), [(True, "l2", True, 1), (False, "l1", False, 0)]
)
def test_a_restarted_static_leader_hands_out_no_assignments(
    can_skip: bool, leader: str, skips: bool, count: int
) -> None:
    room = Room()
    room.join("l1", instance_id="i")
    room.pass_ms(DELAY_MS)
    room.sync("l1", instance_id="i", assignments={"l1": b"all"})

    joined = room.joined(room.join("l2", instance_id="i", can_skip_assignment=can_skip))

    assert (joined.leader, joined.skips_assignment, len(joined.members)) == (leader, skips, count)
    assert room.group.leader == "l2"
    assert room.assignment(room.sync("l2", instance_id="i")) == b"all"


def test_an_administrator_takes_a_static_member_out_by_its_instance_alone() -> None:
    room = static_room()

    outcomes = room.leave(Leaver("", "i"), Leaver("", "unknown"))

    assert [type(outcome) for outcome in outcomes] == [type(None), UnknownMember]
    assert [member.member_id for member in room.group.roster] == ["a"]


def test_static_members_that_all_stay_away_are_removed_by_their_sessions() -> None:
    room = Room()
    room.join("s", instance_id="i", session_timeout_ms=1_800_000, rebalance_timeout_ms=10_000)
    room.pass_ms(DELAY_MS)
    room.sync("s", instance_id="i")
    room.fail_to_save()  # A rebalance without answers.

    room.pass_ms(1_000_000)
    assert len(room.group.roster) == 1
    room.pass_ms(1_000_000)

    assert room.state is EMPTY


# -- restoring -------------------------------------------------------------------------------------


def test_a_restored_group_goes_on_where_it_was_saved() -> None:
    room = static_room()
    value = room.group.value(changed_ms=5)

    again = Room()
    again.membership = Membership.restore(value, Rules(), now_ms=again.now_ms)
    again.group = again.membership.group

    assert again.group.value(changed_ms=5) == value
    again.heartbeat("a", generation=1)
    assert again.assignment(again.sync("s1", instance_id="i")) == b"s1"
    assert again.joined(again.join(member_id="s1", instance_id="i")).generation == 1
    again.pass_ms(SESSION_MS * 10)
    assert again.state is EMPTY


# -- a connection that breaks while its member waits ---------------------------------------------


def test_a_leader_that_is_gone_does_not_lead_the_next_generation() -> None:
    room = Room().stable("a", "b")
    leader = room.join(member_id="a")
    room.abandon(leader)

    waiting = room.join(member_id="b")
    assert waiting not in room.answers
    room.pass_ms(SESSION_MS)

    assert leader not in room.answers
    assert room.joined(waiting).leader == "b"
    assert [member.member_id for member in room.joined(waiting).members] == ["b"]


def test_a_member_that_is_gone_is_waited_for_no_longer_than_its_session() -> None:
    room = Room().stable("a", "b")
    room.abandon(room.join(member_id="b"))
    waiting = room.join(member_id="a")

    room.pass_ms(SESSION_MS - 1)
    assert waiting not in room.answers
    room.pass_ms(1)

    assert room.joined(waiting).generation == 2
    assert "b" not in room.group.roster


def test_a_member_that_is_gone_is_waited_for_no_longer_than_the_rebalance() -> None:
    room = Room().stable("a", "b", rebalance_timeout_ms=1_000)
    room.abandon(room.join(member_id="b", rebalance_timeout_ms=1_000))
    waiting = room.join(member_id="a", rebalance_timeout_ms=1_000)

    room.pass_ms(1_000)

    assert room.joined(waiting).generation == 2


def test_a_member_that_comes_back_in_time_takes_part() -> None:
    room = Room().stable("a", "b")
    room.abandon(room.join(member_id="a"))
    waiting = room.join(member_id="b")
    room.pass_ms(SESSION_MS - 1)

    back = room.join(member_id="a")

    assert room.joined(back).generation == room.joined(waiting).generation == 2
    assert room.joined(back).leader == "a"


def test_a_connection_that_was_followed_by_another_breaks_without_effect() -> None:
    room = Room().stable("a", "b")
    old = room.join(member_id="a")
    new = room.join(member_id="a")
    room.abandon(old)

    room.join(member_id="b")

    assert room.refusal(old) is RebalanceInProgress
    assert room.joined(new).leader == "a"


def test_a_newcomer_that_is_gone_does_not_hold_up_the_group() -> None:
    room = Room().stable("a")
    newcomer = room.join("n")
    room.abandon(newcomer)

    waiting = room.join(member_id="a")

    assert [member.member_id for member in room.joined(waiting).members] == ["a"]
    assert newcomer not in room.answers


def test_the_last_newcomer_that_is_gone_leaves_an_empty_group() -> None:
    room = Room()
    room.abandon(room.join("n"))
    room.pass_ms(DELAY_MS)

    assert room.state is EMPTY
    assert room.group.wake_ms is None


def test_a_static_newcomer_that_is_gone_keeps_its_place_for_a_session() -> None:
    room = Room().stable("a")
    room.abandon(room.join("s1", instance_id="s"))
    waiting = room.join(member_id="a")

    back = room.join("s2", instance_id="s")

    assert room.joined(back).member_id == "s2"
    assert room.joined(waiting).generation == 2


def test_a_member_that_is_gone_while_it_waits_for_its_share_is_removed_in_time() -> None:
    room = Room().stable("a", "b")
    room.join(member_id="a")
    room.join(member_id="b")
    assert room.state is COMPLETING
    waiting = room.sync("b")
    room.abandon(waiting)
    room.sync("a", assignments=own_names("a", "b"))
    assert room.state is STABLE

    room.pass_ms(SESSION_MS - 1)
    room.heartbeat("a")
    room.pass_ms(1)

    assert waiting not in room.answers
    assert "b" not in room.group.roster
    assert room.state is PREPARING

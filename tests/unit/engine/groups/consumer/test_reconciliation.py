"""A member's way to its target: every state, with every thing that may stand in its way."""

from uuid import UUID

import pytest

from millstream.engine.groups.consumer.reconciliation import (
    TRANSITIONS,
    Holding,
    Need,
    advanced,
    restored,
)
from millstream.internal_topics.consumer_groups import HoldingState
from millstream.model import LogId

A, B, C, D = (LogId(UUID(int=1), index) for index in range(4))
STABLE, UNREVOKED, UNRELEASED = HoldingState
# A member in each state, at epoch 4, that holds A and B.
HOLDINGS = {
    STABLE: Holding(state=STABLE, epoch=4, previous_epoch=3, assigned={A: 2, B: 4}),
    UNREVOKED: Holding(
        state=UNREVOKED, epoch=4, previous_epoch=3, assigned={A: 2, B: 4}, revoking=frozenset({C})
    ),
    UNRELEASED: Holding(state=UNRELEASED, epoch=4, previous_epoch=3, assigned={A: 2, B: 4}),
}
NEEDS = {
    Need.NOTHING: frozenset({A, B, D}),
    Need.SURPLUS: frozenset({A}),
    Need.SHORT: frozenset({A, B, C, D}),
}


def step(holding: Holding, target: frozenset[LogId], owned: frozenset[LogId] | None) -> Holding:
    """At the target epoch 5, with C in the hands of somebody else."""
    return advanced(
        holding,
        target=target,
        target_epoch=5,
        owned=owned,
        is_free=lambda partition: partition != C,
    )


def test_the_table_knows_every_state_with_every_need() -> None:
    assert set(TRANSITIONS) == {(state, need) for state in HoldingState for need in Need}


@pytest.mark.parametrize("state", HoldingState)
@pytest.mark.parametrize("need", Need)
def test_a_member_takes_the_step_that_the_table_says(state: HoldingState, need: Need) -> None:
    following = step(HOLDINGS[state], NEEDS[need], frozenset({A, B}))

    assert following.state is TRANSITIONS[state, need]


@pytest.mark.parametrize("state", HoldingState)
def test_a_member_with_a_surplus_stays_in_its_epoch_and_must_give_up(state: HoldingState) -> None:
    following = step(HOLDINGS[state], frozenset({A, D}), frozenset({A, B}))

    assert (following.epoch, following.previous_epoch) == (4, 3)
    assert (following.assigned, following.revoking) == ({A: 2}, {B})


@pytest.mark.parametrize("state", HoldingState)
def test_a_member_without_a_surplus_moves_on_and_gets_what_is_free(state: HoldingState) -> None:
    following = step(HOLDINGS[state], frozenset({A, C, D}), frozenset({A}))

    assert (following.epoch, following.previous_epoch) == (5, 4)
    assert (following.assigned, following.revoking) == ({A: 2, D: 5}, frozenset())


@pytest.mark.parametrize("owned", [None, frozenset({A, B, C}), frozenset({C})])
def test_a_member_that_does_not_say_that_it_gave_up_stays(owned: frozenset[LogId] | None) -> None:
    holding = HOLDINGS[UNREVOKED]

    assert step(holding, frozenset({A, D}), owned) is holding


def test_a_member_at_its_target_stays() -> None:
    holding = Holding(state=STABLE, epoch=5, previous_epoch=4, assigned={A: 5})

    assert step(holding, frozenset({A}), None) is holding


def test_a_member_that_still_waits_is_not_changed() -> None:
    holding = Holding(state=UNRELEASED, epoch=5, previous_epoch=4, assigned={A: 5})

    assert step(holding, frozenset({A, C}), None) is holding


def test_a_member_gets_what_is_released_without_a_new_epoch() -> None:
    holding = Holding(state=UNRELEASED, epoch=5, previous_epoch=3, assigned={A: 5})

    following = step(holding, frozenset({A, D}), None)

    assert following == Holding(state=STABLE, epoch=5, previous_epoch=3, assigned={A: 5, D: 5})


@pytest.mark.parametrize("holding", HOLDINGS.values())
def test_what_is_stored_is_what_was(holding: Holding) -> None:
    assert restored(holding.value()) == holding

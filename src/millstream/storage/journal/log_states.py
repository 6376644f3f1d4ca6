"""Folds the journal's entries of one log into its state: vote, epoch boundaries, log start.

Owns the rules for the order of entries; `entries` has the bytes, `journal` the file. Pure.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, assert_never

from millstream.boundaries import cut, prune
from millstream.model import NEVER_VOTED, Boundary, HardState, Offset
from millstream.storage.journal.entries import (
    Cut,
    Durable,
    Event,
    Forgotten,
    Moved,
    Opened,
    Placed,
    Reset,
    Voted,
)


class LogState(NamedTuple):
    """The state of one log. A value: each change makes another one."""

    hard_state: HardState = NEVER_VOTED
    boundaries: tuple[Boundary, ...] = ()
    start_offset: Offset = 0
    durable_end: Offset = 0  # Committed and on the disk up to here: it was never cut since.
    incarnation: int = 0  # Of the replica whose log this is.


UNKNOWN_LOG = LogState()


def fold(state: LogState, event: Event) -> LogState:
    """Return the state after `event`; `AssertionError` for an event that consensus never makes."""
    hard_state, boundaries, start_offset, durable_end, incarnation = state
    match event:
        case Voted():
            _check_vote(hard_state, event.hard_state)
            return state._replace(hard_state=event.hard_state)
        case Opened():
            # A node that opened an epoch and forgot its vote there could open it a second time.
            assert event.boundary.epoch <= hard_state.epoch, "the vote precedes the boundary"
            if boundaries:
                _check_order((boundaries[-1], event.boundary))
            return state._replace(boundaries=(*boundaries, event.boundary))
        case Cut():
            return state._replace(boundaries=tuple(cut(boundaries, event.epoch)))
        case Moved():
            assert event.start_offset >= start_offset, "a log never grows at its start"
            kept = tuple(prune(boundaries, event.start_offset))
            return state._replace(boundaries=kept, start_offset=event.start_offset)
        case Reset():
            _check_order(event.boundaries)
            return LogState(
                hard_state, event.boundaries, event.start_offset, incarnation=incarnation
            )
        case Durable():
            # What is committed is never cut: only a reset takes it away.
            return state._replace(durable_end=max(durable_end, event.end_offset))
        case Placed():
            assert incarnation in (0, event.incarnation), "a log is never given to another replica"
            return state._replace(incarnation=event.incarnation)
        case Forgotten():
            return UNKNOWN_LOG
        case _:
            assert_never(event)


def _check_vote(old: HardState, new: HardState) -> None:
    assert new.epoch >= old.epoch, "a voter never goes back to an earlier epoch"
    if new.epoch == old.epoch and old.voted_for is not None:
        assert new.voted_for == old.voted_for, "a vote is never taken back"


def _check_order(boundaries: Sequence[Boundary]) -> None:
    for before, after in pairwise(boundaries):
        assert before.epoch < after.epoch, "an epoch was opened twice or late"
        assert before.start_offset <= after.start_offset, "an epoch starts before the last one"

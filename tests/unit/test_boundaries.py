"""Boundary arithmetic, against a log written out as one sequence."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from millstream.boundaries import (
    between,
    contains,
    cut,
    epoch_end,
    last_position,
    may_campaign,
    prune,
    up_to,
    voters_in_force,
)
from millstream.model import ORIGIN, Boundary, Position
from tests.unit.raft.replicas import ONE, TWO, at, boundary, nodes

settings = hypothesis_settings(deadline=None)


@dataclass(frozen=True)
class Sequence:
    """A log as it was written: epochs with a gap before each and a number of records in each."""

    boundaries: list[Boundary]
    positions: list[Position]  # Every place the log passed through, in order.

    @property
    def end_offset(self) -> int:
        return self.positions[-1].end_offset


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    boundaries: list[Boundary] = []
    positions = [ORIGIN]
    for gap, records in draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=6)):
        last = positions[-1]
        boundaries.append(boundary(last.epoch + gap, last.end_offset))
        positions += [at(last.epoch + gap, last.end_offset + n) for n in range(records + 1)]
    return Sequence(boundaries, positions)


EPOCHS = st.integers(0, 20)
OFFSETS = st.integers(0, 20)


@settings
@given(sequences(), EPOCHS, OFFSETS)
def test_a_log_contains_exactly_the_places_it_passed_through(
    log: Sequence, epoch: int, offset: int
) -> None:
    position = at(epoch, offset)

    is_inside = contains(log.boundaries, position, base_offset=0, end_offset=log.end_offset)

    assert is_inside == (position in log.positions)


@settings
@given(sequences(), EPOCHS)
def test_an_epoch_ends_at_the_last_place_not_above_it(log: Sequence, epoch: int) -> None:
    end = epoch_end(log.boundaries, epoch, base_offset=0, end_offset=log.end_offset)

    assert end == max(place for place in log.positions if place.epoch <= epoch)


@settings
@given(sequences())
def test_the_last_position_is_the_last_place(log: Sequence) -> None:
    assert last_position(log.boundaries, log.end_offset) == log.positions[-1]


@settings
@given(sequences(), st.data())
def test_a_cut_and_what_lies_behind_it_make_the_whole(log: Sequence, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(log.positions))

    kept = cut(log.boundaries, place.epoch)

    assert [*kept, *between(log.boundaries, place, log.end_offset)] == log.boundaries
    assert last_position(kept, place.end_offset) == place


@settings
@given(sequences(), st.data())
def test_a_boundary_travels_only_with_the_records_before_it(
    log: Sequence, data: st.DataObject
) -> None:
    place = data.draw(st.sampled_from(log.positions))
    end_offset = data.draw(st.integers(place.end_offset, log.end_offset))

    sent = between(log.boundaries, place, end_offset)

    assert all(place.end_offset <= sample.start_offset <= end_offset for sample in sent)
    assert last_position([*cut(log.boundaries, place.epoch), *sent], end_offset) in log.positions


@settings
@given(sequences(), st.data())
def test_pruning_forgets_nothing_at_or_behind_the_log_start(
    log: Sequence, data: st.DataObject
) -> None:
    start_offset = data.draw(st.integers(0, log.end_offset))

    kept = prune(log.boundaries, start_offset)

    for place in log.positions:
        if place.end_offset > start_offset:
            assert contains(kept, place, base_offset=start_offset, end_offset=log.end_offset)


@settings
@given(sequences(), st.data())
def test_the_first_boundary_kept_opened_the_epoch_of_the_last_record_deleted(
    log: Sequence, data: st.DataObject
) -> None:
    start_offset = data.draw(st.integers(0, log.end_offset))

    kept = prune(log.boundaries, start_offset)

    if start_offset == 0:
        assert kept == log.boundaries
    else:
        in_force = up_to(log.boundaries, start_offset - 1)[-1]
        assert kept[0] == in_force


def test_a_pruned_log_does_not_know_where_older_epochs_ended() -> None:
    pruned = [boundary(5, 30)]

    assert epoch_end(pruned, 4, base_offset=40, end_offset=50) is None
    assert not contains(pruned, ORIGIN, base_offset=40, end_offset=50)
    assert not contains(pruned, at(5, 35), base_offset=40, end_offset=50)
    assert contains(pruned, at(5, 40), base_offset=40, end_offset=50)


def test_every_log_that_is_held_from_its_beginning_contains_the_origin() -> None:
    assert contains([], ORIGIN, base_offset=0, end_offset=0)
    assert contains([boundary(5, 0)], ORIGIN, base_offset=0, end_offset=9)
    assert epoch_end([boundary(5, 0)], 4, base_offset=0, end_offset=9) == ORIGIN


def test_the_last_boundary_names_the_voters_and_the_founders_vote_before_any() -> None:
    founders = nodes(1, 2)

    assert voters_in_force([], founders) == founders
    assert voters_in_force([boundary(1, 0, 1, 2), boundary(2, 0, 2)], founders) == nodes(2)


def test_who_was_removed_may_campaign_until_that_is_known_to_be_committed() -> None:
    removed = [boundary(1, 0, 1, 2), boundary(2, 4, 2), boundary(3, 4, 2)]

    assert may_campaign(removed, ONE, high_watermark=4)
    assert not may_campaign(removed, ONE, high_watermark=5)
    assert may_campaign(removed, TWO, high_watermark=5)

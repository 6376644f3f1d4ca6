"""Moves one member of a consumer group from its current to its target assignment (KIP-848).

Owns the steps of one member and no state of the group. Pure. A member first revokes, then moves to
the epoch of its target, then gets the partitions that have become free.

Invariant: a partition is held by one member at a time, from the answer that assigns it until a
heartbeat no longer lists it.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum

from msgspec import Struct, field
from msgspec.structs import replace

from millstream.internal_topics.consumer_groups import (
    HoldingState,
    HoldingValue,
    listed,
    packed,
    unlisted,
    unpacked,
)
from millstream.model import LogId

JOINING = 0  # Epochs that say something else than how far a member has come.
LEAVING = -1
AWAY = -2  # A static member that will be back.


class Need(Enum):
    """How far a member is from its target assignment."""

    NOTHING = "nothing"
    SURPLUS = "surplus"  # It has what it should not have.
    SHORT = "short"  # Others have what it should have.


TRANSITIONS: dict[tuple[HoldingState, Need], HoldingState] = {
    (HoldingState.STABLE, Need.NOTHING): HoldingState.STABLE,
    (HoldingState.STABLE, Need.SURPLUS): HoldingState.UNREVOKED,
    (HoldingState.STABLE, Need.SHORT): HoldingState.UNRELEASED,
    (HoldingState.UNREVOKED, Need.NOTHING): HoldingState.STABLE,
    (HoldingState.UNREVOKED, Need.SURPLUS): HoldingState.UNREVOKED,
    (HoldingState.UNREVOKED, Need.SHORT): HoldingState.UNRELEASED,
    (HoldingState.UNRELEASED, Need.NOTHING): HoldingState.STABLE,
    (HoldingState.UNRELEASED, Need.SURPLUS): HoldingState.UNREVOKED,
    (HoldingState.UNRELEASED, Need.SHORT): HoldingState.UNRELEASED,
}


class Holding(Struct, frozen=True, kw_only=True):
    """Partitions of a member: it may read `assigned` and must stop reading `revoking`."""

    state: HoldingState = HoldingState.STABLE
    epoch: int = JOINING
    previous_epoch: int = JOINING
    assigned: Mapping[LogId, int] = field(default_factory=dict)  # And in which epoch it came.
    revoking: frozenset[LogId] = frozenset()

    @property
    def partitions(self) -> Collection[LogId]:
        """Partitions that no other member may have."""
        return self.assigned.keys() | self.revoking

    def is_at(self, target_epoch: int) -> bool:
        return self.state is HoldingState.STABLE and self.epoch == target_epoch

    def rejoined(self) -> "Holding":
        """Reset a member that reads nothing; its partitions stay assigned to it."""
        return Holding(assigned=self.assigned)

    def away(self) -> "Holding":
        return Holding(epoch=AWAY, previous_epoch=self.epoch, assigned=self.assigned)

    def value(self) -> HoldingValue:
        return HoldingValue(
            state=self.state,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            assigned=packed(self.assigned.items()),
            revoking=listed(self.revoking),
        )


def restored(value: HoldingValue) -> Holding:
    return Holding(
        state=value.state,
        epoch=value.epoch,
        previous_epoch=value.previous_epoch,
        assigned=unpacked(value.assigned),
        revoking=unlisted(value.revoking),
    )


def advanced(
    holding: Holding,
    *,
    target: frozenset[LogId],
    target_epoch: int,
    owned: frozenset[LogId] | None,
    is_free: Callable[[LogId], bool],
) -> Holding:
    """The member after it has said that it reads `owned` (None: as before).

    `is_free` tells what no other member holds. Returns `holding` itself if nothing has changed.
    """
    if holding.is_at(target_epoch):
        return holding
    if holding.state is HoldingState.UNREVOKED and _reads(owned, holding.revoking):
        return holding
    kept = {partition: at for partition, at in holding.assigned.items() if partition in target}
    surplus = frozenset(holding.assigned.keys() - target)
    if surplus and _reads(owned, surplus):
        state = TRANSITIONS[holding.state, Need.SURPLUS]
        return replace(holding, state=state, assigned=kept, revoking=surplus)
    missing = target - kept.keys()
    gained = {partition: target_epoch for partition in missing if is_free(partition)}
    need = Need.NOTHING if len(gained) == len(missing) else Need.SHORT
    has_moved = holding.epoch != target_epoch
    following = Holding(
        state=TRANSITIONS[holding.state, need],
        epoch=target_epoch,
        previous_epoch=holding.epoch if has_moved else holding.previous_epoch,
        assigned=kept | gained,
    )
    return holding if following == holding else following


def _reads(owned: frozenset[LogId] | None, partitions: frozenset[LogId]) -> bool:
    """Whether the member may still read one of these; a heartbeat without a list is no proof."""
    return owned is None or not owned.isdisjoint(partitions)

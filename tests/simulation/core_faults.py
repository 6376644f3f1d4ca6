"""What fate and operators do to a group: faults and chores, each a function of a life.

A seed draws some of them (`core_simulator.Mix`). Faults aim at leaders if the life hates leaders;
they pass after a while by themselves.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.core_simulator import Life

# -- faults ----------------------------------------------------------------------------------------


def crash_one(life: "Life") -> None:
    if victims := life.victims():
        life.power_cut(life.random.choice(victims))


def crash_all(life: "Life") -> None:
    for me in life.nodes:
        life.power_cut(me)


def isolate_one(life: "Life") -> None:
    if victims := life.victims():
        lonely = life.random.choice(victims)
        others = [me for me in life.nodes if me != lonely]
        life.disconnect(pair for me in others for pair in ((lonely, me), (me, lonely)))


def deafen_one(life: "Life") -> None:
    if victims := life.victims():
        deaf = life.random.choice(victims)
        life.disconnect((me, deaf) for me in life.nodes if me != deaf)


def silence_one(life: "Life") -> None:
    if victims := life.victims():
        mute = life.random.choice(victims)
        life.disconnect((mute, me) for me in life.nodes if me != mute)


def split(life: "Life") -> None:
    nodes = sorted(life.nodes)
    half = set(life.random.sample(nodes, len(nodes) // 2))
    life.disconnect((a, b) for a in nodes for b in nodes if (a in half) != (b in half))


def bridge(life: "Life") -> None:
    """Two halves that see only one node in common."""
    nodes = sorted(life.nodes)
    life.random.shuffle(nodes)
    middle = len(nodes) // 2
    left, right = nodes[:middle], nodes[middle + 1 :]
    life.disconnect(pair for a in left for b in right for pair in ((a, b), (b, a)))


def freeze_one(life: "Life") -> None:
    if victims := life.victims():
        me = life.random.choice(victims)
        life.frozen_until[me] = life.now + life.random.choice([30, 150, 500])


def slow_disk(life: "Life") -> None:
    if victims := life.victims():
        life.slow_until[life.random.choice(victims)] = life.now + life.random.choice([100, 500])


def full_disk(life: "Life") -> None:
    if victims := life.victims():
        log = life.nodes[life.random.choice(victims)].log
        log.is_full = True

        def free() -> None:
            log.is_full = False

        life.at(life.random.randint(10, 300), free)


# -- chores ----------------------------------------------------------------------------------------


def delete_records(life: "Life") -> None:
    for me in life.leaders():
        node = life.nodes[me]
        low, high = node.log.start_offset, node.core.start_offset_max  # type: ignore[union-attr]
        if low < high:
            life.retain(me, life.random.choice([high, life.random.randint(low, high)]))


def change_voters(life: "Life") -> None:
    for me in life.leaders():
        core = life.nodes[me].core
        count = min(life.random.choice([1, 1, 1, 2]), len(life.nodes))
        others = life.random.sample(sorted(life.nodes), count)
        voters = core.voters.symmetric_difference(others)  # type: ignore[union-attr]
        name = "voters removed" if len(voters) < len(core.voters) else "voters added"  # type: ignore[union-attr]
        name = "leaders that removed themselves" if me not in voters else name
        life.ask(me, lambda core, voters=voters: core.change_voters(voters), name)


def hand_over(life: "Life") -> None:
    for me in life.leaders():
        to = life.random.choice(sorted(life.nodes))
        life.ask(me, lambda core, to=to: core.transfer(to), "transfers begun")


FAULTS: dict[str, Callable[["Life"], None]] = {
    fault.__name__: fault
    for fault in (
        crash_one,
        crash_all,
        isolate_one,
        deafen_one,
        silence_one,
        split,
        bridge,
        freeze_one,
        slow_disk,
        full_disk,
    )
}
CHORES: dict[str, Callable[["Life"], None]] = {
    chore.__name__: chore for chore in (delete_records, change_voters, hand_over)
}

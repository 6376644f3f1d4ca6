"""Planted bugs prove that the simulator and the scripts still see."""

from pathlib import Path

import pytest

from tests.simulation.canaries import CANARIES, planted
from tests.simulation.core_script import run_script
from tests.simulation.core_simulator import SimulationFailed, simulate

SCRIPTS = Path(__file__).parents[1] / "golden" / "raft"
SEEDS_MAX = 300
BY_SEED = sorted(name for name, canary in CANARIES.items() if isinstance(canary.caught_by, int))
BY_SCRIPT = sorted(name for name, canary in CANARIES.items() if isinstance(canary.caught_by, str))


@pytest.mark.parametrize("bug", BY_SEED)
def test_a_random_life_catches_the_bug(bug: str) -> None:
    # When the simulator changes, so do all lives; then another seed will do.
    seeds = [CANARIES[bug].caught_by, *range(SEEDS_MAX)]

    assert any(_fails(seed, bug) for seed in seeds), f"lived through {len(seeds)} seeds"


@pytest.mark.parametrize("bug", BY_SCRIPT)
def test_a_golden_script_catches_the_bug(bug: str) -> None:
    expected = (SCRIPTS / f"{CANARIES[bug].caught_by}.txt").read_text()

    with planted(bug):
        try:
            came_of_it = run_script(expected)
        except AssertionError:
            return  # An invariant saw it before the transcript did.

    assert came_of_it != expected


def test_a_failing_life_says_how_to_see_it_again() -> None:
    with pytest.raises(SimulationFailed, match=r"core_simulator --seed 0 --bug eager-boundaries"):
        simulate(0, bug="eager-boundaries")


def _fails(seed: int, bug: str) -> bool:
    try:
        simulate(seed, bug=bug)
    except SimulationFailed:
        return True
    return False

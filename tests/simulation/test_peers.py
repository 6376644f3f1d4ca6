"""Lives of nodes with peer links: quiescence, lost leaders, confirmed reads; and planted bugs."""

import os

import pytest

from tests.simulation.peer_canaries import CANARIES, SEEDS
from tests.simulation.peer_simulator import SimulationFailed, simulate
from tests.support.tiers import first_fresh_seed, sized

CHUNK = 5
LIVES = sized(50)  # The same every day, and as many that are drawn anew.
CANARY_SEEDS_MAX = 60
SOAK_FIRST_SEED = 20_000


@pytest.mark.parametrize("chunk", range(LIVES // CHUNK))
@pytest.mark.parametrize("is_fresh", [False, True], ids=["known", "fresh"])
def test_reads_are_current_and_groups_calm_down_in_every_life(chunk: int, is_fresh: bool) -> None:
    first = chunk * CHUNK + (first_fresh_seed() if is_fresh else 0)
    for seed in range(first, first + CHUNK):
        assert simulate(seed).counts["confirmed"] > 0


@pytest.mark.parametrize("bug", sorted(CANARIES))
def test_a_planted_bug_is_caught(bug: str) -> None:
    seeds = [SEEDS[bug], *range(CANARY_SEEDS_MAX)]

    assert any(_fails(seed, bug) for seed in seeds), f"{bug} lived through {len(seeds)} seeds"


def test_one_seed_is_one_history() -> None:
    first, second = simulate(7), simulate(7)

    assert first.counts == second.counts
    assert first.committed == second.committed
    assert first.leaders == second.leaders


@pytest.mark.soak
def test_reads_are_current_for_thousands_of_lives() -> None:
    lives = int(os.environ.get("MILLSTREAM_SOAK_SEEDS", "1000"))
    for seed in range(SOAK_FIRST_SEED, SOAK_FIRST_SEED + lives):
        simulate(seed)


def _fails(seed: int, bug: str) -> bool:
    try:
        simulate(seed, bug=bug)
    except SimulationFailed:
        return True
    return False

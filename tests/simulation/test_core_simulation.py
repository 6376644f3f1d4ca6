"""Random lives of whole groups: a few hundred always, thousands in `make soak`."""

import os

import pytest

from tests.simulation.core_simulator import simulate
from tests.support.tiers import first_fresh_seed, sized

CHUNKS = sized(10)  # Of seeds that are the same every day, and as many that are drawn anew.
SEEDS_PER_CHUNK = 10
SOAK_CHUNKS = 50
SOAK_SEEDS = int(os.environ.get("MILLSTREAM_SOAK_SEEDS", "0"))
SOAK_FIRST_SEED = 10_000  # Not the seeds of every day.


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("is_fresh", [False, True], ids=["known", "fresh"])
def test_a_group_keeps_its_promises_in_every_life(chunk: int, is_fresh: bool) -> None:
    first = chunk * SEEDS_PER_CHUNK + (first_fresh_seed() if is_fresh else 0)
    for seed in range(first, first + SEEDS_PER_CHUNK):
        simulate(seed)


# A follower whose disk was full when it had to cut its log, and which never proved the log again.
@pytest.mark.parametrize("seed", [12651, 13090, 13307])
def test_a_life_that_once_went_wrong_holds(seed: int) -> None:
    simulate(seed)


@pytest.mark.soak
@pytest.mark.skipif(not SOAK_SEEDS, reason="needs MILLSTREAM_SOAK_SEEDS")
@pytest.mark.parametrize("chunk", range(SOAK_CHUNKS))
def test_a_group_keeps_its_promises_in_thousands_of_lives(chunk: int) -> None:
    for seed in range(SOAK_FIRST_SEED + chunk, SOAK_FIRST_SEED + SOAK_SEEDS, SOAK_CHUNKS):
        simulate(seed)


def test_one_seed_is_one_history() -> None:
    first, second = simulate(7), simulate(7)

    assert first.seen == second.seen
    assert first.witness.committed == second.witness.committed
    assert first.now == second.now

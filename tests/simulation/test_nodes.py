"""Clusters of whole nodes under many seeds, and the planted bugs that prove the seeds still see."""

import os
from collections import Counter

import pytest

from tests.simulation.node_canaries import BUGS
from tests.simulation.node_simulator import SeedFailed, simulate
from tests.support.tiers import first_fresh_seed, sized

CHUNK = 10
SEEDS = sized(100)  # The same every day, and as many that are drawn anew.
CANARY_SEEDS_MAX = 60
# Seeds that catch a bug which few lives meet. When lives change, the search finds others.
KNOWN_SEEDS = {
    "acknowledge-before-the-sync": 2,
    "keep-boundaries-when-cutting": 5,
    "leave-the-journals-new-name-unsynced": 11,
}
BY_STORY = {"forget-votes"}  # Too rare for random lives: `test_votes` catches it.
SOAK_FIRST_SEED = 200  # Not the seeds of every day.


@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
@pytest.mark.parametrize("is_fresh", [False, True], ids=["known", "fresh"])
def test_whole_nodes_keep_every_promise(chunk: int, is_fresh: bool) -> None:
    first = chunk * CHUNK + (first_fresh_seed() if is_fresh else 0)
    seen: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        seen += simulate(seed)

    assert seen["acknowledged"] > 0
    assert seen["power cuts"] > 0
    assert seen["journal rewrites"] > 50  # Each node also names its first file so.


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(20, id="a-follower-stood-before-the-log-start"),
        pytest.param(1017, id="a-sync-round-began-while-the-node-was-closing"),
        pytest.param(2137, id="a-sync-round-was-under-way-when-the-log-closed"),
        pytest.param(923866093, id="a-node-was-stopped-before-it-had-opened-its-logs"),
    ],
)
def test_a_life_that_once_went_wrong_holds(seed: int) -> None:
    assert simulate(seed)["starts"] > 0


@pytest.mark.parametrize("bug", sorted(BUGS.keys() - BY_STORY))
def test_a_planted_bug_is_caught(bug: str) -> None:
    seeds = [KNOWN_SEEDS.get(bug, 0), *range(CANARY_SEEDS_MAX)]

    assert any(is_caught(seed, bug) for seed in seeds), (
        f"{bug} lived through {CANARY_SEEDS_MAX} seeds unseen"
    )


def is_caught(seed: int, bug: str) -> bool:
    try:
        simulate(seed, bug)
    except SeedFailed:
        return True
    return False


@pytest.mark.soak
def test_whole_nodes_keep_every_promise_for_long() -> None:
    seeds = int(os.environ.get("MILLSTREAM_SOAK_SEEDS", "1000"))
    for seed in range(SOAK_FIRST_SEED, SOAK_FIRST_SEED + seeds):
        assert simulate(seed)

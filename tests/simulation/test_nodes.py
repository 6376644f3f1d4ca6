"""Clusters of whole nodes under many seeds, and the planted bugs that prove the seeds still see."""

import os
from collections import Counter

import pytest

from tests.simulation.node_canaries import BUGS
from tests.simulation.node_simulator import SeedFailed, simulate

CHUNK = 10
SEEDS = 200
CANARY_SEEDS_MAX = 60


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_whole_nodes_keep_every_promise(first: int) -> None:
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
    ],
)
def test_a_life_that_once_went_wrong_holds(seed: int) -> None:
    assert simulate(seed)["starts"] > 0


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_caught(bug: str) -> None:
    caught = any(is_caught(seed, bug) for seed in range(CANARY_SEEDS_MAX))

    assert caught, f"{bug} lived through {CANARY_SEEDS_MAX} seeds unseen"


def is_caught(seed: int, bug: str) -> bool:
    try:
        simulate(seed, bug)
    except SeedFailed:
        return True
    return False


@pytest.mark.soak
def test_whole_nodes_keep_every_promise_for_long() -> None:
    for seed in range(SEEDS, SEEDS + int(os.environ.get("MILLSTREAM_SOAK_SEEDS", "1000"))):
        assert simulate(seed)

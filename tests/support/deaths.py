"""A broker that is killed with -9 again and again, at random moments.

Owns the deaths and how many there are: a few always, many in `make soak`. Who works with the broker
meanwhile, and what must be true in the end, is the test's own.
"""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

SOAK_SEEDS = int(os.environ.get("MILLSTREAM_SOAK_SEEDS", "0"))
SOAK_DEATHS_MAX = 200
LIFE_SECONDS = (0.3, 1.5)
SECONDS_MAX = 300  # For a few deaths, on a slow machine,
SOAK_SECONDS_MAX = 7_000  # and for many.

# For tests that take `deaths` and `seed`.
few_or_many_deaths = pytest.mark.parametrize(
    ("deaths", "seed"),
    [
        pytest.param(5, 1, id="a_few_times", marks=pytest.mark.timeout(SECONDS_MAX)),
        pytest.param(
            min(SOAK_SEEDS, SOAK_DEATHS_MAX),
            2,
            id="many_times",
            marks=[pytest.mark.soak, pytest.mark.timeout(SOAK_SECONDS_MAX)],
        ),
    ],
)


class MortalBroker(BrokerProcess):
    def die_often(self, deaths: int, *, seed: int) -> None:
        """Live for a while and be killed, so many times; it is alive again when this returns."""
        lives = random.Random(seed)
        for _ in range(deaths):
            time.sleep(lives.uniform(*LIFE_SECONDS))  # Under load, at no chosen moment.
            self.kill()
            self.start()


@contextmanager
def mortal_broker(directory: Path, **settings: object) -> Iterator[MortalBroker]:
    """One that is alive, until the block ends. `settings` are those of a `BrokerProcess`."""
    broker = MortalBroker(directory, **settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()

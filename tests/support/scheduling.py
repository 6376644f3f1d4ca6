"""Distributes whole files over xdist's workers: those that wait among those that compute.

A file stays on one worker, so that its broker starts once. All of Spark's tests in `make test` are
one unit, for one JVM, and so are the rules for the source, which is parsed once. `--dist loadgroup`
cannot say so: with pytest 9.2 it ignores its groups (pytest-xdist issue 1386).
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.tiers import IS_WHOLE, relative

SPARK = "tests/spark/"
ARCHITECTURE = "tests/architecture/"
# Tests that start no process: they use a processor from begin to end.
COMPUTING = (
    ARCHITECTURE,
    "tests/golden/",
    "tests/properties/",
    "tests/simulation/",
    "tests/unit/",
)
# Files of long tests that share nothing: each test is a unit.
BY_TEST = ("tests/simulation/",)


class FileScheduling(LoadScopeScheduling):
    """Gives each worker the next unit, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """The tests that run on one worker, one after the other, by one name."""
    if nodeid.startswith(SPARK) and not IS_WHOLE:
        return SPARK
    if nodeid.startswith(ARCHITECTURE):
        return ARCHITECTURE
    return nodeid if nodeid.startswith(BY_TEST) else nodeid.partition("::")[0]


def in_running_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Spark's tests, which take longest, then waiting and computing files in even proportion.

    Workers outnumber processors. While some of them wait for a broker, others compute.
    """
    paths = dict.fromkeys(relative(item.path) for item in items)
    computing = [path for path in paths if path.startswith(COMPUTING)]
    waiting = [path for path in reversed(paths) if not path.startswith((SPARK, *COMPUTING))]
    places = dict.fromkeys(paths, -1.0)
    for kind in (computing, waiting):
        places |= {path: at / len(kind) for at, path in enumerate(kind)}
    return sorted(items, key=lambda item: places[relative(item.path)])

"""The two tiers of tests: which run in `make test`, which in `make test-slow`, and at which size.

`make test` runs every test that is not slow, with the sized ones small. `make test-slow` runs the
slow ones, and the sized ones again at their whole size. Every test is in one of the two.
"""

import os
import random

from tests.support.source_tree import ROOT

# Tests that start a JVM, kill a process again and again, or draw every screen of the explorer.
SLOW = (
    "tests/spark/",
    "tests/cluster/",
    "tests/crash/test_kill_nine_clients.py",
    "tests/crash/test_kill_nine_delayed.py",
    "tests/crash/test_kill_nine_delivery.py",
    "tests/crash/test_repair_power_cuts.py",
    "tests/crash/test_old_directories.py",
    "tests/cli/test_backup.py",
    "tests/cli/test_cluster_backup.py",
    "tests/cli/test_demo.py",
    "tests/cluster/",
    "tests/cli/test_explore_screens.py",
    "tests/cli/test_full_disk.py",
    "tests/console/test_access.py",
    "tests/console/test_acts.py",
    "tests/console/test_cluster.py",
    "tests/console/test_console.py",
    "tests/console/test_hostile.py",
    "tests/console/test_pure.py",
    "tests/console/test_records.py",
    "tests/console/test_snapshots.py",
    "tests/documents/",
    "tests/interop/",
    "tests/sealed/",
    "tests/testing/test_plugin.py",
)
# One file of records for each client, and the programs of the documents that need no JVM.
NOT_SLOW = (
    "tests/documents/test_pages_run.py",
    "tests/interop/aiokafka/test_records.py",
    "tests/interop/kafka_python/test_records.py",
    "tests/interop/librdkafka/test_records.py",
)
# Tests that draw examples or seeds: few in `make test`, all of them in `make test-slow`.
SIZED = (
    "tests/crash/test_journal_crashes.py",
    "tests/hostile/test_crowd.py",
    "tests/properties/",
    "tests/simulation/",
)

# Where a test starts several nodes, a browser or dozens of commands. Every wait in there has a
# deadline of its own; these end a test that hangs, on cores that other tests keep busy.
SECONDS_MAX = dict.fromkeys(
    ("tests/cluster/", "tests/console/", "tests/documents/", "tests/testing/"), 400
)

IS_WHOLE = os.environ.get("TESTS_TIER") == "slow"
SMALL_PART = 10
EXAMPLES_MIN = 3
# Half of the simulated lives are drawn anew each run. The variable repeats a run.
FRESH_SEEDS_VARIABLE = "TESTS_FRESH_SEEDS"
FRESH_SEED_MIN = 1_000_000  # No seed of every day, and none of a soak.


def sized(whole: int) -> int:
    """The number of examples or seeds of this tier, of `whole` in `make test-slow`."""
    return whole if IS_WHOLE else min(whole, max(EXAMPLES_MIN, whole // SMALL_PART))


def first_fresh_seed() -> int:
    """The first seed of those that are drawn anew; the same in all processes of one run."""
    if FRESH_SEEDS_VARIABLE not in os.environ:
        os.environ[FRESH_SEEDS_VARIABLE] = str(random.randrange(FRESH_SEED_MIN, 2**31))
    return int(os.environ[FRESH_SEEDS_VARIABLE])


def marks(path: str) -> list[str]:
    """The marks of the tests in a file, by its path below the repository."""
    names = []
    if path.startswith(SLOW) and not path.startswith(NOT_SLOW):
        names.append("slow")
    if path.startswith(SIZED):
        names.append("sized")
    return names


def seconds_max(path: str) -> int | None:
    """How long a test in a file may take; None: as long as any other."""
    return next((most for start, most in SECONDS_MAX.items() if path.startswith(start)), None)


def relative(path: object) -> str:
    """`path` below the repository, as `SLOW` spells it."""
    return str(path).removeprefix(f"{ROOT}{os.sep}").replace(os.sep, "/")

"""Hooks for every test: its tier and order, fresh seeds, a heap that is cheap to collect, and
nothing left open by a file of tests."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer

from tests.support.heap import leave_out_what_stays
from tests.support.open_descriptors import open_descriptors, pairs_left_open
from tests.support.scheduling import FileScheduling, in_running_order
from tests.support.source_tree import ROOT
from tests.support.tiers import (
    FRESH_SEEDS_VARIABLE,
    first_fresh_seed,
    marks,
    relative,
    seconds_max,
)

# How long an example takes says more about the machine than about the claim.
settings.register_profile("millstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millstream")

# A variable that begins with MILLSTREAM_ is a setting of the broker, and an unknown one is refused:
# brokers that tests start must not inherit these two.
for name in ("BROWSER", "CHROMIUM"):
    if (value := os.environ.pop(f"MILLSTREAM_{name}", None)) is not None:
        os.environ[f"TESTS_{name}"] = value


def pytest_configure() -> None:
    first_fresh_seed()  # Before workers start: they inherit it.
    gc.disable()  # Until all tests are collected: imports and items are kept anyway.


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than processors: tests of clients and commands mostly wait for a broker."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling:
    config.option.loadscopereorder = False  # The order is that of `in_running_order`.
    return FileScheduling(config, log)


def pytest_report_header() -> str:
    return f"fresh seeds: {FRESH_SEEDS_VARIABLE}={first_fresh_seed()} runs the same ones again"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by where it stands, before `-m` selects. `smoke` keeps one in `make test`."""
    # Workers would collect tests of different names, and then xdist runs none at all.
    named_by_address = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if named_by_address:
        raise pytest.UsageError(f"give these parameters ids: {named_by_address}")
    if hasattr(config, "workerinput"):  # In a worker of xdist.
        items[:] = in_running_order(items)
    for item in items:
        most = seconds_max(relative(item.path))
        if most is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(most))
        for name in marks(relative(item.path)):
            if name == "slow" and item.get_closest_marker("smoke"):
                continue
            item.add_marker(name)


def pytest_collection_finish() -> None:
    """Take modules and test items out of garbage collection: they live until the end.

    They are over a million objects. With them one `gc.collect()` takes 0.9 seconds of CPU, and some
    hundred tests call it to meet a coroutine that was never awaited or a socket left open.
    """
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _begins_at_the_root() -> None:
    """A command in the file before may have gone to where its pipeline lies."""
    os.chdir(ROOT)


@pytest.fixture(autouse=True, scope="module")
def _nothing_stays_open() -> Iterator[None]:
    """Blame the file that left a socket open, and not the test that runs when it is collected."""
    before = open_descriptors()
    yield
    pairs = pairs_left_open(before)
    assert not pairs, f"an event loop or a client was not closed: descriptors {pairs}"
    leave_out_what_stays()

"""What holds for every test: its tier, fresh seeds, and patience with a busy machine."""

import pytest
from hypothesis import HealthCheck, settings

from tests.support.tiers import FRESH_SEEDS_VARIABLE, first_fresh_seed, marks, relative

# How long an example takes says more about the machine than about the claim.
settings.register_profile("millstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millstream")


def pytest_configure() -> None:
    first_fresh_seed()  # Before workers start: they inherit it.


def pytest_report_header() -> str:
    return f"fresh seeds: {FRESH_SEEDS_VARIABLE}={first_fresh_seed()} runs the same ones again"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by where it stands, before `-m` selects. `smoke` keeps one in `make test`."""
    for item in items:
        for name in marks(relative(item.path)):
            if name == "slow" and item.get_closest_marker("smoke"):
                continue
            item.add_marker(name)

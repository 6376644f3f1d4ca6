"""kafka-python's own warnings, kept from failing tests that are about the broker."""

import gc
import warnings
from collections.abc import Iterator

import pytest

# Its schemas are read on import, through a function that Python deprecates.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin  # noqa: F401


def pytest_itemcollected(item: pytest.Item) -> None:
    """It leaves the sockets of refused connections to the collector, which warns of each."""
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def _collect_sockets_left_open() -> Iterator[None]:
    """Now, where the warning is expected, and not in the middle of somebody else's test."""
    yield
    gc.collect()

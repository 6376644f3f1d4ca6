"""How long a test of clusters may take."""

import pytest

from tests.support.tiers import relative

# Every wait in these tests has a deadline of its own, and says what it waited for. This one ends a
# test that hangs, also where several nodes start, move and stop on a machine that is busy.
TEST_S_MAX = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = relative(item.path).startswith("tests/cluster/")
        if is_here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S_MAX))

"""One secured node for each module of tests."""

import gc
import warnings
from collections.abc import Iterator

import pytest

from tests.support.secured import SecuredNode, running_secured, secured_config

with warnings.catch_warnings():  # Of kafka-python about itself.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin  # noqa: F401


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    files = tmp_path_factory.mktemp("secured")
    with running_secured(secured_config(files), files) as node:
        yield node


def pytest_itemcollected(item: pytest.Item) -> None:
    """Clients leave sockets of refused connections to the collector, which warns of each."""
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def _collect_sockets_left_open() -> Iterator[None]:
    yield
    gc.collect()

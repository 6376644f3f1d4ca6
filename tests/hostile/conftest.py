from collections.abc import Iterator

import pytest

from tests.hostile.broker import Broker, serving


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("broker") / "log") as running:
        yield running


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """One broker for all tests of a module, unharmed by each of them."""
    yield shared_broker
    shared_broker.assert_unharmed()

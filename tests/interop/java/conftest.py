"""Two releases of Kafka's Java client, each in one process that serves all tests."""

from collections.abc import Iterator

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.java.clients import Java
from tests.interop.java.driver import Driver
from tests.interop.java.releases import RELEASES, Release
from tests.support.broker_process import BrokerProcess


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session", params=RELEASES, ids=lambda release: release.line)
def release(request: pytest.FixtureRequest) -> Release:
    version: Release = request.param
    version.install()
    return version


@pytest.fixture(scope="session")
def java(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    driver = Driver(release.driver_command, tmp_path_factory.mktemp("java") / "driver.log")
    yield Java(release.line, driver)
    driver.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """As for every client, with short intervals."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        DEFAULT_PARTITIONS=PARTITIONS,
        TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100,
        TIMING__CONSUMER_HEARTBEAT_INTERVAL_MS=500,
        TIMING__TRANSACTION_CHECK_MS=500,
    )
    process.start()
    yield process
    process.kill()

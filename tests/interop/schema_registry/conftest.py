"""A broker with its registry, for clients that know nothing but its address."""

from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), LISTENERS="kafka,http")
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def url(registry: BrokerProcess) -> str:
    return f"http://{registry.host}:{registry.config.http_port}"

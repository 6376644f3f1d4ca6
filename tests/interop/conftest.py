"""One broker process for each module of tests."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.broker_process import BrokerProcess

PARTITIONS = 3
_numbers = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Topics made on first use have three partitions; the first member of a group waits little."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        DEFAULT_PARTITIONS=PARTITIONS,
        TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100,
        TIMING__TRANSACTION_CHECK_MS=200,
        TIMING__CONSUMER_SESSION_TIMEOUT_MS=6_000,
        TIMING__CONSUMER_HEARTBEAT_INTERVAL_MS=200,
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture
def topic() -> str:
    """A name that no other test of this process uses; the topic is made on first use."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"

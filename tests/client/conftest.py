"""A broker process and a client per module, and names that no other test uses."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from millstream.client import Client, connect
from tests.support.broker_process import BrokerProcess

PARTITIONS = 3
# A busy machine is no reason to fail; heartbeats are short so that rebalances are.
TIMEOUT_S = 40.0
MEMBER: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 200}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"), TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with connect(broker.address, timeout_s=TIMEOUT_S) as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    name = f"orders-{uuid4()}"
    client.admin.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.fixture
def group() -> str:
    return f"mill-{uuid4()}"

"""A broker whose answers a test writes, behind a real socket, and what sends it requests."""

from collections.abc import Iterator

import pytest

from millstream.client import BrokerNode
from millstream.client._librdkafka.link import Link
from millstream.client.extensions.requests import BrokerRequests
from tests.support.fake_broker import FakeBroker, fake_broker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with fake_broker() as serving:
        yield serving


@pytest.fixture
def requests(broker: FakeBroker) -> BrokerRequests:
    host, port = broker.address
    node = BrokerNode(node_id=1, host=host, port=port)
    return BrokerRequests(Link(f"{host}:{port}", {}, timeout_s=20), lambda: [node])

"""Which node a request of Millstream's own is sent to."""

import socket

import pytest

from millstream.client import BrokerNode, Unreachable
from millstream.client._librdkafka.link import Link
from millstream.client.extensions.delayed import DelayedPage, DelayedRecords
from millstream.client.extensions.requests import BrokerRequests
from millstream.kafka_wire.apis.millstream import ListDelayedRequest, ListDelayedResponse
from tests.support.fake_broker import FakeBroker
from tests.unit.client.extensions.own_requests import seen


@pytest.fixture
def gone() -> BrokerNode:
    """A node that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return BrokerNode(node_id=1, host="127.0.0.1", port=bound.getsockname()[1])


class Nodes:
    """The nodes of a cluster, and how often they were asked for."""

    def __init__(self, *nodes: BrokerNode) -> None:
        self.nodes = nodes
        self.asked = 0

    def __call__(self) -> tuple[BrokerNode, ...]:
        self.asked += 1
        return self.nodes


def requests_to(nodes: Nodes) -> BrokerRequests:
    return BrokerRequests(Link("127.0.0.1:1", {}, timeout_s=20), nodes)


def test_a_node_that_is_down_is_passed_over_and_the_next_remembered(
    broker: FakeBroker, gone: BrokerNode
) -> None:
    host, port = broker.address
    nodes = Nodes(gone, BrokerNode(node_id=2, host=host, port=port))
    broker.answers[ListDelayedRequest] = lambda request: ListDelayedResponse(delayed=[])
    delayed = DelayedRecords(requests_to(nodes))

    for _ in range(2):
        assert delayed.list() == DelayedPage((), None)

    assert len(seen(broker)) == 2
    assert nodes.asked == 1


def test_the_first_node_is_named_if_none_can_be_reached(gone: BrokerNode) -> None:
    nodes = Nodes(gone, gone)
    delayed = DelayedRecords(requests_to(nodes))

    for _ in range(2):
        with pytest.raises(Unreachable, match=f"no broker answers at 127.0.0.1:{gone.port}"):
            delayed.list()

    assert nodes.asked == 2  # Others may have come meanwhile.

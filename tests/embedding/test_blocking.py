"""A broker inside a program that has no event loop."""

import socket

import pytest

from millstream.client import connect
from millstream.embedding import BlockingBroker, BrokerConfig, NewRecord
from millstream.errors import StartupError, UnknownTopic

IN_MEMORY = BrokerConfig(storage="memory", port=0)


def test_a_program_without_a_loop_runs_a_broker_and_calls_it() -> None:
    with BlockingBroker(IN_MEMORY) as broker:
        broker.call(lambda b: b.topics.create("orders", partitions=2))
        offsets = broker.call(lambda b: b.partitions.append("orders", 1, [NewRecord(b"a")]))
        with connect(broker.bootstrap) as client, client.consumer("orders") as consumer:
            read = next(consumer)
        names = broker.call(lambda b: b.topics.list())

    assert (list(offsets), read.value, names) == ([0], b"a", ["orders"])


def test_what_a_call_or_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(UnknownTopic), BlockingBroker(IN_MEMORY) as broker:
        broker.call(lambda b: b.topics.describe("nope"))


def test_a_broker_that_cannot_start_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = BrokerConfig(storage="memory", port=taken.getsockname()[1])
        with pytest.raises(StartupError), BlockingBroker(config):
            pass


def test_a_broker_that_does_not_run_says_so() -> None:
    broker = BlockingBroker(IN_MEMORY)
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap
    with broker:
        assert broker.port > 0
    with pytest.raises(RuntimeError, match="not running any more"):
        broker.call(lambda b: b.topics.list())
    with pytest.raises(RuntimeError, match="entered once"):
        broker.__enter__()

"""A broker that stops and comes back, under clients that stay."""

import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from millstream.client import Client, Unreachable, connect
from millstream.client import consumer as consumer_module
from millstream.client.errors import ClientError
from tests.client.conftest import MEMBER, TIMEOUT_S
from tests.support.broker_process import BrokerProcess

# A restart may take ten seconds on a busy machine: a member that outlives its session joins again,
# reads again what it did not commit, and may not commit what it had read.
LASTING_MEMBER: dict[str, Any] = {**MEMBER, "session_timeout_ms": 60_000}


@pytest.fixture(autouse=True)
def running(broker: BrokerProcess) -> None:
    """Each test begins with a broker that runs, whatever the one before did to it."""
    broker.kill()
    broker.start()


def test_a_producer_and_a_consumer_go_on_after_a_kill(
    client: Client, broker: BrokerProcess, topic: str, group: str
) -> None:
    with (
        client.producer() as producer,
        client.consumer(topic, group=group, **LASTING_MEMBER) as consumer,
    ):
        producer.send(topic, b"before").result()
        first = consumer.take(1)
        broker.kill()
        during = producer.send(topic, b"during")
        broker.start()
        after = consumer.take(1)

        assert [m.value for m in [*first, *after]] == [b"before", b"during"]
        assert during.result().topic == topic


def test_a_consumer_without_a_group_goes_on_after_a_kill(
    client: Client, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "REFRESH_S", 0.1)
    client.produce(topic, b"before", partition=0)
    with client.consumer(topic) as consumer:
        first = consumer.take(1)
        broker.kill()
        assert consumer.poll(0.5) is None
        broker.start()
        client.produce(topic, b"after", partition=0)
        second = consumer.take(1)

    assert [m.value for m in [*first, *second]] == [b"before", b"after"]


def test_commits_and_questions_are_answered_after_a_restart(
    client: Client, broker: BrokerProcess, topic: str, group: str
) -> None:
    client.produce(topic, b"a", partition=0)
    with client.consumer(topic, group=group, auto_commit=False, **LASTING_MEMBER) as consumer:
        consumer.take(1)
        broker.stop()
        broker.start()
        consumer.commit()

    assert list(client.admin.committed(group).values()) == [1]


def impatient(broker: BrokerProcess, topic: str) -> Client:
    """A client that waits a second for anything, and has sent a record."""
    client = connect(broker.address, wait_s=TIMEOUT_S, timeout_s=1, delivery_timeout_s=1)
    deadline = time.monotonic() + TIMEOUT_S
    while True:  # On a busy machine a second may be too short.
        try:
            client.produce(topic, b"")
            return client
        except ClientError:
            assert time.monotonic() < deadline, "no record within a second, again and again"


def test_a_broker_that_is_gone_is_told_when_the_time_is_over(
    broker: BrokerProcess, topic: str
) -> None:
    client = impatient(broker, topic)
    broker.kill()

    with pytest.raises(Unreachable, match=broker.address):
        client.admin.list_topics()
    with pytest.raises(Unreachable, match=broker.address):
        client.produce(topic, b"")
    with pytest.raises(Unreachable, match=broker.address):
        client.consumer(topic)
    client.close()


def test_a_restart_that_takes_longer_than_a_request_may_loses_no_record(
    broker: BrokerProcess, topic: str
) -> None:
    with connect(broker.address, timeout_s=0.5) as client:
        producer = client.producer(buffer_records_max=50)
        producer.send(topic, b"before", partition=0).result()
        broker.kill()
        starting = threading.Timer(1.5, broker.start)
        starting.start()
        # More than the buffer takes: the sender waits for room as long as the records do.
        during = [producer.send(topic, b"during", partition=0) for _ in range(100)]
        producer.close()
        starting.join()

    assert [receipt.result().offset for receipt in during] == list(range(1, 101))


def test_connecting_waits_for_a_broker_that_is_about_to_start(broker: BrokerProcess) -> None:
    broker.kill()
    starting = threading.Timer(0.5, broker.start)
    starting.start()

    with connect(broker.address, wait_s=TIMEOUT_S) as client:
        assert client.admin.describe_cluster().nodes
    starting.join()


def test_a_program_that_closes_nothing_ends_all_the_same(broker: BrokerProcess, topic: str) -> None:
    code = (
        "from millstream.client import connect\n"
        f"client = connect({broker.address!r})\n"
        f"print(client.produce({topic!r}, b'x').offset)\n"
        f"consumer = client.consumer({topic!r})\n"
        "print(next(consumer).value)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, "0\nb'x'\n", "")

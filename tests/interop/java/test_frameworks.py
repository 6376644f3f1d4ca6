"""A Kafka Streams application that is killed, also in the middle of a rebalance."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.interop.java.admin import Admin
from tests.interop.java.frameworks import Framework, install
from tests.interop.librdkafka.clients import consuming, take
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_clients import produce

COUNT = 500
SESSION_MS = 30_000


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    install()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    process.start()
    yield process
    process.stop()


@pytest.mark.parametrize("is_rebalancing", [False, True])
def test_a_killed_streams_application_is_back_within_its_session_time(
    broker: BrokerProcess, tmp_path: Path, is_rebalancing: bool
) -> None:
    admin = Admin(broker.address)
    for topic in ("words", "counts"):
        admin.create(topic, 2)
    produce(broker.address, "words", *[b"w%d" % (number % 7) for number in range(COUNT)])

    def start(name: str) -> Framework:
        arguments = (broker.address, str(tmp_path / name), str(SESSION_MS))
        return Framework("interop.WordCount", *arguments, log=tmp_path / f"{name}.log")

    running = [start("first")]
    try:
        running[0].wait_for("RUNNING", lambda: (running[0].lines or [""])[-1])
        if is_rebalancing:  # Both die with a JoinGroup that waits for an answer.
            running.append(start("second"))
            running[0].wait_for("REBALANCING", lambda: running[0].lines[-1])
        for process in running:
            process.kill()
        killed = time.monotonic()
        running = [start("third")]
        running[0].wait_for("RUNNING", lambda: (running[0].lines or [""])[-1])
        # A dead member that is taken for a living one costs a second session. Starting a JVM and
        # restoring the store take seconds, on a busy machine many.
        assert time.monotonic() - killed < 2 * SESSION_MS / 1000
        with consuming(broker.address, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition("counts", at, 0) for at in range(2)])
            counts = {(m.key(), m.value()) for m in take(consumer, COUNT)}
    finally:
        for process in running:
            process.stop()
    totals = [COUNT // 7 + (number < COUNT % 7) for number in range(7)]
    assert counts == {(b"w%d" % n, b"%d" % at) for n in range(7) for at in range(1, totals[n] + 1)}

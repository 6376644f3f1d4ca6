"""kill -9 again and again, while real clients write, copy and commit: nothing lost, nothing twice,
nothing out of order. A few deaths always, many in `make soak`.
"""

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.copying_job import QUIET, Copier, Writer, read_all
from tests.support.broker_process import BrokerProcess

PARTITIONS = 3
DEATHS = 5
LIFE_SECONDS = (0.3, 1.5)
CATCH_UP_SECONDS_MAX = 120
SOAK_SEEDS = int(os.environ.get("MILLSTREAM_SOAK_SEEDS", "0"))
SOAK_DEATHS_MAX = 200


@pytest.mark.timeout(300)
def test_clients_do_not_notice_that_the_broker_dies(tmp_path: Path) -> None:
    _die_often(tmp_path, deaths=DEATHS, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(7_000)
def test_clients_do_not_notice_that_the_broker_dies_many_times(tmp_path: Path) -> None:
    _die_often(tmp_path, deaths=min(SOAK_SEEDS, SOAK_DEATHS_MAX), seed=2)


def _die_often(directory: Path, *, deaths: int, seed: int) -> None:
    lives = random.Random(seed)
    broker = BrokerProcess(directory, TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100)
    broker.start()
    try:
        _create(broker.address, "numbers", "copies")
        writer = Writer(broker.address, "numbers", PARTITIONS)
        copier = Copier(broker.address, "numbers", "copies", name="copier")
        writer.start()
        copier.start()
        try:
            _wait_for_a_commit(copier)
            for _ in range(deaths):
                time.sleep(lives.uniform(*LIFE_SECONDS))  # Under load, at no chosen moment.
                broker.kill()
                broker.start()
        finally:
            writer.stop()
        written = writer.acknowledged
        copies = read_all(broker.address, "copies", written, seconds_max=CATCH_UP_SECONDS_MAX)
        copier.stop()
        numbers = read_all(broker.address, "numbers", written, seconds_max=CATCH_UP_SECONDS_MAX)
    finally:
        broker.kill()
    assert writer.problems == []
    assert copier.problems == []
    assert sum(written) > 0
    assert numbers == [list(range(count)) for count in written]
    assert copies == numbers


def _create(address: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    created = admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics])
    for done in created.values():
        done.result(30)


def _wait_for_a_commit(copier: Copier) -> None:
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while copier.commits == 0:
        assert copier.is_alive(), copier.problems
        assert time.monotonic() < deadline, "the job never committed"
        time.sleep(0.05)

"""kill -9 again and again while messages are pushed, acknowledged and given up: every one is worked
on, and what nobody can work on is a dead letter exactly once.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.crash.copying_job import QUIET
from tests.crash.flux_work import FAILS_AT_EVERY, Publisher, Worker
from tests.support.broker_process import BrokerProcess

DEATHS = 4
LIFE_SECONDS = (0.3, 1.2)
SECONDS_MAX = 90
SOAK_SEEDS = int(os.environ.get("MILLSTREAM_SOAK_SEEDS", "0"))
SOAK_DEATHS_MAX = 100


@pytest.mark.timeout(300)
def test_every_message_is_worked_on_or_a_dead_letter_once(tmp_path: Path) -> None:
    _die_often(tmp_path, deaths=DEATHS, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(7_000)
def test_every_message_is_worked_on_or_a_dead_letter_once_over_many_deaths(tmp_path: Path) -> None:
    _die_often(tmp_path, deaths=min(SOAK_SEEDS, SOAK_DEATHS_MAX), seed=2)


def _die_often(directory: Path, *, deaths: int, seed: int) -> None:
    lives = random.Random(seed)
    # Retries enough that a death, which costs one, gives nothing up that could be worked on.
    broker = BrokerProcess(directory, FLUX__ACK_TIMEOUT_MS=300, FLUX__MAX_RETRIES=max(6, deaths))
    broker.start()
    try:
        worker = Worker(broker.config.flux_port)
        publisher = Publisher(broker.config.flux_port)
        worker.start()
        assert worker.is_subscribed.wait(SECONDS_MAX)
        publisher.start()
        for _ in range(deaths):
            time.sleep(lives.uniform(*LIFE_SECONDS))  # Under load, at no chosen moment.
            broker.kill()
            broker.start()
        publisher.stop()
        expected = range(0, publisher.acknowledged, FAILS_AT_EVERY)
        letters = _dead_letters(broker.address, len(expected))
        worker.stop()
    finally:
        broker.kill()
    assert publisher.problems == worker.problems == []
    assert publisher.acknowledged > 50
    assert set(worker.seen) == set(range(publisher.acknowledged))
    assert letters == Counter(expected)


def _dead_letters(address: str, count: int) -> "Counter[int]":
    """The numbers in the dead-letter topic, once there are so many and no more come."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "looking",
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    found: Counter[int] = Counter()
    deadline = time.monotonic() + SECONDS_MAX
    try:
        consumer.subscribe(["jobs.dlq"])
        while time.monotonic() < deadline:
            records = consumer.consume(500, 2.0)
            found.update(int(one.value()) for one in records if one.error() is None)
            if not records and found.total() >= count:
                break
    finally:
        consumer.close()
    return found

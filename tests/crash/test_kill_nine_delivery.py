"""kill -9 again and again while messages are pushed, acknowledged and given up: every one is worked
on, and what cannot be worked on is a dead letter exactly once.
"""

import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer

from tests.crash.copying_job import QUIET
from tests.crash.flux_work import FAILS_AT_EVERY, Publisher, Worker
from tests.support.deaths import few_or_many_deaths, mortal_broker

SECONDS_MAX = 90


@few_or_many_deaths
def test_every_message_is_worked_on_or_a_dead_letter_once(
    tmp_path: Path, deaths: int, seed: int
) -> None:
    # Fewer retries than deaths: a death is no failure of what was being worked on.
    settings = {"FLUX__ACK_TIMEOUT_MS": 500, "FLUX__MAX_RETRIES": 4}
    with mortal_broker(tmp_path, **settings) as broker:
        worker = Worker(broker.config.flux_port)
        publisher = Publisher(broker.config.flux_port)
        worker.start()
        assert worker.is_subscribed.wait(SECONDS_MAX)
        publisher.start()
        broker.die_often(deaths, seed=seed)
        publisher.stop()
        expected = range(0, publisher.acknowledged, FAILS_AT_EVERY)
        letters = _dead_letters(broker.address, len(expected))
        worker.stop()
    assert publisher.problems == worker.problems == []
    assert publisher.acknowledged > 50
    # Exactly those: a kill may come between an append and its answer, and then the publisher, which
    # stops only after an answer, sends the number again and is told that it is a duplicate.
    assert set(worker.seen) == set(range(publisher.acknowledged))
    assert set(publisher.answers_lost) <= set(worker.seen)
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
    counts: Counter[int] = Counter()
    deadline = time.monotonic() + SECONDS_MAX
    try:
        consumer.subscribe(["jobs.dlq"])
        while time.monotonic() < deadline:
            records = consumer.consume(500, 2.0)
            counts.update(int(record.value()) for record in records if record.error() is None)  # type: ignore[arg-type]
            if not records and counts.total() >= count:
                break
    finally:
        consumer.close()
    return counts

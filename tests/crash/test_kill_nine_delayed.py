"""kill -9 again and again, with a backlog of delayed records: nothing lost, early or twice.

An idempotent client of Kafka sends records that are due at any time during these deaths, or after
them.
"""

import random
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.copying_job import QUIET
from tests.support.deaths import LIFE_SECONDS, few_or_many_deaths, mortal_broker

PARTITIONS = 3
DELAY_MS_MAX = 8_000
BACKLOG = 300  # Sent before the first death, all due at the end.
CATCH_UP_SECONDS_MAX = 120


class Delayer(threading.Thread):
    """Sends numbers, each due at a time of its own."""

    def __init__(self, address: str, seed: int) -> None:
        super().__init__()
        self.acknowledged: set[bytes] = set()
        self.problems: list[str] = []
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                **QUIET,
            }
        )

    def send(self, due_ms: int) -> None:
        self._producer.produce(
            "orders",
            b"%d" % self._sent,
            headers=[("ms-deliver-at", str(due_ms)), ("asked-for", str(due_ms))],
            partition=self._sent % PARTITIONS,
            on_delivery=self._reported,
        )
        self._sent += 1
        self._producer.poll(0)

    def run(self) -> None:
        while not self._stopping.is_set():
            self.send(int(time.time() * 1000) + self._random.randint(0, DELAY_MS_MAX))
            time.sleep(0.002)
        if left := self._producer.flush(CATCH_UP_SECONDS_MAX):
            self.problems.append(f"{left} records were never acknowledged")

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(f"refused: {error}")
        elif (value := message.value()) is not None:
            self.acknowledged.add(value)


class Watcher(threading.Thread):
    """Reads all the time, and looks at the clock."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.seen: Counter[bytes] = Counter()
        self.early: list[bytes] = []
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "watcher", "enable.auto.commit": False}
            | QUIET
        )
        self._consumer.assign([TopicPartition("orders", at, 0) for at in range(PARTITIONS)])

    def run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            now_ms = time.time() * 1000
            if message is None or message.error() is not None:
                continue
            value, headers = message.value() or b"", dict(message.headers() or [])
            due = headers["asked-for"]
            assert isinstance(due, bytes)
            self.seen[value] += 1
            if int(due) > now_ms:
                self.early.append(value)
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join()


@few_or_many_deaths
def test_delayed_records_do_not_notice_that_the_broker_dies(
    tmp_path: Path, deaths: int, seed: int
) -> None:
    with mortal_broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address, **QUIET})  # type: ignore[dict-item]
        admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result(30)
        delayer, watcher = Delayer(broker.address, seed), Watcher(broker.address)
        end_ms = int(time.time() * 1000) + int(deaths * sum(LIFE_SECONDS) / 2 * 1000) + DELAY_MS_MAX
        for _ in range(BACKLOG):
            delayer.send(end_ms)
        delayer.start()
        watcher.start()
        try:
            broker.die_often(deaths, seed=seed)
        finally:
            delayer.stop()
        _wait_for(watcher, delayer)
        time.sleep(1)  # Whatever came twice would come about now.
        watcher.stop()
    assert delayer.problems == []
    assert len(delayer.acknowledged) > BACKLOG
    assert watcher.early == []
    assert {value for value, count in watcher.seen.items() if count > 1} == set()
    assert delayer.acknowledged - watcher.seen.keys() == set()


def _wait_for(watcher: Watcher, delayer: Delayer) -> None:
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while delayer.acknowledged - watcher.seen.keys():
        if time.monotonic() > deadline:
            return  # The test says what is missing.
        time.sleep(0.1)

"""Two jobs that must not notice that their broker dies: an idempotent writer of numbers, and a
transactional copier from one topic to another.

Owns the clients and their reaction to errors, as an application would write it. What they did is
compared by the test. librdkafka in threads: its work is done outside of Python's lock.
"""

import threading
import time
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

QUIET = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    # With its only broker down librdkafka bootstraps anew, but goes on asking the coordinator of
    # the group at the address object it has thrown away, until the call times out.
    "metadata.recovery.strategy": "none",
}
CALL_SECONDS_MAX = 30
PENDING_MAX = 2_000
COPY_RECORDS = 200  # In one transaction.
TRANSACTION_TIMEOUT_MS = 20_000


class Writer(threading.Thread):
    """Numbers every partition from 0 upwards, and counts what was acknowledged."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        super().__init__()
        self.acknowledged = [0] * partitions
        self.problems: list[str] = []
        self._topic = topic
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                **QUIET,
            }
        )

    def run(self) -> None:
        sent = 0
        partitions = len(self.acknowledged)
        while not self._stopping.is_set():
            if len(self._producer) < PENDING_MAX:
                number, partition = divmod(sent, partitions)
                self._producer.produce(
                    self._topic, b"%d" % number, partition=partition, on_delivery=self._reported
                )
                sent += 1
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)
            if sent % 50 == 0:
                time.sleep(0.002)  # A steady load that leaves the machine to the broker as well.
        left = self._producer.flush(2 * CALL_SECONDS_MAX)
        if left:
            self.problems.append(f"{left} records were never acknowledged")

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(f"refused: {error}")
            return
        partition = message.partition()
        if int(message.value()) != self.acknowledged[partition]:  # type: ignore[arg-type, index]
            self.problems.append(f"{message.value()!r} acknowledged out of order in {partition}")
        self.acknowledged[partition] += 1  # type: ignore[index]


class Copier(threading.Thread):
    """Copies records partition by partition, with their offsets in the same transaction."""

    def __init__(self, address: str, source: str, target: str, *, name: str) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.commits = 0
        self.aborts = 0
        self._address = address
        self._source = source
        self._target = target
        self._transactional_id = name
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
                "fetch.wait.max.ms": 50,
                **QUIET,
            }
        )
        self._consumer.subscribe([source])

    def run(self) -> None:
        try:
            producer = self._open()
            while not self._stopping.is_set():
                records = self._consumer.consume(COPY_RECORDS, timeout=0.2)
                good = [record for record in records if record.error() is None]
                if good:
                    producer = self._copy(producer, good)
        except Exception as problem:
            self.problems.append(repr(problem))
        finally:
            self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _open(self) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._address,
            "transactional.id": self._transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 1,
            "retry.backoff.ms": 20,
            **QUIET,
        }
        deadline = time.monotonic() + 2 * CALL_SECONDS_MAX
        while True:
            producer = Producer(settings)
            try:
                producer.init_transactions(CALL_SECONDS_MAX)
            except KafkaException as problem:
                if time.monotonic() > deadline:
                    raise
                if not problem.args[0].retriable():
                    continue
            else:
                return producer

    def _copy(self, producer: Producer, records: list[Message]) -> Producer:
        """One transaction; return the producer to go on with."""
        try:
            producer.begin_transaction()
            for record in records:
                producer.produce(self._target, record.value(), partition=record.partition())  # type: ignore[arg-type]
            positions = self._consumer.position(self._consumer.assignment())
            offsets = [position for position in positions if position.offset >= 0]
            metadata = self._consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(offsets, metadata, CALL_SECONDS_MAX)
            self._patiently(producer.commit_transaction)
        except KafkaException as problem:
            error = problem.args[0]
            self.aborts += 1
            self._rewind()
            if not error.txn_requires_abort():
                return self._open()  # Fenced, or in a state that only a new producer leaves.
            try:
                self._patiently(producer.abort_transaction)
            except KafkaException:
                return self._open()
        else:
            self.commits += 1
        return producer

    def _patiently(self, call: Any) -> None:
        """A retriable error leaves the transaction where it is: the same call is made again."""
        deadline = time.monotonic() + 2 * CALL_SECONDS_MAX
        while True:
            try:
                return call(CALL_SECONDS_MAX)
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _rewind(self) -> None:
        """Go back to what was committed: the records of the transaction were not copied."""
        deadline = time.monotonic() + 2 * CALL_SECONDS_MAX
        while True:
            try:
                assignment = self._consumer.assignment()
                committed = self._consumer.committed(assignment, CALL_SECONDS_MAX)
                for position in committed:
                    offset = max(position.offset, 0)
                    self._consumer.seek(TopicPartition(position.topic, position.partition, offset))
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
            else:
                return


def read_all(address: str, topic: str, ends: list[int], *, seconds_max: float) -> list[list[int]]:
    """The committed numbers of every partition in order, once there are as many as `ends` says.

    Reads on for a moment after that, so that a record too many is seen.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    collected: list[list[int]] = [[] for _ in ends]
    finished: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, at, 0) for at in range(len(ends))])
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error() is None:
                    collected[message.partition()].append(int(message.value()))  # type: ignore[arg-type, index]
                    finished.discard(message.partition())
                elif message.error().code() == KafkaError._PARTITION_EOF:  # type: ignore[union-attr]
                    finished.add(message.partition())  # type: ignore[arg-type]
            enough = all(len(got) >= end for got, end in zip(collected, ends, strict=True))
            if enough and len(finished) == len(ends):
                break
        return collected
    finally:
        consumer.close()

"""The workload: writers, readers and a group on one topic, each in a thread, and their history.

Clients are librdkafka's, as users have them. A client that fails is part of the workload: its
error is counted, and it goes on.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.verify.history import (
    RECORDS_MAX,
    Commit,
    CommittedRead,
    EndRead,
    History,
    Read,
    Send,
    Value,
)

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

POLL_S = 0.1
ASK_S_MAX = 5.0  # For an answer about offsets; without one the question is not in the history.
ASK_EVERY_S = 0.2
COMMIT_EVERY_S = 1.0
DELIVERY_S_MAX = 60.0  # How long a producer tries.
CATCH_UP_S_MAX = 60.0  # For readers to come to the end after the last write.
QUEUED_RECORDS_MAX = 10_000  # Of one writer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    topic: str
    run: str  # Marks the records of this run.
    partitions: int
    writers: int
    readers: int
    records_per_s: int  # Of each writer.
    settings: Mapping[str, Any]  # librdkafka's.


@dataclass(slots=True)
class Workload:
    """Runs until `stop`; then `finish` reads everything once more."""

    load: Load
    history: History = field(default_factory=History)
    errors: Counter[str] = field(default_factory=Counter)
    is_writing: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)
    longest_gap_s: float = 0.0  # Without any acknowledgement, while writing.
    ends: dict[int, int] = field(default_factory=dict)  # Of the partitions, after the last write.
    failures: list[BaseException] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Writers and readers run for the length of the block; then the history is whole."""
        load = self.load
        self.is_writing.set()
        writers = [self._thread(self._write, number) for number in range(1, load.writers + 1)]
        others = [
            self._thread(self._follow, f"reader {number}") for number in range(1, load.readers + 1)
        ]
        others += [self._thread(self._join), self._thread(self._watch_ends)]
        try:
            yield
            self.is_writing.clear()
            for writer in writers:
                writer.join()
            self._read_all()
        finally:
            self.is_writing.clear()
            self.is_over.set()
            for thread in (*writers, *others):
                thread.join()
        if self.failures:
            raise self.failures[0]

    @property
    def is_full(self) -> bool:
        return len(self.history.sends) >= RECORDS_MAX

    # -- writers -----------------------------------------------------------------------------------

    def _write(self, writer: int) -> None:
        from confluent_kafka import KafkaException, Producer

        load, sends = self.load, self.history.sends
        producer = Producer(
            {
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": int(DELIVERY_S_MAX * 1000),
                "queue.buffering.max.messages": QUEUED_RECORDS_MAX,
                **load.settings,
            }
        )
        last_s = began_s = time.monotonic()
        number = 0

        def noted(value: Value, partition: int, sent_s: float) -> Callable[[Any, Any], None]:
            def note(problem: object, message: "Message") -> None:
                nonlocal last_s
                now = time.monotonic()
                offset = message.offset() if problem is None else None
                if problem is None:
                    self.longest_gap_s = max(self.longest_gap_s, now - max(last_s, sent_s))
                    last_s = now
                else:
                    self.errors[_reason(problem)] += 1
                sends.append(Send(value, partition, sent_s, now, offset))

            return note

        while self.is_writing.is_set() and not self.is_full:
            value, partition = Value(writer, number), number % load.partitions
            sent_s = time.monotonic()
            try:
                producer.produce(
                    load.topic,
                    value.encode(load.run),
                    partition=partition,
                    on_delivery=noted(value, partition, sent_s),
                )
                number += 1
            except BufferError:
                producer.poll(POLL_S)
                continue
            except KafkaException as problem:  # A fatal error: this producer is over.
                self.errors[_reason(problem.args[0])] += 1
                break
            due_s = began_s + number / load.records_per_s
            producer.poll(max(0.0, due_s - time.monotonic()))
        producer.flush(DELIVERY_S_MAX + POLL_S)

    # -- readers -----------------------------------------------------------------------------------

    def _follow(self, name: str) -> None:
        """Read all partitions from their begin on, until the end after the last write."""
        reads = self.history.readers.setdefault(name, [])
        with self._consumer(f"{self.load.run}-{name}") as reader:
            reader.assign(self._positions(0))
            self._poll_to_the_end(reader, reads.append)

    def _join(self) -> None:
        """A member of a group: commits what it has read, and asks what is committed."""
        reads, group = self.history.group_reads, f"millstream-verify-{self.load.run}"
        next_offsets: dict[int, int] = {}
        committed_s = time.monotonic()

        def take(read: Read) -> None:
            reads.append(read)
            next_offsets[read.partition] = read.offset + 1

        def commit() -> None:
            nonlocal committed_s
            if next_offsets and time.monotonic() - committed_s >= COMMIT_EVERY_S:
                self._commit(reader, dict(next_offsets))
                committed_s = time.monotonic()

        with self._consumer(group) as reader:
            reader.subscribe([self.load.topic])
            self._poll_to_the_end(reader, take, commit)

    def _commit(self, reader: "Consumer", offsets: Mapping[int, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        topic = self.load.topic
        places = [TopicPartition(topic, part, offset) for part, offset in offsets.items()]
        try:
            reader.commit(offsets=places, asynchronous=False)
            ended_s = time.monotonic()
            self.history.commits += [
                Commit(part, offset, ended_s) for part, offset in offsets.items()
            ]
            began_s = time.monotonic()
            for place in reader.committed(self._positions(0), timeout=ASK_S_MAX):
                if place.error is None:
                    offset = place.offset if place.offset >= 0 else None
                    read = CommittedRead(place.partition, offset, began_s)
                    self.history.committed_reads.append(read)
        except KafkaException as problem:
            self.errors[_reason(problem.args[0])] += 1

    def _poll_to_the_end(
        self,
        reader: "Consumer",
        take: Callable[[Read], None],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        until_s = float("inf")
        reached: dict[int, int] = {}
        while time.monotonic() < until_s:
            message = reader.poll(POLL_S)
            if message is not None:
                problem = message.error()
                if problem is not None:
                    self.errors[_reason(problem)] += 1
                else:
                    read = self._read_of(message)
                    take(read)
                    reached[read.partition] = max(reached.get(read.partition, 0), read.offset + 1)
            between()
            if self.ends and all(reached.get(part, 0) >= end for part, end in self.ends.items()):
                return
            if self.is_over.is_set() and until_s == float("inf"):
                until_s = time.monotonic() + (CATCH_UP_S_MAX if self.ends else 0.0)

    def _watch_ends(self) -> None:
        """Ask for the ends of partitions, again and again."""
        with self._consumer(f"{self.load.run}-ends") as asker:
            while self.is_writing.is_set():
                for place in self._positions(0):
                    began_s = time.monotonic()
                    end = self._ask_end(asker, place)
                    if end is not None:
                        self.history.ends.append(EndRead(place.partition, end, began_s))
                time.sleep(ASK_EVERY_S)

    def _read_all(self) -> None:
        """Read the whole topic by a client of its own."""
        deadline = time.monotonic() + CATCH_UP_S_MAX
        ends: dict[int, int] = {}
        reached: dict[int, int] = {}
        with self._consumer(f"{self.load.run}-final") as reader:
            places = self._positions(0)
            while len(ends) < len(places) and time.monotonic() < deadline:
                for place in places:
                    end = self._ask_end(reader, place)
                    if end is not None:
                        ends[place.partition] = end
            reader.assign(places)
            while time.monotonic() < deadline:
                if all(reached.get(part, 0) >= end for part, end in ends.items()):
                    break
                message = reader.poll(POLL_S)
                if message is not None and message.error() is None:
                    read = self._read_of(message)
                    self.history.final.append(read)
                    reached[read.partition] = read.offset + 1
        self.history.is_final_whole = len(ends) == len(places) and all(
            reached.get(part, 0) >= end for part, end in ends.items()
        )
        self.ends = ends

    # -- parts -------------------------------------------------------------------------------------

    def _thread(self, work: Callable[..., None], *args: object) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)
            except BaseException as problem:
                self.failures.append(problem)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    @contextmanager
    def _consumer(self, group: str) -> Iterator["Consumer"]:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **self.load.settings,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _positions(self, offset: int) -> list[Any]:  # confluent_kafka's TopicPartition.
        from confluent_kafka import TopicPartition

        load = self.load
        return [TopicPartition(load.topic, part, offset) for part in range(load.partitions)]

    def _ask_end(self, asker: "Consumer", place: Any) -> int | None:
        from confluent_kafka import KafkaException

        try:
            # Any: None without an answer in time, which the stubs do not know.
            answer: Any = asker.get_watermark_offsets(place, timeout=ASK_S_MAX, cached=False)
        except KafkaException as problem:
            self.errors[_reason(problem.args[0])] += 1
            return None
        return None if answer is None else int(answer[1])

    def _read_of(self, message: "Message") -> Read:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        return Read(partition, offset, Value.decode(self.load.run, message.value()))


def _reason(problem: Any) -> str:  # librdkafka's KafkaError.
    return str(problem.name())

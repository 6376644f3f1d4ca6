"""A benchmark of any Kafka cluster with real clients, in which every record is verified.

Owns the run: write, read back, compare, and the figures. A record's bytes follow from its number,
so a lost, doubled or changed record is detected whatever else the topic holds.
"""

import secrets
import threading
import time
from array import array
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from millstream.base_error import MillstreamError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer, TopicPartition

MESSAGE_COUNT_MAX = 50_000_000
MESSAGE_BYTES_MAX = 1_000_000  # What topics take without being told to take more.
THREADS_MAX = 64
QUEUED_BATCHES_MAX = 10
ADMIN_SECONDS_MAX = 20
STALL_SECONDS_MAX = 60  # Without any progress the cluster is taken for gone.
STALL_ASKED_SECONDS = 2.0  # Without any progress the caller is asked for a reason.

_STAMP = Struct(">QQ")  # The run, and the number of the record in it.
_FILLING_BYTES = 1 << 16
_POLL_SECONDS = 0.2
_CONSUME_COUNT = 1_000

# Told now and then: what is being done, how many records are done, and of how many.
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkConfig:
    """`batch_size` counts records. Each thread is a producer of its own, then a consumer."""

    message_count: int = 100_000
    message_size: int = 1_000
    batch_size: int = 1_000
    threads: int = 1
    topic: str = "millstream-benchmark"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("message_count", 1, MESSAGE_COUNT_MAX),
            ("message_size", _STAMP.size, MESSAGE_BYTES_MAX),
            ("batch_size", 1, 1_000_000),
            ("threads", 1, THREADS_MAX),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} = {getattr(self, name)} is not in {low} to {high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    records: int
    seconds: float
    message_size: int

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mib_per_s(self) -> float:
        return self.records_per_s * self.message_size / 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """From handing a record to the producer to its acknowledgement, in milliseconds."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    config: BenchmarkConfig
    produced: Rate
    consumed: Rate
    latency: Latency
    missing: int  # Acknowledged, and not read back.
    duplicated: int
    damaged: int  # Of this run, with other bytes than were written.

    @property
    def is_verified(self) -> bool:
        """Whether every record came back once and as it was."""
        return self.missing == self.duplicated == self.damaged == 0


class BenchmarkFailed(MillstreamError):
    """The cluster refused a record, or stopped answering."""


def run_benchmark(
    bootstrap: str,
    config: BenchmarkConfig,
    *,
    options: Mapping[str, str] | None = None,
    on_progress: OnProgress | None = None,
    explain_stall: Callable[[], str] | None = None,
) -> BenchmarkResult:
    """Write, read back and compare; blocks. A topic that had to be created is deleted again.

    `options` are librdkafka's, for TLS and the like. `explain_stall` is asked when nothing has been
    acknowledged for a while; a reason that it returns ends the run. Needs `confluent-kafka`.
    """
    run = _Run(bootstrap, config, dict(options or {}), explain_stall or (lambda: ""))
    has_created = run.create_topic()
    try:
        starts = run.ends()
        run.in_threads("write", run.write, on_progress)
        written = time.perf_counter()
        run.expect(starts)
        run.in_threads("read", run.read, on_progress)
        read = time.perf_counter()
    finally:
        if has_created:
            run.delete_topic()
    return BenchmarkResult(
        config=config,
        produced=_rate(config, written - run.started_at),
        consumed=_rate(config, read - written),
        latency=_latency(run.latencies_s),
        missing=run.seen.count(0),
        duplicated=run.duplicated,
        damaged=run.damaged,
    )


def _rate(config: BenchmarkConfig, seconds: float) -> Rate:
    return Rate(
        records=config.message_count, seconds=max(seconds, 1e-9), message_size=config.message_size
    )


def _latency(latencies_s: "array[float]") -> Latency:
    ordered = sorted(latencies_s)

    def at(share: float) -> float:
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Latency(
        p50_ms=at(0.5), p95_ms=at(0.95), p99_ms=at(0.99), p999_ms=at(0.999), max_ms=at(1.0)
    )


class _Stall:
    """Whether the number of records that wait has been the same for a while."""

    def __init__(self) -> None:
        self._count = -1
        self._asked_at = time.monotonic()

    def is_long(self, waiting_count: int) -> bool:
        """True at most once in `STALL_ASKED_SECONDS`, while nothing moves."""
        now = time.monotonic()
        if waiting_count != self._count:
            self._count, self._asked_at = waiting_count, now
            return False
        if now < self._asked_at + STALL_ASKED_SECONDS:
            return False
        self._asked_at = now
        return True


class _Run:
    """One run. Threads share it; each counter has a lock or a single writer."""

    def __init__(
        self,
        bootstrap: str,
        config: BenchmarkConfig,
        options: dict[str, str],
        explain_stall: Callable[[], str],
    ) -> None:
        self._explain_stall = explain_stall
        self._options: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            **options,
        }
        self._config = config
        self._run_id = secrets.randbits(64)
        self._filling = secrets.token_bytes(_FILLING_BYTES + config.message_size)
        self._lock = threading.Lock()
        self._refused: list[str] = []
        self._partitions = 1
        self._assigned: list[list[TopicPartition]] = []
        self._all_connected = threading.Barrier(config.threads, action=self._start_clock)
        self.started_at = 0.0
        self.latencies_s = array("f")
        self.seen = bytearray(config.message_count)
        self._ends: dict[int, int] = {}
        self.duplicated = self.damaged = self._done = 0

    # -- the topic -------------------------------------------------------------------------------

    def create_topic(self) -> bool:
        """Make sure that the topic is there; say whether it was not before."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin, name = AdminClient(self._options), self._config.topic
        new_topic = NewTopic(name, num_partitions=self._config.threads)
        try:
            admin.create_topics([new_topic], request_timeout=ADMIN_SECONDS_MAX)[name].result()
            has_created = True
        except KafkaException as problem:
            if problem.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BenchmarkFailed(f"cannot create {name}: {problem.args[0].str()}") from None
            has_created = False
        self._partitions = len(
            admin.list_topics(name, timeout=ADMIN_SECONDS_MAX).topics[name].partitions
        )
        return has_created

    def delete_topic(self) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(self._options)  # Held until the answer is there.
        admin.delete_topics([self._config.topic])[self._config.topic].result()

    def ends(self) -> dict[int, int]:
        """Where each partition ends."""
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        try:
            return {
                index: consumer.get_watermark_offsets(
                    TopicPartition(self._config.topic, index), timeout=ADMIN_SECONDS_MAX
                )[1]
                for index in range(self._partitions)
            }
        finally:
            consumer.close()

    def expect(self, starts: Mapping[int, int]) -> None:
        """Share out the partitions among the readers, from where this run began."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(self._config.topic, index, at) for index, at in starts.items()]
        self._assigned = [places[t :: self._config.threads] for t in range(self._config.threads)]
        self._ends = self.ends()

    # -- the work --------------------------------------------------------------------------------

    def in_threads(
        self, activity: str, work: Callable[[int], None], on_progress: OnProgress | None
    ) -> None:
        total, self._done = self._config.message_count, 0
        with ThreadPoolExecutor(self._config.threads) as pool:
            futures = [pool.submit(work, thread) for thread in range(self._config.threads)]
            while on_progress is not None and not all(future.done() for future in futures):
                on_progress(activity, self._done, total)
                time.sleep(_POLL_SECONDS)
            problems = [
                problem for future in futures if (problem := future.exception()) is not None
            ]
        # That the others waited in vain for one that failed says nothing.
        problems.sort(key=lambda problem: isinstance(problem, threading.BrokenBarrierError))
        if problems:
            raise problems[0]
        if on_progress is not None:
            on_progress(activity, self._done, total)

    def write(self, thread: int) -> None:
        config, partition = self._config, thread % self._partitions
        try:
            producer = self._connected_producer(partition)
            self._all_connected.wait(STALL_SECONDS_MAX)
        except BaseException:
            self._all_connected.abort()  # The others would wait for us.
            raise
        stall = _Stall()
        for number in range(thread, config.message_count, config.threads):
            value = self._value(number)
            while not self._has_taken(producer, partition, value):
                producer.poll(_POLL_SECONDS)
                self._check_stall(producer, stall)
            producer.poll(0)
        self._flush(producer)

    def read(self, thread: int) -> None:
        places = self._assigned[thread]
        left = {p.partition for p in places if self._ends[p.partition] > p.offset}
        consumer = self._consumer()
        try:
            consumer.assign([place for place in places if place.partition in left])
            heard_at = time.monotonic()
            while left:
                messages = consumer.consume(_CONSUME_COUNT, timeout=_POLL_SECONDS)
                for message in messages:
                    self._check(message, left)
                if messages:
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at > STALL_SECONDS_MAX:
                    raise BenchmarkFailed(f"nothing was read for {STALL_SECONDS_MAX} s")
        finally:
            consumer.close()

    # -- parts -----------------------------------------------------------------------------------

    def _start_clock(self) -> None:
        self.started_at = time.perf_counter()

    def _connected_producer(self, partition: int) -> "Producer":
        """A producer that has written a first record, one that counts for nothing."""
        from confluent_kafka import Producer

        batch_size, message_size = self._config.batch_size, self._config.message_size
        producer = Producer(
            {
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.num.messages": batch_size,
                "batch.size": max(1_000_000, message_size + 1_000),
                # Enough to keep it busy; more would only make every record wait in line.
                "queue.buffering.max.messages": QUEUED_BATCHES_MAX * batch_size,
                **self._options,
            }
        )
        producer.produce(self._config.topic, b"", partition=partition)
        self._flush(producer)
        return producer

    def _has_taken(self, producer: "Producer", partition: int, value: bytes) -> bool:
        try:
            producer.produce(self._config.topic, value, partition=partition, on_delivery=self._note)
        except BufferError:
            return False
        return True

    def _flush(self, producer: "Producer") -> None:
        deadline, stall = time.monotonic() + STALL_SECONDS_MAX, _Stall()
        while (left := producer.flush(_POLL_SECONDS)) and time.monotonic() < deadline:
            self._check_stall(producer, stall)
        if left or self._refused:
            why = self._refused[0] if self._refused else f"{left} records were not acknowledged"
            raise BenchmarkFailed(f"writing to {self._config.topic}: {why}")

    def _check_stall(self, producer: "Producer", stall: "_Stall") -> None:
        if stall.is_long(len(producer)) and (reason := self._explain_stall()):
            # What is buffered would be sent again until its time is over.
            producer.purge()
            raise BenchmarkFailed(f"writing to {self._config.topic}: {reason}")

    def _value(self, number: int) -> bytes:
        at = number % _FILLING_BYTES
        filling_bytes = self._config.message_size - _STAMP.size
        return _STAMP.pack(self._run_id, number) + self._filling[at : at + filling_bytes]

    def _note(self, error: object, message: "Message") -> None:
        if error is not None:
            self._refused.append(str(error))
            return
        with self._lock:
            self.latencies_s.append(message.latency() or 0.0)
            self._done += 1

    def _check(self, message: "Message", left: set[int]) -> None:
        if message.error() is not None:
            raise BenchmarkFailed(f"reading {self._config.topic}: {message.error()}")
        index, offset, value = message.partition(), message.offset(), message.value() or b""
        assert index is not None
        assert offset is not None
        if offset + 1 >= self._ends[index]:
            left.discard(index)
        if len(value) < _STAMP.size or offset >= self._ends[index]:
            return
        run_id, number = _STAMP.unpack_from(value)
        if run_id != self._run_id:
            return  # Somebody else writes to this topic as well.
        with self._lock:
            self._done += 1
            if number >= self._config.message_count or value != self._value(number):
                self.damaged += 1
            elif self.seen[number]:
                self.duplicated += 1
            else:
                self.seen[number] = 1

    def _consumer(self) -> "Consumer":
        from confluent_kafka import Consumer

        return Consumer(
            {
                "group.id": f"millstream-benchmark-{self._run_id:x}",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "auto.offset.reset": "error",
                **self._options,
            }
        )

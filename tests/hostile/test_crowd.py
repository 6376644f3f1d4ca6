"""A well-behaved producer and consumer beside a hostile crowd: served in time, nothing lost.

The crowd is a process of its own (`tests.hostile.crowd`), the broker another one with few
descriptors and little memory for requests. `MILLSTREAM_SOAK_SECONDS` is how long the long run is.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.hostile.broker import TOPIC, Broker, Client, serving
from tests.support.tiers import IS_WHOLE

SHORT_SECONDS = 10 if IS_WHOLE else 3
SOAK_SECONDS = float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
RATE = 300  # Records of the good producer in a second.
P99_MS_MAX = 250.0
# Beside other tests the broker may have a fifth of a processor: 860 ms were seen at a load of 11.
SHORT_P99_MS_MAX = 3_000.0
MIB = 2**20
REQUEST_BYTES_MAX = 64 * MIB
UNPACKING_BYTES_MAX = 128 * MIB
WRITE_BUFFER_BYTES_MAX = MIB
DELIVERY_BYTES_MAX = MIB
# What the limits say: requests; batches that are unpacked, in pieces and whole for a moment; what
# the readers and subscribers of the crowd that do not read may hold; indexes; the interpreter.
DEAF_MAX = 30
MEMORY_MAX = (
    REQUEST_BYTES_MAX
    + 2 * UNPACKING_BYTES_MAX
    + DEAF_MAX * (WRITE_BUFFER_BYTES_MAX + DELIVERY_BYTES_MAX)
    + 32 * MIB
    + 128 * MIB
)


@dataclass
class Good:
    """A producer that waits for nothing and a consumer that keeps up, and what they saw."""

    broker: Broker
    acknowledged: set[int] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    consumed: set[int] = field(default_factory=set)
    produce_ms: list[float] = field(default_factory=list)
    consume_ms: list[float] = field(default_factory=list)
    sent_at: dict[int, float] = field(default_factory=dict)
    is_over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        address = "{}:{}".format(*self.broker.address)
        self.producer = Producer(
            {"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "good",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "check.crcs": True,
                "log_level": 0,
            }
        )
        self.consumer.subscribe([TOPIC])

    def produce_for(self, seconds: float) -> None:
        started, first = time.monotonic(), len(self.sent_at)
        while (now := time.monotonic()) < started + seconds:
            number = len(self.sent_at)
            self.sent_at[number] = now
            self.producer.produce(TOPIC, str(number).encode(), on_delivery=self._delivered)
            due = started + (number + 1 - first) / RATE
            while (left := due - time.monotonic()) > 0:
                self.producer.poll(left)  # Returns with each delivery, before its time is over.
            self.producer.poll(0)
        self.producer.flush(30)

    def consume(self) -> None:
        while not self.is_over.is_set() or self.acknowledged - self.consumed:
            message = self.consumer.poll(0.05)
            if message is None or message.error() is not None:
                continue
            number = int(message.value() or b"")
            self.consume_ms.append(1000 * (time.monotonic() - self.sent_at[number]))
            self.consumed.add(number)

    def wait_until_consumed(self) -> None:
        deadline = time.monotonic() + 30
        while self.acknowledged - self.consumed:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        number = int(message.value() or b"")
        self.produce_ms.append(1000 * (time.monotonic() - self.sent_at[number]))
        self.acknowledged.add(number)


@contextmanager
def crowd(broker: Broker, *, idle: int, log_path: Path) -> Iterator[None]:
    addresses = (broker.address, broker.flux_address, broker.classic_address)
    with log_path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.hostile.crowd"),
                *("{}:{}".format(*address) for address in addresses),
                str(idle),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert process.poll() is None, log_path.read_text(encoding="utf-8")[-3000:]
    finally:
        process.kill()
        process.wait()


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def endure(
    tmp_path: Path, *, seconds: float, descriptors_max: int, idle: int, p99_ms_max: float
) -> None:
    with serving(
        tmp_path / "log",
        data_dir=tmp_path / "data",
        descriptors_max=descriptors_max,
        MILLSTREAM_LIMITS__REQUEST_BYTES_MAX=str(REQUEST_BYTES_MAX),
        MILLSTREAM_LIMITS__UNPACKING_BYTES_MAX=str(UNPACKING_BYTES_MAX),
        MILLSTREAM_LIMITS__WRITE_BUFFER_BYTES_MAX=str(WRITE_BUFFER_BYTES_MAX),
        MILLSTREAM_LIMITS__DELIVERY_BUFFERED_BYTES_MAX=str(DELIVERY_BYTES_MAX),
    ) as broker:
        with Client(broker) as client:
            client.create_topic("bombs")
        good = Good(broker)
        consuming = threading.Thread(target=good.consume, daemon=True)
        consuming.start()
        good.produce_for(1)
        good.wait_until_consumed()  # It has joined its group before the crowd comes.
        good.produce_ms.clear()
        good.consume_ms.clear()

        with crowd(broker, idle=idle, log_path=tmp_path / "crowd.log"):
            good.produce_for(seconds)
        good.is_over.set()
        consuming.join(60)
        good.consumer.close()

        lines = (tmp_path / "crowd.log").read_text(encoding="utf-8").splitlines()
        counts = [line for line in lines if line.startswith("{")][-1:]
        figures = (
            f"produce p99 {p99(good.produce_ms):.0f} ms, consume p99 {p99(good.consume_ms):.0f} ms,"
            f" records {len(good.acknowledged)}, peak {broker.resident_bytes('VmHWM') // MIB} MiB,"
            f" refused lines {broker.log.count('refused connections')}, crowd {counts}"
        )
        print(figures)
        assert not good.refused, good.refused[:3]
        assert good.acknowledged <= good.consumed
        assert p99(good.produce_ms) < p99_ms_max, figures
        assert p99(good.consume_ms) < p99_ms_max, figures
        assert broker.resident_bytes("VmHWM") < MEMORY_MAX, figures
        assert broker.process.poll() is None
        assert "unexpected error" not in broker.log, broker.log[-3000:]
        assert "Traceback" not in broker.log, broker.log[-3000:]


def test_a_hostile_crowd_for_a_moment(tmp_path: Path) -> None:
    endure(
        tmp_path, seconds=SHORT_SECONDS, descriptors_max=512, idle=300, p99_ms_max=SHORT_P99_MS_MAX
    )


@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 300)
def test_a_hostile_crowd_of_thousands(tmp_path: Path) -> None:
    endure(tmp_path, seconds=SOAK_SECONDS, descriptors_max=2048, idle=3_000, p99_ms_max=P99_MS_MAX)

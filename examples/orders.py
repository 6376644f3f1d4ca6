"""The main job so far, end to end: a broker, a Kafka client, kill -9, and nothing lost.

Run by `make run`. Keeps its data in `data/example/`, which it empties first, and leaves a broker
running until Ctrl-C; with `--once` it ends after the result.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer

DIRECTORY = Path("data/example")
MILLSTREAM = Path(sys.executable).parent / "millstream"
COUNT = 50_000
WAIT_S_MAX = 60.0


@contextmanager
def serving(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker process and the address it listens on."""
    command = [MILLSTREAM, "serve", "--data-dir", str(DIRECTORY), "--port", str(port)]
    started = time.perf_counter()
    with (DIRECTORY.parent / "example.log").open("a") as log:
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert broker.stdout is not None
        ready = re.search(r"kafka=(\S+)", broker.stdout.readline())
        if ready is None:
            sys.exit("the broker did not start; see data/example.log")
        print(f"broker up on {ready[1]} after {time.perf_counter() - started:.2f} s")
        yield broker, ready[1]
    finally:
        broker.terminate()
        broker.wait()


def produce(address: str) -> None:
    """Write orders, each acknowledged only once it is on the disk."""
    refused: list[KafkaError] = []

    def delivered(problem: KafkaError | None, _: Message) -> None:
        if problem is not None:
            refused.append(problem)

    producer = Producer(
        {"bootstrap.servers": address, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
    )
    started = time.perf_counter()
    for number in range(COUNT):
        value = f'{{"order": {number}, "item": "flour", "kg": {number % 50}}}'
        producer.produce("orders", key=str(number), value=value, on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(WAIT_S_MAX)
    rate = COUNT / (time.perf_counter() - started)
    if left or refused:
        sys.exit(f"{left} orders unanswered, {len(refused)} refused: {refused[:1]}")
    print(f"wrote {COUNT:,} orders with acks=all, synced before each ack: {rate:,.0f} per second")


def count_orders(address: str) -> int:
    """Read the topic as a consumer group and count what is there."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "mill", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    seen: set[bytes] = set()
    deadline = time.monotonic() + WAIT_S_MAX
    while len(seen) < COUNT and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                seen.add(message.key())
    consumer.close()
    return len(seen)


def main() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.parent.mkdir(exist_ok=True)
    with serving() as (broker, address):
        produce(address)
        print("killing the broker with -9 ...", flush=True)
        broker.send_signal(signal.SIGKILL)
    with serving() as (broker, address):
        found = count_orders(address)
        print(f"found {found:,} of {COUNT:,} orders", flush=True)
        if found != COUNT:
            sys.exit("orders are missing")
        if "--once" not in sys.argv:
            print(f"serving on {address} until Ctrl-C: point any Kafka client at it", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                broker.wait()


if __name__ == "__main__":
    main()

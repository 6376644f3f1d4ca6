"""The main job, end to end: orders produced, a pipeline on Spark, results read back, kill -9.

Run by `make run`. Keeps its data in `data/example/`, which it empties first, and ends by itself.
Orders are checked (bad ones go to `orders.dlq`, in the same atomic batch as the good ones to
`orders.valid`) and added up by minute and item; the pipeline is `examples/orders.yml`.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

DIRECTORY = Path("data/example")
PIPELINE = Path(__file__).parent / "orders.yml"
MILLSTREAM = Path(sys.executable).parent / "millstream"
COUNT = 50_000
BAD_EVERY = 100
ITEMS = ("flour", "oats", "rye", "spelt")
WAIT_S_MAX = 60.0
PIPELINE_S_MAX = 600.0


@contextmanager
def serving() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker process and the address it listens on."""
    others = [f"--{door}-port=0" for door in ("flux", "classic", "http")]
    command = [MILLSTREAM, "serve", "--data-dir", DIRECTORY / "broker", "--port=0", *others]
    started = time.perf_counter()
    with (DIRECTORY / "broker.log").open("a") as log:
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert broker.stdout is not None
        ready = re.search(r"kafka=(\S+)", broker.stdout.readline())
        if ready is None:
            sys.exit(f"the broker did not start; see {DIRECTORY / 'broker.log'}")
        print(f"broker up on {ready[1]} after {time.perf_counter() - started:.2f} s", flush=True)
        yield broker, ready[1]
    finally:
        broker.terminate()
        broker.wait()


def order(number: int) -> str:
    """One order in each hundred weighs nothing."""
    minute, second = divmod(number % 3600, 60)
    return json.dumps(
        {
            "id": number,
            "item": ITEMS[number % len(ITEMS)],
            "kg": 0 if number % BAD_EVERY == 0 else 1 + number % 50,
            "at": f"2026-01-01T12:{minute:02}:{second:02}Z",
        }
    )


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
        producer.produce("orders", key=str(number), value=order(number), on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(WAIT_S_MAX)
    rate = COUNT / (time.perf_counter() - started)
    if left or refused:
        sys.exit(f"{left} orders unanswered, {len(refused)} refused: {refused[:1]}")
    print(f"wrote {COUNT:,} orders with acks=all, synced before each ack: {rate:,.0f} per second")


def run_pipeline(address: str) -> None:
    """What a user types. Progress comes while it runs, a summary at the end."""
    where = ["--bootstrap", address, "--state-dir", str((DIRECTORY / "state").resolve())]
    command = [MILLSTREAM, "pipeline", "run", PIPELINE, *where]
    print(f"\n$ millstream pipeline run examples/{PIPELINE.name} {' '.join(where)}", flush=True)
    if subprocess.run(command, timeout=PIPELINE_S_MAX, check=False).returncode != 0:
        sys.exit("the pipeline failed")


def read(address: str, topic: str) -> list[Message]:
    """All committed records of a topic, up to where it ends now."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "mill", "enable.partition.eof": True}
    )
    partitions = consumer.list_topics(topic, timeout=WAIT_S_MAX).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found: list[Message] = []
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S_MAX
    while len(ended) < len(partitions) and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is None:
                found.append(message)
            else:
                ended.add(message.partition())
    consumer.close()
    return found


def show_results(address: str) -> None:
    """Read back what the pipeline wrote, with a Kafka client that knows nothing of it."""
    letters = read(address, "orders.dlq")
    reasons = Counter(dict(letter.headers() or [])["ms-dlq-reason"].decode() for letter in letters)
    figures = [json.loads(message.value()) for message in read(address, "orders-by-minute")]
    # An update of a window replaces the one before it: the last one counts.
    windows = {(figure["window_start"], figure["item"]): figure for figure in figures}
    orders, kilograms = Counter[str](), Counter[str]()
    for window in windows.values():
        orders[window["item"]] += window["orders"]
        kilograms[window["item"]] += window["kg"]
    print(f"\norders.dlq has {len(letters):,} orders: {dict(reasons)}")
    print(f"orders-by-minute has {len(windows):,} windows:")
    for item in ITEMS:
        print(f"  {item:<6} {orders[item]:>7,} orders {kilograms[item]:>12,.0f} kg")
    good, bad = sum(orders.values()), len(letters)
    if (good, bad) != (COUNT - COUNT // BAD_EVERY, COUNT // BAD_EVERY):
        sys.exit(f"{good:,} orders were added up and {bad:,} quarantined, of {COUNT:,}")


def main() -> None:
    started = time.perf_counter()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    with serving() as (broker, address):
        produce(address)
        run_pipeline(address)
        show_results(address)
        print("\nkilling the broker with -9 ...", flush=True)
        broker.send_signal(signal.SIGKILL)
    with serving() as (broker, address):
        found = {
            topic: len(read(address, topic)) for topic in ("orders", "orders.valid", "orders.dlq")
        }
    print(", ".join(f"{topic} {count:,}" for topic, count in found.items()))
    if found["orders"] != COUNT or found["orders.valid"] + found["orders.dlq"] != COUNT:
        sys.exit("orders are missing, or there are too many")
    seconds = time.perf_counter() - started
    print(f"every order is there, each exactly once; all of it took {seconds:.0f} s")


if __name__ == "__main__":
    main()

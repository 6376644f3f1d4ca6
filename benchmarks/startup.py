"""How long a newcomer waits: for a command, for a broker, for a broker in a test.

    python -m benchmarks.startup [--runs N]

Wall time as seen from outside. Every run measures everything once, so that a busy moment of the
machine does not hit one figure alone; the median of all runs is reported, with the extremes.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.report import Figure, publish

RUNS = 15
MILLSTREAM = str(Path(sys.executable).parent / "millstream")
# As installed: with compiled files, whatever this shell thinks of them, and no settings.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith("MILLSTREAM_") and name != "PYTHONDONTWRITEBYTECODE"
}
HOST = "127.0.0.1"
SECONDS_MAX = 30.0
POLL_SECONDS = 0.002

COMMAND_GOAL_MS, ACK_GOAL_MS, FIXTURE_GOAL_MS = 300, 1_000, 300

# In an interpreter that has imported nothing yet, as that of a test run.
FIXTURE = """
import json, time
started = time.perf_counter()
from millstream.testing import run_broker
with run_broker():
    first = time.perf_counter() - started
started = time.perf_counter()
with run_broker():
    second = time.perf_counter() - started
started = time.perf_counter()
with run_broker(mode="subprocess"):
    process = time.perf_counter() - started
print(json.dumps([first, second, process]))
"""

HELP, LIST, PRODUCE = "millstream --help", "millstream topic list", "millstream produce"
ACCEPTED, ACKED = "millstream serve to the first connection", "millstream serve to the first ack"
FIRST, NEXT = "run_broker() with its imports", "run_broker() again"
PROCESS = 'run_broker(mode="subprocess")'

SETTINGS = {
    HELP: "process start to exit",
    LIST: "process start to exit, one topic, broker running",
    PRODUCE: "process start to exit, one record of 5 B, acks=all, fdatasync before ack",
    ACCEPTED: "process start to a TCP connection, empty data directory",
    ACKED: "the same run; a librdkafka producer with its defaults (linger 5 ms), made then, writes "
    "to a topic that this creates; acks=all, fdatasync before ack",
    FIRST: "in process, in memory, first in a fresh interpreter",
    NEXT: "in process, in memory, second in that interpreter",
    PROCESS: "in memory, third in that interpreter",
}
GOALS_MS = {
    HELP: COMMAND_GOAL_MS,
    LIST: COMMAND_GOAL_MS,
    PRODUCE: COMMAND_GOAL_MS,
    ACKED: ACK_GOAL_MS,
    FIRST: FIXTURE_GOAL_MS,
    NEXT: FIXTURE_GOAL_MS,
}


def measure(directory: Path) -> dict[str, float]:
    """Everything once, in seconds."""
    runs = {HELP: command("--help")}
    with serving(directory) as (runs[ACCEPTED], address, started):
        runs[ACKED] = write(address) - started
        runs[LIST] = command("topic", "list", "--bootstrap", address)
        runs[PRODUCE] = command("produce", "orders", "hello", "--bootstrap", address)
    runs[FIRST], runs[NEXT], runs[PROCESS] = fixture()
    return runs


def command(*arguments: str) -> float:
    started = time.perf_counter()
    subprocess.run([MILLSTREAM, *arguments], stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=True)
    return time.perf_counter() - started


@contextmanager
def serving(directory: Path) -> Iterator[tuple[float, str, float]]:
    """A broker: how long it took until it was reached, its address, and when it was started."""
    port = free_port()
    others = [f"--{protocol}-port=0" for protocol in ("flux", "classic", "http")]
    data = ["--data-dir", str(directory), f"--port={port}", *others]
    started = time.perf_counter()
    broker = subprocess.Popen(
        [MILLSTREAM, "serve", *data],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    try:
        while not is_reached(port):
            if broker.poll() is not None or time.perf_counter() - started > SECONDS_MAX:
                raise RuntimeError("the broker did not start")
            time.sleep(POLL_SECONDS)
        yield time.perf_counter() - started, f"{HOST}:{port}", started
    finally:
        broker.terminate()
        broker.wait(SECONDS_MAX)


def is_reached(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=SECONDS_MAX).close()
    except ConnectionRefusedError:
        return False
    return True


def write(address: str) -> float:
    """Write one record; returns when it was acknowledged."""
    acked: list[float] = []
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    producer.produce(
        "orders", b"hello", on_delivery=lambda error, _: acked.append(time.perf_counter())
    )
    if producer.flush(SECONDS_MAX) or not acked:
        raise RuntimeError("the first record was not acknowledged")
    return acked[0]


def fixture() -> list[float]:
    finished = subprocess.run(
        [sys.executable, "-c", FIXTURE], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    seconds: list[float] = json.loads(finished.stdout)
    return seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def figures(runs: list[dict[str, float]], load: tuple[float, float]) -> list[Figure]:
    """Medians in milliseconds, against the goals; `load` is the machine's, before and after."""
    samples = []
    for name, settings in SETTINGS.items():
        times = [1000 * run[name] for run in runs]
        median, goal = statistics.median(times), GOALS_MS.get(name)
        spread = f"median of {len(times)} runs, {min(times):.0f} to {max(times):.0f} ms"
        samples.append(
            Figure(
                name,
                median,
                "ms",
                f"{settings}; {spread}; load {load[0]:.1f} before, {load[1]:.1f} after",
                "" if goal is None else f"< {goal}",
                None if goal is None else median < goal,
            )
        )
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup")
    parser.add_argument("--runs", type=int, default=RUNS)
    run_count = parser.parse_args().runs
    load = os.getloadavg()[0]
    # On the disk that the checkout is on; /tmp may be memory.
    root = Path(tempfile.mkdtemp(prefix="bench-", dir="."))
    try:
        measure(root / "warm")  # Compiled files and the page cache are there for all that follow.
        runs = [measure(root / str(number)) for number in range(run_count)]
    finally:
        shutil.rmtree(root)
    publish("startup", "python -m benchmarks.startup", figures(runs, (load, os.getloadavg()[0])))


if __name__ == "__main__":
    main()

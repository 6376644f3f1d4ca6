"""How long a short transaction takes, one after the other without a pause, beside Apache Kafka.

    python -m benchmarks.transactions [--rounds N] [--before CHECKOUT]

A transaction writes one record of 100 B to each of three partitions and commits. Java's client
has `transaction.version` 2, where its Produce adds the partitions; librdkafka adds them itself.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka.cells import turn
from benchmarks.kafka.install import Unavailable, kafka_jars
from benchmarks.kafka.peers import (
    DURABILITIES,
    KAFKA,
    MILLSTREAM,
    Durability,
    Peer,
    Server,
    apache_kafka,
    millstream,
    millstream_before,
)
from benchmarks.report import keep, machine, table

PARTITIONS = 3
WARM_COUNT, COUNT = 100, 200
SECONDS_MAX = 120
PROGRAM = Path(__file__).parent / "ShortTransactions.java"

Times = list[float]
Client = Callable[[str, str], Times]


def java(jars: Path) -> Client:
    def run(address: str, topic: str) -> Times:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        numbers = [str(number) for number in (PARTITIONS, WARM_COUNT, COUNT)]
        done = subprocess.run(
            ["java", quiet, "-cp", f"{jars}/*", str(PROGRAM), address, topic, *numbers],
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS_MAX,
        )
        return [float(ms) for ms in done.stdout.split()]

    return run


def librdkafka(address: str, topic: str) -> Times:
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"short-{topic}"})
    producer.init_transactions(SECONDS_MAX)
    times = []
    for _ in range(WARM_COUNT + COUNT):
        began = time.perf_counter()
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, bytes(100), partition=partition)
        producer.commit_transaction(SECONDS_MAX)
        times.append(1000 * (time.perf_counter() - began))
    return times[WARM_COUNT:]


def measure(
    peers: list[Peer], clients: dict[str, Client], durability: Durability, rounds: int, root: Path
) -> dict[tuple[str, str], list[Times]]:
    """The times of every round, by client and peer; the peers take turns."""
    results: dict[tuple[str, str], list[Times]] = {}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(Server(peer, root / f"{durability}-{peer.name}", durability))
            for peer in peers
        ]
        for number in range(rounds):
            for client, run in clients.items():
                for server in turn(servers, number):
                    topic = f"bench-{client}-{number}"
                    _create(server.address, topic)
                    times = run(server.address, topic)
                    results.setdefault((client, server.peer.name), []).append(times)
                    p50 = statistics.median(times)
                    print(f"{durability}, {client}, {server.peer.name}: {p50:.2f}", file=sys.stderr)
    return results


def _create(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(SECONDS_MAX)


def rows(
    results: dict[tuple[str, str], list[Times]], durability: Durability, rival: str
) -> list[list[str]]:
    lines = []
    for (client, peer), times in results.items():
        p50s = [statistics.median(latencies) for latencies in times]
        p99s = [statistics.quantiles(latencies, n=100)[98] for latencies in times]
        met = ""
        if peer == MILLSTREAM and (client, rival) in results:
            goal = statistics.median(
                statistics.median(latencies) for latencies in results[client, rival]
            )
            is_met = statistics.median(p50s) <= goal
            met = f"p50 ≤ {rival}'s {'met' if is_met else '**missed**'}"
        lines.append([client, durability, peer, *(_spread(values) for values in (p50s, p99s)), met])
    return lines


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", type=Path, help="a checkout of the commit to compare with")
    arguments = parser.parse_args()
    try:
        jars = kafka_jars()
    except Unavailable as problem:
        sys.exit(f"the Java client comes with Kafka: {problem}")
    peers = [millstream(), apache_kafka(jars)]
    if arguments.before is not None:
        peers.append(millstream_before(arguments.before))
    clients: dict[str, Client] = {"Java": java(jars), "librdkafka": librdkafka}
    load = os.getloadavg()[0]
    # On the disk that the checkout is on; /tmp may be memory.
    root = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
    samples: dict[str, dict[str, list[Times]]] = {}
    lines: list[list[str]] = []
    try:
        for durability in DURABILITIES:
            results = measure(peers, clients, durability, arguments.rounds, root)
            lines += rows(results, durability, KAFKA)
            samples[durability] = {f"{c}, {peer}": times for (c, peer), times in results.items()}
    finally:
        shutil.rmtree(root)
    command = "python -m benchmarks.transactions"
    facts = machine() | {"load average before": f"{load:.1f}"}
    facts |= {peer.name: peer.version for peer in peers}
    text = [f"# transactions\n\n`{command}`\n"]
    text += [f"- {name}: {value}" for name, value in facts.items()]
    text += [
        (
            f"- {COUNT} transactions after {WARM_COUNT} to warm up, one record of 100 B in each "
            f"of {PARTITIONS} partitions, no pause; {arguments.rounds} rounds, in turns; medians "
            "of the rounds, with the extremes; durability `write` is without fsync, `sync` with"
        ),
        "",
        *table(["client", "durability", "broker", "p50, ms", "p99, ms", "goal"], lines),
    ]
    content = {"command": command, "machine": facts, "samples": samples}
    keep("transactions", "\n".join(text) + "\n", content)


if __name__ == "__main__":
    main()

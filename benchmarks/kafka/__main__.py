"""`python -m benchmarks.kafka`: measure against whichever peers can be had, and publish."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.kafka.before import publish_before
from benchmarks.kafka.cells import PARTITIONS, PARTS, QUICK, SIZES, Plan, Run
from benchmarks.kafka.install import (
    Unavailable,
    kafka_jars,
    nats_environment,
    performance_program,
)
from benchmarks.kafka.peers import (
    DURABILITIES,
    Durability,
    Peer,
    apache_kafka,
    has_http,
    jetstream,
    millstream,
    millstream_before,
)
from benchmarks.kafka.tables import publish


def main() -> None:
    arguments = _arguments()
    plan = QUICK if arguments.quick else Plan()
    if arguments.rounds:
        plan = replace(plan, rounds=arguments.rounds)
    plan = replace(plan, parts=tuple(arguments.only))
    if arguments.full:
        plan = replace(plan, latency_sizes=SIZES, perf_test_acks=("1", "all"))
        plan = replace(plan, perf_test_partitions=PARTITIONS)
    program = _available(performance_program, "the compiled client")
    jars = None if arguments.before else _available(kafka_jars)
    peers = _peers(jars, arguments.before)
    durabilities: tuple[Durability, ...] = tuple(
        durability for durability in DURABILITIES if durability in arguments.durability
    )
    circumstances = {"load average before": f"{os.getloadavg()[0]:.1f}"}
    started = time.monotonic()
    # On the disk that the checkout is on; /tmp may be memory.
    root = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
    try:
        run = Run(
            plan=plan,
            peers=_chosen(peers, arguments.peers),
            jars=jars,
            root=root,
            program=program,
        )
        run.measure(durabilities)
    finally:
        shutil.rmtree(root)
    part = "before" if arguments.before else "kafka"
    part += "-quick" if arguments.quick else ""
    if plan.parts != PARTS:  # The results of a whole run stay.
        part = "-".join([part, *plan.parts])
    # Where the other checkout stands says nothing to others: its commit is among the versions.
    words = ["CHECKOUT" if word == str(arguments.before) else word for word in sys.argv[1:]]
    command = " ".join(["python -m benchmarks.kafka", *words])
    circumstances["duration"] = f"{(time.monotonic() - started) / 60:.1f} min"
    write = publish_before if arguments.before else publish
    write(run, durabilities, command=command, part=part, circumstances=circumstances)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka")
    parser.add_argument("--quick", action="store_true", help="one round of tiny runs, to develop")
    parser.add_argument("--full", action="store_true", help="latency and perf-test in all cells")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts")
    parser.add_argument("--rounds", type=int, help="rounds of each cell")
    parser.add_argument("--durability", nargs="+", choices=DURABILITIES, default=DURABILITIES)
    parser.add_argument("--before", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--peers", nargs="+", help="only these, such as Millstream")
    return parser.parse_args()


def _peers(jars: Path | None, before: Path | None) -> list[Peer]:
    if before is not None:
        return [millstream(has_http=has_http(before)), millstream_before(before)]
    peers = [millstream()]
    if jars is not None:
        peers.append(apache_kafka(jars))
    programs = _available(nats_environment)
    if programs is not None:
        peers.append(jetstream(programs))
    return peers


def _available(get: Callable[[], Path], name: str = "a peer") -> Path | None:
    try:
        return get()
    except Unavailable as problem:
        print(f"going on without {name}: {problem}", file=sys.stderr)
        return None


def _chosen(peers: list[Peer], names: list[str] | None) -> list[Peer]:
    known = {peer.name.lower(): peer for peer in peers}
    unknown = [name for name in names or () if name.lower() not in known]
    if unknown:
        sys.exit(f"no such peer here: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name.lower()] for name in names] if names else peers


if __name__ == "__main__":
    main()

"""`python -m benchmarks.protocols`: measure our protocols, and NATS where it can be had."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.kafka.install import Unavailable, nats_environment
from benchmarks.protocols.run import PARTS, QUICK, Plan, Run
from benchmarks.protocols.tables import publish


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.protocols")
    parser.add_argument("--quick", action="store_true", help="one round of tiny runs, to develop")
    parser.add_argument("--rounds", type=int, help="rounds of each cell")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts")
    arguments = parser.parse_args()
    plan = replace(QUICK if arguments.quick else Plan(), parts=tuple(arguments.only))
    if arguments.rounds:
        plan = replace(plan, rounds=arguments.rounds)
    try:
        nats = nats_environment()
    except Unavailable as problem:
        print(f"going on without NATS: {problem}", file=sys.stderr)
        nats = None
    circumstances = {"load average before": f"{os.getloadavg()[0]:.1f}"}
    started = time.monotonic()
    # On the disk that the checkout is on; /tmp may be memory.
    root = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
    try:
        run = Run(plan=plan, nats=nats, root=root)
        run.measure()
    finally:
        shutil.rmtree(root)
    circumstances["duration"] = f"{(time.monotonic() - started) / 60:.1f} min"
    part = "protocols-quick" if arguments.quick else "protocols"
    if plan.parts != PARTS:  # The results of a whole run stay.
        part = "-".join([part, *plan.parts])
    command = " ".join(["python -m benchmarks.protocols", *sys.argv[1:]])
    publish(run, command=command, part=part, circumstances=circumstances)


if __name__ == "__main__":
    main()

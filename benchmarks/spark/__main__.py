"""`python -m benchmarks.spark`: measure beside Spark's own connector if it can be had; publish."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyspark

from benchmarks.kafka.install import Unavailable
from benchmarks.kafka.peers import Server, millstream
from benchmarks.spark.connectors import MASTER, session_settings
from benchmarks.spark.install import connector_jars
from benchmarks.spark.run import DURABILITY, PARTS, QUICK, Plan, Run
from benchmarks.spark.tables import publish
from benchmarks.spark.trials import Place
from millstream import __version__
from millstream.spark import session

BUSY_LOAD = 0.7  # What a run that was just before may have left is less.


def main() -> None:
    arguments = _arguments()
    plan = QUICK if arguments.quick else Plan()
    if arguments.rounds:
        plan = replace(plan, rounds=arguments.rounds)
    jars = _jars()
    run = Run(plan=plan, has_connector=bool(jars), parts=tuple(arguments.parts))
    facts = {"load average before": _load()}
    started = time.monotonic()
    # On the disk that the checkout is on; /tmp may be memory.
    root = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
    try:
        with Server(millstream(), root / "broker", DURABILITY) as server:  # type: ignore[arg-type]
            run.fill(server)
            begin = time.monotonic()
            spark = session("bench", master=MASTER, conf=session_settings(jars, root))
            facts["session up after"] = f"{time.monotonic() - begin:.1f} s"
            spark.sparkContext.setLogLevel("OFF")
            facts["java"] = spark.sparkContext._jvm.System.getProperty("java.version")  # type: ignore[union-attr]
            try:
                run.measure(Place(spark=spark, server=server, root=root))
            finally:
                spark.stop()
    finally:
        shutil.rmtree(root)
    facts |= {"millstream": __version__, "spark": pyspark.__version__}
    facts["duration"] = f"{(time.monotonic() - started) / 60:.1f} min"
    part = "spark-quick" if arguments.quick else "spark"
    command = " ".join(["python -m benchmarks.spark", *sys.argv[1:]])
    publish(run, command=command, part=part, facts=facts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark")
    parser.add_argument("--quick", action="store_true", help="one round of small runs, to develop")
    parser.add_argument("--rounds", type=int, help="rounds of each comparison")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    return parser.parse_args()


def _load() -> str:
    load = os.getloadavg()[0]
    is_busy = load > BUSY_LOAD
    return f"{load:.1f}" + (": **busy with other work, figures are too low**" if is_busy else "")


def _jars() -> list[Path]:
    try:
        return connector_jars()
    except Unavailable as problem:
        print(f"going on without Spark's Kafka connector: {problem}", file=sys.stderr)
        return []


if __name__ == "__main__":
    main()

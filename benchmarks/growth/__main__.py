"""`python -m benchmarks.growth`: measure every series, publish tables and curves."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.growth.curves import draw
from benchmarks.growth.series import SERIES, Point, measured
from benchmarks.growth.tables import publish
from benchmarks.kafka.install import Unavailable, kafka_jars
from benchmarks.kafka.peers import Peer, apache_kafka, millstream


def main() -> None:
    arguments = _arguments()
    peers = _peers(with_kafka=not arguments.alone)
    circumstances = {"load average before": f"{os.getloadavg()[0]:.1f}"}
    started = time.monotonic()
    # On the disk that the checkout is on; /tmp may be memory.
    root = Path(tempfile.mkdtemp(prefix="bench-", dir=".")).resolve()
    points: list[Point] = []
    try:
        for series in SERIES:
            if arguments.series and series.name not in arguments.series:
                continue
            for size in series.sizes:
                if arguments.size_max is not None and size > arguments.size_max:
                    continue
                is_alone = series.is_ours_alone or size > (arguments.peer_size_max or size)
                for peer in peers[:1] if is_alone else peers:
                    point = measured(series, peer, size, root)
                    print(series.name, size, peer.name, point.problem or point.figures, flush=True)
                    points.append(point)
            if not arguments.no_pictures:
                draw(series, [point for point in points if point.series == series.name])
    finally:
        shutil.rmtree(root)
    circumstances["duration"] = f"{(time.monotonic() - started) / 60:.1f} min"
    publish(
        points,
        command=" ".join(["python -m benchmarks.growth", *sys.argv[1:]]),
        versions={peer.name: peer.version for peer in peers},
        circumstances=circumstances,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    names = [series.name for series in SERIES]
    parser.add_argument("--series", nargs="+", choices=names, help="only these")
    parser.add_argument("--size-max", type=int, help="leave out larger sizes")
    parser.add_argument("--peer-size-max", type=int, help="measure larger sizes without Kafka")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--no-pictures", action="store_true", help="without curves")
    return parser.parse_args()


def _peers(*, with_kafka: bool) -> list[Peer]:
    peers = [millstream()]
    if with_kafka:
        try:
            peers.append(apache_kafka(kafka_jars()))
        except Unavailable as problem:
            print(f"going on without a peer: {problem}", file=sys.stderr)
    return peers


if __name__ == "__main__":
    main()

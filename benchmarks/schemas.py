"""How fast the schema registry answers, registers, checks and folds, over REST on one connection.

python -m benchmarks.schemas [--seconds 3] [--versions 100000]
"""

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from millstream.config_sources import load
from millstream.testing.process import Subprocess

MEDIA = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
FIELDS = 1_000


def record(count: int, name: str = "R") -> str:
    fields = [{"name": f"f{at}", "type": "string", "default": ""} for at in range(count)]
    return json.dumps({"type": "record", "name": name, "fields": fields})


class Rest:
    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=60)

    def __call__(self, method: str, path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, MEDIA)
        return json.loads(self._connection.getresponse().read())


@contextmanager
def running_broker(folder: Path) -> Iterator[tuple[str, int]]:
    ports = dict.fromkeys(("port", "flux_port", "classic_port", "http_port"), 0)
    variables = {"MILLSTREAM_LISTENERS": "kafka,http"}
    config = load(flags={**ports, "data_dir": str(folder / "data")}, environment=variables)
    broker = Subprocess(config, folder / "broker.log")
    broker.start()
    try:
        yield broker.host, broker.config.http_port
    finally:
        broker.stop()


def rate(call: Callable[[], object], seconds: float) -> float:
    count, start = 0, time.perf_counter()
    while (taken := time.perf_counter() - start) < seconds:
        call()
        count += 1
    return count / taken


def times_ms(call: Callable[[int], object], count: int) -> list[float]:
    taken = []
    for at in range(count):
        start = time.perf_counter()
        call(at)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=3.0)
    arguments.add_argument("--new", type=int, default=200)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder)) as (host, port):
        registry = Rest(host, port)
        known = {"schema": record(5)}
        registry("POST", "/subjects/known-value/versions", known)
        by_id = rate(lambda: registry("GET", "/schemas/ids/1"), options.seconds)
        again = rate(
            lambda: registry("POST", "/subjects/known-value/versions", known), options.seconds
        )
        new = times_ms(
            lambda at: registry(
                "POST", f"/subjects/n{at}/versions", {"schema": record(5, f"N{at}")}
            ),
            options.new,
        )
        registry("POST", "/subjects/wide/versions", {"schema": record(FIELDS)})
        wide = {"schema": record(FIELDS + 1)}
        checks = times_ms(
            lambda _: registry("POST", "/compatibility/subjects/wide/versions/latest", wide), 5
        )
    print(f"by id                  {by_id:10,.0f} /s   goal 5,000")
    print(f"register known         {again:10,.0f} /s   goal 1,500")
    print(f"register new, p50      {median(new):10.1f} ms   goal 15")
    print(f"check {FIELDS:,} fields     {min(checks):10.1f} ms   goal 50 (first {checks[0]:.1f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

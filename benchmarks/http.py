"""What HTTP costs, and what it costs others: requests, records, streams, a scrape, interference.

    python -m benchmarks.http [--seconds 5] [--turns 3] [--only interference]

Interference is the 99th percentile of a librdkafka producer at 10,000 records a second with
acks=all, in turns of one run: alone, and beside a scrape every 5 s, a live tail, searches one after
the other and a new schema every second.
"""

import argparse
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from statistics import median
from urllib.parse import quote

from confluent_kafka import Producer

from benchmarks.schemas import record
from millstream.config_sources import load
from millstream.testing.process import Subprocess

JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}
CLIENTS = 16
RATE = 10_000
TAILED_RATE = 5_000
SERIES_TOPICS = 1_000
LINE_COUNT = 50_000
VALUE = "x" * 100
SCRAPE_EVERY_S = 5.0


class Broker:
    """A broker as its clients see it."""

    def __init__(self, host: str, port: int, http_port: int) -> None:
        self.bootstrap = f"{host}:{port}"
        self.address = (host, http_port)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(*self.address, timeout=60)

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        connection = self.connect()
        try:
            return self.ask_by(connection, method, path, body)
        finally:
            connection.close()

    @staticmethod
    def ask_by(
        connection: http.client.HTTPConnection, method: str, path: str, body: object = None
    ) -> bytes:
        connection.request(method, path, None if body is None else json.dumps(body), JSON)
        return connection.getresponse().read()

    def cpu_s(self) -> float:
        for line in self.ask("GET", "/metrics").decode().splitlines():
            if line.startswith("process_cpu_seconds_total "):
                return float(line.split()[1])
        raise AssertionError("the broker does not tell its CPU time")


@contextmanager
def running_broker() -> Iterator[Broker]:
    """A broker in a process of its own, on disk with fsync."""
    ports = dict.fromkeys(("port", "flux_port", "classic_port", "http_port"), 0)
    variables = {"MILLSTREAM_LISTENERS": "kafka,http"}
    with tempfile.TemporaryDirectory() as folder:
        config = load(flags={**ports, "data_dir": f"{folder}/data"}, environment=variables)
        process = Subprocess(config, Path(folder) / "broker.log")
        process.start()
        try:
            yield Broker(process.host, process.port, process.config.http_port)
        finally:
            process.stop()


# -- requests --------------------------------------------------------------------------------------


def request_cost(broker: Broker, path: str, seconds: float) -> tuple[float, float]:
    """Requests a second on one connection, and microseconds of the broker's CPU for each."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n".encode()
    before, done = broker.cpu_s(), 0
    with socket.create_connection(broker.address, timeout=60) as client:
        start = time.perf_counter()
        while (taken := time.perf_counter() - start) < seconds:
            client.sendall(head)
            read_response(client)
            done += 1
    return done / taken, (broker.cpu_s() - before) / done * 1e6


def read_response(client: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += received(client)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += received(client)


def received(client: socket.socket) -> bytes:
    data = client.recv(65536)
    assert data, "the broker closed the connection"
    return data


# -- records ---------------------------------------------------------------------------------------


def posts(broker: Broker, seconds: float) -> float:
    """Durable POSTs of one record a second, by 16 clients."""
    broker.ask("POST", "/v1/topics", {"name": "posted", "partitions": 4})
    counts, until = [0] * CLIENTS, time.perf_counter() + seconds

    def work(at: int) -> None:
        connection = broker.connect()
        while time.perf_counter() < until:
            body = {"records": [{"value": VALUE}]}
            broker.ask_by(connection, "POST", "/v1/topics/posted/records", body)
            counts[at] += 1
        connection.close()

    run_all([threading.Thread(target=work, args=(at,)) for at in range(CLIENTS)])
    return sum(counts) / seconds


def lines(broker: Broker) -> tuple[float, float]:
    """Lines of NDJSON a second, in and out."""
    broker.ask("POST", "/v1/topics", {"name": "lines"})
    body = b"".join(json.dumps({"value": VALUE}).encode() + b"\n" for _ in range(LINE_COUNT))
    connection = broker.connect()
    start = time.perf_counter()
    connection.request("POST", "/v1/topics/lines/records", body, LINES)
    answers = connection.getresponse().read().count(b"\n")
    into = time.perf_counter() - start
    start = time.perf_counter()
    connection.request("GET", "/v1/topics/lines/records/export")
    exported = connection.getresponse().read().count(b"\n")
    out = time.perf_counter() - start
    connection.close()
    assert answers == exported == LINE_COUNT
    return LINE_COUNT / into, LINE_COUNT / out


def tail(broker: Broker, seconds: float) -> tuple[int, int]:
    """Events and skipped ones of a tail, while 5,000 records a second are written."""
    broker.ask("POST", "/v1/topics", {"name": "tailed"})
    path = f"/v1/topics/tailed/records/tail?rate_max={4 * TAILED_RATE}"
    following = Tail(broker, path)
    following.start()
    following.opened.wait(30)
    produce_evenly(broker, "tailed", TAILED_RATE, seconds)
    until = time.perf_counter() + 30
    while following.events < TAILED_RATE * seconds and time.perf_counter() < until:
        time.sleep(0.05)
    following.stop()
    return following.events, following.skipped


class Tail(threading.Thread):
    """Reads a stream of events, and counts."""

    def __init__(self, broker: Broker, path: str) -> None:
        super().__init__(daemon=True)
        self.opened = threading.Event()
        self.events = self.skipped = 0
        self._client = socket.create_connection(broker.address, timeout=60)
        self._head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    def run(self) -> None:
        self._client.sendall(self._head)
        unfinished = b""
        with suppress(OSError):
            while data := self._client.recv(1 << 18):
                self.opened.set()
                *whole, unfinished = (unfinished + data).split(b"\n")
                self.events += sum(line == b"event: record" for line in whole)
                self.skipped += sum(line == b"event: skipped" for line in whole)

    def stop(self) -> None:
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self.join(30)
        self._client.close()


# -- a scrape --------------------------------------------------------------------------------------


def scrape(broker: Broker) -> tuple[int, float, float]:
    """Series, seconds and long turns of a scrape with a thousand topics."""
    for at in range(SERIES_TOPICS):
        broker.ask("POST", "/v1/topics", {"name": f"scraped-{at}"})
    before = long_turns(broker)
    took = []
    for _ in range(5):
        start = time.perf_counter()
        text = broker.ask("GET", "/metrics")
        took.append(time.perf_counter() - start)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    return series, median(took), long_turns(broker) - before


def long_turns(broker: Broker) -> float:
    for line in broker.ask("GET", "/metrics").decode().splitlines():
        if line.startswith("millstream_http_long_turns_total "):
            return float(line.split()[1])
    return 0.0


# -- interference ----------------------------------------------------------------------------------


def produce_evenly(broker: Broker, topic: str, rate: int, seconds: float) -> list[float]:
    """Write at an even rate; the seconds that each record took to be acknowledged."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 1})
    took: list[float] = []

    def acknowledged(sent_s: float) -> Callable[[object, object], None]:
        return lambda error, _message: took.append(
            time.perf_counter() - sent_s if error is None else float("inf")
        )

    value, start, sent = VALUE.encode(), time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        for _ in range(int(passed * rate) - sent):
            producer.produce(topic, value, on_delivery=acknowledged(time.perf_counter()))
            sent += 1
        producer.poll(0.001)
    producer.flush(60)
    return took


class Monitoring:
    """A scrape every 5 s, a live tail, a search after the other, a new schema every second.

    In a process of its own: threads beside the producer would slow the producer itself.
    """

    def __init__(self, broker: Broker, number: int) -> None:
        host, port = broker.address
        self._command = [sys.executable, "-m", "benchmarks.http", "--beside", host, str(port)]
        self._command += [str(number)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Monitoring":
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"at work\n"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=60)


def monitor(broker: Broker, number: int) -> None:
    """Do what a monitoring system and a console do, until the process is ended."""
    following = Tail(broker, "/v1/topics/busy/records/tail")
    following.start()
    following.opened.wait(30)

    def scraping() -> None:
        while True:
            broker.ask("GET", "/metrics")
            time.sleep(SCRAPE_EVERY_S)

    def searching() -> None:
        path = "/v1/topics/busy/records?limit=100&filter=" + quote("value contains 'nothing'")
        while True:
            broker.ask("GET", path)

    def registering() -> None:
        for at in count(1):
            schema = {"schema": record(5, f"I{number}_{at}")}
            broker.ask("POST", f"/subjects/i{number}-{at}/versions", schema)
            time.sleep(1.0)

    for work in (scraping, searching, registering):
        threading.Thread(target=work, daemon=True).start()
    print("at work", flush=True)
    threading.Event().wait()


def interference(broker: Broker, seconds: float, turns: int) -> tuple[list[float], list[float]]:
    """The 99th percentiles in milliseconds, alone and beside HTTP, in turns."""
    broker.ask("POST", "/v1/topics", {"name": "busy", "partitions": 4})
    produce_evenly(broker, "busy", RATE, 2.0)
    alone, beside = [], []
    for number in range(turns):
        alone.append(percentile(produce_evenly(broker, "busy", RATE, seconds), 0.99))
        with Monitoring(broker, number):
            beside.append(percentile(produce_evenly(broker, "busy", RATE, seconds), 0.99))
    return alone, beside


def percentile(took_s: list[float], share: float) -> float:
    return sorted(took_s)[int(len(took_s) * share)] * 1000


def run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- the table -------------------------------------------------------------------------------------


def requests_part(broker: Broker, seconds: float, _turns: int) -> None:
    rate, cost = request_cost(broker, "/v1/whoami", seconds)
    print(f"small GET               {rate:10,.0f} /s   {cost:8.0f} us of CPU   goal 50")
    broker.ask("POST", "/subjects/known-value/versions", {"schema": record(5)})
    rate, cost = request_cost(broker, "/schemas/ids/1", seconds)
    print(f"schema by id            {rate:10,.0f} /s   {cost:8.0f} us of CPU   goal 5,000 /s")


def records_part(broker: Broker, seconds: float, _turns: int) -> None:
    print(f"POST of one, 16 clients {posts(broker, seconds):10,.0f} /s   goal 1,000")
    into, out = lines(broker)
    print(f"NDJSON in               {into:10,.0f} /s   goal 30,000")
    print(f"NDJSON out              {out:10,.0f} /s   goal 50,000")
    events, skipped = tail(broker, seconds)
    print(f"tail at 5,000 /s        {events:10,} events, {skipped} skipped   goal 0 skipped")


def scrape_part(broker: Broker, _seconds: float, _turns: int) -> None:
    series, took, turns = scrape(broker)
    print(
        f"scrape of {series:,} series   {took * 1000:10.0f} ms, {turns:.0f} long turns   goal 200"
    )


def interference_part(broker: Broker, seconds: float, turns: int) -> None:
    alone, beside = interference(broker, seconds, turns)
    for name, values in (("alone", alone), ("beside HTTP", beside)):
        shown = " ".join(f"{value:.2f}" for value in values)
        print(f"p99 of a producer, {name:12} {median(values):8.2f} ms   ({shown})")
    print(f"interference             {median(beside) / median(alone):14.2f}      goal 1.25")


PARTS = {
    "requests": requests_part,
    "records": records_part,
    "scrape": scrape_part,
    "interference": interference_part,
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--turns", type=int, default=3)
    arguments.add_argument("--only", choices=list(PARTS))
    arguments.add_argument("--beside", nargs=3, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.beside:
        host, port, number = options.beside
        monitor(Broker(host, 0, int(port)), int(number))
    for name, part in PARTS.items():
        if options.only in {None, name}:
            with running_broker() as broker:
                part(broker, options.seconds, options.turns)
    return 0


if __name__ == "__main__":
    sys.exit(main())

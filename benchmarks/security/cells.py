"""CPU time and rate of produce and fetch, for each kind of security, in turns."""

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.hot_path import FILLED_BYTES, PRODUCE, VERSIONS, Cell, create, frames_of, pump
from benchmarks.kafka.peers import Server
from benchmarks.security.client import SecuredClient
from benchmarks.security.peers import Variant
from millstream.kafka_wire.apis.data import ProduceResponse
from millstream.kafka_wire.apis.table import APIS
from millstream.kafka_wire.headers import decode_response

SMALL, LARGE, FETCH = "produce 1 KiB", "produce 64 KiB", "fetch 1 MiB"
CELLS = [  # The number of requests is that of a turn.
    Cell(SMALL, 100, 1, 1000, 1, 1, topic="small"),
    Cell(LARGE, 30, 1, 1000, 64, 1, topic="large"),
    Cell(FETCH, 10, 1, 1000, 64, is_fetch=True, topic="fetched"),
]
TURNS = 30
WARM_TURNS = 5  # Before the first that counts: Apache Kafka's code is compiled meanwhile.
LEADER_SECONDS_MAX = 30.0
SEED = 1  # Of the order of the brokers in each turn.


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One broker in one cell, turn by turn."""

    cpu_us: list[float]  # Of the broker, for a request.
    request_s: list[float]  # By the clock.
    bytes_moved: int  # By a request.

    @property
    def median_us(self) -> float:
        return statistics.median(self.cpu_us)

    @property
    def cpu_s_per_gb(self) -> float:
        return self._s_per_gb(self.median_us)

    @property
    def rate(self) -> float:
        """Requests a second in the best turn: others share the cores, and slow down the rest."""
        return 1 / min(self.request_s)

    def part_of(self, plain: "Timing") -> float:
        """How much of the rate of `plain` the CPU allows: the median over turns side by side."""
        pairs = zip(plain.cpu_us, self.cpu_us, strict=True)
        return statistics.median(before / after for before, after in pairs)

    def more_than(self, plain: "Timing") -> float:
        """CPU-seconds for a gigabyte above those of `plain`: the median, likewise."""
        pairs = zip(plain.cpu_us, self.cpu_us, strict=True)
        return self._s_per_gb(statistics.median(after - before for before, after in pairs))

    def _s_per_gb(self, cpu_us: float) -> float:
        return cpu_us / 1e6 / self.bytes_moved * 1e9


class Subject:
    """A broker that is filled and warm."""

    def __init__(self, server: Server, variant: Variant, cell: Cell, ca: Path) -> None:
        self._server = server
        self._client = SecuredClient(server.port, variant, ca)
        self._frames = frames_of(cell)
        self._at = 0
        create(self._client, cell.partitions, cell.topic)
        filling = frames_of(replace(cell, is_fetch=False, acks=-1))
        self._wait_for_leader(filling[0])
        self.request_bytes = len(filling[0])
        if cell.is_fetch:
            count = FILLED_BYTES // len(filling[0])
            pump(self._client, iter(filling * count), is_answered=True)
            self._client.send(self._frames[0])
            self.request_bytes = len(self._client.reply())
        self.run(cell.requests * WARM_TURNS)

    def run(self, count: int) -> tuple[float, float]:
        """CPU time of the broker in us, and seconds by the clock, for one request."""
        cpu, began = self._server.cpu_seconds(), time.perf_counter()
        at, self._at = self._at, self._at + count
        frames = (self._frames[index % len(self._frames)] for index in range(at, at + count))
        pump(self._client, frames, is_answered=True)
        took_s = time.perf_counter() - began
        return (self._server.cpu_seconds() - cpu) / count * 1e6, took_s / count

    def close(self) -> None:
        self._client.close()

    def _wait_for_leader(self, frame: bytes) -> None:
        """Apache Kafka answers before the new topic has a leader."""
        deadline = time.monotonic() + LEADER_SECONDS_MAX
        while True:
            self._client.send(frame)
            data = bytes(self._client.reply())
            _, answer = decode_response(APIS[PRODUCE], VERSIONS[PRODUCE], data)
            assert isinstance(answer, ProduceResponse)
            code = answer.responses[0].partition_responses[0].error_code
            if code == 0:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the topic of the benchmark is refused with code {code}")
            time.sleep(0.1)


def measure(
    servers: Sequence[Server], variants: Sequence[Variant], cell: Cell, ca: Path
) -> list[Timing]:
    """The brokers run at the same time and take turns."""
    with ExitStack() as stack:
        subjects = []
        for server, variant in zip(servers, variants, strict=True):
            subject = Subject(server, variant, cell, ca)
            stack.callback(subject.close)
            subjects.append(subject)
        turns: list[list[tuple[float, float]]] = [[] for _ in subjects]
        order = list(range(len(subjects)))
        shuffle = Random(SEED).shuffle
        for _ in range(TURNS):
            shuffle(order)  # None always has the caches of the same broker before it, or its own.
            for at in order:
                turns[at].append(subjects[at].run(cell.requests))
        return [
            Timing(
                cpu_us=[cpu for cpu, _ in each],
                request_s=[took for _, took in each],
                bytes_moved=subject.request_bytes,
            )
            for subject, each in zip(subjects, turns, strict=True)
        ]

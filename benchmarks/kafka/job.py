"""What a client process is asked to do, and what every client shares: values, pacing, proof.

Imports the standard library alone, because JetStream's client runs in an environment of its own.
A client says `ready`, waits for a line, works and prints one JSON object. Records carry a number
and the time they were due: a run in which one is missing or came twice is broken, never fast.
"""

import gc
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Protocol, TypeVar

HEAD = struct.Struct(">QQ")  # Number, and when it was due in ns of the monotonic clock.
TICK_NS = 1_000_000
# For a whole run; a broker that lost a record would otherwise be waited for without end.
RUN_SECONDS_MAX = 90


class Broken(Exception):
    """A run that proves nothing: records are missing, doubled or late beyond reason."""


class Told(Protocol):
    """What a client process can be told to do."""

    def text(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of one client. `rate` and `warm_count` are for paced runs only."""

    address: str
    topic: str
    partitions: int
    acks: str
    size: int
    count: int
    rate: int = 0
    warm_count: int = 0

    def text(self) -> str:
        return json.dumps(asdict(self))


Go = Callable[[], None]
Action = Callable[[Job, Go], dict[str, object]]
Work = TypeVar("Work")


def work(actions: dict[str, Action]) -> None:
    """Be a client process of a comparison with `Job`s."""
    work_as(Job, actions)


def work_as(
    kind: Callable[..., Work], actions: dict[str, Callable[[Work, Go], dict[str, object]]]
) -> None:
    """Be a client process that is told a `kind` of its own."""
    # It would walk all records kept for the check, again and again: three quarters of a
    # consumer's time. A client lives for seconds and makes no cycles.
    gc.disable()
    action, text = sys.argv[1:]
    result = actions[action](kind(**json.loads(text)), _wait_for_go)
    print(json.dumps(result), flush=True)


def _wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


class Values:
    """Record values of one size; the rest is noise that does not compress."""

    def __init__(self, size: int) -> None:
        assert size >= HEAD.size
        self._noise = os.urandom(size - HEAD.size)

    def value(self, number: int, due_ns: int = 0) -> bytes:
        return HEAD.pack(number, due_ns) + self._noise


class Arrivals:
    """Proof that every record arrived exactly once."""

    def __init__(self, count: int) -> None:
        self._seen = bytearray(count)
        self._wrong = 0

    def add(self, value: bytes) -> tuple[int, int]:
        number, due_ns = HEAD.unpack_from(value)
        if number >= len(self._seen) or self._seen[number]:
            self._wrong += 1
        else:
            self._seen[number] = 1
        return number, due_ns

    def check(self) -> None:
        missing = self._seen.count(0)
        if missing or self._wrong:
            raise Broken(f"{missing} of {len(self._seen)} missing, {self._wrong} twice or unknown")


def ticks(job: Job, started_ns: int) -> Iterator[tuple[int, range]]:
    """When which records are due: some every millisecond, as many as the rate asks for."""
    number = 0
    tick = 0
    while number < job.count:
        tick += 1
        end = min(job.count, tick * job.rate * TICK_NS // 1_000_000_000)
        yield started_ns + tick * TICK_NS, range(number, end)
        number = end


class Stopwatch:
    """Time that passed, and how much of it this thread was on a core, and all threads together.

    A client that was busy all the time bounds the rate itself, and the broker could do more.
    """

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._thread_cpu = time.thread_time()
        self._cpu = time.process_time()

    def stop(self) -> dict[str, object]:
        seconds = time.perf_counter() - self._started
        return {
            "seconds": seconds,
            "busy": (time.thread_time() - self._thread_cpu) / seconds,
            "cpu_seconds": time.process_time() - self._cpu,
        }


def deadline() -> float:
    return time.monotonic() + RUN_SECONDS_MAX

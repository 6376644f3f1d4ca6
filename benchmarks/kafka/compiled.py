"""Throughput with a compiled client: librdkafka's own `rdkafka_performance`.

The Python client proves that each record came back once, and bounds many rates itself. This one
takes a fraction of its CPU time. It counts records and no more; that the topic holds as many as
were acknowledged is checked after the clock stopped.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.kafka.client_librdkafka import CONSUMER, PRODUCER
from benchmarks.kafka.peers import Server
from benchmarks.kafka.trials import (
    CLIENT_SECONDS_MAX,
    Cell,
    TrialFailed,
    do,
    job_of,
    last_line,
    settle,
)

PREFIX = "compiled_"
# Of what it prints last: records and time. Its clock starts with the first record, here and there.
_PRODUCED = re.compile(r"(\d+) messages produced \(\d+ bytes\), (\d+) delivered .* in (\d+)ms: ")
_CONSUMED = re.compile(r"(\d+) messages \(\d+ bytes\) consumed in (\d+)ms: ")


def compiled_throughput(
    server: Server, cell: Cell, *, topic: str, count: int, program: Path
) -> dict[str, float]:
    """Write `count` records as fast as possible, then read them all; values as `throughput`'s."""
    job = job_of(server, cell, topic, count)
    do(server.peer, "create", job)
    acks = "-1" if cell.acks == "all" else cell.acks
    partitions = [word for number in range(cell.partitions) for word in ("-p", str(number))]
    common = [str(program), "-q", "-b", server.address, "-t", topic, "-c", str(count)]
    values = _run(
        server,
        [*common, "-P", "-s", str(cell.size), "-a", acks, *_settings(PRODUCER)],
        action="produce",
        count=count,
    )
    do(server.peer, "check", job)
    values |= _run(
        server,
        [*common, "-C", *partitions, "-o", "beginning", *_settings(CONSUMER)],
        action="consume",
        count=count,
    )
    do(server.peer, "delete", job)
    return values


def parse(action: str, text: str) -> tuple[int, float]:
    """How many records its last line counts, and in how many seconds."""
    if action == "produce" and (said := _PRODUCED.findall(text)):
        produced, delivered, milliseconds = map(int, said[-1])
        return min(produced, delivered), milliseconds / 1000
    if action == "consume" and (said := _CONSUMED.findall(text)):
        consumed, milliseconds = map(int, said[-1])
        return consumed, milliseconds / 1000
    raise TrialFailed(f"rdkafka_performance: {last_line(text)}")


def _run(server: Server, command: list[str], *, action: str, count: int) -> dict[str, float]:
    settle()
    broker_cpu, client_cpu = server.cpu_seconds(), _children_cpu_seconds()
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CLIENT_SECONDS_MAX,
        check=False,
    )
    broker_cpu = server.cpu_seconds() - broker_cpu
    counted, seconds = parse(action, result.stdout)
    if result.returncode != 0 or counted != count:
        raise TrialFailed(f"rdkafka_performance: {action} of {counted} records, not {count}")
    return {
        f"{PREFIX}{action}_per_s": count / seconds,
        f"{PREFIX}{action}_cpu_us": broker_cpu / count * 1e6,
        f"{PREFIX}{action}_client_cpu_us": (_children_cpu_seconds() - client_cpu) / count * 1e6,
    }


def _settings(settings: Mapping[str, object]) -> list[str]:
    """The few settings of the Python client that differ from librdkafka's, as flags."""
    spelled = {
        name: str(value).lower() for name, value in ({"log_level": 0} | dict(settings)).items()
    }
    return [word for name, value in spelled.items() for word in ("-X", f"{name}={value}")]


def _children_cpu_seconds() -> float:
    """Of all children that ended: brokers run on, so between two calls it is the client's."""
    times = os.times()
    return times.children_user + times.children_system

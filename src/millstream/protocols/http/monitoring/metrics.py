"""`GET /metrics`: all samples as Prometheus reads them, rendered in steps of a millisecond at most.

In our names, or in those that dashboards of other brokers know. `?topic=` narrows to one topic,
which has all its partitions then. Whatever clients name, the number of series is bounded.
"""

import zlib
from collections.abc import Callable, Generator
from typing import Final, Literal

import msgspec

from millstream.engine.gate import Operation
from millstream.metrics import CUT_SHORT, Metric, Sample
from millstream.protocols.http.calls import Call
from millstream.protocols.http.router import Params, RawReply, Right, Route
from millstream.protocols.http.wire.exposition import (
    OPEN_END,
    OPEN_TYPE,
    TEXT_TYPE,
    head_lines,
    sample_lines,
)

SERIES_MAX: Final = 25_000
BODY_BYTES_MAX: Final = 5_000_000
LINE_BYTES: Final = 40  # A number, quotes, braces, a bound.
STEP_S: Final = 0.0005
MIB: Final = 2**20
GZIP_BYTES_STEP: Final = 16 * 2**10  # Takes a third of a millisecond.
GZIP_LEVEL: Final = 1  # Text like this shrinks to a tenth; the next level takes twice as long.
_GZIP_BITS: Final = 31  # zlib's number for a gzip head and tail.


class Query(Params, frozen=True, kw_only=True):
    names: Literal["millstream", "kafka", "flymq", "fluxmq"] = "millstream"
    topic: str | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """FluxMQ's fields."""

    messages_per_second: float
    active_connections: int
    memory_usage_mb: float
    cpu_usage_percent: float  # Of one core.
    disk_io_mb_per_sec: float  # Records that were written and read; reads may come from memory.
    disk_usage_percent: float  # Of the file system of the data directory.


def metrics(call: Call, params: Query) -> Generator[None, None, RawReply]:
    """All metrics. The samples of a metric must stand together, in the order of their names."""
    if not call.services.config.security.public_metrics:
        call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    is_open = _takes_open(call.extra.get("accept", ""))
    pause = _Pause(call.services.elapsed_s)
    families = yield from _families(call, params, pause)
    body = _Body(is_gzip=_takes_gzip(call.extra.get("accept-encoding", "")))
    for metric in sorted(families, key=lambda metric: metric.name):
        body.add(head_lines(metric, is_open=is_open))
        for text in sample_lines(families[metric], is_open=is_open):
            body.add(text)
            if pause.is_due():
                yield from body.pack()
                pause.begin()
    if is_open:
        body.add(OPEN_END)
    yield from body.pack(is_all=True)
    return body.reply(OPEN_TYPE if is_open else TEXT_TYPE)


def snapshot(call: Call, params: Params) -> Snapshot:
    """The figures of the last second."""
    if not call.services.config.security.public_metrics:
        call.services.topics.admit_to_cluster(call.session, Operation.DESCRIBE)
    latest = call.services.history.latest()
    return Snapshot(
        messages_per_second=latest["appended_records"],
        active_connections=int(latest["connections"]),
        memory_usage_mb=round(latest["memory_bytes"] / MIB, 3),
        cpu_usage_percent=round(100 * latest["cpu_cores"], 3),
        disk_io_mb_per_sec=round((latest["appended_bytes"] + latest["read_bytes"]) / MIB, 6),
        disk_usage_percent=round(100 * latest["disk_used_share"], 3),
    )


def _families(
    call: Call, params: Query, pause: "_Pause"
) -> Generator[None, None, dict[Metric, list[Sample]]]:
    live = call.services.metrics
    steps = live.steps(params.topic)
    if params.names != "millstream":
        steps = live.foreign_steps(params.names, params.topic)
    families: dict[Metric, list[Sample]] = {}
    series = size = 0
    for sample in steps:
        if pause.is_due():
            yield
            pause.begin()
        if sample is None:
            continue
        series += sample.series_count
        size += _size_max(sample)
        if series > SERIES_MAX or size > BODY_BYTES_MAX:
            families.setdefault(CUT_SHORT, []).append(Sample(CUT_SHORT, ("series",), 1))
            break
        families.setdefault(sample.metric, []).append(sample)
    return families


def _size_max(sample: Sample) -> int:
    """The most bytes that the lines of a sample take, with each character escaped, about."""
    names = len(sample.metric.name) + sum(map(len, sample.metric.labels))
    line = names + 2 * len("".join(sample.labels).encode()) + LINE_BYTES
    return line * sample.series_count


class _Pause:
    """Tells when a step has taken its time."""

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s
        self._until_s = elapsed_s() + STEP_S

    def begin(self) -> None:
        self._until_s = self._elapsed_s() + STEP_S

    def is_due(self) -> bool:
        return self._elapsed_s() >= self._until_s


class _Body:
    """The text so far, packed in steps if the client takes gzip."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._texts: list[str] = []
        self._parts: list[bytes] = []
        self._packer = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_BITS) if is_gzip else None

    def add(self, text: str) -> None:
        self._texts.append(text)

    def pack(self, *, is_all: bool = False) -> Generator[None, None, None]:
        """Turn the texts into bytes, with a pause behind each piece."""
        data = "".join(self._texts).encode()
        self._texts.clear()
        for at in range(0, len(data), GZIP_BYTES_STEP):
            yield
            piece = data[at : at + GZIP_BYTES_STEP]
            self._parts.append(piece if self._packer is None else self._packer.compress(piece))
        if is_all and self._packer is not None:
            self._parts.append(self._packer.flush())

    def reply(self, kind: str) -> RawReply:
        headers = {"Vary": "Accept, Accept-Encoding"}
        if self._packer is not None:
            headers["Content-Encoding"] = "gzip"
        return RawReply(b"".join(self._parts), kind, headers=headers)


def _takes_open(accept: str) -> bool:
    """Whether OpenMetrics is asked for, and not less than plain text."""
    weights = _weights(accept)
    is_named = "application/openmetrics-text" in weights
    return is_named and weights["application/openmetrics-text"] >= weights.get("text/plain", 0.0)


def _takes_gzip(encodings: str) -> bool:
    weights = _weights(encodings)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weights(header: str) -> dict[str, float]:
    """The names of an `Accept` header with their `q`; 0 for what cannot be read."""
    weights: dict[str, float] = {}
    for part in header.split(","):
        name, _, parameters = part.partition(";")
        weight = 1.0
        for parameter in parameters.split(";"):
            key, _, text = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    weight = float(text.strip())
                except ValueError:
                    weight = 0.0
        if name.strip():
            weights[name.strip().lower()] = max(weight, weights.get(name.strip().lower(), 0.0))
    return weights


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        params=Query,
        summary="All metrics, as Prometheus reads them",
        rights=(Right("DESCRIBE", "cluster"),),
        sends="text/plain",
        is_raw=True,
    ),
    Route(
        method="GET",
        path="/metrics/json",
        handler=snapshot,
        summary="The main figures of the last second, as FluxMQ has them",
        reply=Snapshot,
        rights=(Right("DESCRIBE", "cluster"),),
    ),
)

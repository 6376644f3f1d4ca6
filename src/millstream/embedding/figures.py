"""Figures of an embedded broker at one moment: rates, connections, memory, CPU, disk.

A rate counts from the snapshot before. Memory and CPU are those of the whole process, of which the
broker is a part.
"""

import asyncio
import resource
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millstream.metrics import APPENDED_BYTES, APPENDED_RECORDS, READ_BYTES, REQUESTS, Sample
from millstream.model import Session
from millstream.server.service import Service

STEP_SAMPLES = 100  # Looked up at once, in less than a millisecond.


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Rates are per second since the snapshot before, the first time since the start."""

    uptime_s: float
    appended_records: int
    appended_bytes: int
    read_bytes: int
    requests: int
    appended_records_rate: float
    appended_bytes_rate: float
    read_bytes_rate: float
    requests_rate: float
    connections: int
    topics: int
    partitions: int
    memory_bytes: int
    cpu_seconds: float
    cpu_percent: float  # 100 is one core.
    log_bytes: int  # What all partitions hold.
    disk_free_bytes: int | None  # None with memory storage.


class _Totals(NamedTuple):
    at_s: float
    cpu_seconds: float
    appended_records: float
    appended_bytes: float
    read_bytes: float
    requests: float


class Figures:
    def __init__(self, session: Session, service: Service) -> None:
        self._session = session
        self._service = service
        self._started_s = time.monotonic()
        self._before = self._totals()

    def snapshot(self) -> Snapshot:
        """Look now. Cheap enough for once a second; each look starts the next interval."""
        before, now = self._before, self._totals()
        self._before = now
        seconds = max(now.at_s - before.at_s, 1e-9)
        node = self._service.node
        is_on_disk = node.config.storage == "disk"
        return Snapshot(
            uptime_s=now.at_s - self._started_s,
            appended_records=int(now.appended_records),
            appended_bytes=int(now.appended_bytes),
            read_bytes=int(now.read_bytes),
            requests=int(now.requests),
            appended_records_rate=(now.appended_records - before.appended_records) / seconds,
            appended_bytes_rate=(now.appended_bytes - before.appended_bytes) / seconds,
            read_bytes_rate=(now.read_bytes - before.read_bytes) / seconds,
            requests_rate=(now.requests - before.requests) / seconds,
            connections=self._service.listeners.connection_count,
            topics=len(node.topics.list(self._session)),
            partitions=node.hub.log_count - 1,  # Short of the control log.
            memory_bytes=_memory_bytes(),
            cpu_seconds=now.cpu_seconds,
            cpu_percent=100 * (now.cpu_seconds - before.cpu_seconds) / seconds,
            log_bytes=node.hub.resting.size_bytes
            + sum(r.log.health().size_bytes for r in node.hub.replicas.values()),
            disk_free_bytes=shutil.disk_usage(node.config.data_dir).free if is_on_disk else None,
        )

    async def samples(self) -> list[Sample]:
        """Every metric with its labels and its value, looked up in steps: others run in between."""
        collected: list[Sample] = []
        for sample in self._service.node.metrics.samples():
            collected.append(sample)
            if len(collected) % STEP_SAMPLES == 0:
                await asyncio.sleep(0)
        return collected

    def _totals(self) -> _Totals:
        metrics = self._service.node.metrics
        return _Totals(
            at_s=time.monotonic(),
            cpu_seconds=time.process_time(),
            appended_records=metrics.value(APPENDED_RECORDS),
            appended_bytes=metrics.value(APPENDED_BYTES),
            read_bytes=metrics.value(READ_BYTES),
            requests=metrics.total(REQUESTS),
        )


def _memory_bytes() -> int:
    """The memory of the process; where the system does not report it, the most it ever had."""
    page_counts = Path("/proc/self/statm")
    if page_counts.exists():
        return int(page_counts.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

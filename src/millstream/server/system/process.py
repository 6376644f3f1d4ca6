"""Figures of this process, as the operating system has them, for `process_*` metrics."""

import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from millstream.metrics import (
    PROCESS_CPU,
    PROCESS_MAX_FDS,
    PROCESS_RESIDENT,
    PROCESS_START,
    PROCESS_VIRTUAL,
    Metric,
)

_STAT = Path("/proc/self/stat")
_DESCRIPTORS = ("/proc/self/fd", "/dev/fd")
# Places in /proc/self/stat behind the name of the program (proc(5)).
_START_TICKS, _VIRTUAL_BYTES, _RESIDENT_PAGES = 19, 20, 21
_began_s = time.time()  # Where the system does not tell: this module is imported at the start.


class ProcessFigures(NamedTuple):
    cpu_s: float
    started_s: float
    resident_bytes: float
    virtual_bytes: float | None  # None where it is not known.
    descriptors_max: float | None


PROCESS_METRICS: Mapping[Metric, Callable[[ProcessFigures], float | None]] = {
    PROCESS_CPU: lambda figures: figures.cpu_s,
    PROCESS_START: lambda figures: figures.started_s,
    PROCESS_RESIDENT: lambda figures: figures.resident_bytes,
    PROCESS_VIRTUAL: lambda figures: figures.virtual_bytes,
    PROCESS_MAX_FDS: lambda figures: figures.descriptors_max,
}


def process_figures() -> ProcessFigures:
    """Takes some 20 us."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = None if soft == resource.RLIM_INFINITY else float(soft)
    cpu_s = usage.ru_utime + usage.ru_stime
    # The highest so far, in KiB on Linux and in bytes on macOS.
    resident: float = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    try:
        fields = _STAT.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        started_s = _boot_s() + int(fields[_START_TICKS]) / os.sysconf("SC_CLK_TCK")
        virtual = float(fields[_VIRTUAL_BYTES])
        resident = float(fields[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return ProcessFigures(cpu_s, _began_s, resident, None, most)
    return ProcessFigures(cpu_s, started_s, resident, virtual, most)


def open_descriptors() -> int | None:
    """How many descriptors are open; blocks for some milliseconds if those are thousands."""
    for path in _DESCRIPTORS:
        try:
            return sum(1 for _ in Path(path).iterdir()) - 1  # The listing's own.
        except OSError:
            continue
    return None


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _boot_s() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

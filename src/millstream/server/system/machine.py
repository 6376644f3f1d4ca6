"""Fits the limits of a node into what the machine allows this process.

Owns raising the limit of open files and the arithmetic of descriptors and memory. A limit that an
operator has set and that does not fit is refused with one sentence; a default is lowered.

Invariant: `connections_max + open_files_max + DESCRIPTORS_RESERVED` descriptors may be opened.
"""

import logging
import os
import sys
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

from millstream.config import Config, Limits
from millstream.errors import StartupError

if sys.platform != "win32":
    import resource

_log = logging.getLogger(__name__)

# For the journal, the lock, listeners, the event loop, directories and indexes while they are
# written, and the standard streams.
DESCRIPTORS_RESERVED = 64
DESCRIPTORS_MIN = 128
# Of what is not reserved, the share of segments where both limits are at their defaults.
_FILES_SHARE = 3
_OTHER_MIN = 16  # Connections, or open files, that are left where the other limit was set.
_MEMORY_SHARE = 4  # Of the machine's memory, what requests may fill by default.

_MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Machine(NamedTuple):
    descriptors_max: int | None  # None where the system sets no limit.
    memory_bytes: int | None  # None where it is not known.


class DiskSpace(NamedTuple):
    free_bytes: int  # That this user may fill.
    total_bytes: int


def disk_space(path: str) -> DiskSpace | None:
    """Of the file system that `path` lies in; None if it cannot be told. Blocks."""
    try:
        figures = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return DiskSpace(figures.f_bavail * figures.f_frsize, figures.f_blocks * figures.f_frsize)


def look_around() -> Machine:
    """Raise the limit of open files as far as allowed, and return what there is."""
    return Machine(_raise_descriptors(), _memory_bytes())


def fit(config: Config, machine: Machine, *, explicit: Collection[str] | None = None) -> Config:
    """Return `config` with defaults that fit the machine; `StartupError` for what was set.

    `explicit` names the limits that an operator has set. Without it, those count that are not at
    their defaults.
    """
    chosen = _changed(config.limits) if explicit is None else set(explicit)
    limits = _fit_memory(config.limits, machine.memory_bytes, chosen)
    limits = _fit_descriptors(limits, machine.descriptors_max, chosen)
    if limits is config.limits:
        return config
    _log.info(
        "fitted limits to this machine connections_max=%d open_files_max=%d request_bytes_max=%d",
        limits.connections_max,
        limits.open_files_max,
        limits.request_bytes_max,
    )
    return replace(config, limits=limits)


def _changed(limits: Limits) -> set[str]:
    defaults = Limits()
    names = (field.name for field in fields(Limits))
    return {name for name in names if getattr(limits, name) != getattr(defaults, name)}


def _fit_memory(limits: Limits, memory_bytes: int | None, chosen: Collection[str]) -> Limits:
    size = limits.request_bytes_max
    if memory_bytes is None:
        return limits
    if "request_bytes_max" in chosen:
        if size > memory_bytes:
            raise StartupError(
                f"limits.request_bytes_max = {size} does not fit this machine, which has "
                f"{memory_bytes} bytes of memory: lower it"
            )
        return limits
    share = memory_bytes // _MEMORY_SHARE
    return limits if size <= share else replace(limits, request_bytes_max=share)


def _fit_descriptors(limits: Limits, allowed: int | None, chosen: Collection[str]) -> Limits:
    connections, files = limits.connections_max, limits.open_files_max
    if allowed is None or connections + files + DESCRIPTORS_RESERVED <= allowed:
        return limits
    if allowed < DESCRIPTORS_MIN:
        raise StartupError(
            f"this process may open {allowed} files and a node needs at least {DESCRIPTORS_MIN}: "
            "raise the limit with `ulimit -n`, or LimitNOFILE= of a systemd unit"
        )
    room = allowed - DESCRIPTORS_RESERVED
    match "connections_max" in chosen, "open_files_max" in chosen:
        case False, False:
            files = min(files, room // _FILES_SHARE)
            connections = min(connections, room - files)
        case True, False:
            files = min(files, room - connections)
        case False, True:
            connections = min(connections, room - files)
    if connections < _OTHER_MIN or files < _OTHER_MIN or connections + files > room:
        raise StartupError(
            f"limits.connections_max = {limits.connections_max} and limits.open_files_max = "
            f"{limits.open_files_max} do not fit this process, which may open {allowed} files and "
            f"keeps {DESCRIPTORS_RESERVED} of them for itself: lower them, or raise the limit with "
            "`ulimit -n`, or LimitNOFILE= of a systemd unit"
        )
    return replace(limits, connections_max=connections, open_files_max=files)


def _raise_descriptors() -> int | None:
    if sys.platform == "win32":
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as problem:
            # macOS says that there is no hard limit, and has one all the same.
            _log.warning("could not raise the limit of open files at=%d problem=%s", soft, problem)
        else:
            _log.info("raised the limit of open files from=%d to=%d", soft, hard)
            soft = hard
    return None if soft == resource.RLIM_INFINITY else soft


def _memory_bytes() -> int | None:
    """The machine's memory, or the container's if that is less."""
    try:
        sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        return None
    for path in _MEMORY_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text.isdecimal() and int(text) > 0:
            sizes.append(int(text))
    return min(sizes)

"""Reads the positions of queries from their checkpoints, without Spark.

Owns the layout of Spark's checkpoints: `offsets/N` is written before batch N, `commits/N` after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from millstream.spark.pipelines.summaries import positions

ByQuery: TypeAlias = Mapping[str, Mapping[str, Mapping[str, int]]]  # Offsets by topic.

_METADATA_LINES = 2  # A version, and watermarks with settings; then one line for each source.


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One query. `offsets` are the ends of the last batch that was begun."""

    query: str
    batch: int  # -1: none was begun.
    is_committed: bool
    offsets: dict[str, dict[str, int]]


def find(directory: Path) -> list[Checkpoint]:
    """All checkpoints below, at any depth, named by their path."""
    logs = sorted(directory.glob("**/offsets"))
    return [_read(log.parent, str(log.parent.relative_to(directory))) for log in logs]


def _read(directory: Path, name: str) -> Checkpoint:
    begun = _numbers(directory / "offsets")
    if not begun:
        return Checkpoint(query=name, batch=-1, is_committed=True, offsets={})
    offsets: dict[str, dict[str, int]] = {}
    text = (directory / "offsets" / str(begun[-1])).read_text(encoding="utf-8")
    for line in text.splitlines()[_METADATA_LINES:]:
        offsets.update(positions(line))
    is_committed = begun[-1] in _numbers(directory / "commits")
    return Checkpoint(query=name, batch=begun[-1], is_committed=is_committed, offsets=offsets)


def _numbers(log: Path) -> list[int]:
    if not log.is_dir():
        return []
    return sorted(int(entry.name) for entry in log.iterdir() if entry.name.isdecimal())

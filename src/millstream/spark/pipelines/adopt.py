"""Takes a checkpoint of Spark's Kafka connector over, with its offsets and its state.

Spark keeps offsets as the JSON that a source spelt, and ours is spelt as the connector's. So a copy
of the checkpoint goes on with `format("millstream")`: same query, next batch. The original stays
as it is, for the way back.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from millstream.spark.pipelines.failures import InvalidPipeline

_METADATA_LINES = 2  # A version, and watermarks with settings; then one line for each source.
_KNOWN_VERSION = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """`offsets` of each Kafka source are the ends of `batch`, where the query goes on."""

    checkpoint: Path
    batch: int
    is_committed: bool
    offsets: list[dict[str, dict[str, int]]]
    other_sources: int


def read(checkpoint: Path) -> Adopted:
    """Read where the query stands; raises `InvalidPipeline` if it is no such checkpoint."""
    if not (checkpoint / "metadata").is_file():
        raise InvalidPipeline(
            f"{checkpoint} is no checkpoint of a streaming query: it has no file metadata. Give "
            "the directory that was the query's checkpointLocation"
        )
    begun = _numbers(checkpoint / "offsets")
    if not begun:
        raise InvalidPipeline(f"{checkpoint} holds no batch: start the query anew, without it")
    entry = checkpoint / "offsets" / str(begun[-1])
    lines = entry.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0] != _KNOWN_VERSION:
        raise InvalidPipeline(f"{entry} is of a version that is not known: {lines[:1]}")
    sources = [_offsets(line) for line in lines[_METADATA_LINES:]]
    offsets = [source for source in sources if source is not None]
    if not offsets:
        raise InvalidPipeline(f"{entry} has no offsets of Kafka: the query reads something else")
    return Adopted(
        checkpoint=checkpoint,
        batch=begun[-1],
        is_committed=begun[-1] in _numbers(checkpoint / "commits"),
        offsets=offsets,
        other_sources=len(sources) - len(offsets),
    )


def adopt(checkpoint: Path, into: Path) -> Adopted:
    """Copy the checkpoint; the directory `into` must not exist yet."""
    adopted = read(checkpoint)
    if into.exists():
        raise InvalidPipeline(f"{into} exists already: name a directory that does not")
    partial = into.with_name(into.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(checkpoint, partial)
        if read(partial) != _at(adopted, partial):
            raise InvalidPipeline(f"{checkpoint} has changed meanwhile: stop the query first")
        partial.rename(into)
    except (OSError, shutil.Error) as problem:
        raise InvalidPipeline(f"{checkpoint} can't be copied to {into}: {problem}") from None
    return _at(adopted, into)


def _at(adopted: Adopted, checkpoint: Path) -> Adopted:
    return Adopted(
        checkpoint=checkpoint,
        batch=adopted.batch,
        is_committed=adopted.is_committed,
        offsets=adopted.offsets,
        other_sources=adopted.other_sources,
    )


def _offsets(line: str) -> dict[str, dict[str, int]] | None:
    """The offsets of a Kafka source; None: the line is of another source."""
    try:
        parsed = json.loads(line)
    except ValueError:
        return None
    is_kafka = (
        isinstance(parsed, dict)
        and bool(parsed)
        and all(
            isinstance(partitions, dict)
            and all(
                partition.isdecimal() and isinstance(offset, int)
                for partition, offset in partitions.items()
            )
            for partitions in parsed.values()
        )
    )
    return parsed if is_kafka else None


def _numbers(log: Path) -> list[int]:
    if not log.is_dir():
        return []
    return sorted(int(entry.name) for entry in log.iterdir() if entry.name.isdecimal())

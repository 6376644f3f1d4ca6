"""Offsets of a query: ranges, how much a trigger takes, how ranges become tasks, what was lost.

Pure: a function of what was read from the broker and of the checkpoint. The one thing to know: a
range counts offsets, not rows. Compaction and transactions leave gaps, and gaps are no data loss.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from millstream.model import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
Json: TypeAlias = dict[str, dict[str, int]]


class OffsetRange(NamedTuple):
    """Offsets `start` to `end`, the end excluded: what one task reads."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.target} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a query may read next, and what it can never read again, in sentences."""

    ends: Offsets
    losses: list[str]


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Spell offsets as the Kafka connector does.

    Spark compares the text of two offsets, so equal offsets must always be spelt alike: sorted.
    """
    spelt: Json = {}
    for target in sorted(offsets):
        spelt.setdefault(target.topic, {})[str(target.partition)] = offsets[target]
    return spelt


def from_json(spelt: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in spelt.items()
        for partition, offset in partitions.items()
    }


# -- what may be read ------------------------------------------------------------------------------


def judge(starts: Offsets, latest: Offsets, newcomers: Offsets) -> Judgement:
    """Compare where a query stands with what the broker has.

    `newcomers` are the earliest offsets of the partitions that the query has not seen yet; they are
    read from 0, so records that went before they were found were missed.
    """
    losses = [
        f"partition {target} is gone, the query stood at offset {starts[target]}"
        for target in sorted(starts.keys() - latest.keys())
    ]
    losses += [
        f"partition {target} was added with offset {newcomers[target]} instead of 0"
        for target in sorted(newcomers)
        if newcomers[target] > 0
    ]
    losses += [
        f"partition {target} ends at offset {latest[target]}, the query stood at {starts[target]}"
        for target in sorted(starts.keys() & latest.keys())
        if latest[target] < starts[target]
    ]
    return Judgement(ends=dict(latest), losses=losses)


def backlog(starts: Offsets, ends: Offsets) -> Offsets:
    """How many offsets lie between, in each partition of `ends`."""
    return {r.target: r.end - r.start for r in ranges(starts, ends)}


def ranges(starts: Offsets, ends: Offsets) -> list[OffsetRange]:
    """The ranges between two offsets of a query, the same whenever they are asked for.

    A partition without a start is new and read from 0. One that ends before its start was created
    anew (the loss has been reported), so what it has now is read from 0, too.
    """
    found = []
    for target in sorted(ends):
        start, end = starts.get(target, 0), ends[target]
        if end < start:
            start = 0
        if start < end:
            found.append(OffsetRange(target.topic, target.partition, start, end))
    return found


# -- admission -------------------------------------------------------------------------------------


def limited(starts: Offsets, ends: Offsets, *, offsets_max: int) -> Offsets:
    """Take about `offsets_max` offsets in all, from each partition by its share of the backlog.

    At least one from each that has any, so that a small limit over many partitions moves on.
    """
    sizes = backlog(starts, ends)
    return _shares(starts, ends, sizes, portion=(offsets_max, sum(sizes.values())))


def limited_bytes(
    starts: Offsets, ends: Offsets, record_bytes: Mapping[TopicPartition, float], *, bytes_max: int
) -> Offsets:
    """The same for bytes, given what an offset of each partition takes on average."""
    sizes = backlog(starts, ends)
    total = sum(size * record_bytes.get(target, 1.0) for target, size in sizes.items())
    return _shares(starts, ends, sizes, portion=(bytes_max, int(total)))


def _shares(starts: Offsets, ends: Offsets, sizes: Offsets, *, portion: tuple[int, int]) -> Offsets:
    wanted, total = portion
    if total <= wanted:
        return dict(ends)
    taken = dict(ends)
    for found in ranges(starts, ends):
        target = found.target
        # In whole numbers: shares of 2**53 offsets and more would be rounded as floats.
        taken[target] = found.start + max(1, sizes[target] * wanted // total)
    return taken


# -- tasks -----------------------------------------------------------------------------------------


def split(
    found: Iterable[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Cut ranges so that there are at least `partitions_min`, none above `records_max` offsets."""
    whole = list(found)
    total = sum(r.end - r.start for r in whole)
    pieces = []
    for r in whole:
        size = r.end - r.start
        by_records = -(-size // records_max) if records_max else 1
        by_count = -(-size * partitions_min // total) if partitions_min else 1
        if partitions_min is not None and partitions_min <= len(whole):
            by_count = 1  # There are enough already.
        count = min(size, max(by_records, by_count))
        cuts = [r.start + size * index // count for index in range(count + 1)]
        pieces += [r._replace(start=cuts[i], end=cuts[i + 1]) for i in range(count)]
    return pieces

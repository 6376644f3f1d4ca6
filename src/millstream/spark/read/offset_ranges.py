"""Computes offset ranges: what a trigger takes, how ranges become tasks, and what was lost.

Pure: a function of the broker's offsets and of the checkpoint. A range counts offsets, not rows.
Compaction and transactions leave gaps, and gaps are no data loss.

Offsets alone do not tell a topic from one of the same name that was created after it. So the ids of
topics stand beside them, as `"orders@<id>": {}`: readers of the JSON that know no ids see a topic
without partitions. No name of a topic has an @ in it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from millstream.model import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
TopicIds: TypeAlias = dict[
    str, str
]  # By name, written as Kafka's tools do; of brokers that have ids.
Json: TypeAlias = dict[str, dict[str, int]]

_ID_MARK = "@"


class QueryPosition(NamedTuple):
    """Where a query stands, in which topics."""

    offsets: Offsets
    topic_ids: TopicIds


class OffsetRange(NamedTuple):
    """Offsets `start` to `end`, the end excluded: the input of one task."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""  # Empty: not known.

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.target} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """The ends up to which a query may read, and a sentence for each loss of records."""

    ends: Offsets
    losses: list[str]


def to_json(offsets: Mapping[TopicPartition, int], topic_ids: TopicIds | None = None) -> Json:
    """Spell offsets as the Kafka connector does, and the ids of their topics after them.

    Spark compares the text of two offsets, so equal offsets must always be written alike: sorted.
    """
    offsets_json: Json = {}
    for target in sorted(offsets):
        offsets_json.setdefault(target.topic, {})[str(target.partition)] = offsets[target]
    ids = topic_ids or {}
    return offsets_json | {
        f"{topic}{_ID_MARK}{ids[topic]}": {} for topic in offsets_json if topic in ids
    }


def from_json(offsets_json: Mapping[str, Mapping[str, int]]) -> QueryPosition:
    """Read offsets, with ids of topics or, as earlier versions wrote them, without."""
    offsets = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets_json.items()
        for partition, offset in partitions.items()
    }
    marked = (topic.partition(_ID_MARK) for topic in offsets_json)
    return QueryPosition(offsets, {topic: topic_id for topic, mark, topic_id in marked if mark})


# -- topics that were created anew -----------------------------------------------------------------


def recreated(before: TopicIds, now: TopicIds) -> list[str]:
    """The topics that are others by now, though of the same name."""
    return [topic for topic in sorted(before.keys() & now.keys()) if before[topic] != now[topic]]


def without(offsets: Offsets, topics: Collection[str]) -> Offsets:
    """Leave out all partitions of some topics: as if they had not been seen yet."""
    return {target: at for target, at in offsets.items() if target.topic not in topics}


def recreated_losses(before: QueryPosition, now: TopicIds) -> list[str]:
    """A sentence for each topic that was deleted and created anew."""
    losses = []
    for topic in recreated(before.topic_ids, now):
        stood = {t.partition: at for t, at in sorted(before.offsets.items()) if t.topic == topic}
        losses.append(
            f"topic {topic} was deleted and created anew: its id was {before.topic_ids[topic]} and "
            f"is {now[topic]}; the query stood at offsets {stood} (by partition) of the former one"
        )
    return losses


# -- what may be read ------------------------------------------------------------------------------


def check_available(starts: Offsets, latest: Offsets, newcomers: Offsets) -> Available:
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
    return Available(ends=dict(latest), losses=losses)


def backlog(starts: Offsets, ends: Offsets) -> Offsets:
    """How many offsets lie between, in each partition of `ends`."""
    return {r.target: r.end - r.start for r in ranges(starts, ends)}


def ranges(starts: Offsets, ends: Offsets, topic_ids: TopicIds | None = None) -> list[OffsetRange]:
    """The ranges between two offsets of a query, the same whenever they are asked for.

    A partition without a start is new and read from 0. One that ends before its start was created
    anew (the loss has been reported), so what it has now is read from 0, too.
    """
    planned = []
    ids = topic_ids or {}
    for target in sorted(ends):
        start, end = starts.get(target, 0), ends[target]
        if end < start:
            start = 0
        if start < end:
            topic, partition = target
            planned.append(OffsetRange(topic, partition, start, end, ids.get(topic, "")))
    return planned


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
    part, total = portion
    if total <= part:
        return dict(ends)
    taken = dict(ends)
    for offset_range in ranges(starts, ends):
        target = offset_range.target
        # In whole numbers: shares of 2**53 offsets and more would be rounded as floats.
        taken[target] = offset_range.start + max(1, sizes[target] * part // total)
    return taken


# -- tasks -----------------------------------------------------------------------------------------


def split(
    offset_ranges: Iterable[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Cut ranges so that there are at least `partitions_min`, none above `records_max` offsets."""
    whole = list(offset_ranges)
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


def gather(
    pieces: Iterable[OffsetRange], *, records_min: int, ranges_max: int
) -> list[tuple[OffsetRange, ...]]:
    """Put neighbours into one task while it has at most `records_min` offsets in all.

    A task costs Spark and two Python workers tens of milliseconds, however little it reads.
    """
    tasks: list[list[OffsetRange]] = []
    size = 0
    for piece in pieces:
        count = piece.end - piece.start
        if tasks and size + count <= records_min and len(tasks[-1]) < ranges_max:
            tasks[-1].append(piece)
            size += count
        else:
            tasks.append([piece])
            size = count
    return [tuple(task) for task in tasks]

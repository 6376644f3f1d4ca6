"""Chooses the partition of each row: Kafka's choice for keys, in turn for rows without.

Pure. Owns Kafka's hash, computed for all keys at once, and the grouping of rows by target.
Invariant: a key goes to the partition that every other Kafka producer chooses, else its order is
lost.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.model import TopicPartition
from millstream.spark.errors import UnwritableRow
from millstream.spark.read.arrow import Array

_SEED = 0x9747B28C
_FACTOR = np.uint32(0x5BD1E995)


class Columns(NamedTuple):
    """The columns of the rows; None for a column that the rows do not have."""

    values: Array
    keys: Array | None = None
    headers: Array | None = None
    topics: Array | None = None
    partitions: Array | None = None
    times_ms: Array | None = None  # Of records; none is null.
    due_ms: Array | None = None  # When a record is to be delivered; null: at once.
    lives_ms: Array | None = None  # How long a record is of use; null: always.

    def take(self, order: Array) -> "Columns":
        return Columns(*(None if column is None else column.take(order) for column in self))


class Share(NamedTuple):
    """Rows that go to one partition: the next `count`."""

    target: TopicPartition
    count: int  # type: ignore[assignment]  # Hides tuple.count, which no caller needs.


class Router:
    """Chooses partitions for a task. `turn` is where it starts with rows that have no key."""

    def __init__(
        self, topic: str | None, partition_count: Callable[[str], int], *, turn: int = 0
    ) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._turn = turn

    def route(self, rows: Columns) -> tuple[Columns, list[Share]]:
        """Sort rows by target, keeping their order within each; say how many are whose.

        All rows without a key go to one partition, the next time to the next: many small batches
        cost more than an even spread of few rows is worth.
        """
        names, codes = self._topics(rows)
        counts = np.array([self._partition_count(name) for name in names], np.int64)
        row_counts = counts[codes]
        chosen = np.full(len(codes), self._turn, np.int64) % row_counts
        self._turn += 1
        if rows.keys is not None:
            has_key = np.asarray(rows.keys.is_valid())
            if has_key.any():
                hashes = murmur2(rows.keys).astype(np.int64) & 0x7FFFFFFF
                chosen = np.where(has_key, hashes % row_counts, chosen)
        if rows.partitions is not None:
            chosen = self._asked(rows.partitions, chosen, row_counts)
        firsts = np.cumsum(counts) - counts
        slots = firsts[codes] + chosen
        totals = np.bincount(slots, minlength=int(counts.sum()))
        used = np.flatnonzero(totals)
        shares = []
        for slot in used.tolist():
            at = int(np.searchsorted(firsts, slot, side="right")) - 1
            target = TopicPartition(names[at], slot - int(firsts[at]))
            shares.append(Share(target, int(totals[slot])))
        if len(used) > 1:
            # The sort of 16-bit numbers is the fast one.
            small = slots.astype(np.uint16) if len(totals) < 2**16 else slots
            rows = rows.take(pa.array(np.argsort(small, kind="stable")))
        return rows, shares

    def _topics(self, rows: Columns) -> tuple[list[str], NDArray[np.int64]]:
        if self._topic is not None:
            return [self._topic], np.zeros(len(rows.values), np.int64)
        assert rows.topics is not None
        if rows.topics.null_count:
            raise UnwritableRow(
                "null topic present in the data. Use the topic option for setting a topic"
            )
        encoded = rows.topics.dictionary_encode()
        return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)

    @staticmethod
    def _asked(
        partitions: Array, chosen: NDArray[np.int64], row_counts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        requested = np.asarray(partitions.cast(pa.int64()).fill_null(-1))
        is_requested = np.asarray(partitions.is_valid())
        wrong = is_requested & ((requested < 0) | (requested >= row_counts))
        if wrong.any():
            at = int(wrong.argmax())
            raise UnwritableRow(
                f"a row asks for partition {requested[at]} of a topic with {row_counts[at]} "
                "partitions"
            )
        return np.where(is_requested, requested, chosen)


def murmur2(keys: Array) -> NDArray[np.int32]:
    """Kafka's hash of each key; any number where there is none."""
    borders, data = parts(keys)
    at, sizes = borders[:-1], np.diff(borders)
    hashes = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    words = sizes >> 2
    left = np.flatnonzero(words)
    step = 0
    while left.size:
        # The next four bytes of all keys that have as many.
        where = at[left] + 4 * step
        word = _byte(data, where, 0) | _byte(data, where + 1, 8)
        word |= _byte(data, where + 2, 16) | _byte(data, where + 3, 24)
        word *= _FACTOR
        word ^= word >> np.uint32(24)
        word *= _FACTOR
        hashes[left] = hashes[left] * _FACTOR ^ word
        step += 1
        left = left[words[left] > step]
    tails = sizes & 3
    behind = at + 4 * words
    for index in (2, 1, 0):
        some = np.flatnonzero(tails > index)
        hashes[some] ^= _byte(data, behind[some] + index, 8 * index)
    some = np.flatnonzero(tails)
    hashes[some] *= _FACTOR
    hashes ^= hashes >> np.uint32(13)
    hashes *= _FACTOR
    hashes ^= hashes >> np.uint32(15)
    return hashes.view(np.int32)


def parts(array: Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The borders of each element of a binary array, and the bytes that they are borders in."""
    _, borders, data = array.buffers()
    count = len(array)
    if borders is None or count == 0:
        return np.zeros(count + 1, np.int64), np.zeros(0, np.uint8)
    ends = np.frombuffer(borders, np.int32)[array.offset : array.offset + count + 1]
    view = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ends.astype(np.int64), view


def _byte(data: NDArray[np.uint8], at: NDArray[np.int64], shift: int) -> NDArray[np.uint32]:
    return data[at].astype(np.uint32) << np.uint32(shift)

"""The profile of a topic: how large its records are, which keys they have, when they came.

Owns the counting, in bounded memory: of keys the frequent ones are counted, with a bound on the
error (as Space-Saving has it, Metwally et al., 2005), and the number of different ones is estimated
by the smallest hashes (KMV, Bar-Yossef et al., 2002).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Sequence
from hashlib import blake2b

import msgspec

from millstream.codec.records import Record
from millstream.protocols.http.calls import iso_time
from millstream.protocols.http.records.shown import Shown, show

STEP_RECORDS = 100  # Between two turns of the loop.
KEYS_COUNTED_MAX = 1_000
HASHES_MAX = 1_024  # The number of keys is told within some 3 %.
KEYS_SHOWN = 20
KEY_BYTES_SHOWN = 200
HEADERS_MAX = 100
HOURS_MAX = 24 * 31
HOUR_MS = 3_600_000
_HASH_BYTES = 8


class SizeBucket(msgspec.Struct, frozen=True, kw_only=True):
    up_to_bytes: int  # A power of two.
    count: int


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    bytes: int  # Of all together.
    least: int
    mean: float
    most: int
    nulls: int
    buckets: list[SizeBucket]


class CountedKey(msgspec.Struct, frozen=True, kw_only=True):
    key: Shown | None
    count: int
    count_error_max: int  # The count is too high by so much at most.


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    sizes: Sizes
    distinct: int  # Estimated, if it is more than a thousand.
    most_frequent: list[CountedKey]


class PartitionShare(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    records: int
    bytes: int
    share: float  # Of the records that were looked at.


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    hour: str
    records: int


class ProfileView(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    records: int
    bytes: int  # Of keys and values.
    first_time: str | None
    last_time: str | None
    keys: Keys
    values: Sizes
    headers: dict[str, int]  # Records by header, of the names that came first.
    partitions: list[PartitionShare]
    skew: float  # Records of the fullest partition, by the mean of all that have some; 1 is even.
    hours: list[Hour]  # The last month of those that have records.


class _SizeTally:
    def __init__(self) -> None:
        self._count = self._bytes = self._nulls = self._most = 0
        self._least: int | None = None
        self._buckets: Counter[int] = Counter()  # By the length of the size in bits.

    def add(self, data: bytes | None) -> int:
        if data is None:
            self._nulls += 1
            return 0
        size = len(data)
        self._count += 1
        self._bytes += size
        self._most = max(self._most, size)
        self._least = size if self._least is None else min(self._least, size)
        self._buckets[max(0, size - 1).bit_length()] += 1
        return size

    def view(self) -> Sizes:
        return Sizes(
            bytes=self._bytes,
            least=self._least or 0,
            mean=round(self._bytes / max(1, self._count), 3),
            most=self._most,
            nulls=self._nulls,
            buckets=[
                SizeBucket(up_to_bytes=1 << bits, count=count)
                for bits, count in sorted(self._buckets.items())
            ],
        )


class _KeyTally:
    def __init__(self) -> None:
        self._counts: dict[bytes, tuple[int, int]] = {}  # Count, and by how much it may be high.
        self._floor = 0  # The most that a key without a count may have come.
        self._hashes: list[int] = []  # The smallest, ascending.

    def add(self, key: bytes) -> None:
        count, error = self._counts.get(key, (self._floor, self._floor))
        if count == error:
            self._hash(key)
        self._counts[key] = (count + 1, error)
        if len(self._counts) >= 2 * KEYS_COUNTED_MAX:
            self._drop_rare()

    def _drop_rare(self) -> None:
        """Keep the more frequent half. Rarely done, so that a record costs a step or two."""
        ranked = sorted(self._counts.items(), key=lambda item: -item[1][0])
        self._counts = dict(ranked[:KEYS_COUNTED_MAX])
        self._floor = max(self._floor, ranked[KEYS_COUNTED_MAX][1][0])

    def _hash(self, key: bytes) -> None:
        number = int.from_bytes(blake2b(key, digest_size=_HASH_BYTES).digest(), "big")
        at = bisect_left(self._hashes, number)
        if at < HASHES_MAX and self._hashes[at : at + 1] != [number]:
            self._hashes.insert(at, number)
            del self._hashes[HASHES_MAX:]

    def distinct(self) -> int:
        if len(self._hashes) < HASHES_MAX:
            return len(self._hashes)
        return round((HASHES_MAX - 1) * 2.0 ** (8 * _HASH_BYTES) / self._hashes[-1])

    def most_frequent(self, hidden_as: str | None) -> list[CountedKey]:
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1][0], item[0]))
        return [
            CountedKey(
                key=Shown(size=len(key), text=hidden_as)
                if hidden_as is not None
                else show(key, bytes_max=KEY_BYTES_SHOWN),
                count=count,
                count_error_max=error,
            )
            for key, (count, error) in ranked[:KEYS_SHOWN]
        ]


class Profile:
    def __init__(self, topic: str, *, shows_key: str | None) -> None:
        """`shows_key` stands for every key; None shows the keys themselves."""
        self.records = 0
        self._topic = topic
        self._hidden_as = shows_key
        self._keys, self._values, self._key_sizes = _KeyTally(), _SizeTally(), _SizeTally()
        self._headers: Counter[str] = Counter()
        self._partitions: dict[int, tuple[int, int]] = {}  # Records and bytes.
        self._hours: Counter[int] = Counter()
        self._first_ms: int | None = None
        self._last_ms: int | None = None

    def add(self, partition: int, records: Sequence[Record]) -> Generator[None, None, None]:
        count, size = self._partitions.get(partition, (0, 0))
        for index, record in enumerate(records):
            if index % STEP_RECORDS == STEP_RECORDS - 1:
                yield
            size += self._key_sizes.add(record.key) + self._values.add(record.value)
            if record.key is not None:
                self._keys.add(record.key)
            for name in {name for name, _ in record.headers}:
                if name in self._headers or len(self._headers) < HEADERS_MAX:
                    self._headers[name] += 1
            self._time(record.timestamp)
        self._partitions[partition] = (count + len(records), size)
        self.records += len(records)

    def view(self) -> ProfileView:
        return ProfileView(
            topic=self._topic,
            records=self.records,
            bytes=sum(size for _, size in self._partitions.values()),
            first_time=None if self._first_ms is None else iso_time(self._first_ms),
            last_time=None if self._last_ms is None else iso_time(self._last_ms),
            keys=Keys(
                sizes=self._key_sizes.view(),
                distinct=self._keys.distinct(),
                most_frequent=self._keys.most_frequent(self._hidden_as),
            ),
            values=self._values.view(),
            headers=dict(self._headers.most_common()),
            partitions=[
                PartitionShare(
                    partition=partition,
                    records=count,
                    bytes=size,
                    share=round(count / max(1, self.records), 6),
                )
                for partition, (count, size) in sorted(self._partitions.items())
            ],
            skew=self._skew(),
            hours=[
                Hour(hour=iso_time(hour * HOUR_MS), records=count)
                for hour, count in sorted(self._hours.items())
            ],
        )

    def _time(self, timestamp_ms: int) -> None:
        if timestamp_ms < 0:
            return
        if self._first_ms is None or timestamp_ms < self._first_ms:
            self._first_ms = timestamp_ms
        if self._last_ms is None or timestamp_ms > self._last_ms:
            self._last_ms = timestamp_ms
        hour = timestamp_ms // HOUR_MS
        self._hours[hour] += 1
        if len(self._hours) > HOURS_MAX:
            del self._hours[min(self._hours)]

    def _skew(self) -> float:
        counts = [count for count, _ in self._partitions.values() if count]
        return round(max(counts) * len(counts) / sum(counts), 3) if counts else 1.0

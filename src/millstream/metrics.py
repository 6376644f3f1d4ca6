"""Every metric of a node, declared in one place, and the live values.

Owns names, kinds and meanings; exporters render them. A metric that is not declared here cannot be
counted. Adding to a counter is one dictionary update, so the hot path may do it once per request,
never once per record. A value that is known elsewhere is read when samples are taken, see `watch`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    COUNTER = "counter"  # Only grows.
    GAUGE = "gauge"  # Goes up and down.


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric is itself and no other: by identity it is found fastest."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.name.startswith("millstream_")
        assert self.name.endswith("_total") == (self.kind is Kind.COUNTER)


REQUESTS = Metric(
    "millstream_requests_total",
    Kind.COUNTER,
    "Requests that passed the gate or were refused by it.",
    ("operation", "outcome"),
)
APPENDED_BYTES = Metric(
    "millstream_appended_bytes_total", Kind.COUNTER, "Bytes of batches written by leaders here."
)
APPENDED_BATCHES = Metric(
    "millstream_appended_batches_total", Kind.COUNTER, "Batches written by leaders here."
)
APPENDED_RECORDS = Metric(
    "millstream_appended_records_total", Kind.COUNTER, "Records written by leaders here."
)
DUPLICATE_RECORDS = Metric(
    "millstream_duplicate_records_total",
    Kind.COUNTER,
    "Records whose message id the topic had seen already.",
)
SCHEMA_CHECKS = Metric(
    "millstream_schema_checks_total",
    Kind.COUNTER,
    "Records that were checked against the registry.",
    ("outcome",),
)
DELAYED_RECORDS_TAKEN = Metric(
    "millstream_deferred_records_total", Kind.COUNTER, "Records taken to be delivered later."
)
DELIVERED_RECORDS = Metric(
    "millstream_delivered_records_total",
    Kind.COUNTER,
    "Records pushed to members of subscriptions, each time anew.",
)
REDELIVERED_RECORDS = Metric(
    "millstream_redelivered_records_total",
    Kind.COUNTER,
    "Records pushed to members of subscriptions that had been pushed before.",
)
ACKNOWLEDGED_RECORDS = Metric(
    "millstream_acknowledged_records_total",
    Kind.COUNTER,
    "Records that members of subscriptions are done with.",
)
DROPPED_RECORDS = Metric(
    "millstream_dropped_records_total",
    Kind.COUNTER,
    "Records that the flow policy of a subscription dropped.",
)
DEAD_LETTERS = Metric(
    "millstream_dead_letters_total", Kind.COUNTER, "Records given up and kept as dead letters."
)
READ_BYTES = Metric("millstream_read_bytes_total", Kind.COUNTER, "Bytes handed to readers.")
EXPIRED_RECORDS = Metric(
    "millstream_expired_records_total",
    Kind.COUNTER,
    "Records that a reader was not shown because their time was over, for each reader anew.",
)
FILTERED_RECORDS = Metric(
    "millstream_filtered_records_total",
    Kind.COUNTER,
    "Records that a filter or a view did not show a reader, for each reader anew.",
)
FILTER_READ_BYTES = Metric(
    "millstream_filter_read_bytes_total",
    Kind.COUNTER,
    "Bytes of logs that were read to be filtered.",
)
FILTER_SKIPPED_BYTES = Metric(
    "millstream_filter_skipped_bytes_total",
    Kind.COUNTER,
    "Bytes of logs that filtered reads passed over by an index of keys or headers, about.",
)
INDEX_BUILT_BYTES = Metric(
    "millstream_index_built_bytes_total",
    Kind.COUNTER,
    "Bytes of logs that were read to build indexes of keys and headers.",
)
UNPACKED_BATCHES = Metric(
    "millstream_unpacked_batches_total",
    Kind.COUNTER,
    "Compressed batches that a worker thread unpacked because they are large.",
    ("side",),
)
UNPACKING_BYTES = Metric(
    "millstream_unpacking_bytes",
    Kind.GAUGE,
    "Memory reserved for large batches that are being unpacked.",
    ("side",),
)
UNREADABLE_BATCHES = Metric(
    "millstream_unreadable_batches_total",
    Kind.COUNTER,
    "Batches that cannot be unpacked or decoded: refused, or skipped, for each reader anew.",
    ("outcome",),
)
SYNC_ROUNDS = Metric(
    "millstream_sync_rounds_total", Kind.COUNTER, "Group commits: one makes all waiting durable."
)
SYNC_SECONDS = Metric(
    "millstream_sync_seconds_total", Kind.COUNTER, "Time spent in group commits, in seconds."
)
LOOP_STALLS = Metric(
    "millstream_loop_stalls_total",
    Kind.COUNTER,
    "Times that the busy event loop was held up for over 5 ms, as seen by a timer every 10 ms.",
)
LOOP_STALL_SECONDS_MAX = Metric(
    "millstream_loop_stall_seconds_max",
    Kind.GAUGE,
    "The longest time that the event loop was held up in the last minute or two, in seconds.",
)
ELECTIONS_WON = Metric(
    "millstream_elections_won_total", Kind.COUNTER, "Epochs that this node opened as a leader."
)
STORAGE_FAILURES = Metric(
    "millstream_storage_failures_total", Kind.COUNTER, "Writes or syncs that the disk refused."
)
UNREADABLE_RECORDS = Metric(
    "millstream_unreadable_records_total",
    Kind.COUNTER,
    "Records of the broker's own topics that could not be decoded and were skipped.",
    ("topic",),
)
DAMAGED_RANGES = Metric(
    "millstream_damaged_ranges_total",
    Kind.COUNTER,
    "Ranges of records that were not what was written when they were read back.",
)
SCRUBBED_BYTES = Metric(
    "millstream_scrubbed_bytes_total", Kind.COUNTER, "Bytes read again to find damage."
)
SCRUBBED_MS = Metric(
    "millstream_scrub_last_full_pass_ms",
    Kind.GAUGE,
    "When all sealed segments had been read again, in milliseconds since 1970.",
)
SCRUB_PASS_BYTES = Metric(
    "millstream_scrub_pass_bytes", Kind.GAUGE, "Bytes read again in the pass that is under way."
)
DAMAGED_NOW = Metric(
    "millstream_damaged_ranges",
    Kind.GAUGE,
    "Ranges of records known to be damaged, and not repaired.",
)
CLEANED_BYTES = Metric(
    "millstream_cleaned_bytes_total",
    Kind.COUNTER,
    "Bytes given back by retention and compaction.",
    ("reason",),
)
CONNECTIONS = Metric(
    "millstream_connections", Kind.GAUGE, "Connections of clients, over all listeners."
)
LOGINS = Metric(
    "millstream_logins_total",
    Kind.COUNTER,
    "Logins, by how they were tried and how they ended.",
    ("protocol", "mechanism", "outcome"),
)
AUDIT_DROPPED = Metric(
    "millstream_audit_dropped_total",
    Kind.COUNTER,
    "Events that are not in the audit trail because it could not be written.",
)
INSECURE_LISTENERS = Metric(
    "millstream_insecure_listeners",
    Kind.GAUGE,
    "Listeners that the network reaches without a login.",
)
CONNECTIONS_REFUSED = Metric(
    "millstream_connections_refused_total",
    Kind.COUNTER,
    "Connections closed at once: connections_max was reached, or few descriptors were left.",
    ("reason",),
)
REPLICAS = Metric("millstream_replicas", Kind.GAUGE, "Partitions with a replica here.")
FAILED_REPLICAS = Metric(
    "millstream_failed_replicas",
    Kind.GAUGE,
    "Partitions here that take part no more, because their files cannot be read or written.",
)
LEADERS = Metric("millstream_leaders", Kind.GAUGE, "Partitions led here.")
DISK_USABLE = Metric(
    "millstream_disk_usable", Kind.GAUGE, "1 while the data directory is trusted, else 0."
)
DISK_FULL = Metric(
    "millstream_disk_full", Kind.GAUGE, "1 while appends are refused for want of space, else 0."
)

_PARTITION = ("topic", "partition")
LOW_WATERMARK = Metric(
    "millstream_partition_low_watermark", Kind.GAUGE, "The first offset there is.", _PARTITION
)
HIGH_WATERMARK = Metric(
    "millstream_partition_high_watermark",
    Kind.GAUGE,
    "The offset behind the last committed record.",
    _PARTITION,
)
LAST_STABLE_OFFSET = Metric(
    "millstream_partition_last_stable_offset",
    Kind.GAUGE,
    "Where the oldest open transaction begins, or the high watermark.",
    _PARTITION,
)
END_OFFSET = Metric(
    "millstream_partition_end_offset",
    Kind.GAUGE,
    "The offset behind the last record, committed or not.",
    _PARTITION,
)
PARTITION_BYTES = Metric(
    "millstream_partition_bytes", Kind.GAUGE, "What the files of the log hold.", _PARTITION
)
PARTITION_SEGMENTS = Metric(
    "millstream_partition_segments", Kind.GAUGE, "Files that the log is cut into.", _PARTITION
)
INDEX_ENTRIES = Metric(
    "millstream_partition_index_entries",
    Kind.GAUGE,
    "Places of the log that the index knows; the bytes by these are its density.",
    _PARTITION,
)
INDEX_STRETCH_BYTES = Metric(
    "millstream_partition_index_stretch_bytes",
    Kind.GAUGE,
    "The longest stretch of the log between two entries of the index.",
    _PARTITION,
)
INDEX_GAPS = Metric(
    "millstream_partition_index_gaps",
    Kind.GAUGE,
    "Files of the log whose index is not proven to be whole.",
    _PARTITION,
)
TERMS_BYTES = Metric(
    "millstream_partition_terms_bytes",
    Kind.GAUGE,
    "The size of the index of keys and headers, if the topic has one.",
    _PARTITION,
)
TERMS_MISSING_BYTES = Metric(
    "millstream_partition_terms_missing_bytes",
    Kind.GAUGE,
    "Bytes of the log that the index of keys and headers does not cover yet.",
    _PARTITION,
)
GROUP_LAG = Metric(
    "millstream_group_lag",
    Kind.GAUGE,
    "Records of a topic that a group has committed nothing behind yet.",
    ("group", "topic"),
)
DELAYED_RECORDS = Metric(
    "millstream_delayed_records", Kind.GAUGE, "Records that wait here for their time."
)
# Subscriptions without a name are one, with an empty name.
_SUBSCRIPTION = ("subscription",)
SUBSCRIBERS = Metric(
    "millstream_subscribers", Kind.GAUGE, "Members of the subscription.", _SUBSCRIPTION
)
SLOW_SUBSCRIBERS = Metric(
    "millstream_slow_subscribers",
    Kind.GAUGE,
    "Members whose subscription has more waiting than their flow policy calls slow.",
    _SUBSCRIPTION,
)
OUTSTANDING_RECORDS = Metric(
    "millstream_outstanding_records",
    Kind.GAUGE,
    "Records that members have and that they are not done with.",
    _SUBSCRIPTION,
)
WAITING_RECORDS = Metric(
    "millstream_waiting_records",
    Kind.GAUGE,
    "Records read for a subscription that no member has room for.",
    _SUBSCRIPTION,
)
HTTP_LONG_TURNS = Metric(
    "millstream_http_long_turns_total",
    Kind.COUNTER,
    "Turns of HTTP that held the event loop for more than 5 ms.",
)
CUT_SHORT = Metric(
    "millstream_metrics_cut_short",
    Kind.GAUGE,
    "1 if there are more of these than have samples of their own, else 0.",
    ("kind",),
)

DECLARED: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)


class Sample(NamedTuple):
    metric: Metric
    labels: tuple[str, ...]
    value: float


class Peaks:
    """The greatest of recent values, in ten buckets of ten seconds: adding is a comparison."""

    __slots__ = ("_buckets",)
    _BUCKET_S = 10.0
    _COUNT = 10

    def __init__(self) -> None:
        self._buckets: list[tuple[int, float]] = [(-1, 0.0)] * self._COUNT

    def note(self, now: float, value: float) -> None:
        number = int(now / self._BUCKET_S)
        place = number % self._COUNT
        kept_number, kept = self._buckets[place]
        if kept_number != number or value > kept:
            self._buckets[place] = number, value

    def most(self, since: float) -> float:
        """The greatest value since then, and up to one bucket before."""
        first = int(since / self._BUCKET_S)
        return max((value for number, value in self._buckets if number >= first), default=0.0)


class Counter:
    """A value of one metric, for code that counts often: adding to it is no call."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Metrics:
    """The live values of one node. Belongs to the event loop; not for other threads."""

    def __init__(self) -> None:
        # What was never counted is 0, and is told so.
        self._counters: dict[tuple[Metric, tuple[str, ...]], Counter] = {
            (metric, ()): Counter()
            for metric in DECLARED
            if metric.kind is Kind.COUNTER and not metric.labels
        }
        self._looks: list[Callable[[], Iterator[Sample]]] = []

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        assert metric.kind is Kind.COUNTER
        self._find(metric, labels).value += amount

    def counter(self, metric: Metric, *labels: str) -> Counter:
        """The value of a counter, which has a sample from now on, to be added to by the caller."""
        assert metric.kind is Kind.COUNTER
        return self._find(metric, labels)

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        assert metric.kind is Kind.GAUGE
        self._find(metric, labels).value = value

    def value(self, metric: Metric, *labels: str) -> float:
        counter = self._counters.get((metric, labels))
        return 0 if counter is None else counter.value

    def total(self, metric: Metric) -> float:
        """The sum over all labels."""
        return sum(counter.value for (kind, _), counter in self._counters.items() if kind is metric)

    def watch(self, look: Callable[[], Iterator[Sample]]) -> None:
        """Have `samples` call `look`, for values that are not counted. It bounds its samples."""
        self._looks.append(look)

    def samples(self) -> Iterator[Sample]:
        """All there is: what is counted by name, then what is looked up, as one asks for it."""
        for (metric, labels), counter in sorted(
            self._counters.items(), key=lambda item: (item[0][0].name, item[0][1])
        ):
            yield Sample(metric, labels, counter.value)
        for look in self._looks:
            yield from look()

    def _find(self, metric: Metric, labels: tuple[str, ...]) -> Counter:
        key = metric, labels
        counter = self._counters.get(key)
        if counter is None:
            assert len(labels) == len(metric.labels)
            counter = self._counters[key] = Counter()
        return counter

"""Every metric of a node, declared in one place, and the live values.

Owns names, kinds and meanings; exporters render them. A metric that is not declared here cannot be
counted. Adding to a counter is one dictionary update, so the hot path may do it once per request,
never once per record.
"""

from collections.abc import Iterator
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
DUPLICATE_BATCHES = Metric(
    "millstream_duplicate_batches_total",
    Kind.COUNTER,
    "Batches of idempotent producers that were there already.",
)
DUPLICATE_RECORDS = Metric(
    "millstream_duplicate_records_total",
    Kind.COUNTER,
    "Records whose message id the topic had seen already.",
)
DEFERRED_RECORDS = Metric(
    "millstream_deferred_records_total", Kind.COUNTER, "Records taken to be delivered later."
)
DELIVERED_RECORDS = Metric(
    "millstream_delivered_records_total",
    Kind.COUNTER,
    "Records pushed to members of subscriptions, each time anew.",
)
DEAD_LETTERS = Metric(
    "millstream_dead_letters_total", Kind.COUNTER, "Records given up and kept as dead letters."
)
READ_BYTES = Metric("millstream_read_bytes_total", Kind.COUNTER, "Bytes handed to readers.")
SYNC_ROUNDS = Metric(
    "millstream_sync_rounds_total", Kind.COUNTER, "Group commits: one makes all waiting durable."
)
SYNC_SECONDS = Metric(
    "millstream_sync_seconds_total", Kind.COUNTER, "Time spent in group commits, in seconds."
)
ELECTIONS_WON = Metric(
    "millstream_elections_won_total", Kind.COUNTER, "Epochs that this node opened as a leader."
)
STORAGE_FAILURES = Metric(
    "millstream_storage_failures_total", Kind.COUNTER, "Writes or syncs that the disk refused."
)
CLEANED_BYTES = Metric(
    "millstream_cleaned_bytes_total",
    Kind.COUNTER,
    "Bytes given back by retention and compaction.",
    ("reason",),
)
REPLICAS = Metric("millstream_replicas", Kind.GAUGE, "Partitions with a replica here.")
LEADERS = Metric("millstream_leaders", Kind.GAUGE, "Partitions led here.")
DISK_USABLE = Metric(
    "millstream_disk_usable", Kind.GAUGE, "1 while the data directory is trusted, else 0."
)

DECLARED: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)


class Sample(NamedTuple):
    metric: Metric
    labels: tuple[str, ...]
    value: float


class Metrics:
    """The live values of one node. Belongs to the event loop; not for other threads."""

    def __init__(self) -> None:
        self._values: dict[tuple[Metric, tuple[str, ...]], float] = {}

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        assert metric.kind is Kind.COUNTER
        assert len(labels) == len(metric.labels)
        key = metric, labels
        self._values[key] = self._values.get(key, 0) + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        assert metric.kind is Kind.GAUGE
        assert len(labels) == len(metric.labels)
        self._values[metric, labels] = value

    def value(self, metric: Metric, *labels: str) -> float:
        return self._values.get((metric, labels), 0)

    def samples(self) -> Iterator[Sample]:
        for (metric, labels), value in sorted(
            self._values.items(), key=lambda item: (item[0][0].name, item[0][1])
        ):
            yield Sample(metric, labels, value)

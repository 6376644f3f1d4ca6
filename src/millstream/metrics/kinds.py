"""The kinds of metrics: a name with its meaning and labels, and a sample of its value."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    COUNTER = "counter"  # Only grows.
    GAUGE = "gauge"  # Goes up and down.
    HISTOGRAM = "histogram"  # Counts of observed values, by upper bounds.
    UNTYPED = "untyped"  # A name of another broker, whose suffix promises another kind.


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric is itself and no other: by identity it is found fastest."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        is_counter = self.kind is Kind.COUNTER
        assert self.kind is Kind.UNTYPED or self.name.endswith("_total") == is_counter


# Upper bounds of a histogram's buckets in seconds, 0.5 ms to 10 s; the last has no bound.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
HISTOGRAM_SERIES: Final = len(BOUNDS) + 3  # The last bucket, the sum and the count.


class Exemplar(NamedTuple):
    """A trace that was observed in a bucket."""

    trace_id: str
    value: float
    at_s: float


class Observed(NamedTuple):
    """A histogram at one moment."""

    counts: tuple[int, ...]  # Of each bucket, not summed up.
    total: float  # The sum of all observed values.
    exemplars: tuple[Exemplar | None, ...] = ()


class Sample(NamedTuple):
    """`observed` is set for histograms, whose value is the number of observations."""

    metric: Metric
    labels: tuple[str, ...]
    value: float
    observed: Observed | None = None

    @property
    def series_count(self) -> int:
        return 1 if self.observed is None else HISTOGRAM_SERIES

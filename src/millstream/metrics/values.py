"""The live values of a node's metrics.

Adding to a counter is one dictionary update, so the hot path may do it once per request, never once
per record. A value that is known elsewhere is read when samples are taken, see `watch`.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator

from millstream.metrics.declared import DECLARED, PROCESS_CPU
from millstream.metrics.kinds import BOUNDS, Exemplar, Kind, Metric, Observed, Sample

# A sample, or None where a step of looking up ends without one.
Step = Sample | None
# Looks values up when samples are taken: of all topics, or of the one that is named.
Look = Callable[[str | None], Iterator[Step]]


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


class Histogram:
    """Counts of observed seconds by bucket: an observation is a search among 13 bounds."""

    __slots__ = ("_exemplars", "counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0
        self._exemplars: list[Exemplar | None] | None = None  # None: tracing is off.

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def exemplify(self, seconds: float, trace_id: str, at_s: float) -> None:
        """Keep a trace of an observation as the latest of its bucket."""
        if self._exemplars is None:
            self._exemplars = [None] * len(self.counts)
        self._exemplars[bisect_left(BOUNDS, seconds)] = Exemplar(trace_id, seconds, at_s)

    def observed(self) -> Observed:
        return Observed(tuple(self.counts), self.total, tuple(self._exemplars or ()))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class Metrics:
    """The live values of one node. Belongs to the event loop; not for other threads."""

    def __init__(self) -> None:
        # Seconds that pass evenly. A process sets a finer clock: uvloop's ticks in milliseconds.
        self.elapsed_s: Callable[[], float] = _loop_time
        # What was never counted is 0, and is told so. The CPU time is looked up.
        self._counters: dict[tuple[Metric, tuple[str, ...]], Counter] = {
            (metric, ()): Counter()
            for metric in DECLARED
            if metric.kind is Kind.COUNTER and not metric.labels and metric is not PROCESS_CPU
        }
        self._histograms: dict[tuple[Metric, tuple[str, ...]], Histogram] = {
            (metric, ()): Histogram()
            for metric in DECLARED
            if metric.kind is Kind.HISTOGRAM and not metric.labels
        }
        self._looks: dict[str, list[Look]] = {}  # By the set of names that they are for.

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        assert metric.kind is Kind.COUNTER
        self._find(metric, labels).value += amount

    def counter(self, metric: Metric, *labels: str) -> Counter:
        """The value of a counter, which has a sample from now on, to be added to by the caller."""
        assert metric.kind is Kind.COUNTER
        return self._find(metric, labels)

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """A histogram, which has samples from now on."""
        assert metric.kind is Kind.HISTOGRAM
        key = metric, labels
        histogram = self._histograms.get(key)
        if histogram is None:
            assert len(labels) == len(metric.labels)
            histogram = self._histograms[key] = Histogram()
        return histogram

    def observed(self, metric: Metric) -> Observed:
        """A histogram, summed up over all labels."""
        histograms = [each for (kind, _), each in self._histograms.items() if kind is metric]
        counts = [each.counts for each in histograms] or [[0] * (len(BOUNDS) + 1)]
        sums = tuple(map(sum, zip(*counts, strict=True)))
        return Observed(sums, sum(each.total for each in histograms))

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
        self.watch_topics(lambda topic: look() if topic is None else iter(()))

    def watch_topics(self, look: Look, *, names: str = "") -> None:
        """The same for samples that `samples(topic)` narrows; with `names`, for that set of names
        instead of ours."""
        self._looks.setdefault(names, []).append(look)

    def samples(self, topic: str | None = None) -> Iterator[Sample]:
        """All there is: what is counted by name, then what is looked up, as one asks for it.

        With `topic` only what has that topic as a label.
        """
        return (sample for sample in self.steps(topic) if sample is not None)

    def steps(self, topic: str | None = None) -> Iterator[Step]:
        """The same for a reader that must not look things up for long at once."""
        for (metric, labels), counter in sorted(self._counters.items(), key=_by_name):
            if topic is None or _is_of(metric, labels, topic):
                yield Sample(metric, labels, counter.value)
        if topic is None:
            for (metric, labels), histogram in sorted(self._histograms.items(), key=_by_name):
                yield Sample(metric, labels, sum(histogram.counts), histogram.observed())
        yield from self.foreign_steps("", topic)

    def foreign_steps(self, names: str, topic: str | None = None) -> Iterator[Step]:
        """The samples of a set of names that is not ours, such as `kafka`."""
        for look in self._looks.get(names, ()):
            yield from look(topic)

    def _find(self, metric: Metric, labels: tuple[str, ...]) -> Counter:
        key = metric, labels
        counter = self._counters.get(key)
        if counter is None:
            assert len(labels) == len(metric.labels)
            counter = self._counters[key] = Counter()
        return counter


def _by_name(item: tuple[tuple[Metric, tuple[str, ...]], object]) -> tuple[str, tuple[str, ...]]:
    (metric, labels), _ = item
    return metric.name, labels


def _is_of(metric: Metric, labels: tuple[str, ...], topic: str) -> bool:
    return "topic" in metric.labels and labels[metric.labels.index("topic")] == topic

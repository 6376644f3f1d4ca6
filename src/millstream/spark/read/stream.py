"""Reads streaming queries: the position of the query, and how much the next trigger takes.

Owns the driver's side of a stream. Spark keeps one reader in a process of its own for as long as
the query runs, and kills the process to end it, so the reader closes nothing. An error in here ends
the query, so every error that may pass is waited for inside.
"""

import logging
import time
from collections.abc import Callable, Iterator

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from millstream.errors import CorruptBatch, InvalidBatch, MillstreamError
from millstream.kafka_client.coordinator import Commits
from millstream.kafka_client.errors import CorruptMessage, OutOfRange, TransientError
from millstream.model import TopicPartition
from millstream.spark.options.source import SourceOptions
from millstream.spark.read.arrow import Array
from millstream.spark.read.batch import read, tasks
from millstream.spark.read.fetched import select
from millstream.spark.read.lookups import Positions
from millstream.spark.read.offset_ranges import (
    Json,
    Offsets,
    QueryPosition,
    TopicIds,
    backlog,
    check_available,
    from_json,
    gather,
    limited,
    limited_bytes,
    ranges,
    recreated,
    recreated_losses,
    to_json,
    without,
)
from millstream.spark.read.range_reader import report_loss
from millstream.spark.read.views import check_filter
from millstream.spark.sentences import with_sentences
from millstream.spark.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

# Without waiting Spark would ask about a hundred times a second whether there is anything.
IDLE_WAIT_SECONDS = 0.5
IDLE_POLL_SECONDS = 0.02
RANGES_PER_TASK_MAX = 8  # They are read one after the other.
SAMPLE_BYTES = 64 * 2**10  # The sample of a partition that its record size is estimated from.

log = logging.getLogger(__name__)


@with_sentences
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Method names are Spark's. Tasks get a copy that only ever reads."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._positions = Positions(options)
        self._initial: QueryPosition | None = None
        self._latest: Offsets | None = None
        self._ceiling: Offsets | None = None  # The end of a run with Trigger.AvailableNow.
        self._commits: Commits | None = None
        self._committed: Offsets | None = None
        self._reported: list[str] = []  # Losses, at the last look.
        self._former_ids: TopicIds = {}  # Of topics that were created anew, the last id before.
        self._last_trigger = time.monotonic()

    # -- where the query stands --------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802
        if self._initial is None:  # Spark asks twice and must get the same.
            self._initial = self._start()
        return to_json(*self._initial)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._ceiling = self._positions.latest(self._positions.partitions())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        if self._options.bytes_max is not None:
            return ReadMaxBytes(self._options.bytes_max)
        if self._options.offsets_min is not None:
            return ReadMinRows(self._options.offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """The end of the next batch; `start` is the end of the last batch, which is done."""
        before = from_json(start)
        self._show(before.offsets)
        deadline = time.monotonic() + IDLE_WAIT_SECONDS
        while True:
            topic_ids = self._topic_ids(before.topic_ids)
            # A topic that was created anew is read like one that was not seen yet.
            starts = without(before.offsets, recreated(before.topic_ids, topic_ids))
            ends, losses = self._available(before, starts, topic_ids)
            is_recreated, is_news = starts != before.offsets, ends != before.offsets
            is_due = self._ceiling is not None or self._is_enough(starts, ends, limit)
            is_batch = is_recreated or (is_news and is_due)
            # The offsets are of these topics only if no topic was created anew meanwhile.
            if (is_batch or losses) and self._positions.is_current(topic_ids):
                self._report(losses)
                if is_batch:
                    break
            self._finish_showing()  # There is time for it, and Spark may end this process.
            is_over = self._ceiling is not None and not is_batch
            if is_over or time.monotonic() > deadline:
                return start
            time.sleep(IDLE_POLL_SECONDS)
        for topic in recreated(before.topic_ids, topic_ids):
            self._former_ids[topic] = before.topic_ids[topic]
        self._last_trigger = time.monotonic()
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(starts, ends)
        return to_json(ends, before.topic_ids | topic_ids)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    def commit(self, end: Json) -> None:
        """Spark is done with all before `end`; it says so late, so `latestOffset` does it too."""
        self._show(from_json(end).offsets)

    # -- tasks ------------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """A function of its arguments and the options alone: a replay has the same tasks."""
        before, after = from_json(start), from_json(end)
        starts = without(before.offsets, recreated(before.topic_ids, after.topic_ids))
        planned = ranges(starts, after.offsets, after.topic_ids)
        check_filter(self._positions.cluster, planned, self._options.broker_filter)
        return [
            InputPartition(gathered)
            for gathered in gather(
                tasks(planned, self._options),
                records_min=self._options.partition_records_min,
                ranges_max=RANGES_PER_TASK_MAX,
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[Array]:
        return read(partition, self._options, self._schema)

    # -- how much ----------------------------------------------------------------------------------

    def _topic_ids(self, before: TopicIds) -> TopicIds:
        """The ids of topics now.

        A broker that has not heard of a new topic yet still says the id of the one before it, which
        this query has left: then `before` is right.
        """
        topic_ids = self._positions.topic_ids()
        late = {topic for topic, known in self._former_ids.items() if topic_ids.get(topic) == known}
        if late:
            self._positions.look_again()
        return topic_ids | {topic: before[topic] for topic in late if topic in before}

    def _start(self) -> QueryPosition:
        """Where the options say that a query begins, in the topics that there are now."""
        for _ in range(self._options.lookup_tries):
            targets, topic_ids = self._positions.require(), self._positions.topic_ids()
            offsets = self._positions.starting(targets)
            if self._positions.is_current(topic_ids):
                break
        return QueryPosition(offsets, topic_ids)

    def _available(
        self, before: QueryPosition, starts: Offsets, topic_ids: TopicIds
    ) -> tuple[Offsets, list[str]]:
        """The ends of all partitions, and what was lost since `before`."""
        # Partitions found after the ceiling was drawn may be in the start, and stay where they are.
        only = None if self._ceiling is None else self._ceiling.keys() | before.offsets.keys()
        losses = recreated_losses(before, topic_ids)
        latest = self._positions.ends(starts, only)
        newcomers = sorted(latest.keys() - starts.keys())
        available = check_available(
            starts, latest, self._positions.earliest(newcomers) if newcomers else {}
        )
        losses += available.losses
        self._latest = available.ends
        if self._ceiling is None:
            return available.ends, losses
        # A query that starts at the latest offset may stand behind the ceiling already.
        ends = {
            target: min(end, max(self._ceiling.get(target, 0), starts.get(target, 0)))
            for target, end in available.ends.items()
        }
        return ends, losses

    def _report(self, losses: list[str]) -> None:
        """Report what was not reported at the last look: a query that waits looks often."""
        for loss in losses:
            if loss not in self._reported:
                report_loss(loss, is_fatal=self._options.fails_on_data_loss)
        self._reported = losses

    def _is_enough(self, starts: Offsets, ends: Offsets, limit: ReadLimit) -> bool:
        """Whether there is enough for a batch. Partitions that went are news as well."""
        offsets_min = self._options.offsets_min
        if offsets_min is None or isinstance(limit, ReadAllAvailable):
            return True
        waited_ms = (time.monotonic() - self._last_trigger) * 1000
        is_overdue = waited_ms >= self._options.trigger_delay_ms_max
        return is_overdue or sum(backlog(starts, ends).values()) >= offsets_min

    def _limited(self, starts: Offsets, ends: Offsets) -> Offsets:
        if self._options.offsets_max is not None:
            ends = limited(starts, ends, offsets_max=self._options.offsets_max)
        if self._options.bytes_max is not None:
            sizes = {r.target: self._record_bytes(r.target, r.start) for r in ranges(starts, ends)}
            ends = limited_bytes(starts, ends, sizes, bytes_max=self._options.bytes_max)
        return ends

    def _record_bytes(self, target: TopicPartition, offset: int) -> float:
        """The bytes per offset in this partition, by the next few batches as they are stored."""
        try:
            fetched = self._positions.cluster.fetch(target, offset, bytes_max=SAMPLE_BYTES)
            selected = select(fetched.records, start=offset, end=2**63 - 1)
        except (OutOfRange, CorruptMessage, CorruptBatch, InvalidBatch):
            return 1.0  # The task that reads it says what is wrong.
        size = sum(header.size for header, _ in selected.batches)
        return max(size / max(selected.next_offset - offset, 1), 1.0)

    # -- lag ---------------------------------------------------------------------------------------

    def _show(self, offsets: Offsets) -> None:
        """Commit to the group that shows where the query stands. Never fails the query.

        No trigger waits for the broker's answer: it is taken at the next one, or in idle time.
        """
        initial = None if self._initial is None else self._initial.offsets
        if offsets in (initial, self._committed) or not offsets:
            return
        if self._commits is None:
            self._commits = Commits(self._positions.cluster, self._options.group)
        self._showing(lambda commits: commits.send(offsets))
        self._committed = offsets

    def stop(self) -> None:
        self._finish_showing()

    def _finish_showing(self) -> None:
        self._showing(Commits.finish)

    def _showing(self, act: Callable[[Commits], None]) -> None:
        if self._commits is None:
            return
        try:
            act(self._commits)
        except (OSError, MillstreamError, TransientError) as problem:
            self._committed = None  # The next trigger commits again, also if nothing is new.
            log.warning("could not commit group=%s: %s", self._options.group, problem)


@with_sentences
class UnlimitedStreamReader(StreamReader):
    """For Spark before 4.2, which asks how far to read without saying where the query stands.

    So a trigger takes all there is, and losses are noticed when the batch is planned.
    """

    _last: Json | None = None

    def latestOffset(self) -> Json:  # type: ignore[override]  # noqa: N802
        deadline = time.monotonic() + IDLE_WAIT_SECONDS
        while True:
            topic_ids = self._positions.topic_ids()
            end = to_json(self._positions.ends({}, None), topic_ids)
            if end != self._last and self._positions.is_current(topic_ids):
                self._last = end
                return end
            if self._last is not None and time.monotonic() > deadline:
                return self._last
            time.sleep(IDLE_POLL_SECONDS)

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        before, after = from_json(start), from_json(end)
        starts = without(before.offsets, recreated(before.topic_ids, after.topic_ids))
        newcomers = sorted(after.offsets.keys() - starts.keys())
        earliest = self._positions.earliest(newcomers) if newcomers else {}
        losses = recreated_losses(before, after.topic_ids)
        self._report(losses + check_available(starts, after.offsets, earliest).losses)
        return super().partitions(start, end)


@with_sentences
class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error of the options when it is first asked something.

    Spark stops a reader that it could not make, and reports that it has none to stop.
    """

    def __init__(self, problem: MillstreamError) -> None:
        self._problem = problem

    def initialOffset(self) -> Json:  # noqa: N802
        raise self._problem

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        raise self._problem

    def latestOffset(self, *_: object) -> Json:  # noqa: N802
        raise self._problem

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        raise self._problem

    def read(self, partition: InputPartition) -> Iterator[Array]:
        raise self._problem

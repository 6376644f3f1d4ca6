"""The reader of streaming queries: where the query stands, and how much the next trigger takes.

Owns the driver's side of a stream. Spark keeps one of these in a process of its own for as long as
the query runs, and kills the process to end it: nothing here needs to be closed. What fails in
here ends the query, so everything that may pass is waited for inside.
"""

import logging
import time
from collections.abc import Iterator

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from millstream.errors import MillstreamError
from millstream.model import TopicPartition
from millstream.spark.arrow import Array
from millstream.spark.batch import read, tasks
from millstream.spark.batches import select
from millstream.spark.cluster import Again, OutOfRange
from millstream.spark.groups import commit
from millstream.spark.offsets import (
    Json,
    Offsets,
    backlog,
    from_json,
    judge,
    limited,
    limited_bytes,
    ranges,
    to_json,
)
from millstream.spark.options import SourceOptions
from millstream.spark.positions import Positions
from millstream.spark.reading import report_loss
from millstream.spark.views import make_views

# Without waiting Spark would ask about a hundred times a second whether there is anything.
IDLE_WAIT_SECONDS = 0.5
IDLE_POLL_SECONDS = 0.02
SAMPLE_BYTES = 64 * 2**10  # What is read of a partition to learn how large its records are.

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Method names are Spark's. Tasks get a copy that only ever reads."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._positions = Positions(options)
        self._initial: Offsets | None = None
        self._latest: Offsets | None = None
        self._ceiling: Offsets | None = None  # Where a run over what is available now ends.
        self._committed: Offsets | None = None
        self._last_trigger = time.monotonic()

    # -- where the query stands --------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802
        if self._initial is None:  # Spark asks twice and must be told the same.
            self._initial = self._positions.starting(self._positions.require())
        return to_json(self._initial)

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
        """Where the next batch ends; `start` is where the last one, which is done, ended."""
        starts = from_json(start)
        self._show(starts)
        deadline = time.monotonic() + IDLE_WAIT_SECONDS
        while True:
            ends = self._available(starts)
            if self._is_enough(starts, ends, limit) or self._ceiling is not None:
                break
            if time.monotonic() > deadline:
                return to_json(starts)
            time.sleep(IDLE_POLL_SECONDS)
        self._last_trigger = time.monotonic()
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(starts, ends)
        return to_json(ends)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    def commit(self, end: Json) -> None:
        """Spark is done with all before `end`; it says so late, so `latestOffset` does it too."""
        self._show(from_json(end))

    # -- what tasks do -----------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """A function of its arguments and the options alone: a replay has the same tasks."""
        found = ranges(from_json(start), from_json(end))
        make_views(self._positions.cluster, found, self._options.broker_filter)
        return [InputPartition(r) for r in tasks(found, self._options)]

    def read(self, partition: InputPartition) -> Iterator[Array]:
        return read(partition, self._options, self._schema)

    # -- how much ----------------------------------------------------------------------------------

    def _available(self, starts: Offsets) -> Offsets:
        """The ends of all partitions, with what was lost reported."""
        # What was found after the ceiling was drawn may be in the start, and stays where it is.
        only = None if self._ceiling is None else self._ceiling.keys() | starts.keys()
        latest = self._positions.ends(starts, only)
        newcomers = sorted(latest.keys() - starts.keys())
        judgement = judge(starts, latest, self._positions.earliest(newcomers) if newcomers else {})
        for loss in judgement.losses:
            report_loss(loss, is_fatal=self._options.fails_on_data_loss)
        self._latest = judgement.ends
        if self._ceiling is None:
            return judgement.ends
        # A query that starts at the latest offset may stand behind the ceiling already.
        return {
            target: min(end, max(self._ceiling.get(target, 0), starts.get(target, 0)))
            for target, end in judgement.ends.items()
        }

    def _is_enough(self, starts: Offsets, ends: Offsets, limit: ReadLimit) -> bool:
        """Whether a batch should begin. Partitions that went are news as well."""
        if to_json(starts) == to_json(ends):
            return False
        wanted = self._options.offsets_min
        if wanted is None or isinstance(limit, ReadAllAvailable):
            return True
        waited_ms = (time.monotonic() - self._last_trigger) * 1000
        is_overdue = waited_ms >= self._options.trigger_delay_ms_max
        return is_overdue or sum(backlog(starts, ends).values()) >= wanted

    def _limited(self, starts: Offsets, ends: Offsets) -> Offsets:
        if self._options.offsets_max is not None:
            ends = limited(starts, ends, offsets_max=self._options.offsets_max)
        if self._options.bytes_max is not None:
            sizes = {r.target: self._record_bytes(r.target, r.start) for r in ranges(starts, ends)}
            ends = limited_bytes(starts, ends, sizes, bytes_max=self._options.bytes_max)
        return ends

    def _record_bytes(self, target: TopicPartition, offset: int) -> float:
        """What an offset takes in this partition, by the next few batches as they are stored."""
        try:
            fetched = self._positions.cluster.fetch(target, offset, bytes_max=SAMPLE_BYTES)
        except OutOfRange:
            return 1.0  # The task that reads it says what is wrong.
        selected = select(fetched.records, start=offset, end=2**63 - 1)
        size = sum(header.size for header, _ in selected.batches)
        return max(size / max(selected.next_offset - offset, 1), 1.0)

    # -- lag ---------------------------------------------------------------------------------------

    def _show(self, offsets: Offsets) -> None:
        """Commit to the group that shows where the query stands. Never fails the query."""
        if offsets in (self._initial, self._committed) or not offsets:
            return
        try:
            commit(self._positions.cluster, self._options.group, offsets)
            self._committed = offsets
        except (OSError, MillstreamError, Again) as problem:
            log.warning("could not commit group=%s: %s", self._options.group, problem)

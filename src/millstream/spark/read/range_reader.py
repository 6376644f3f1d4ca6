"""Reading one range of offsets: what a task does.

Owns the way from a range to Arrow batches, and what happens when part of the range is gone. The
next piece is asked for before the last one is decoded, so broker and task work at the same time.
"""

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.spark.cluster import Cluster, Fetched, OutOfRange
from millstream.spark.errors import DataLoss, UnknownPartition, Unreachable
from millstream.spark.options.places import EARLIEST, LATEST
from millstream.spark.read.arrow import Array, Schema, record_batch
from millstream.spark.read.fetched import Selected, open_batches, select
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.rows import find_rows
from millstream.spark.read.views import shown_by

if TYPE_CHECKING:
    from millstream.spark.values.bad_values import Judge, JudgeMaker

log = logging.getLogger(__name__)
_NOTHING = Fetched(memoryview(b""), [])


class RangeReader:
    """Reads ranges of one query."""

    def __init__(
        self,
        cluster: Cluster,
        schema: Schema,
        *,
        poll_ms_max: int,
        fails_on_data_loss: bool,
        broker_filter: str | None = None,
        judge_of: "JudgeMaker | None" = None,
    ) -> None:
        self._cluster = cluster
        self._schema = schema
        self._poll_seconds_max = poll_ms_max / 1000
        self._fails_on_data_loss = fails_on_data_loss
        self._broker_filter = broker_filter
        self._judge_of = judge_of

    def read(self, wanted: OffsetRange) -> Iterator[Array]:
        """Yield the rows of the range as record batches, in the order of their offsets."""
        if not self._is_same_topic(wanted):
            report_loss(_recreated(wanted), is_fatal=self._fails_on_data_loss)
            return
        judge = None if self._judge_of is None else self._judge_of(wanted)
        position = wanted.start
        source = shown_by(wanted.target, self._broker_filter)
        pending = self._cluster.begin_fetch(source, position)
        waits_since = time.monotonic()
        while position < wanted.end:
            try:
                fetched = pending()
                selected = select(
                    fetched.records, start=position, end=wanted.end, aborted=fetched.aborted
                )
            except OutOfRange:
                fetched, selected = _NOTHING, Selected([], self._after_loss(wanted, position))
            except UnknownPartition:
                report_loss(f"{wanted} is gone", is_fatal=self._fails_on_data_loss)
                break
            if selected.next_offset == position:
                self._check_patience(wanted, position, waits_since)
            found = wanted._replace(start=position)  # Its first batch may begin before that.
            position = selected.next_offset
            if position < wanted.end:
                pending = self._cluster.begin_fetch(source, position)
            if selected.batches:
                yield from self._decode(found, fetched, selected, judge)
                waits_since = time.monotonic()  # Spark may have taken its time with the rows.
        if not self._is_same_topic(wanted):
            # The rows may be of either topic; the next attempt finds out before it reads any.
            raise DataLoss(_recreated(wanted))
        if judge is not None:
            judge.finish()

    def _is_same_topic(self, wanted: OffsetRange) -> bool:
        """Whether the topic is the one that was planned. One that is gone is found out later."""
        return not wanted.topic_id or self._cluster.is_topic(wanted.topic, wanted.topic_id)

    def _decode(
        self, found: OffsetRange, fetched: Fetched, selected: Selected, judge: "Judge | None"
    ) -> Iterator[Array]:
        for data, payloads in open_batches(fetched.records, selected.batches):
            rows, values = find_rows(data, payloads).between(found.start, found.end), None
            if judge is not None:
                rows, values = judge.judge(rows)
            if len(rows.offsets):
                yield record_batch(found.target, rows, self._schema, values)

    def _after_loss(self, wanted: OffsetRange, position: int) -> int:
        """Where to go on when the log does not have `position`; the range's end: nowhere."""
        earliest = self._cluster.offsets({wanted.target: EARLIEST})[wanted.target]
        latest = self._cluster.offsets({wanted.target: LATEST})[wanted.target]
        if earliest <= position <= latest:
            return position  # Only the broker that was asked did not have it yet.
        report_loss(
            f"{wanted} can't be read from offset {position} on: the log has {earliest} to {latest}",
            is_fatal=self._fails_on_data_loss,
        )
        return earliest if position < earliest else wanted.end

    def _check_patience(self, wanted: OffsetRange, position: int, waits_since: float) -> None:
        if time.monotonic() - waits_since > self._poll_seconds_max:
            raise Unreachable(
                f"no records of {wanted} came from offset {position} on for "
                f"{self._poll_seconds_max:g} s (kafkaConsumer.pollTimeoutMs)"
            )


def _recreated(wanted: OffsetRange) -> str:
    return f"{wanted} is gone: topic {wanted.topic} was deleted and created anew meanwhile"


def report_loss(what: str, *, is_fatal: bool) -> None:
    """Fail, or say what was lost and go on, as `failOnDataLoss` says."""
    if is_fatal:
        raise DataLoss(what)
    log.warning("data loss accepted by failOnDataLoss=false: %s", what)

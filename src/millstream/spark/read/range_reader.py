"""Reads one range of offsets in a task, as Arrow batches.

Handles a range of which part is gone. The next fetch is sent before the last response is decoded,
so broker and task work at the same time.
"""

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.errors import CorruptBatch, InvalidBatch, RequestError
from millstream.kafka_client.answers import Fetched
from millstream.kafka_client.cluster import Cluster
from millstream.kafka_client.errors import (
    CorruptMessage,
    OutOfRange,
    UnknownPartition,
    Unreachable,
)
from millstream.spark.errors import DamagedRecords, DataLoss
from millstream.spark.options.places import EARLIEST, LATEST
from millstream.spark.read.arrow import Array, Schema, record_batch
from millstream.spark.read.fetched import Selected, open_batches, select
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.rows import find_rows
from millstream.spark.read.views import shown_by

if TYPE_CHECKING:
    from millstream.spark.values.bad_values import DecoderMaker, ValueDecoder

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
        decoder_of: "DecoderMaker | None" = None,
    ) -> None:
        self._cluster = cluster
        self._schema = schema
        self._poll_seconds_max = poll_ms_max / 1000
        self._fails_on_data_loss = fails_on_data_loss
        self._broker_filter = broker_filter
        self._decoder_of = decoder_of

    def read(self, offset_range: OffsetRange) -> Iterator[Array]:
        """Yield the rows of the range as record batches, in the order of their offsets."""
        if not self._is_same_topic(offset_range):
            report_loss(_recreated(offset_range), is_fatal=self._fails_on_data_loss)
            return
        decoder = None if self._decoder_of is None else self._decoder_of(offset_range)
        position = offset_range.start
        source = shown_by(offset_range.target, self._broker_filter)
        pending = self._cluster.begin_fetch(source, position)
        waits_since = time.monotonic()
        while position < offset_range.end:
            try:
                fetched = pending()
                selected = select(
                    fetched.records, start=position, end=offset_range.end, aborted=fetched.aborted
                )
            except OutOfRange:
                fetched, selected = _NOTHING, Selected([], self._after_loss(offset_range, position))
            except UnknownPartition:
                report_loss(f"{offset_range} is gone", is_fatal=self._fails_on_data_loss)
                break
            except CorruptMessage:
                raise DamagedRecords.on_disk(*offset_range[:2], position) from None
            except (CorruptBatch, InvalidBatch) as problem:
                raise DamagedRecords.on_the_way(*offset_range[:2], position, problem) from None
            if selected.next_offset == position:
                self._check_patience(offset_range, position, waits_since)
            unread = offset_range._replace(start=position)  # Its first batch may begin before that.
            position = selected.next_offset
            if position < offset_range.end:
                pending = self._cluster.begin_fetch(source, position)
            if selected.batches:
                yield from self._decode(unread, fetched, selected, decoder)
                waits_since = time.monotonic()  # Spark may have taken its time with the rows.
        if not self._is_same_topic(offset_range):
            # The rows may be of either topic; the next attempt finds out before it reads any.
            raise DataLoss(_recreated(offset_range))
        if decoder is not None:
            decoder.finish()

    def _is_same_topic(self, offset_range: OffsetRange) -> bool:
        """Whether the topic is the planned one. A topic that is gone is noticed by the fetch."""
        return not offset_range.topic_id or self._cluster.is_topic(
            offset_range.topic, offset_range.topic_id
        )

    def _decode(
        self,
        unread: OffsetRange,
        fetched: Fetched,
        selected: Selected,
        decoder: "ValueDecoder | None",
    ) -> Iterator[Array]:
        try:
            for data, payloads in open_batches(fetched.records, selected.batches):
                rows, values = find_rows(data, payloads).between(unread.start, unread.end), None
                if decoder is not None:
                    rows, values = decoder.decode(rows)
                if len(rows.offsets):
                    yield record_batch(unread.target, rows, self._schema, values)
        except RequestError:
            _raise_undecodable(unread, fetched, selected)
            raise

    def _after_loss(self, offset_range: OffsetRange, position: int) -> int:
        """Where to go on when the log does not have `position`; the range's end: nowhere."""
        earliest = self._cluster.offsets({offset_range.target: EARLIEST})[offset_range.target]
        latest = self._cluster.offsets({offset_range.target: LATEST})[offset_range.target]
        if earliest <= position <= latest:
            return position  # Only the broker that was asked did not have it yet.
        report_loss(
            f"{offset_range} can't be read from offset {position} on: the log has {earliest} to "
            f"{latest}",
            is_fatal=self._fails_on_data_loss,
        )
        return earliest if position < earliest else offset_range.end

    def _check_patience(self, offset_range: OffsetRange, position: int, waits_since: float) -> None:
        if time.monotonic() - waits_since > self._poll_seconds_max:
            raise Unreachable(
                f"no records of {offset_range} came from offset {position} on for "
                f"{self._poll_seconds_max:g} s (kafkaConsumer.pollTimeoutMs)"
            )


def _raise_undecodable(unread: OffsetRange, fetched: Fetched, selected: Selected) -> None:
    """Name the first batch that cannot be decoded; batches are decoded many at a time."""
    for header, at in selected.batches:
        try:
            for data, payloads in open_batches(fetched.records, [(header, at)]):
                find_rows(data, payloads)
        except RequestError as problem:
            offsets = range(header.base_offset, header.end_offset)
            raise DamagedRecords.undecodable(*unread[:2], offsets, problem) from problem


def _recreated(offset_range: OffsetRange) -> str:
    return (
        f"{offset_range} is gone: topic {offset_range.topic} was deleted and created anew meanwhile"
    )


def report_loss(loss: str, *, is_fatal: bool) -> None:
    """Raise `DataLoss`, or log the loss and go on, as `failOnDataLoss` says."""
    if is_fatal:
        raise DataLoss(loss)
    log.warning("data loss accepted by failOnDataLoss=false: %s", loss)

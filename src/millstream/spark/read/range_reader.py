"""Reads the ranges of offsets of a task, as Arrow batches.

Handles a range of which part is gone. The next fetch is sent before the last response is decoded,
also that of the next range, so broker and task work at the same time.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

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


class Response(NamedTuple):
    """A response of a broker: the range that it was asked for, and what of it is in there."""

    unread: OffsetRange
    fetched: Fetched
    selected: Selected


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

    def read(self, *planned: OffsetRange) -> Iterator[Array]:
        """Yield the rows of the ranges as record batches, each range in the order of its offsets.

        The ids of all topics are looked up once before and once after: a task of a small trigger
        has several ranges, and each request is one more wait.
        """
        others = self._recreated(planned)
        for offset_range in planned:
            if offset_range.topic in others:
                report_loss(_recreated(offset_range), is_fatal=self._fails_on_data_loss)
        same = [r for r in planned if r.topic not in others]
        decoders = {}
        if self._decoder_of is not None:
            decoders = {(r.target, r.end): self._decoder_of(r) for r in same}
        for response in self._responses(same):
            decoder = decoders.get((response.unread.target, response.unread.end))
            yield from self._decode(response, decoder)
        others = self._recreated(same)
        for offset_range in same:
            if offset_range.topic in others:
                # The rows may be of either topic; the next attempt finds out before it reads any.
                raise DataLoss(_recreated(offset_range))
        for decoder in decoders.values():
            decoder.finish()

    def _recreated(self, planned: Sequence[OffsetRange]) -> set[str]:
        """The topics that are not the planned ones. The fetch notices a topic that is gone."""
        topic_ids = {r.topic: r.topic_id for r in planned if r.topic_id}
        return self._cluster.recreated(topic_ids) if topic_ids else set()

    def _responses(self, planned: Sequence[OffsetRange]) -> Iterator[Response]:
        """Yield every response that has records; the next fetch is under way by then."""
        left = deque(r for r in planned if r.start < r.end)
        pending = self._begin(left)
        waits_since = time.monotonic()
        while left:
            unread = left[0]
            fetched, selected = self._received(pending, unread)
            has_news = selected.next_offset > unread.start
            if not has_news:
                self._check_patience(unread, waits_since)
            left[0] = unread._replace(start=selected.next_offset)
            if left[0].start >= unread.end:
                left.popleft()
            pending = self._begin(left)
            if selected.batches:
                yield Response(unread, fetched, selected)
            if has_news:
                waits_since = time.monotonic()  # Spark may have taken its time with the rows.

    def _begin(self, left: Sequence[OffsetRange]) -> Callable[[], Fetched]:
        if not left:
            return lambda: _NOTHING
        source = shown_by(left[0].target, self._broker_filter)
        return self._cluster.begin_fetch(source, left[0].start)

    def _received(
        self, pending: Callable[[], Fetched], unread: OffsetRange
    ) -> tuple[Fetched, Selected]:
        """The response, and the batches in it that are of the range."""
        try:
            fetched = pending()
            return fetched, select(
                fetched.records, start=unread.start, end=unread.end, aborted=fetched.aborted
            )
        except OutOfRange:
            return _NOTHING, Selected([], self._after_loss(unread))
        except UnknownPartition:
            report_loss(f"{unread} is gone", is_fatal=self._fails_on_data_loss)
            return _NOTHING, Selected([], unread.end)
        except CorruptMessage:
            raise DamagedRecords.on_disk(*unread[:3]) from None
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedRecords.on_the_way(*unread[:3], problem) from None

    def _decode(self, response: Response, decoder: "ValueDecoder | None") -> Iterator[Array]:
        unread, fetched, selected = response
        try:
            for data, payloads in open_batches(fetched.records, selected.batches):
                rows, values = find_rows(data, payloads).between(unread.start, unread.end), None
                if decoder is not None:
                    rows, values = decoder.decode(rows)
                if len(rows.offsets):
                    yield record_batch(unread.target, rows, self._schema, values)
        except RequestError:
            _raise_undecodable(response)
            raise

    def _after_loss(self, unread: OffsetRange) -> int:
        """Where to go on when the log does not have the start; the range's end: nowhere."""
        earliest = self._cluster.offsets({unread.target: EARLIEST})[unread.target]
        latest = self._cluster.offsets({unread.target: LATEST})[unread.target]
        if earliest <= unread.start <= latest:
            return unread.start  # Only the broker that was asked did not have it yet.
        report_loss(
            f"{unread} can't be read from offset {unread.start} on: the log has {earliest} to "
            f"{latest}",
            is_fatal=self._fails_on_data_loss,
        )
        return earliest if unread.start < earliest else unread.end

    def _check_patience(self, unread: OffsetRange, waits_since: float) -> None:
        if time.monotonic() - waits_since > self._poll_seconds_max:
            raise Unreachable(
                f"no records of {unread} came for {self._poll_seconds_max:g} s "
                "(kafkaConsumer.pollTimeoutMs)"
            )


def _raise_undecodable(response: Response) -> None:
    """Name the first batch that cannot be decoded; batches are decoded many at a time."""
    for header, at in response.selected.batches:
        try:
            for data, payloads in open_batches(response.fetched.records, [(header, at)]):
                find_rows(data, payloads)
        except RequestError as problem:
            offsets = range(header.base_offset, header.end_offset)
            raise DamagedRecords.undecodable(*response.unread[:2], offsets, problem) from problem


def _recreated(offset_range: OffsetRange) -> str:
    return (
        f"{offset_range} is gone: topic {offset_range.topic} was deleted and created anew meanwhile"
    )


def report_loss(loss: str, *, is_fatal: bool) -> None:
    """Raise `DataLoss`, or log the loss and go on, as `failOnDataLoss` says."""
    if is_fatal:
        raise DataLoss(loss)
    log.warning("data loss accepted by failOnDataLoss=false: %s", loss)

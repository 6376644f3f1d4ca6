"""Reads slices of many partitions for one request, and waits until there are enough bytes.

Owns the long poll, and the choice which partitions are read through a filter (views, filters of the
request, topics with a time to live); all others are answered with ranges of their files.
`partitions.service` says what the session may not read; a wait ends when rights have changed.

Invariant: nothing is awaited between the last look at the logs and the wait for them to move, so no
move is missed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from millstream.codec.lifetime import lifetime_of
from millstream.config import Limits
from millstream.control.catalog import VIEW_WHERE, Catalog
from millstream.engine.filters.filter import Filter, parse
from millstream.engine.filters.filtered_read import (
    BatchFinder,
    FilteredRead,
    ReadFilter,
    share_of,
)
from millstream.engine.gate import Gate
from millstream.engine.partitions.leaders import Leaders
from millstream.engine.partitions.slices import FilteredBatches, Slice, Want, read_slice
from millstream.engine.produce.unpacking import Unpacking
from millstream.errors import Denied, NotLeader, RequestError, UnknownTopic
from millstream.metrics import (
    EXPIRED_RECORDS,
    FETCH_FAILURES,
    FETCH_SECONDS,
    FILTER_READ_BYTES,
    FILTER_SKIPPED_BYTES,
    FILTERED_RECORDS,
    READ_BYTES,
    Histogram,
    Metrics,
)
from millstream.model import CONTROL_LOG, Isolation, LogId, TopicPartition
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.storage.log.cache import NotVerified
from millstream.storage.log.verifying import INLINE_BYTES_MAX

COMPILED_FILTERS_MAX = 128  # Of views; the least recently read ones are compiled again.

FILTER_FIGURES_MAX = 1_000  # Views, and topics with a filter, whose figures are kept.


class FilterFigures(NamedTuple):
    """Bytes of the log that filtered reads took, and those that an index spared them, about."""

    read_bytes: int = 0
    skipped_bytes: int = 0


# How a want is served: through a filter, not at all, or (None) from the file.
_Filtered = FilteredRead | RequestError | None


class LongPoll:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        leaders: Leaders,
        unpacking: Unpacking,
        *,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
        gate: Gate,
    ) -> None:
        self._gate = gate
        self._catalog = catalog
        self._hub = hub
        self._leaders = leaders
        self._unpacking = unpacking
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._read_bytes = metrics.counter(READ_BYTES)
        self._failures = metrics.counter(FETCH_FAILURES)
        self._seconds: dict[str, Histogram] = {}  # By protocol.
        self._filter_figures: dict[str, FilterFigures] = {}
        self._filter_of = lru_cache(maxsize=COMPILED_FILTERS_MAX)(parse)

    async def read(
        self,
        wants: Sequence[Want],
        refusals: Callable[[], Mapping[str, Denied]],
        *,
        min_bytes: int,
        bytes_max: int | None,
        deadline: float | None,
        isolation: Isolation,
        reader_filter: Filter | None,
        protocol: str,
    ) -> list[Slice]:
        """See `Partitions.read`. `refusals` are the topics that the session may not read now."""
        elapsed_s = self._metrics.elapsed_s
        began_s = elapsed_s()
        bound = self._limits.read_bytes_max
        bytes_max = bound if bytes_max is None else min(bytes_max, bound)
        loop = asyncio.get_running_loop()
        version, denied = self._gate.version, refusals()
        if self._hub.has_unopened:
            await self._awake(wants, denied)
        read_filters = self._read_filters(wants, denied, reader_filter)
        filtered_reads = self._filtered_reads(wants, read_filters)
        while True:
            active = [each for each in filtered_reads if isinstance(each, FilteredRead)]
            if active:
                await self._scan(active, bytes_max, isolation)
            slices = await self._verified_slices(
                wants, denied, filtered_reads, bytes_max, isolation
            )
            if self._gate.version != version:  # While records were verified or filtered.
                version, denied = self._gate.version, refusals()
                slices = self._without(slices, denied)
            gained, size, is_special = _sum_up(slices)
            left = -1.0 if deadline is None else deadline - loop.time()
            if active and not is_special:
                is_special = any(each.is_spent for each in active)
            is_enough = gained >= min(min_bytes, bytes_max) or left <= 0 or is_special
            if not is_enough and active and any(each.is_behind for each in active):
                continue
            waits_s = elapsed_s()
            if is_enough or not await self._moved(wants, left):
                self._count_read(slices, size, waits_s - began_s, protocol)
                return slices
            began_s += elapsed_s() - waits_s
            if self._gate.version != version:
                version, denied = self._gate.version, refusals()
            # Meanwhile the filter of a view may have changed, or the time to live of a topic: the
            # records from here on are read with the new one.
            before, read_filters = read_filters, self._read_filters(wants, denied, reader_filter)
            if read_filters != before:
                filtered_reads = self._filtered_reads(wants, read_filters)

    def _count_read(self, slices: Sequence[Slice], size: int, took_s: float, protocol: str) -> None:
        seconds = self._seconds.get(protocol)
        if seconds is None:
            seconds = self._seconds[protocol] = self._metrics.histogram(FETCH_SECONDS, protocol)
        seconds.observe(took_s)
        self._read_bytes.value += size
        for part in slices:
            if part.error is not None:
                self._failures.value += 1
            if part.records is not None and part.records.size:
                try:
                    replica = self._leaders.find(part.target)
                except RequestError:
                    continue  # The topic was deleted meanwhile.
                replica.traffic.read_bytes += part.records.size

    async def _awake(self, wants: Sequence[Want], denied: Mapping[str, Denied]) -> None:
        """Open the logs that rest, on threads: there may be many."""
        logs: list[LogId] = []
        for want in wants:
            if want.target.topic not in denied:
                with suppress(UnknownTopic):
                    logs.append(self._leaders.log_id(want.target))
        await self._hub.awake(logs)

    # -- filters -------------------------------------------------------------------------------

    def _read_filters(
        self, wants: Sequence[Want], denied: Mapping[str, Denied], reader_filter: Filter | None
    ) -> list[ReadFilter | RequestError | None]:
        read_filters: list[ReadFilter | RequestError | None] = []
        for want in wants:
            try:
                read_filter = (
                    None
                    if want.target.topic in denied
                    else self._read_filter(want.target, reader_filter)
                )
            except RequestError as problem:
                read_filters.append(problem)
            else:
                read_filters.append(read_filter)
        return read_filters

    def _filtered_reads(
        self, wants: Sequence[Want], read_filters: Sequence[ReadFilter | RequestError | None]
    ) -> list[_Filtered]:
        plain: list[_Filtered] = []
        for read_filter in read_filters:
            if isinstance(read_filter, ReadFilter):
                break
            plain.append(read_filter)
        else:
            return plain  # As nearly all reads are.
        count = sum([isinstance(read_filter, ReadFilter) for read_filter in read_filters])
        share = share_of(count)
        return [
            FilteredRead(want, read_filter, share, self._unpacking)
            if isinstance(read_filter, ReadFilter)
            else read_filter
            for want, read_filter in zip(wants, read_filters, strict=True)
        ]

    def _read_filter(
        self, target: TopicPartition, reader_filter: Filter | None
    ) -> ReadFilter | None:
        """None for a topic that is read from its files, without a look at its records."""
        replica = self._leaders.find(target)
        topic = self._catalog.find(target.topic)
        lifetime = lifetime_of(replica.log.settings)
        if topic.base_id is None and reader_filter is None and lifetime is None:
            return None
        filters = [] if reader_filter is None else [reader_filter]
        if topic.is_view:
            filters.append(self._filter_of(topic.overrides[VIEW_WHERE]))
        base = topic if topic.base_id is None else self._catalog.find_id(topic.base_id)
        return ReadFilter(base.name, tuple(filters), lifetime)

    # -- reading -------------------------------------------------------------------------------

    async def _scan(
        self, active: Sequence[FilteredRead], bytes_max: int, isolation: Isolation
    ) -> None:
        def read(want: Want, room: int, may_exceed: bool, is_one: bool) -> Slice:
            return read_slice(
                self._leaders.find_current(want.target),
                want,
                bytes_max=room,
                isolation=isolation,
                may_exceed=may_exceed,
                reads_one=is_one,
            )

        now_ms = self._clock.now_ms()
        for filtered in active:
            passed = sum(other.passed_bytes for other in active if other is not filtered)
            before = FilterFigures(filtered.read_bytes, filtered.skipped_bytes)
            await filtered.scan(
                read,
                bytes_max=max(0, bytes_max - passed),
                may_exceed=not passed,
                now_ms=now_ms,
                finder=self._finder(filtered, isolation),
            )
            self._metrics.add(EXPIRED_RECORDS, filtered.expired)
            self._metrics.add(FILTERED_RECORDS, filtered.filtered)
            filtered.expired = filtered.filtered = 0
            read_bytes = filtered.read_bytes - before.read_bytes
            self._count(filtered.topic, read_bytes, filtered.skipped_bytes - before.skipped_bytes)

    def _count(self, topic: str, read_bytes: int, skipped_bytes: int) -> None:
        self._metrics.add(FILTER_READ_BYTES, read_bytes)
        self._metrics.add(FILTER_SKIPPED_BYTES, skipped_bytes)
        figures = self._filter_figures
        known = figures.pop(topic, FilterFigures())
        figures[topic] = FilterFigures(
            known.read_bytes + read_bytes, known.skipped_bytes + skipped_bytes
        )
        if len(figures) > FILTER_FIGURES_MAX:
            del figures[next(iter(figures))]  # The one that was read longest ago.

    def filter_figures(self, topic: str) -> FilterFigures:
        return self._filter_figures.get(topic, FilterFigures())

    def _finder(self, filtered: FilteredRead, isolation: Isolation) -> BatchFinder | None:
        """None where there is no index, or none that can answer."""
        terms = filtered.terms
        if terms is None:
            return None
        try:
            replica = self._leaders.find_current(filtered.next_want.target)
        except RequestError:
            return None  # The scan meets the same problem, and reports it.
        indexer = self._hub.upkeep.indexer
        return BatchFinder(replica, terms, indexer, isolation) if indexer.has(replica) else None

    async def _verified_slices(
        self,
        wants: Sequence[Want],
        denied: Mapping[str, Denied],
        filtered_reads: Sequence[_Filtered],
        bytes_max: int,
        isolation: Isolation,
    ) -> list[Slice]:
        """Like `_slices`; long ranges that were not read since the start are verified on a thread.

        Ranges that were verified before await nothing.
        """
        while True:
            try:
                return self._slices(wants, denied, filtered_reads, bytes_max, isolation)
            except NotVerified as not_yet:
                await self._hub.verify(not_yet.work)

    def _slices(
        self,
        wants: Sequence[Want],
        denied: Mapping[str, Denied],
        filtered_reads: Sequence[_Filtered],
        bytes_max: int,
        isolation: Isolation,
    ) -> list[Slice]:
        slices = []
        has_data = False
        for want, filtered in zip(wants, filtered_reads, strict=True):
            if want.target.topic in denied:
                slices.append(Slice(want.target, error=denied[want.target.topic]))
                continue
            try:
                part = self._slice(want, filtered, bytes_max, isolation, may_exceed=not has_data)
            except RequestError as problem:
                part = Slice(want.target, error=problem)
            if part.records is not None:
                size = part.records.size
                bytes_max = max(0, bytes_max - size)
                has_data = has_data or size > 0
            slices.append(part)
        return slices

    def _slice(
        self,
        want: Want,
        filtered: _Filtered,
        bytes_max: int,
        isolation: Isolation,
        *,
        may_exceed: bool,
    ) -> Slice:
        if isinstance(filtered, RequestError):
            raise filtered
        replica = self._leaders.find_current(want.target)
        if filtered is None:
            part = read_slice(
                replica,
                want,
                bytes_max=bytes_max,
                isolation=isolation,
                may_exceed=may_exceed,
                verified_bytes_max=INLINE_BYTES_MAX,
            )
            links = replica.group_links
            if links is not None and part.records is None and not links.is_heard:
                raise NotLeader(want.target, None)  # Others may have committed more.
            return part
        if filtered.problem is not None:
            raise filtered.problem
        ahead = read_slice(
            replica, filtered.next_want, bytes_max=0, isolation=isolation, may_exceed=False
        )
        return filtered.result(ahead, replica.consensus_log.epoch_at)

    async def _moved(self, wants: Sequence[Want], seconds: float) -> bool:
        logs = [self._leaders.log_id(want.target) for want in wants]
        if self._gate.may_change:
            logs.append(CONTROL_LOG)  # A right that is taken away ends the wait.
        return await self._hub.moved(logs, seconds)

    @staticmethod
    def _without(slices: Sequence[Slice], denied: Mapping[str, Denied]) -> list[Slice]:
        return [
            Slice(part.target, error=denied[part.target.topic])
            if part.target.topic in denied
            else part
            for part in slices
        ]


def _sum_up(slices: Sequence[Slice]) -> tuple[int, int, bool]:
    """The bytes that count for a long poll, all bytes, and whether a slice must be told at once."""
    gained = size = 0
    is_special = False
    for part in slices:
        records = part.records
        if records is not None:
            size += records.size
            is_filtered = isinstance(records, FilteredBatches)
            gained += part.gained_bytes if is_filtered else records.size
        if part.error is not None or part.diverging is not None:
            is_special = True
    return gained, size, is_special

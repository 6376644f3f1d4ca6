"""Slices of many partitions for one reader: as they lie in their files, or through a sieve.

Owns the wait for enough bytes and which topics are sifted. Who may read is asked before, by
`partitions`. The one thing to know: between the last look at the logs and the wait for them to move
nothing is awaited, so no move is missed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from millstream.codec.lifetime import lifetime_of
from millstream.config import Limits
from millstream.control.catalog import VIEW_WHERE, Catalog
from millstream.engine.filters.filter import Filter, parse
from millstream.engine.filters.filtered_read import Sieve, Sifting, share_of
from millstream.engine.partitions.slices import Slice, Want, read_slice
from millstream.engine.produce.unpacking import Unpacking
from millstream.errors import Denied, RequestError
from millstream.metrics import EXPIRED_RECORDS, FILTERED_RECORDS, READ_BYTES, Metrics
from millstream.model import Isolation, LogId, TopicPartition
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica
from millstream.storage.log.cache import NotVerified
from millstream.storage.log.verifying import INLINE_BYTES_MAX

COMPILED_FILTERS_MAX = 128  # Of views; those that are read less often are compiled again.

# What stands in the place of a slice: a sifting, the reason why there is none, or None if the want
# is served from the file.
_Sifts = Sifting | RequestError | None


class Readers:
    def __init__(
        self,
        catalog: Catalog,
        hub: Hub,
        settled: Callable[[TopicPartition], Replica],
        unpacking: Unpacking,
        *,
        limits: Limits,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._hub = hub
        self._settled = settled
        self._unpacking = unpacking
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._filter_of = lru_cache(maxsize=COMPILED_FILTERS_MAX)(parse)

    async def read(
        self,
        wants: Sequence[Want],
        denied: Mapping[str, Denied],
        *,
        min_bytes: int,
        bytes_max: int | None,
        deadline: float | None,
        isolation: Isolation,
        wanted: Filter | None,
    ) -> list[Slice]:
        """See `Partitions.read`."""
        bound = self._limits.read_bytes_max
        bytes_max = bound if bytes_max is None else min(bytes_max, bound)
        loop = asyncio.get_running_loop()
        sieves = self._sieves(wants, denied, wanted)
        sifts = self._sifts(wants, sieves)
        while True:
            siftings = [one for one in sifts if isinstance(one, Sifting)]
            if siftings:
                await self._scan(siftings, bytes_max, isolation)
            slices = await self._verified_slices(wants, denied, sifts, bytes_max, isolation)
            gained = sum(part.gained_bytes for part in slices)
            left = -1.0 if deadline is None else deadline - loop.time()
            is_special = any(part.error or part.diverging for part in slices) or any(
                one.is_spent for one in siftings
            )
            is_enough = gained >= min(min_bytes, bytes_max) or left <= 0 or is_special
            if not is_enough and any(one.is_behind for one in siftings):
                continue
            if is_enough or not await self._moved(wants, left):
                self._metrics.add(READ_BYTES, sum(part.size for part in slices))
                return slices
            # Meanwhile a view may have been told to show something else, or a topic that its
            # records end: what comes from there on is seen with those eyes.
            before, sieves = sieves, self._sieves(wants, denied, wanted)
            if sieves != before:
                sifts = self._sifts(wants, sieves)

    # -- what is sifted ------------------------------------------------------------------------

    def _sieves(
        self, wants: Sequence[Want], denied: Mapping[str, Denied], wanted: Filter | None
    ) -> list[Sieve | RequestError | None]:
        sieves: list[Sieve | RequestError | None] = []
        for want in wants:
            try:
                sieve = None if want.target.topic in denied else self._sieve(want.target, wanted)
            except RequestError as problem:
                sieves.append(problem)
            else:
                sieves.append(sieve)
        return sieves

    def _sifts(
        self, wants: Sequence[Want], sieves: Sequence[Sieve | RequestError | None]
    ) -> list[_Sifts]:
        share = share_of(sum(isinstance(sieve, Sieve) for sieve in sieves))
        return [
            Sifting(want, sieve, share, self._unpacking) if isinstance(sieve, Sieve) else sieve
            for want, sieve in zip(wants, sieves, strict=True)
        ]

    def _sieve(self, target: TopicPartition, wanted: Filter | None) -> Sieve | None:
        """None for a topic that is read as it is, which costs nothing."""
        topic = self._catalog.find(target.topic)
        replica = self._hub.find(topic.log(target.partition))
        lifetime = lifetime_of(replica.log.records.settings)
        if not topic.is_view and wanted is None and lifetime is None:
            return None
        filters = [] if wanted is None else [wanted]
        if topic.is_view:
            filters.append(self._filter_of(topic.overrides[VIEW_WHERE]))
        base = topic if topic.base_id is None else self._catalog.find_id(topic.base_id)
        return Sieve(base.name, tuple(filters), lifetime)

    # -- reading -------------------------------------------------------------------------------

    async def _scan(
        self, siftings: Sequence[Sifting], bytes_max: int, isolation: Isolation
    ) -> None:
        def read(want: Want, room: int, may_exceed: bool) -> Slice:
            return read_slice(
                self._settled(want.target),
                want,
                bytes_max=room,
                isolation=isolation,
                may_exceed=may_exceed,
            )

        now_ms = self._clock.now_ms()
        for one in siftings:
            passed = sum(other.passed_bytes for other in siftings if other is not one)
            await one.scan(
                read, bytes_max=max(0, bytes_max - passed), may_exceed=not passed, now_ms=now_ms
            )
            self._metrics.add(EXPIRED_RECORDS, one.expired)
            self._metrics.add(FILTERED_RECORDS, one.filtered)
            one.expired = one.filtered = 0

    async def _verified_slices(
        self,
        wants: Sequence[Want],
        denied: Mapping[str, Denied],
        sifts: Sequence[_Sifts],
        bytes_max: int,
        isolation: Isolation,
    ) -> list[Slice]:
        """Like `_slices`; long ranges that were not read since the start are verified on a thread.

        For what was verified before nothing is awaited.
        """
        while True:
            try:
                return self._slices(wants, denied, sifts, bytes_max, isolation)
            except NotVerified as not_yet:
                await self._hub.verify(not_yet.work)

    def _slices(
        self,
        wants: Sequence[Want],
        denied: Mapping[str, Denied],
        sifts: Sequence[_Sifts],
        bytes_max: int,
        isolation: Isolation,
    ) -> list[Slice]:
        slices = []
        has_data = False
        for want, sifting in zip(wants, sifts, strict=True):
            if want.target.topic in denied:
                slices.append(Slice(want.target, error=denied[want.target.topic]))
                continue
            try:
                part = self._slice(want, sifting, bytes_max, isolation, may_exceed=not has_data)
            except RequestError as problem:
                part = Slice(want.target, error=problem)
            bytes_max = max(0, bytes_max - part.size)
            has_data = has_data or part.size > 0
            slices.append(part)
        return slices

    def _slice(
        self,
        want: Want,
        sifts: _Sifts,
        bytes_max: int,
        isolation: Isolation,
        *,
        may_exceed: bool,
    ) -> Slice:
        if isinstance(sifts, RequestError):
            raise sifts
        replica = self._settled(want.target)
        if sifts is None:
            return read_slice(
                replica,
                want,
                bytes_max=bytes_max,
                isolation=isolation,
                may_exceed=may_exceed,
                verified_bytes_max=INLINE_BYTES_MAX,
            )
        if sifts.problem is not None:
            raise sifts.problem
        ahead = read_slice(
            replica, sifts.next_want, bytes_max=0, isolation=isolation, may_exceed=False
        )
        return sifts.told(ahead)

    async def _moved(self, wants: Sequence[Want], seconds: float) -> bool:
        return await self._hub.moved([self._log(want.target) for want in wants], seconds)

    def _log(self, target: TopicPartition) -> LogId:
        return self._catalog.find(target.topic).log(target.partition)

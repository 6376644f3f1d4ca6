"""Reading through a sieve: views, filters of readers, and records whose time is over.

Owns what is left of batches on their way to one reader, and how much is looked at for one request.
Offsets do not move. A stretch in which nothing passes ends with a waymark, a control batch that
takes its last offset: every Kafka client steps over those and goes on behind, while an empty batch
makes librdkafka ask for larger answers and kafkajs jump to the end. A request looks at no more
than `SCAN_BYTES_MAX`, for no longer than `SCAN_S_MAX`; what it found by then is the answer, so
readers always move.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from millstream.codec.batch import Header, read_header, verify
from millstream.codec.lifetime import Lifetime
from millstream.codec.records import ControlKind, Record, control_batch, filter_steps
from millstream.codec.scanning import NO_NEEDLES, Needles, open_small
from millstream.cooperative import all_at_once
from millstream.engine.filters.filter import Filter
from millstream.engine.partitions.slices import ANY_EPOCH, Sifted, Slice, Want
from millstream.engine.produce.unpacking import Unpacking
from millstream.errors import (
    CorruptBatch,
    DamagedLog,
    InvalidBatch,
    RequestError,
    StorageError,
    StorageUnavailable,
)
from millstream.model import Offset
from millstream.storage.log.aborted import Aborted
from millstream.storage.log.segment import FileRange

SCAN_BYTES_MAX = 8 * 2**20  # For one request; shared by the partitions that are sifted for it.
SCAN_BYTES_MIN = 256 * 2**10  # A partition's share, however many there are.
SCAN_S_MAX = 0.25  # The same in time. The batch that is being looked at is finished.
SCAN_S_MIN = 0.01
CHUNK_BYTES = 128 * 2**10  # Read at once.
TURN_S = 0.001  # How long others wait for their turn.

ReadChunk = Callable[[Want, int, bool], Slice]  # How many bytes, and whether more if need be.


class Sieve(NamedTuple):
    """What a reader is shown of a topic."""

    topic: str  # Whose name is the subject of records that name none.
    filters: tuple[Filter, ...] = ()
    lifetime: Lifetime | None = None

    def at(self, now_ms: int, ended: Callable[[], object]) -> Callable[[Record], bool]:
        """Whether a record passes at that time; `ended` is called for one whose time is over."""
        topic, filters, lifetime = self.topic, self.filters, self.lifetime
        if lifetime is None and len(filters) == 1:
            matches = filters[0].matches
            return lambda record: matches(record, topic)

        def passes(record: Record) -> bool:
            if lifetime is not None and lifetime.ends_ms(record) <= now_ms:
                ended()
                return False
            return all(one.matches(record, topic) for one in filters)

        return passes

    @property
    def needles(self) -> Needles:
        """Those of one filter: all must be passed."""
        return next((one.needles for one in self.filters if one.needles.texts), NO_NEEDLES)

    def glance(self, header: Header, data: bytes, now_ms: int) -> bool | None:
        """Whether all records in the bytes of a batch pass, or none; None if each must be seen."""
        if not all(one.may_match(data) for one in self.filters):
            return False
        lifetime = self.lifetime
        if self.filters or (lifetime and not lifetime.none_has_ended(header, data, now_ms)):
            return None
        return True


class Share(NamedTuple):
    """How much one partition may look at for a request."""

    bytes_max: int
    seconds_max: float


def share_of(count: int) -> Share:
    """What each of so many partitions gets."""
    return Share(
        max(SCAN_BYTES_MIN, SCAN_BYTES_MAX // max(1, count)),
        max(SCAN_S_MIN, SCAN_S_MAX / max(1, count)),
    )


class Sifting:
    """One want on its way through a sieve: how far it has come, and what has passed."""

    def __init__(self, want: Want, sieve: Sieve, share: Share, unpacking: Unpacking) -> None:
        self.is_spent = False  # No more is looked at for this request.
        self.is_behind = False  # The log has moved since it was looked at.
        self.problem: RequestError | None = None
        self.passed_bytes = 0
        self.expired = 0  # Records that were not shown, since these were counted last.
        self.filtered = 0
        self._want = want
        self._sieve = sieve
        self._left = share.bytes_max
        self._seconds_max = share.seconds_max
        self._unpacking = unpacking
        self._passed: list[bytes] = []
        self._passed_end = want.offset
        self._offset = want.offset
        self._last: Header | None = None  # The batch that was looked at last.
        self._aborted: dict[Aborted, None] = {}
        self._seen: tuple[Offset, Offset] | None = None

    @property
    def next_want(self) -> Want:
        """What comes next in the log; only at first it is asked which past the reader has."""
        if self._offset == self._want.offset:
            return self._want
        return self._want._replace(offset=self._offset, last_epoch=ANY_EPOCH)

    async def scan(self, read: ReadChunk, *, bytes_max: int, may_exceed: bool, now_ms: int) -> None:
        """Look at what is there until there is enough, the end is reached or the work is done.

        With `may_exceed` at least one batch passes if there is one, however large.
        """
        limit = min(self._want.bytes_max, bytes_max)
        turn = _Turn(self._seconds_max)
        try:
            while not self.is_spent:
                room = max(0, min(CHUNK_BYTES, limit - self.passed_bytes))
                part = read(self.next_want, room, may_exceed and not self._passed)
                self._seen = part.high_watermark, part.last_stable_offset
                if part.records is None:
                    return
                self._aborted.update(dict.fromkeys(part.aborted))
                await self._sift(part.records, now_ms, turn)
        except StorageError as problem:
            self.problem = StorageUnavailable(str(problem))
        except RequestError as problem:
            self.problem = problem

    def told(self, ahead: Slice) -> Slice:
        """What the reader is told, with the state of the log as `ahead` has it."""
        self.is_behind = self._seen != (ahead.high_watermark, ahead.last_stable_offset)
        chunks = list(self._passed)
        if self._offset > self._passed_end:
            chunks.append(self._waymark())
        if not chunks:
            return ahead._replace(records=None)
        sifted = Sifted(b"".join(chunks), self.passed_bytes, self._want.offset, self._offset)
        return ahead._replace(records=sifted, aborted=tuple(self._aborted))

    async def _sift(self, found: FileRange | Sifted, now_ms: int, turn: "_Turn") -> None:
        for header, batch in _batches(found.read()):
            await self._take(header, batch, now_ms, turn)
            self._offset = header.end_offset
            if self._left <= 0 or turn.is_over:
                self.is_spent = True
                return
        self._offset = found.end_offset

    async def _take(self, header: Header, batch: memoryview, now_ms: int, turn: "_Turn") -> None:
        self._last = header
        self._left -= header.size
        kept = bytes(batch) if header.is_control else None
        if header.count and not header.is_control:
            expired = self.expired
            kept = await self._kept(header, batch, now_ms, turn)
            lost = header.count - (0 if kept is None else read_header(kept).count)
            self.filtered += lost - (self.expired - expired)
        if kept is not None:
            self._passed.append(kept)
            self.passed_bytes += len(kept)
            self._passed_end = read_header(kept).end_offset
        await turn.give()

    async def _kept(
        self, header: Header, batch: memoryview, now_ms: int, turn: "_Turn"
    ) -> bytes | None:
        sieve = self._sieve
        if sieve.lifetime is not None and sieve.lifetime.all_have_ended(header, now_ms):
            self.expired += header.count
            return None

        def glance(data: bytes) -> bool | None:
            self._left -= len(data)  # What is packed costs as much as it holds.
            return sieve.glance(header, data, now_ms)

        bytes_max = self._unpacking.bytes_max
        make_steps = partial(
            filter_steps,
            batch,
            sieve.at(now_ms, self._ended),
            decompressed_bytes_max=bytes_max,
            glance=glance,
            needles=sieve.needles,
            trims=True,  # librdkafka commits what stands behind records, and waymarks, not batches.
        )
        try:
            opened = open_small(batch, 0, bytes_max)
            if opened is None:
                kept = await self._unpacking.run(
                    lambda: all_at_once(make_steps()), packed_bytes=header.size
                )
                turn.begin()
                return kept
            steps = make_steps(opened=opened)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    result: bytes | None = end.value
                    return result
                await turn.give()
        except RequestError as problem:
            # The checksum is right, so a producer wrote this. No filter can say yes to it, and
            # its records may not be shown unseen. Without a filter only their age is unknown.
            if not sieve.filters:
                return bytes(batch)
            target = self._want.target
            self._unpacking.report("filter", target, header.base_offset, problem)
            return None

    def _ended(self) -> None:
        self.expired += 1

    def _waymark(self) -> bytes:
        last = self._last
        assert last is not None
        return control_batch(
            ControlKind.COMMIT,
            producer_id=-1,  # Nobody's transaction.
            producer_epoch=-1,
            coordinator_epoch=0,
            timestamp=last.max_timestamp,
            base_offset=self._offset - 1,
            epoch=last.epoch,  # A reader shows it with its next request.
        )


class _Turn:
    """Lets others run when this one has had its time, and knows when it has had enough of it."""

    def __init__(self, seconds_max: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + seconds_max
        self._until = self._loop.time() + TURN_S

    @property
    def is_over(self) -> bool:
        return self._loop.time() >= self._ends

    async def give(self) -> None:
        if self._loop.time() >= self._until:
            await asyncio.sleep(0)
            self.begin()

    def begin(self) -> None:
        """Others have just had theirs."""
        self._until = self._loop.time() + TURN_S


def _batches(data: bytes) -> Iterator[tuple[Header, memoryview]]:
    view = memoryview(data)
    at = 0
    while at < len(data):
        try:
            header = verify(data, at)
        except (CorruptBatch, InvalidBatch) as problem:
            raise DamagedLog(f"a batch is not what was written: {problem}") from problem
        yield header, view[at : at + header.size]
        at += header.size

"""A log that is compacted, with a model beside it that forgets nothing.

`CompactedLog` writes to both and reads the log the way a consumer does: in small fetches, filtering
aborted transactions by the list that comes with each. `check` says what must hold at any moment.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from millstream.codec.batch import Header, read_header, verify_batches
from millstream.codec.compression import Codec
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, decode_marker, encode_marker
from millstream.codec.records import Record, decode_all
from millstream.config import Limits
from millstream.model import Boundary, Epoch, ReplicaId
from millstream.ports import Files
from millstream.settings import CleanupPolicy, TopicSettings
from millstream.storage.compaction.driver import Compactor
from millstream.storage.log.cache import LogCache
from millstream.storage.log.log import Log
from millstream.storage.log.recovery import open_log
from tests.support.sealed import sealer_if_sealing

T = TypeVar("T")

DIRECTORY = "logs/compacted"
RETENTION_MS = 1_000
SETTINGS = TopicSettings(
    cleanup_policy=CleanupPolicy.COMPACT,
    segment_bytes=2_000,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
    index_interval_bytes=64,
)
VOTERS = frozenset({ReplicaId(1)})
BYTES_MAX = 2**20


class InlineThreads:
    """Implements `ports.Threads` without any: the work is done when it is asked for."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")


def sync(log: Log) -> None:
    work = log.begin_sync()
    if work is not None:
        work()
        log.end_sync()


@dataclass
class Written:
    """A record as it was written; `is_visible` is None while its transaction is open."""

    record: Record
    is_visible: bool | None


@dataclass
class Model:
    written: list[Written] = field(default_factory=list)
    open: dict[int, list[Written]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    last_batches: dict[int, Header] = field(default_factory=dict)
    epoch_ends: dict[int, int] = field(default_factory=dict)

    def committed(self, start: int, end: int) -> list[Record]:
        return [
            record.record
            for record in self.written
            if record.is_visible and start <= record.record.offset < end
        ]


def latest(records: list[Record]) -> dict[bytes, bytes]:
    """What a table built from these records holds."""
    table: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


class CompactedLog:
    def __init__(self, files: Files, *, settings: TopicSettings = SETTINGS) -> None:
        self.files = files
        self.settings = settings
        self.model = Model()
        self.now_ms = 1_000_000
        self.boundaries = [Boundary(Epoch(1), 0, VOTERS)]
        self.start_offset = 0
        self.log = self._open()
        self.cleaned_at: dict[int, int] = {}  # When a tombstone was first part of a run.

    # -- writing -----------------------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        return self.boundaries[-1].epoch

    @property
    def stable_end(self) -> int:
        return self.log.producers.last_stable_offset(self.log.end_offset)

    def produce(
        self,
        *pairs: tuple[str | None, str | None],
        producer_id: int = -1,
        transactional: bool = False,
        codec: Codec = Codec.NONE,
    ) -> None:
        at = self.log.end_offset
        collected = [
            Record(
                at + n,
                self.now_ms + n,
                None if key is None else key.encode(),
                None if value is None else value.encode(),
            )
            for n, (key, value) in enumerate(pairs)
        ]
        model = self.model
        sequence = -1 if producer_id < 0 else model.sequences.get(producer_id, 0)
        data = encode_batch(
            collected,
            base_offset=at,
            epoch=self.epoch,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        header = self._append(data)
        written = [Written(record, None if transactional else True) for record in collected]
        model.written += written
        if producer_id >= 0:
            model.sequences[producer_id] = sequence + len(collected)
            model.last_batches[producer_id] = header
        if transactional:
            model.open.setdefault(producer_id, []).extend(written)

    def end(self, producer_id: int, kind: ControlKind) -> None:
        self._append(
            encode_marker(
                kind,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=self.now_ms,
                base_offset=self.log.end_offset,
                epoch=self.epoch,
            )
        )
        for written in self.model.open.pop(producer_id, []):
            written.is_visible = kind is ControlKind.COMMIT

    def open_epoch(self) -> None:
        self.boundaries.append(Boundary(Epoch(self.epoch + 1), self.log.end_offset, VOTERS))

    def seal(self) -> None:
        self.log.roll()
        sync(self.log)

    def advance_start(self, start_offset: int) -> None:
        self.log.advance_start(start_offset)
        self.start_offset = self.log.start_offset
        sync(self.log)

    # -- compacting and restarting -----------------------------------------------------------------

    def compact(
        self,
        *,
        keys_bytes_max: int = BYTES_MAX,
        durable: Callable[[], Awaitable[None]] | None = None,
    ) -> bool:
        """One run over everything that is stable."""

        async def synced() -> None:
            sync(self.log)

        self.compactor._limits = Limits(compaction_keys_bytes_max=keys_bytes_max)
        is_done = finish(
            self.compactor.run(
                InlineThreads(),
                durable=durable or synced,
                now_ms=self.now_ms,
                limit_offset=self.stable_end,
            )
        )
        self.note_tombstones(self.clean_end)
        return is_done

    def restart(self, *, is_clean: bool = False, has_snapshots: bool = True) -> None:
        if is_clean:
            self.log.close()
        else:
            sync(self.log)
            self.log.abandon()
        if not has_snapshots:
            for name in self.files.list(DIRECTORY):
                if name.endswith(".producers"):
                    self.files.remove(f"{DIRECTORY}/{name}")
        self.log = self._open()

    def reopen(self) -> None:
        """Open what is on the disk, whatever became of the process that wrote it."""
        self.log = self._open()

    @property
    def clean_end(self) -> int:
        memory = self.compactor._memory
        return memory.cleaned.end_offset if memory is not None else 0

    # -- reading -----------------------------------------------------------------------------------

    def read_committed(self, offset: int, *, bytes_max: int = BYTES_MAX) -> list[Record]:
        """What a consumer gets who reads to the stable end, fetch by fetch."""
        collected: list[Record] = []
        end = self.stable_end
        while (data := self.log.read(offset, bytes_max=bytes_max, end_offset=end)) is not None:
            aborted = self.log.producers.aborted(offset, data.end_offset)
            batches = list(_split(data.read()))
            collected += _deliver(
                batches, [(a.first_offset, a.producer_id) for a in aborted], offset
            )
            offset = data.end_offset
        return collected

    def batches(self) -> list[tuple[Header, bytes]]:
        data = self.log.read(self.log.start_offset, bytes_max=2**30, end_offset=self.log.end_offset)
        collected: list[tuple[Header, bytes]] = []
        while data is not None:
            collected += _split(data.read())
            data = self.log.read(data.end_offset, bytes_max=2**30, end_offset=self.log.end_offset)
        return collected

    # -- what must hold ----------------------------------------------------------------------------

    def check(self) -> None:
        self.check_reading(self.start_offset)
        self.check_places()
        self.check_producers()
        self.check_tombstones()

    def check_reading(self, offset: int, *, bytes_max: int = BYTES_MAX) -> None:
        """A reader sees records that were written and committed, in order, and of each key the
        newest. What is missing was superseded, or deleted for good."""
        records = self.read_committed(offset, bytes_max=bytes_max)
        committed = self.model.committed(offset, self.stable_end)
        by_offset = {record.offset: record for record in committed}

        assert [record.offset for record in records] == sorted({r.offset for r in records})
        assert all(by_offset.get(record.offset) == record for record in records)
        assert latest(records) == latest(committed)

    def check_places(self) -> None:
        """Ends of epochs and of the log have not moved."""
        ends: dict[int, int] = {}
        offset = -1
        for header, _ in self.batches():
            assert header.base_offset > offset
            offset = header.last_offset
            ends[header.epoch] = header.end_offset
        for epoch, end in ends.items():
            assert end == self.model.epoch_ends[epoch]
        kept = [e for e, end in self.model.epoch_ends.items() if end > self.start_offset]
        assert sorted(ends) == sorted(kept)

    def check_producers(self) -> None:
        """Every producer's last batch is known, so that sending it again is no second copy."""
        for header in self.model.last_batches.values():
            if header.base_offset >= self.start_offset:
                first = self.log.producers.check(header)
                assert first is not None
                assert (first.base_offset, first.end_offset) == header_range(header)

    def check_tombstones(self) -> None:
        """The newest record of a key stays until its horizon, also if it is a tombstone."""
        there = {record.offset for record in self.read_committed(self.start_offset)}
        for record in self._newest_tombstones():
            cleaned_ms = self.cleaned_at.get(record.offset)
            if cleaned_ms is None or self.now_ms < cleaned_ms + RETENTION_MS:
                assert record.offset in there

    def note_tombstones(self, end_offset: int) -> None:
        """Tombstones below `end_offset` have been cleaned, and may have got their horizon."""
        for record in self._newest_tombstones():
            if record.offset < end_offset:
                self.cleaned_at.setdefault(record.offset, self.now_ms)

    # -- parts -------------------------------------------------------------------------------------

    def _append(self, data: bytes) -> Header:
        header = read_header(data)
        self.log.append([data], [header], now_ms=self.now_ms)
        self.model.epoch_ends[header.epoch] = header.end_offset
        return header

    def _open(self) -> Log:
        log = open_log(
            self.files,
            DIRECTORY,
            settings=self.settings,
            cache=LogCache(index_bytes_max=2**20, open_files_max=100),
            start_offset=self.start_offset,
            boundaries=self.boundaries,
            decompressed_bytes_max=2**26,
            sealer=sealer_if_sealing(DIRECTORY),
        )
        self.compactor = Compactor(log, self.files, Limits())
        return log

    def _newest_tombstones(self) -> list[Record]:
        newest: dict[bytes, Record] = {}
        for record in self.model.committed(self.start_offset, self.stable_end):
            if record.key is not None:
                newest[record.key] = record
        return [record for record in newest.values() if record.value is None]


def header_range(header: Header) -> tuple[int, int]:
    return header.base_offset, header.end_offset


def _split(data: bytes) -> Iterator[tuple[Header, bytes]]:
    at = 0
    for header in verify_batches(data):
        yield header, data[at : at + header.size]
        at += header.size


def _deliver(
    batches: list[tuple[Header, bytes]], aborted: list[tuple[int, int]], offset: int
) -> list[Record]:
    """As the Java consumer does: the list says who starts to be aborted, markers say who stops."""
    waiting = sorted(aborted)
    dropped: set[int] = set()
    collected: list[Record] = []
    for header, data in batches:
        while waiting and waiting[0][0] <= header.last_offset:
            dropped.add(waiting.pop(0)[1])
        if header.is_control:
            if header.count and decode_marker(data).kind is ControlKind.ABORT:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            collected += decode_all(data, decompressed_bytes_max=BYTES_MAX)
    return [record for record in collected if record.offset >= offset]

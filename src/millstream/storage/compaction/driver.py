"""Compacts one log, run after run, while the log is in use.

Owns when there is something to do, the order of steps that makes every moment safe, and the memory
of how far the log is clean. Belongs to the event loop; only the reading and writing goes to a
thread.

Invariant: each rewritten segment is swapped in and made durable before the next one is begun,
oldest first, and the result of the run counts only after all of them.

The memory is a small file beside the segments. It names its segments, so that it is not used for
others: were it wrong, a tombstone could go before the value it deletes. Losing it costs a run over
the whole log, nothing else.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import msgspec
from fastcrc import crc32

from millstream.codec.lifetime import lifetime_of
from millstream.config import Limits
from millstream.errors import DamagedLog, storage_error
from millstream.model import Offset
from millstream.ports import Files, Threads
from millstream.storage.compaction.policy import (
    Cleaned,
    CompactionRange,
    SegmentFacts,
    compaction_range,
    rewrites,
)
from millstream.storage.compaction.rules import ProducerEnd, RulesContext
from millstream.storage.compaction.run import Compaction, CompactionPlan, Rewritten
from millstream.storage.files.replacing import try_replace_file
from millstream.storage.log.aborted import Aborted
from millstream.storage.log.log import Log
from millstream.storage.log.producers import FrozenProducers
from millstream.storage.log.segment import Segment

MEMORY = "compacted"

_CRC_BYTES = 4

_log = logging.getLogger(__name__)


class _Memory(msgspec.Struct, array_like=True, frozen=True):
    cleaned: Cleaned
    segments: tuple[SegmentFacts, ...]  # All that begin below the clean end.


_NOTHING = _Memory(Cleaned(), ())


class _ProducersBefore(NamedTuple):
    """What a run asks of a log's producers."""

    aborted: list[Aborted]  # That begin before the end of the run.
    ends: dict[int, ProducerEnd]


class Compactor:
    """One run at a time. The log must stay open until a run has ended, or its thread has."""

    def __init__(self, log: Log, files: Files, limits: Limits) -> None:
        self._log = log
        self._files = files
        self._limits = limits
        self._memory: _Memory | None = None

    async def run(
        self,
        threads: Threads,
        *,
        durable: Callable[[], Awaitable[None]],
        now_ms: int,
        limit_offset: Offset,
    ) -> bool:
        """Compact if it is worth it; True if a run was completed.

        False if there is nothing to do yet, or the log changed meanwhile: try later. `durable`
        returns when a sync round that began after the call has ended. `limit_offset` is the last
        stable offset. Raises `StorageError`: on `NoSpace` try later, after anything else this log
        must not be trusted.
        """
        log = self._log
        if not rewrites(log.settings) or log.is_held or not self._sound():
            return False
        if self._memory is None:
            self._memory = await threads.run(self._load)
        cleaned = self._cleaned()
        due = compaction_range(
            [facts(segment) for segment in self._sound()],
            cleaned=cleaned,
            limit_offset=limit_offset,
            now_ms=now_ms,
            settings=log.settings,
        )
        if due is None or not await self._verify(threads, due.end_offset, again=False):
            return False
        size_before = log.health().size_bytes
        state = log.producers.freeze()
        producers = await threads.run(lambda: _producers_before(state, due.end_offset))
        compaction = Compaction(self._plan(due, now_ms, producers), self._files)
        while (rewritten := await self._step(threads, compaction, due.end_offset)) is not None:
            await self._give_up_index(threads, rewritten.old)
            if log.replace(rewritten.old, rewritten.new):
                await durable()
            elif rewritten.old[-1].end_offset > log.start_offset:
                return False
        outcome = compaction.outcome
        await self._forget(threads, outcome.forgotten)
        end_offset = outcome.end_offset
        self._memory = _Memory(
            Cleaned(end_offset, outcome.due_ms),
            tuple(facts(segment) for segment in log.sealed() if segment.base_offset < end_offset),
        )
        await threads.run(self._save)
        _log.info(
            "compacted directory=%s from=%d to=%d bytes_before=%d bytes_after=%d",
            log.directory,
            due.dirty_start,
            end_offset,
            size_before,
            log.health().size_bytes,
        )
        return True

    async def _forget(self, threads: Threads, forgotten: Sequence[Aborted]) -> None:
        """Drop aborted transactions of which no record is left; 0.4 s of work for a million."""
        while forgotten:
            frozen = self._log.producers.freeze_aborted()
            columns = await threads.run(partial(frozen.without, forgotten))
            if self._log.producers.replace_aborted(frozen, columns):
                return

    async def _give_up_index(self, threads: Threads, old: Sequence[Segment]) -> None:
        make_durable = self._log.begin_replace(old)
        try:
            await threads.run(make_durable)
        except OSError as problem:
            raise storage_error(problem, self._log.directory) from problem

    async def _step(
        self, threads: Threads, compaction: Compaction, end_offset: Offset
    ) -> Rewritten | None:
        try:
            return await threads.run(compaction.step)
        except DamagedLog:
            # It was sound a while ago. All of it is verified again, so that the damage is named.
            await self._verify(threads, end_offset, again=True)
            raise

    def _sound(self) -> list[Segment]:
        """What may be rewritten: damage is never copied, and never left out in silence."""
        return list(takewhile(lambda segment: not segment.damage, self._log.sealed()))

    async def _verify(self, threads: Threads, end_offset: Offset, *, again: bool) -> bool:
        """Verify the segments to be rewritten; False if one is damaged."""
        segments = [segment for segment in self._sound() if segment.end_offset <= end_offset]
        for segment in segments:
            work = self._log.verification(segment, again=again)
            if work is not None:
                await threads.run(work.run)
                work.finish()
        return not any(segment.damage for segment in segments)

    def _plan(
        self, due: CompactionRange, now_ms: int, producers: "_ProducersBefore"
    ) -> CompactionPlan:
        log, settings = self._log, self._log.settings
        segments = [segment for segment in self._sound() if segment.end_offset <= due.end_offset]
        context = RulesContext(
            start_offset=log.start_offset,
            dirty_start=due.dirty_start,
            now_ms=now_ms,
            delete_retention_ms=settings.delete_retention_ms,
            compacts=settings.cleanup_policy.compacts,
            lifetime=lifetime_of(settings),
            size_bytes=sum(segment.size for segment in segments),
            aborted=producers.aborted,
            producer_ends=producers.ends,
            decompressed_bytes_max=self._limits.batch_decompressed_bytes_max,
        )
        return CompactionPlan(
            directory=log.directory,
            segments=segments,
            contents=[log.opened(segment) for segment in segments],
            context=context,
            segment_bytes=settings.segment_bytes,
            index_interval_bytes=settings.index_interval_bytes,
            keys_bytes_max=self._limits.compaction_keys_bytes_max,
            sealer=log.sealer,
        )

    def _cleaned(self) -> Cleaned:
        """How far the log is clean: over the segments that are unchanged since the last run.

        Retention may have taken the first of them. A restart makes the last one active again.
        """
        assert self._memory is not None
        cleaned, known = self._memory.cleaned, self._memory.segments
        held = [facts(segment) for segment in self._log.sealed()]
        if not held or held[0] not in known:
            return Cleaned()
        end_offset = 0
        for now, before in zip(held, known[known.index(held[0]) :], strict=False):
            if now != before:
                break
            end_offset = now.end_offset
        return Cleaned(min(end_offset, cleaned.end_offset), cleaned.due_ms)

    def _load(self) -> _Memory:
        path = f"{self._log.directory}/{MEMORY}"
        try:
            if not self._files.exists(path):
                return _NOTHING
            file = self._files.open(path)
            return _decode(file.read(0, file.size()))
        except OSError as problem:
            raise storage_error(problem, path) from problem
        except DamagedLog as problem:
            _log.warning("compaction starts over path=%s reason=%s", path, problem)
            return _NOTHING

    def _save(self) -> None:
        assert self._memory is not None
        path = f"{self._log.directory}/{MEMORY}"
        try:
            try_replace_file(self._files, path, [_encode(self._memory)])
        except OSError as problem:
            raise storage_error(problem, path) from problem


def _producers_before(state: FrozenProducers, end_offset: Offset) -> _ProducersBefore:
    """Blocks: a second for a million aborted transactions.

    All transactions below the end have ended when the state is frozen. A producer that writes
    later keeps one batch more than it must.
    """
    ends = {
        producer_id: ProducerEnd(last_offset, epoch)
        for producer_id, last_offset, epoch in state.last_batches()
    }
    return _ProducersBefore(state.aborted.before(end_offset), ends)


def facts(segment: Segment) -> SegmentFacts:
    """What `cleaner` asks of a segment."""
    return SegmentFacts(
        segment.base_offset, segment.end_offset, segment.size, segment.max_timestamp
    )


def _encode(memory: _Memory) -> bytes:
    body = msgspec.msgpack.encode(memory)
    return crc32.iscsi(body).to_bytes(_CRC_BYTES, "big") + body


def _decode(data: bytes) -> _Memory:
    crc, body = data[:_CRC_BYTES], data[_CRC_BYTES:]
    if len(data) < _CRC_BYTES or crc32.iscsi(body) != int.from_bytes(crc, "big"):
        raise DamagedLog("it fails its checksum")
    try:
        return msgspec.msgpack.decode(body, type=_Memory)
    except msgspec.DecodeError as problem:
        raise DamagedLog(f"it is not readable: {problem}") from problem

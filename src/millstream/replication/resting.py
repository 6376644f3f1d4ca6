"""Logs that are as the last orderly stop left them: not opened before they are used.

Owns which logs rest, and until when. A start then costs nothing for a log that nothing happens to,
also after a kill: a log is written only in an epoch that this node has opened since, and the
journal has that epoch's boundary. What operators ask of a resting log is known from the stop.

Invariant: a log that rests has no replica. It is opened, and verified, on first use: `Hub.get` and
`Hub.awake`. A log wakes by itself when its records are due. A log that was taken from rest is
`waking` until it is led: requests that meet it there wait for it, instead of being refused.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Sized
from dataclasses import asdict
from functools import lru_cache
from heapq import heappop, heappush

import msgspec
from fastcrc import crc32

from millstream.config import Config
from millstream.errors import CorruptBatch, InvalidBatch
from millstream.model import NO_EPOCH, AtRest, CleanEnd, Epoch, LastStop, LogId, Offset
from millstream.ports import Clock, Files
from millstream.replication.opening import SCANNED_BYTES_MAX, Opening, log_directory
from millstream.replication.replica import Replica
from millstream.settings import TopicSettings
from millstream.storage.compaction.driver import facts
from millstream.storage.compaction.policy import next_due_ms, retention_start, rewrites
from millstream.storage.log.health import LogHealth
from millstream.storage.log.segment import LOG, file_path, verify_range

# Each segment costs the opening of two files, which may happen on the event loop.
SEGMENTS_MAX = 8


class Resting:
    def __init__(self, voters: Sized, last_stop: LastStop) -> None:
        """`voters` are those of the cluster: with others a node has to be heard, so none rests."""
        self._is_alone = len(voters) == 1
        self._was_clean, self._ends = last_stop
        self.logs: dict[LogId, Opening] = {}
        # When records are due. May name logs that are awake: `take_due` passes over them.
        self._due: list[tuple[int, LogId]] = []
        self.size_bytes = 0  # Of all that rest.
        # Taken from rest, and not led yet; with what is to be called then.
        self.waking: dict[LogId, list[Callable[[], object]]] = {}

    def __contains__(self, log_id: object) -> bool:
        return log_id in self.logs

    def __iter__(self) -> Iterator[LogId]:
        return iter(self.logs)

    def __len__(self) -> int:
        return len(self.logs)

    def add(self, opening: Opening) -> bool:
        """Let a log rest; False if it has to be opened."""
        if not self._ends or not self._is_alone or not opening.is_alone:
            return False
        end = self._ends.get(str(opening.log_id))
        if end is None or not _is_unchanged(opening, end):
            return False
        assert end.at_rest is not None
        self.logs[opening.log_id] = opening
        self.size_bytes += end.at_rest.size_bytes
        if end.at_rest.due_ms is not None:
            heappush(self._due, (end.at_rest.due_ms, opening.log_id))
        return True

    def find(self, log_id: LogId) -> Opening | None:
        return self.logs.get(log_id)

    def take(self, log_id: LogId) -> Opening | None:
        """The log rests no more: the caller opens it, and calls `woken`."""
        opening = self.logs.pop(log_id, None)
        if opening is not None:
            self.size_bytes -= self._note(log_id).size_bytes
            self.waking[log_id] = []
        return opening

    def drop(self, log_id: LogId) -> None:
        """The log is deleted."""
        self.take(log_id)
        self.woken(log_id, None)

    def unled(self, log_ids: Iterable[LogId], openings: Container[LogId]) -> list[LogId]:
        """Those of these logs that rest, are waking or are being opened."""
        return [
            each for each in log_ids if each in self.logs or each in self.waking or each in openings
        ]

    def woken(self, log_id: LogId, replica: Replica | None) -> None:
        """The log is open, or cannot be, or is dropped. It is `waking` until it is led."""
        if log_id not in self.waking:
            return

        def moved() -> None:
            if replica is None or replica.is_ready or replica.failure or replica.is_gone:
                if replica is not None:
                    replica.unwatch(moved)
                for tell in self.waking.pop(log_id, ()):
                    tell()

        moved()
        if replica is not None and log_id in self.waking:
            replica.watch(moved)

    def take_due(self, now_ms: int) -> list[LogId]:
        """The logs whose records are due; each is returned once."""
        due: list[LogId] = []
        while self._due and self._due[0][0] <= now_ms:
            _, log_id = heappop(self._due)
            if log_id in self.logs:
                due.append(log_id)
        return due

    async def run(
        self, wake: Callable[[Iterable[LogId]], None], clock: Clock, config: Config
    ) -> None:
        """Wake logs whose records are due: retention then checks them."""
        while self._is_alone:
            await asyncio.sleep(config.timing.retention_check_ms / 1000)
            wake(self.take_due(clock.now_ms()))

    def epoch(self, log_id: LogId) -> Epoch:
        """The epoch in which the log will be led: its only voter opens the next one."""
        return Epoch(self.logs[log_id].state.hard_state.epoch + 1)

    def end_offset(self, log_id: LogId) -> Offset:
        """All before it is committed, and in no open transaction."""
        return self._ends[str(log_id)].end_offset

    def health(self, log_id: LogId) -> LogHealth:
        note = self._note(log_id)
        return LogHealth(
            segment_count=note.segment_count,
            size_bytes=note.size_bytes,
            start_offset=self.logs[log_id].state.start_offset,
            end_offset=self.end_offset(log_id),
            index_entries=note.index_entries,
            index_bytes_per_entry_max=note.index_bytes_per_entry_max,
            index_gaps=0,
        )

    def verification(self, files: Files, log_id: LogId) -> Callable[[], bool]:
        """Work for a thread: whether the bytes of a short log are those of the stop.

        False as well if it is long: such a log is opened, and verified step by step.
        """
        end, note = self._ends[str(log_id)], self._note(log_id)

        def verify() -> bool:
            if note.segment_count == 0:
                return True
            if note.segment_count > 1 or end.segment_bytes > SCANNED_BYTES_MAX:
                return False
            try:
                file = files.open(file_path(log_directory(log_id), end.base_offset, LOG))
                headers = [each for _, each in verify_range(file, 0, end.segment_bytes)]
            except (OSError, CorruptBatch, InvalidBatch):
                return False
            return bool(headers) and headers[-1].end_offset == end.end_offset

        return verify

    def ends(self) -> dict[str, CleanEnd]:
        """What is noted of the logs that rest, for the next start.

        After a start that followed no clean stop, a power cut may have left bytes behind the end:
        only an opening finds them.
        """
        names = map(str, self.logs)
        if self._was_clean:
            return {name: self._ends[name] for name in names}
        return {name: self._ends[name]._replace(may_have_tail=True) for name in names}

    def _note(self, log_id: LogId) -> AtRest:
        note = self._ends[str(log_id)].at_rest
        assert note is not None, "only a log with a note rests"
        return note


def at_rest(replica: Replica, *, now_ms: int) -> AtRest | None:
    """What to note of a log at an orderly stop, so that it may rest; None if it may not.

    Compacted logs have work of their own, a log with an index for keys is followed by it, and an
    open transaction ends without a request.
    """
    log = replica.log
    settings, health, end = log.settings, log.health(), log.end_offset
    if (
        not replica.is_leader
        or not replica.is_ready
        or not replica.high_watermark == replica.last_stable_offset == end
        or replica.refusal is not None
        or health.segment_count > SEGMENTS_MAX
        or rewrites(settings)
        or settings.index_key
        or settings.index_headers
        or log.damage()
    ):
        return None
    sealed, active = [facts(segment) for segment in log.sealed()], log.active
    due_ms = next_due_ms(sealed, None if active is None else facts(active), settings=settings)
    start = retention_start(
        sealed,
        active_bytes=0 if active is None else active.size,
        limit_offset=end,
        now_ms=now_ms,
        settings=settings,
    )
    return AtRest(
        epoch=replica.core.epoch,
        settings=_digest(settings),
        due_ms=now_ms if start is not None and start > log.start_offset else due_ms,
        segment_count=health.segment_count,
        size_bytes=health.size_bytes,
        index_entries=health.index_entries,
        index_bytes_per_entry_max=health.index_bytes_per_entry_max,
    )


def _is_unchanged(opening: Opening, end: CleanEnd) -> bool:
    """Whether nothing was written since the stop that noted `end`, and the settings are the same:
    they say when records are due."""
    boundaries = opening.state.boundaries
    return (
        end.at_rest is not None
        and bool(boundaries)
        and boundaries[-1].epoch == end.at_rest.epoch != NO_EPOCH
        and boundaries[-1].voters == opening.founders == {opening.me}
        and end.at_rest.settings == _digest(opening.settings)
    )


@lru_cache(maxsize=1_000)
def _digest(settings: TopicSettings) -> int:
    return crc32.iscsi(msgspec.msgpack.encode(asdict(settings)))

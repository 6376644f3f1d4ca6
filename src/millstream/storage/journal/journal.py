"""Journals votes and epoch boundaries of all logs of a node in one file: one sync serves them all.

Owns the file and its state, a fold over its entries, the same while it runs and at start; the
caller decides when to sync.

Invariant: an entry is in the page cache when a method returns and on the disk after the next round,
`begin_sync`, the work on a thread, `end_sync`. Entries reach the disk in their order or not at all,
so a vote that precedes a boundary always survives with it.

How a torn tail differs from damage: after each round a mark notes how far the file is durable. A
bad entry in front of what any mark behind it covers was once on the disk, so the disk changed it:
`DamagedLog`. Any other was never synced, whatever follows it, and the file is cut there.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from millstream.errors import OUT_OF_RESOURCES, DamagedLog, DiskFailed, NoSpace, storage_error
from millstream.model import NEVER_VOTED, Boundary, Epoch, HardState, LogId, Offset
from millstream.ports import File, Files
from millstream.storage.files.paths import parent_of
from millstream.storage.files.reserve import Reserve
from millstream.storage.journal.entries import (
    FILE_HEADER,
    Cut,
    Durable,
    Event,
    Forgotten,
    Mark,
    Moved,
    Opened,
    Placed,
    Reset,
    Voted,
    decode,
    encode,
    frame,
    marks_behind,
    read_frame,
)
from millstream.storage.journal.log_states import UNKNOWN_LOG, LogState, fold

_log = logging.getLogger(__name__)


class Journal:
    """Made by `open_journal`. One thread at a time works for it, between begin and end of a round.

    Methods that append raise `NoSpace` or `DiskFailed` and then change nothing. After a failed sync
    the content of the disk is unknown, so everything raises `DiskFailed` until the
    journal is opened again.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        bytes_max: int,
        reserve: Reserve | None,
        file: File,
        replayed: "_Replayed",
    ) -> None:
        self._reserve = reserve
        self._files = files
        self._path = path
        self._bytes_max = bytes_max
        self._file = file
        self._states = replayed.states
        self._end = replayed.end
        self._rewrite_at = bytes_max
        self._entry_count = 0  # Entries since the start, and how many of them are durable.
        self._durable_count = 0
        self._round: _Round | None = None
        self._is_renamed = False  # The file has its name, but perhaps not yet on the disk.
        self._is_failed = False
        if replayed.durable_end < self._end:
            self._mark(self._end)

    def state(self, log: LogId) -> LogState:
        return self._states.get(log, UNKNOWN_LOG)

    def logs(self) -> list[LogId]:
        return list(self._states)

    def vote(self, log: LogId, hard_state: HardState) -> None:
        self._append(Voted(log, hard_state))

    def open_epoch(self, log: LogId, boundary: Boundary) -> None:
        self._append(Opened(log, boundary))

    def cut_epochs(self, log: LogId, epoch: Epoch) -> None:
        """Drop the boundaries above `epoch`."""
        self._append(Cut(log, epoch))

    def move_start(self, log: LogId, start_offset: Offset) -> None:
        """Note where the log starts; drop all boundaries in front of the last one before it."""
        self._append(Moved(log, start_offset))

    def reset(self, log: LogId, start_offset: Offset, boundaries: Sequence[Boundary]) -> None:
        """Replace start and boundaries; the vote stays."""
        self._append(Reset(log, start_offset, tuple(boundaries)))

    def note_durable(self, log: LogId, end_offset: Offset) -> None:
        """Note that all before `end_offset` is committed and on the disk. Asks for no sync: without
        the note only less damage is seen later."""
        event = Durable(log, end_offset)
        old = self.state(log)
        new = fold(old, event)
        if new == old or self._is_failed:
            return
        payload = encode(event)
        try:
            self._write(payload)
        except (NoSpace, DiskFailed) as problem:
            _log.debug("left out a durable end problem=%s", problem)
            return
        if self._round is not None and self._round.states is not None:
            self._round.tail.append(payload)
        _put(self._states, log, new)

    def place(self, log: LogId, incarnation: int) -> None:
        """Note whose log it is, before anything else of it is noted."""
        self._append(Placed(log, incarnation))

    def forget(self, log: LogId) -> None:
        self._append(Forgotten(log))

    @property
    def is_dirty(self) -> bool:
        return self._entry_count > self._durable_count

    def begin_sync(self) -> Callable[[], None] | None:
        """Return the work that makes all entries so far durable, or None if they are.

        The work also writes a new file once this one is past `bytes_max`; `end_sync` changes over
        to it. Nothing waits for that: entries meanwhile go to the old file as always.
        """
        self._refuse_if_failed()
        if not self.is_dirty:
            return None
        states = dict(self._states) if self._end > self._rewrite_at else None
        begun = self._round = _Round(
            file=self._file,
            entry_count=self._entry_count,
            end=self._end,
            is_renamed=self._is_renamed,
            states=states,
        )
        return lambda: self._carry_out(begun)

    def end_sync(self) -> None:
        """Note that the work of the round succeeded."""
        ended, self._round = self._round, None
        assert ended is not None, "no round was begun"
        self._durable_count = ended.entry_count
        self._is_renamed = False
        durable_end = ended.end
        if ended.states is not None:
            durable_end = self._change_over(ended)
        self._mark(durable_end)

    def sync_now(self) -> None:
        """Make all entries so far durable at once. Blocks: only for rare events.

        A round that is under way goes on; a rewrite that it began promises the same of its file.
        """
        self._refuse_if_failed()
        try:
            self._file.sync()
            if self._is_renamed:
                # Without this a power cut brings back the file from before the rewrite.
                self._files.sync_directory(parent_of(self._path))
        except OSError as problem:
            self._is_failed = True
            raise DiskFailed(f"{self._path}: sync failed: {problem.strerror}") from problem
        self._is_renamed = False
        if self._round is not None:
            self._round.is_tail_promised = True

    def copier(self) -> Callable[[str], None]:
        """Work for a thread that writes the states of this moment to a file of their own."""
        states = dict(self._states)
        return lambda path: _write_file(self._files, path, states).file.close()

    def close(self) -> None:
        """Make everything durable, unless a sync failed, and let go of the file."""
        try:
            work = None if self._is_failed else self.begin_sync()
            if work is not None:
                work()
                self.end_sync()
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Let go of the file, write nothing. A round that is under way may still finish."""
        self._is_failed = True

    # -- parts -------------------------------------------------------------------------------

    def _append(self, event: Event) -> None:
        old = self.state(event.log)
        new = fold(old, event)
        if new == old:
            return
        self._refuse_if_failed()
        payload = encode(event)
        try:
            self._write(payload)
        except NoSpace:
            if self._reserve is None or not self._reserve.release():
                raise
            self._write(payload)
        self._entry_count += 1
        if self._round is not None and self._round.states is not None:
            self._round.tail.append(payload)
        _put(self._states, event.log, new)

    def _write(self, payload: bytes) -> None:
        entry = frame(payload, self._end)
        try:
            self._file.write(self._end, (entry,))
        except OSError as problem:
            self._cut_failed_write()
            raise storage_error(problem, self._path) from problem
        self._end += len(entry)

    def _cut_failed_write(self) -> None:
        """Take back what did reach the file; if that fails too, the next entry covers it."""
        try:
            self._file.truncate(self._end)
        except OSError as problem:
            _log.warning("left part of an entry path=%s problem=%s", self._path, problem)

    def _mark(self, durable_end: int) -> None:
        """Note how far the file is durable. Without a mark we only see less damage later."""
        try:
            self._write(encode(Mark(durable_end)))
        except (NoSpace, DiskFailed) as problem:
            _log.debug("left out a mark problem=%s", problem)

    def _carry_out(self, begun: "_Round") -> None:
        """Runs on the sync thread; touches nothing that the event loop changes."""
        try:
            begun.file.sync()
            if begun.is_renamed:
                self._files.sync_directory(parent_of(self._path))
        except OSError as problem:
            if problem.errno in OUT_OF_RESOURCES:
                raise storage_error(problem, self._path) from problem
            self._is_failed = True
            raise DiskFailed(f"{self._path}: sync failed: {problem.strerror}") from problem
        if begun.states is None:
            return
        try:
            begun.rewritten = _write_file(self._files, _temporary(self._path), begun.states)
        except OSError as problem:
            _log.warning("could not rewrite path=%s problem=%s", self._path, problem)

    def _change_over(self, ended: "_Round") -> int:
        """Let the rewritten file take the place of the old; return how far it is durable.

        It holds all that this round made durable and, unsynced as in the old file, all entries
        since. So whichever of the two the name leads to after a power cut, nothing is missing.
        """
        if ended.rewritten is None or not self._append_tail(
            ended.rewritten, ended.tail, is_promised=ended.is_tail_promised
        ):
            self._rewrite_at = self._end + self._bytes_max // 4
            return ended.end
        try:
            self._files.rename(_temporary(self._path), self._path)
        except OSError as problem:
            # The name may lead to either file now, so no further entry can be promised.
            self._is_failed = True
            _log.error("stopped the journal path=%s problem=%s", self._path, problem)
            return ended.end
        self._file.close()
        self._file = ended.rewritten.file
        self._is_renamed = True
        self._end = ended.rewritten.end
        self._rewrite_at = max(self._bytes_max, 2 * self._end)
        return ended.rewritten.durable_end

    def _append_tail(
        self, rewritten: "_Rewritten", payloads: Sequence[bytes], *, is_promised: bool
    ) -> bool:
        entries = []
        for payload in payloads:
            entries.append(frame(payload, rewritten.end))
            rewritten.end += len(entries[-1])
        try:
            rewritten.file.write(rewritten.durable_end, entries)
            if is_promised:
                rewritten.file.sync()
        except OSError as problem:
            _log.warning("could not rewrite path=%s problem=%s", self._path, problem)
            return False
        return True

    def _refuse_if_failed(self) -> None:
        if self._is_failed:
            raise DiskFailed(f"{self._path}: the disk failed earlier, restart the node")


def open_journal(
    files: Files,
    path: str = "journal",
    *,
    bytes_max: int,
    reserve: Reserve | None = None,
    was_clean: bool = False,
) -> Journal:
    """Read the file, cut a torn tail, make the rest durable. `DamagedLog` leaves all as it is.

    After a clean stop no tail can be torn: then that is `DamagedLog` too.

    With a `reserve` a full disk refuses only once that is used up.
    """
    try:
        if not files.exists(path):
            _write_file(files, _temporary(path), {})
            files.rename(_temporary(path), path)
        file = files.open(path)
        # After a failed sync the page cache has bytes that the disk does not have.
        file.forget_cached()
        data = file.read(0, file.size())
        replayed = _replay(data, path)
        if replayed.end < len(data):
            # The mark behind the last sync is not synced itself: a power cut after the stop may
            # tear it, and nothing is lost with it. Any other entry is longer.
            if was_clean and len(data) - replayed.end > _MARK_BYTES:
                raise DamagedLog(
                    f"{path} is damaged at {replayed.end}, and the last stop was clean: restore it "
                    "from a backup"
                )
            file.truncate(replayed.end)
            _log.info("cut torn tail path=%s bytes=%d", path, len(data) - replayed.end)
        files.remove(_temporary(path))
        # A killed process leaves entries, or a new name, in the cache only: no one may act on
        # them before they are durable.
        file.sync()
        files.sync_directory(parent_of(path))
    except OSError as problem:
        raise storage_error(problem, path) from problem
    return Journal(files, path, bytes_max=bytes_max, reserve=reserve, file=file, replayed=replayed)


def read_states(files: Files, path: str = "journal") -> dict[LogId, LogState]:
    """What a journal says that no node uses, up to a torn tail; `DamagedLog` if it is damaged."""
    file = files.open(path)
    try:
        return _replay(file.read(0, file.size()), path).states
    finally:
        file.close()


def write_states(files: Files, states: Mapping[LogId, LogState], path: str = "journal") -> None:
    """Write a journal of which there is none yet, and sync it."""
    _write_file(files, path, states).file.close()


_MARK_BYTES = len(frame(encode(Mark(0)), 0))


class _Replayed(NamedTuple):
    states: dict[LogId, LogState]
    end: int
    durable_end: int


class _Rewritten(Struct):
    file: File
    durable_end: int
    end: int


class _Round(Struct, kw_only=True):
    """A sync under way. `tail` has the entries since it began, if the file is rewritten."""

    file: File
    entry_count: int
    end: int
    is_renamed: bool
    states: dict[LogId, LogState] | None
    tail: list[bytes] = field(default_factory=list)
    is_tail_promised: bool = False  # `sync_now` returned: it must be durable.
    rewritten: _Rewritten | None = None


def _replay(data: bytes, path: str) -> _Replayed:
    if not data.startswith(FILE_HEADER):
        raise DamagedLog(f"{path} does not start as a journal of version 1")
    states: dict[LogId, LogState] = {}
    logs: dict[bytes, LogId] = {}
    durable_end = 0
    at = len(FILE_HEADER)
    while (framed := read_frame(data, at)) is not None:
        payload, end = framed
        try:
            event = decode(payload, logs)
        except ValueError as problem:
            raise DamagedLog(f"{path} has an unknown entry at {at}: {problem}") from problem
        if isinstance(event, Mark):
            durable_end = event.durable_end
        else:
            _put(states, event.log, fold(states.get(event.log, UNKNOWN_LOG), event))
        at = end
    if any(mark.durable_end > at for mark in marks_behind(data, at)):
        raise DamagedLog(f"{path} is damaged at {at}: it was durable there and has changed since")
    return _Replayed(states, at, durable_end)


def _write_file(files: Files, path: str, states: Mapping[LogId, LogState]) -> _Rewritten:
    """Write a journal that says nothing but `states`, and sync it."""
    data = bytearray(FILE_HEADER)
    for log, state in states.items():
        if state.hard_state != NEVER_VOTED:
            data += frame(encode(Voted(log, state.hard_state)), len(data))
        if state.incarnation:
            data += frame(encode(Placed(log, state.incarnation)), len(data))
        data += frame(encode(Reset(log, state.start_offset, state.boundaries)), len(data))
        if state.durable_end:
            data += frame(encode(Durable(log, state.durable_end)), len(data))
    file = files.open(path, create=True)
    file.truncate(0)
    file.write(0, (data,))
    file.sync()
    return _Rewritten(file, len(data), len(data))


def _put(states: dict[LogId, LogState], log: LogId, state: LogState) -> None:
    if state == UNKNOWN_LOG:
        states.pop(log, None)
    else:
        states[log] = state


def _temporary(path: str) -> str:
    return f"{path}.tmp"

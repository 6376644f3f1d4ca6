"""Keeps the segment files of one log in an order that survives a power cut at any moment.

Owns every file in the log's directory and the order in which names come and go; `log` decides when.
All methods belong to the event loop and raise `OSError`. Four rules make every moment safe:

- Bytes count once they are written, and are durable after the next round. A segment gets its index,
  the proof that it needs no scan, only after a round has synced its bytes.
- Each segment's name is where the one before it ends, so a hole differs from an end.
- An index is given up durably before its file is cut, and a file that was cut is sealed. So an
  index of fewer bytes than the file has is right about those, and an index of more bytes proves a
  loss.
- A name that may be used again is removed durably, in order, before that can happen: so `truncate`
  and `clear`, which are rare, sync the directory. All other files are removed after the next round.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from millstream.codec.batch import Header
from millstream.model import Buffer, Offset
from millstream.ports import File, Files
from millstream.storage.files.paths import parent_of
from millstream.storage.files.replacing import TEMPORARY
from millstream.storage.log.cache import LogCache
from millstream.storage.log.index import Table
from millstream.storage.log.lookup import first_behind
from millstream.storage.log.rounds import Round
from millstream.storage.log.segment import CLEANED, Segment, file_path
from millstream.storage.log.snapshots import Snapshots
from millstream.storage.sealing.batches import Sealer

_log = logging.getLogger(__name__)


class Chain:
    __slots__ = (
        "_cache",
        "_changes",
        "_directory",
        "_files",
        "_is_cut_short",
        "_names",
        "_names_synced",
        "_new_directories",
        "_round",
        "_synced",
        "_to_remove",
        "active",
        "sealer",
        "segments",
        "snapshots",
        "unproven",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        cache: LogCache,
        segments: list[Segment],
        snapshots: Snapshots,
        sealer: Sealer | None = None,
    ) -> None:
        self.sealer = sealer  # Encrypts what is written; None: nothing ever was.
        self.segments = segments
        self.active = segments[-1] if segments else None  # Where appends go.
        # Sealed, without an index on disk yet.
        self.unproven = [segment for segment in segments[:-1] if not segment.is_proven]
        self.snapshots = snapshots
        self._files = files
        self._directory = directory
        self._cache = cache
        self._to_remove: list[Segment] = []  # Files to remove after the next round.
        # A proven segment has a durable name; without one even the directory may have none.
        is_named = any(segment.is_proven for segment in segments)
        self._new_directories = [] if is_named else _ancestors(directory)
        self._round: Round | None = None
        self._is_cut_short = False  # The disk refused part of a truncation.
        # Counted, so that what happens during a round is not taken for done when it ends.
        self._changes = self._synced = 0
        self._names = self._names_synced = 0

    def use_cache(self, cache: LogCache) -> None:
        """Use the cache of the event loop: a log may be opened on a thread, with one of its own.

        Damage that was noticed there is reported here. Nothing was written yet.
        """
        assert not self.is_dirty
        self._cache = cache
        for segment in self.segments:
            for bad in segment.damage:
                cache.on_damage(segment, bad)

    # -- growing -----------------------------------------------------------------------------------

    def write(
        self, active: Segment, chunks: Sequence[Buffer], headers: Sequence[Header], interval: int
    ) -> None:
        """Append to the active segment; if that fails nothing has changed."""
        file = active.file or self._wake(active)
        if self.sealer is not None:
            chunks, headers = self.sealer.seal(chunks, headers)
        try:
            file.write(active.size, chunks)
        except OSError:
            _discard_torn(file, active.size, headers)
            raise
        active.extend(headers, interval)
        self._changes += 1

    def write_to_next(
        self,
        end_offset: Offset,
        chunks: Sequence[Buffer],
        headers: Sequence[Header],
        interval: int,
    ) -> tuple[bool, Segment]:
        """Append to another segment, named `end_offset`, and say if the active one was sealed."""
        self._trim_active()
        if self.sealer is not None:
            chunks, headers = self.sealer.seal(chunks, headers)
        segment, file = self._create(end_offset)
        try:
            file.write(0, chunks)
        except OSError:
            _discard_torn(file, 0, headers)
            raise
        segment.extend(headers, interval)
        return self._go_on_with(segment), segment

    def roll(self) -> bool:
        """Seal the active segment; False if there is nothing in it."""
        if self.active is None or self.active.size == 0:
            return False
        self._trim_active()
        return self._seal()

    # -- shrinking ---------------------------------------------------------------------------------

    def truncate(self, end_offset: Offset) -> None:
        """Drop the batches from `end_offset` on: whole segments newest first, then cut one.

        After an `OSError` the segments are those that are left, and `finish_cut` does the rest.
        """
        self._seal()
        self._changes += 1
        self._is_cut_short = True
        has_gone = self._remove_now(end_offset)
        while self.segments and self.segments[-1].base_offset >= end_offset:
            has_gone = self._drop_last()
        if self.segments and self.segments[-1].end_offset > end_offset:
            has_gone = self._cut_last(end_offset) or has_gone
        if self.snapshots.drop_behind(end_offset) or has_gone:
            self._files.sync_directory(self._directory)
        self._is_cut_short = False

    def finish_cut(self, end_offset: Offset) -> None:
        """After a truncation that the disk refused: remove, durably, all files behind the end.

        The log ends at `end_offset` now. Names from there on are about to be used again, and a
        snapshot behind it would soon speak of other batches than it was taken of.
        """
        if not self._is_cut_short:
            return
        self._remove_now(end_offset)
        self.snapshots.drop_behind(end_offset)
        if self._files.exists(self._directory):
            self._files.sync_directory(self._directory)
        self._is_cut_short = False

    def clear(self) -> None:
        self._seal()
        self._changes += 1
        has_gone = self._remove_now(0)
        while self.segments:
            has_gone = self._drop_last()
        if self.snapshots.drop_behind(-1) or has_gone:
            self._files.sync_directory(self._directory)

    def drop_below(self, start_offset: Offset) -> Offset:
        """Let whole segments go, and say where the last of them ended; 0 if none went.

        If they are all below, an empty segment follows them: its name is the end of the log.
        """
        self._changes += 1
        last = self.segments[-1] if self.segments else None
        if last is not None and last.size > 0 and last.end_offset <= start_offset:
            try:
                self._go_on_with(self._create(last.end_offset)[0])
            except OSError as problem:
                # A full disk must not keep retention from making room.
                _log.warning("last segment kept path=%s reason=%s", last.path, problem)
        gone = [segment for segment in self.segments[:-1] if segment.end_offset <= start_offset]
        for segment in gone:
            self._forget(segment)
        self._to_remove += gone
        del self.segments[: len(gone)]
        return gone[-1].end_offset if gone else 0

    def begin_replace(self, old: Sequence[Segment]) -> Callable[[], None]:
        """Take away the index whose name a replacement of `old` will get.

        It must never vouch for bytes that it does not know, so it is gone for good, by the work
        that is returned, before the swap. Its table stays in memory: the old segment may have to do
        without an index for long, if it is not replaced after all.
        """
        if old[0] in self.segments:
            self._cache.hold_table(old[0])
            self._files.remove(old[0].index_path)
        return partial(self._files.sync_directory, self._directory)

    def replace(self, old: Sequence[Segment], new: Segment) -> bool:
        """Swap `new` in; False if not all of `old` are here, and `new` is then removed."""
        aside = file_path(self._directory, new.base_offset, CLEANED)
        held = self.sealed()
        at = held.index(old[0]) if old[0] in held else len(held)
        if held[at : at + len(old)] != list(old):
            self.discard(new)
            return False
        assert new.base_offset == old[0].base_offset
        assert new.end_offset == old[-1].end_offset
        assert not self._files.exists(new.index_path), "`begin_replace` goes first"
        self._files.rename(aside, new.path)
        for segment in old:
            self._forget(segment)
        self._to_remove += old[1:]
        self.segments[at : at + len(old)] = [new]
        self.unproven.append(new)
        self._cache.pin(new)
        self._changes += 1
        self._names += 1
        return True

    def discard(self, new: Segment) -> None:
        """Remove a replacement that is not swapped in."""
        self._files.remove(file_path(self._directory, new.base_offset, CLEANED))

    def sealed(self) -> list[Segment]:
        """Oldest first, those before any that is active or has no index on disk yet."""
        sealed = []
        for segment in self.segments:
            if segment is self.active or not segment.is_proven:
                break
            sealed.append(segment)
        return sealed

    # -- durability --------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        return self._changes != self._synced

    def begin_sync(self) -> Callable[[], None] | None:
        if not self.is_dirty:
            return None
        work = self._round = Round(self._files, self._directory)
        work.changes, work.names = self._changes, self._names
        growing = [] if self.active is None else [self.active]
        written = [s for s in [*self.unproven, *growing] if s.file is not None]
        work.to_sync = [s.file for s in written if s.file is not None]
        work.sizes = [(segment, segment.size) for segment in written]
        if self._names != self._names_synced:
            work.directories = [self._directory, *self._new_directories]
        work.segments = list(self.unproven)
        work.snapshots = list(self.snapshots.due)
        work.to_remove = list(self._to_remove)
        return work.run

    def end_sync(self) -> None:
        """Rename the files that the round wrote, remove obsolete ones. Never raises.

        All that must be durable is so already. What fails here is tried again after the next round.
        """
        work, self._round = self._round, None
        if work is None:
            return  # The log was abandoned meanwhile.
        self._synced, self._names_synced = work.changes, work.names
        if work.directories:
            self._new_directories = []
        for segment, size in work.sizes:
            segment.synced_size = size
        try:
            for segment in work.indexed:
                self._name_index(segment)
            if self.snapshots.confirm(work.stored):
                self._names += 1
            for segment in work.to_remove:
                if segment in self._to_remove:
                    self._remove(segment)
                    self._to_remove.remove(segment)
        except OSError as problem:
            _log.warning("not tidied up directory=%s reason=%s", self._directory, problem)

    @property
    def active_bytes(self) -> int:
        """What a start would have to scan, if the active segment is not sealed before."""
        return 0 if self.active is None else self.active.size

    def close(self) -> None:
        """Sync what is dirty and let go of all files."""
        assert self._round is None, "a round is under way"
        work = self.begin_sync()
        if work is not None:
            work()
            self.end_sync()
        if self._names != self._names_synced:
            self._files.sync_directory(self._directory)
        self.abandon()

    def abandon(self) -> None:
        """Let go of all files, write nothing."""
        for segment in self.segments:
            self._cache.forget(segment)
            segment.file = None
        self.segments, self.unproven = [], []
        self.active = self._round = None

    # -- parts -------------------------------------------------------------------------------------

    def _create(self, base_offset: Offset) -> tuple[Segment, File]:
        self.finish_cut(base_offset)
        if not self.segments:
            self._files.make_directory(self._directory)
        segment = Segment(self._files, self._directory, base_offset)
        file = self._files.open(segment.path, create=True)
        if file.size() > 0:
            file.truncate(0)  # A write that failed left it here.
        segment.file, segment.table = file, Table()
        return segment, file

    def _seal(self) -> bool:
        active, self.active = self.active, None
        if active is None or active.size == 0:
            return False
        if not active.is_proven:
            self.unproven.append(active)
            self._changes += 1
        return True

    def _go_on_with(self, segment: Segment) -> bool:
        has_sealed = self._seal()
        self.segments.append(segment)
        self.active = segment
        self._cache.pin(segment)
        self._changes += 1
        self._names += 1
        return has_sealed

    def _wake(self, active: Segment) -> File:
        """Make a segment that was found on disk ready to grow."""
        if active.is_proven:
            self._cache.reopen(active)
        else:
            active.file = self._cache.file(active)
            self._cache.forget(active)
        self._cache.pin(active)
        file = active.file
        assert file is not None
        return file

    def _trim_active(self) -> None:
        """Nothing may stand behind the end of a sealed file, whatever a failed write left."""
        active = self.active
        if active is not None and active.file is not None and active.file.size() > active.size:
            active.file.truncate(active.size)

    def _drop_last(self) -> bool:
        segment = self.segments[-1]
        self._remove(segment)
        self._forget(segment)
        self.segments.pop()
        return True

    def _cut_last(self, end_offset: Offset) -> bool:
        """Cut within the last segment; True if nothing of it is left."""
        segment = self.segments[-1]
        view = self._cache.view(segment)
        place = first_behind(view, end_offset)
        assert place is not None
        position, base_offset = place
        assert base_offset >= end_offset, "not where a batch begins"
        if position == 0:
            return self._drop_last()
        shorter = segment.cut(view.file, view.table, position)
        if self._files.exists(segment.index_path):
            # An index that speaks of more bytes than there are means that synced bytes were lost.
            self._files.remove(segment.index_path)
            self._files.sync_directory(self._directory)
        view.file.truncate(position)
        self._forget(segment)
        self.segments[-1] = shorter
        self.unproven.append(shorter)
        self._cache.pin(shorter)
        return False

    def _forget(self, segment: Segment) -> None:
        self._cache.forget(segment)
        if segment in self.unproven:
            self.unproven.remove(segment)
        if segment is self.active:
            self.active = None

    def _remove(self, segment: Segment) -> None:
        self._files.remove(segment.terms_path)
        self._files.remove(segment.index_path)
        self._files.remove(segment.path)
        self._names += 1

    def _remove_now(self, offset: Offset) -> bool:
        """Clear the directory of names from `offset` on, which could be used again."""
        to_remove = [segment for segment in self._to_remove if segment.base_offset >= offset]
        if to_remove:
            # What took their place must have its name before they lose theirs.
            self._files.sync_directory(self._directory)
        for segment in reversed(to_remove):
            self._remove(segment)
            self._to_remove.remove(segment)
        return bool(to_remove)

    def _name_index(self, segment: Segment) -> None:
        aside = segment.index_path + TEMPORARY
        if segment not in self.unproven:
            self._files.remove(aside)
            return
        self._files.rename(aside, segment.index_path)
        self.unproven.remove(segment)
        segment.unpin()
        self._cache.forget(segment)
        self._names += 1


def _ancestors(path: str) -> list[str]:
    ancestors = []
    while path:
        path = parent_of(path)
        ancestors.append(path)
    return ancestors


def _discard_torn(file: File, size: int, headers: Sequence[Header]) -> None:
    """Truncate the bytes that a failed write left behind `size`.

    A single batch of a failed write is never whole, so recovery cuts it. Of several, some may be
    whole: they are removed durably before other batches can get their offsets, or a power cut could
    bring them back in place of batches that replicas hold since.
    """
    try:
        file.truncate(size)
    except OSError:
        if len(headers) > 1:
            raise
        return
    if len(headers) > 1:
        file.sync()

"""Recovers a log at start: trusts proven segments, scans the others, cuts a torn tail.

First everything is checked and nothing changed, so that a damaged log stays exactly as it is; then
the result is applied and made durable, so that all batches of an opened log survive the next power
cut. A log that was closed in good order needs neither.

Invariant: a segment's index proves that its first bytes were synced. Bytes behind those may be
torn: there the log ends at the last whole batch. But proven bytes that are gone are no torn write:
that is `DamagedLog`. Neither is a bad batch in front of sound ones: the log keeps all of it, and
records the bad one as damage. After a clean stop nothing can be torn.
"""

import logging
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from millstream.codec.batch import HEADER_BYTES, Header, read_header
from millstream.errors import CorruptBatch, DamagedLog, InvalidBatch, storage_error
from millstream.model import NO_EPOCH, Boundary, CleanEnd, Epoch, Offset
from millstream.ports import File, Files
from millstream.settings import TopicSettings
from millstream.storage.files.paths import parent_of
from millstream.storage.files.replacing import TEMPORARY, write_aside
from millstream.storage.log.cache import LogCache
from millstream.storage.log.chain import Chain
from millstream.storage.log.index import PROOF_BYTES, RELATIVE_OFFSET_MAX, Proof, Table
from millstream.storage.log.log import Log
from millstream.storage.log.repair import SKIPPED
from millstream.storage.log.segment import (
    CLEANED,
    INDEX,
    LOG,
    PRODUCERS,
    TERMS,
    Segment,
    file_path,
    read_headers,
    read_proof,
    verify_range,
)
from millstream.storage.log.snapshots import Snapshots
from millstream.storage.log.verifying import BadRange, Unverified, sound_batch_behind, stand_in
from millstream.storage.sealing.batches import Sealer, prove_offset

_NAME = re.compile(r"(\d{20})(\.log|\.index|\.producers|\.terms)", re.ASCII)

_log = logging.getLogger(__name__)


def open_log(
    files: Files,
    directory: str,
    *,
    settings: TopicSettings,
    cache: LogCache,
    start_offset: Offset,
    boundaries: Sequence[Boundary],
    producer_ids_max: int = 100_000,
    decompressed_bytes_max: int,
    was_clean: bool = False,
    clean_end: CleanEnd | None = None,
    are_parents_durable: bool = False,
    may_have_gaps: bool = True,
    sealer: Sealer | None = None,
) -> Log:
    """Open the log in `directory`, or one that is yet to be there.

    `start_offset` and `boundaries` are the journal's. The log is cut at the first batch whose epoch
    is not the one in force at its offset; the caller then drops boundaries behind `end_offset`. All
    that the log holds then is durable. `DamagedLog` or `DiskFailed` if it must not be served; with
    `was_clean` also instead of any cut, and if the log does not end at `clean_end`. That is where
    it ended at the last clean stop: bytes before that are never torn. Without `may_have_gaps` a
    batch that leaves offsets out is not what was written. With `are_parents_durable` the name of
    `directory` survives a power cut already.
    """
    recovery = _Recovery(
        files, directory, settings, start_offset, boundaries, was_clean, clean_end, may_have_gaps
    )
    recovery.sealer = sealer
    try:
        recovery.choose_segments()
        recovery.run(are_parents_durable=are_parents_durable)
    except OSError as problem:
        raise storage_error(problem, directory) from problem
    for candidate in recovery.kept:
        for bad in candidate.segment.damage:
            cache.on_damage(candidate.segment, bad)
    chain = Chain(
        files,
        directory,
        cache=cache,
        segments=[candidate.segment for candidate in recovery.kept],
        snapshots=Snapshots(files, directory, recovery.snapshots),
        sealer=sealer,
    )
    return Log(
        chain,
        directory,
        settings=settings,
        cache=cache,
        start_offset=start_offset,
        producer_ids_max=producer_ids_max,
        decompressed_bytes_max=decompressed_bytes_max,
    )


class _Candidate:
    """A segment file on disk, and the result of checking it."""

    __slots__ = ("_file", "cut_to", "file_size", "is_scanned", "last", "proof", "segment")

    def __init__(self, files: Files, directory: str, base_offset: Offset) -> None:
        self.segment = Segment(files, directory, base_offset)
        self._file: File | None = files.open(self.segment.path)
        self.file_size = self._file.size()
        self.proof = read_proof(files, self.segment, self._file, self.file_size)
        self.last: tuple[Offset, int] | None = None  # Base offset and epoch of the last batch.
        self.is_scanned = False
        self.cut_to: int | None = None
        if self.proof is not None and self.proof.size == self.file_size:
            self._file = None  # A log may have more segments than a process may open files.

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self.segment.files.open(self.segment.path)
        return self._file


class _Recovery:
    def __init__(
        self,
        files: Files,
        directory: str,
        settings: TopicSettings,
        start_offset: Offset,
        boundaries: Sequence[Boundary],
        was_clean: bool,
        clean_end: CleanEnd | None,
        may_have_gaps: bool,
    ) -> None:
        self.kept: list[_Candidate] = []
        self.snapshots: list[Offset] = []
        self.sealer: Sealer | None = None
        self._files = files
        self._directory = directory
        self._may_have_gaps = may_have_gaps
        self._interval_bytes = settings.index_interval_bytes
        self._has_terms = settings.index_key or bool(settings.index_headers)
        self._start_offset = start_offset
        self._boundaries = boundaries
        self._was_clean = was_clean
        self._clean_end = clean_end
        self._is_rewritten = True  # A segment may be shorter than it was.
        self._to_remove: set[str] = set()

    # -- choosing ----------------------------------------------------------------------------------

    def choose_segments(self) -> None:
        """Decide what to keep; changes nothing on disk."""
        named: dict[str, list[Offset]] = {LOG: [], INDEX: [], PRODUCERS: [], TERMS: []}
        names = self._files.list(self._directory)
        self._is_rewritten = self._may_have_gaps or SKIPPED in names
        for name in names:
            match = _NAME.fullmatch(name)
            if match is not None:
                named[match[2]].append(int(match[1]))
            elif name.endswith((TEMPORARY, CLEANED)):
                self._to_remove.add(f"{self._directory}/{name}")
        self._link([_Candidate(self._files, self._directory, base) for base in named[LOG]])
        self._check_epochs()
        self._drop_below_start()
        proven = {f.segment.base_offset for f in self.kept if f.proof is not None}
        for offset in set(named[INDEX]) - proven:
            self._remove_later(offset, INDEX)
        for offset in set(named[TERMS]) - (proven if self._has_terms else set()):
            self._remove_later(offset, TERMS)
        end = self.kept[-1].segment.end_offset if self.kept else self._start_offset
        self._check_end(end)
        self.snapshots = [offset for offset in named[PRODUCERS] if offset <= end]
        for offset in set(named[PRODUCERS]) - set(self.snapshots):
            self._remove_later(offset, PRODUCERS)

    def _check_end(self, end: Offset) -> None:
        """After a clean stop the log ends where it ended then: `DamagedLog` if it does not."""
        clean_end = self._clean_end
        if self._was_clean and clean_end is not None and end != clean_end.end_offset:
            raise DamagedLog(
                f"{self._directory} ends at offset {end}, and ended at {clean_end.end_offset} when "
                "the node was stopped in good order: files of it are missing or were changed"
            )

    def _link(self, candidates: list[_Candidate]) -> None:
        """Keep the segments that follow one another without a hole."""
        for at, candidate in enumerate(candidates):
            base = candidate.segment.base_offset
            end = self.kept[-1].segment.end_offset if self.kept else self._start_offset
            if self.kept and base < end:
                # Compaction merged it, or it follows a cut that never became durable.
                self._drop([candidate], "superseded")
                continue
            if base > end:
                if base > self._start_offset:
                    self._drop_unproven(candidates[at:], f"offsets {end} to {base} are missing")
                    return
                # The hole lies below the log start: all in front of it was to be removed.
                self._drop(self.kept, "below the log start")
                self.kept = []
            following = candidates[at + 1].segment.base_offset if at + 1 < len(candidates) else None
            is_proven_behind = any(later.proof is not None for later in candidates[at + 1 :])
            is_whole = self._read(candidate, following, is_proven_behind)
            if candidate.segment.size == 0 and self.kept:
                self._drop([candidate], "empty")
            else:
                self.kept.append(candidate)
            # A segment that was given up as below the log start may never have been synced.
            is_needed = following is None or following > self._start_offset
            if not is_whole and is_needed:
                position = candidate.segment.size
                damage = f"{candidate.segment.path} has no batch at position {position}"
                self._drop_unproven(candidates[at + 1 :], damage)
                return

    def _read(
        self, candidate: _Candidate, following: Offset | None, is_proven_behind: bool
    ) -> bool:
        """Read the segment; False if the log cannot go on behind it."""
        segment, proof = candidate.segment, candidate.proof
        if proof is not None:
            candidate.last = proof.last_base_offset, proof.last_epoch
            in_question = Unverified(proof.size, proof.end_offset, self._boundaries, self.sealer)
            if proof.size == candidate.file_size or proof.end_offset == following:
                candidate.segment = Segment.from_proof(self._files, self._directory, proof)
                candidate.segment.unverified = in_question
                return True
            segment = self._resume(candidate, proof)
            segment.unverified = in_question
        else:
            self._check_bytes(candidate)
            segment.table = Table()
        candidate.segment, candidate.is_scanned = segment, True
        if not self._was_clean:
            # After a failed sync the cache may show what no disk holds.
            candidate.file.forget_cached()
        clean_end = self._clean_end
        while (problem := self._scan(candidate)) is not None:
            sound = sound_batch_behind(
                candidate.file,
                segment.size,
                candidate.file_size,
                segment.end_offset,
                self._boundaries,
            )
            if sound is not None and not (following and sound[1] >= following):
                self._keep_damage(candidate, *sound, str(problem))
            elif is_proven_behind and following is not None and following > segment.end_offset:
                self._keep_damage(candidate, candidate.file_size, following, str(problem))
            elif self._was_whole(candidate):
                assert clean_end is not None
                end = clean_end.segment_bytes
                self._keep_damage(candidate, end, clean_end.end_offset, str(problem))
            else:
                self._cut_torn(candidate, str(problem))
                break
        if self.sealer is not None:
            segment.defer_seals(self._boundaries, self.sealer)
        return candidate.cut_to is None or segment.end_offset == following

    def _check_bytes(self, candidate: _Candidate) -> None:
        """`DamagedLog` if bytes are gone that the last clean stop had synced."""
        base, size, end = candidate.segment.base_offset, candidate.file_size, self._clean_end
        if end is None or self._is_rewritten or base != end.base_offset:
            return
        if size < end.segment_bytes:
            lost = f"{candidate.segment.path} has {size} bytes, but {end.segment_bytes} were synced"
            raise DamagedLog(f"{lost} when the node was stopped in good order")

    def _was_whole(self, candidate: _Candidate) -> bool:
        """Whether the bytes behind the scanned ones were synced by the last clean stop."""
        base, size, end = candidate.segment.base_offset, candidate.segment.size, self._clean_end
        return (
            end is not None
            and base == end.base_offset
            and (size < end.segment_bytes <= candidate.file_size)
        )

    def _scan(self, candidate: _Candidate) -> Exception | None:
        """Extend the segment by the sound batches behind its end; return the error behind them."""
        segment = candidate.segment
        try:
            for position, header in verify_range(candidate.file, segment.size, candidate.file_size):
                if header.base_offset != segment.end_offset:
                    self._check_gap(candidate, position, header)
                if segment.size == 0 and header.max_timestamp >= 0:
                    segment.opened_ms = header.max_timestamp
                segment.extend([header], self._interval_bytes)
                candidate.last = header.base_offset, header.epoch
        except (CorruptBatch, InvalidBatch) as problem:
            return problem
        return None

    def _check_gap(self, candidate: _Candidate, position: int, header: Header) -> None:
        """Offsets ascend. Only logs that are rewritten have gaps, which the next batch respects."""
        expected = candidate.segment.end_offset
        is_near = header.end_offset - candidate.segment.base_offset <= RELATIVE_OFFSET_MAX
        if header.base_offset > expected and self._may_have_gaps and is_near:
            prove_offset(candidate.file, position, header, self.sealer)
            try:
                behind = read_header(candidate.file.read(position + header.size, HEADER_BYTES))
            except (CorruptBatch, InvalidBatch):
                return
            if not expected < behind.base_offset < header.end_offset:
                return
        raise InvalidBatch(f"base offset {header.base_offset}, {expected} was expected")

    def _keep_damage(
        self, candidate: _Candidate, end: int, end_offset: Offset, reason: str
    ) -> None:
        """Sound batches follow, so this is no torn tail. Readers are refused these offsets only."""
        segment = candidate.segment
        position, offset = segment.size, segment.end_offset
        bad = BadRange(segment.path, position, end - position, offset, end_offset, reason)
        segment.extend(
            [stand_in(bad, candidate.last[1] if candidate.last else 0)], self._interval_bytes
        )
        segment.damage = (*segment.damage, bad)

    def _cut_torn(self, candidate: _Candidate, reason: str) -> None:
        segment = candidate.segment
        cut_bytes = candidate.file_size - segment.size
        if self._was_clean:
            raise DamagedLog(
                f"{segment.path} ends with {cut_bytes} bytes from position {segment.size} that are "
                f"not what was written, and the last stop was clean: {reason}"
            )
        candidate.cut_to = segment.size
        _log.info(
            "cut torn tail segment=%s kept_bytes=%d cut_bytes=%d reason=%r",
            segment.path,
            segment.size,
            cut_bytes,
            reason,
        )

    def _resume(self, candidate: _Candidate, proof: Proof) -> Segment:
        """The proven part of the segment; bytes appended since are to be scanned."""
        segment = Segment.from_proof(self._files, self._directory, proof)
        try:
            index = self._files.open(segment.index_path)
            data = index.read(PROOF_BYTES, proof.entries_bytes)
            segment.table = Table.decode(data, proof)
        except DamagedLog:
            segment = segment.with_rebuilt_table(candidate.file, self._interval_bytes)
        segment.restore_last_batch(proof)
        return segment

    def _check_epochs(self) -> None:
        """Cut at the first batch whose epoch is not in force at its offset.

        The journal holds the epochs, and loses its unsynced tail independently of the log. Batches
        of other epochs always stand at the end, so the last of a proven segment speaks for it.
        """
        for at, candidate in enumerate(self.kept):
            if candidate.last is None or candidate.segment.end_offset <= self._start_offset:
                continue
            if not candidate.is_scanned and self._is_in_force(*candidate.last):
                continue
            position = self._other_epoch(candidate)
            if position is None:
                continue
            if not self._boundaries and candidate.proof is not None:
                raise DamagedLog(f"{self._directory} was synced, but the journal knows no epoch")
            self._drop(self.kept[at + 1 :], "behind another epoch")
            del self.kept[at + 1 :]
            if position > 0 or self._was_clean:
                self._cut(candidate, position)
            else:
                self._drop([candidate], "of another epoch")
                del self.kept[at]
            return

    def _other_epoch(self, candidate: _Candidate) -> int | None:
        """The position from which on no batch's epoch is in force.

        A batch of another epoch in front of one that is in force was changed: that is damage.
        """
        others: list[tuple[int, Header]] = []
        for position, header in self._sound_headers(candidate):
            is_seen = header.end_offset > self._start_offset
            if is_seen and not self._is_in_force(header.base_offset, header.epoch):
                others.append((position, header))
                continue
            for at, other in others:
                reason = f"its epoch is {other.epoch}, which was not in force"
                offsets = other.base_offset, other.end_offset
                bad = BadRange(candidate.segment.path, at, other.size, *offsets, reason)
                candidate.segment.damage = (*candidate.segment.damage, bad)
            others = []
        return others[0][0] if others else None

    def _sound_headers(self, candidate: _Candidate) -> Iterator[tuple[int, Header]]:
        at = 0
        for bad in candidate.segment.damage:
            yield from read_headers(candidate.file, at, bad.position)
            at = bad.end_position
        yield from read_headers(candidate.file, at, candidate.segment.size)

    def _cut(self, candidate: _Candidate, position: int) -> None:
        segment = candidate.segment
        if self._was_clean:
            raise DamagedLog(
                f"{segment.path} has another epoch from position {position} on than the journal "
                "says, and the last stop was clean"
            )
        _log.info(
            "cut another epoch segment=%s kept_bytes=%d cut_bytes=%d",
            segment.path,
            position,
            segment.size - position,
        )
        table = (
            segment.table or segment.with_rebuilt_table(candidate.file, self._interval_bytes).table
        )
        assert table is not None
        candidate.segment = segment.cut(candidate.file, table, position)
        candidate.segment.file = None
        candidate.cut_to, candidate.is_scanned = position, True
        if candidate.proof is not None and candidate.proof.size > position:
            candidate.proof = None  # Its index must go first.

    def _is_in_force(self, offset: Offset, epoch: int) -> bool:
        at = bisect_right(self._boundaries, offset, key=lambda boundary: boundary.start_offset)
        in_force: Epoch = self._boundaries[at - 1].epoch if at else NO_EPOCH
        return epoch == in_force

    def _drop_below_start(self) -> None:
        """A log that ends before its start is empty; else it ends with its last segment."""
        count = sum(f.segment.end_offset <= self._start_offset for f in self.kept[:-1])
        if self.kept and self.kept[-1].segment.end_offset < self._start_offset:
            count = len(self.kept)
        self._drop(self.kept[:count], "below the log start")
        del self.kept[:count]

    def _drop_unproven(self, candidates: Sequence[_Candidate], damage: str) -> None:
        """Give up what follows a torn place; `DamagedLog` if any of it had been synced."""
        for candidate in candidates:
            if candidate.proof is not None:
                raise DamagedLog(f"{damage}, but {candidate.segment.path} was synced after that")
        self._drop(candidates, "behind a torn place")

    def _drop(self, candidates: Sequence[_Candidate], why: str) -> None:
        for candidate in candidates:
            path, size = candidate.segment.path, candidate.file_size
            _log.info("dropped segment=%s bytes=%d reason=%r", path, size, why)
            self._remove_later(candidate.segment.base_offset, LOG)
            self._remove_later(candidate.segment.base_offset, INDEX)

    def _remove_later(self, offset: Offset, suffix: str) -> None:
        self._to_remove.add(file_path(self._directory, offset, suffix))

    # -- carrying out ------------------------------------------------------------------------------

    def run(self, *, are_parents_durable: bool) -> None:
        """Apply the result to the disk. After a stop at any point the next start gets the same."""
        scanned = [candidate for candidate in self.kept if candidate.is_scanned]
        # Newest first: a hole in front of synced segments would pass for damage.
        for path in sorted(self._to_remove, reverse=True):
            self._files.remove(path)
        if self._to_remove:
            # An index must be gone for good before the file it spoke of becomes shorter.
            self._files.sync_directory(self._directory)
        if not self._was_clean:
            self._make_durable(scanned, are_parents_durable=are_parents_durable)
        for candidate in scanned:
            if candidate is not self.kept[-1]:
                self._write_index(candidate)

    def _make_durable(self, scanned: Sequence[_Candidate], *, are_parents_durable: bool) -> None:
        """Cut what is torn, and sync what was scanned: after a kill it may be in the cache only."""
        for candidate in scanned:
            if candidate.cut_to is not None:
                candidate.file.truncate(candidate.cut_to)
            candidate.file.sync()
        if not scanned:
            return
        path = self._directory
        self._files.sync_directory(path)
        while path and not are_parents_durable:
            path = parent_of(path)
            self._files.sync_directory(path)

    def _write_index(self, candidate: _Candidate) -> None:
        """Prove a sealed segment that was scanned and synced, so that it is not scanned again."""
        segment = candidate.segment
        assert segment.table is not None
        if write_aside(self._files, segment.index_path, segment.encoded_index()):
            self._files.rename(segment.index_path + TEMPORARY, segment.index_path)
            segment.unpin()

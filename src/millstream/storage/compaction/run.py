"""Rewrites the sealed segments of a log as fewer and smaller ones, in one run.

Owns one run, from a plan that was fixed on the event loop; `rules` decides which records stay,
`driver` decides when to run and swaps the results in. Runs on another thread: it reads the files of
the plan and writes new ones aside, and never touches the log. Two passes: find the newest offset of
every key in the dirty part, then rewrite all from the start of the log.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, islice
from typing import NamedTuple

from msgspec import Struct

from millstream.codec.batch import Header, read_header
from millstream.errors import DamagedLog, storage_error
from millstream.model import Buffer, Offset
from millstream.ports import Files
from millstream.storage.compaction.replacement import Replacement
from millstream.storage.compaction.rules import (
    AbortedTransactions,
    KeyMap,
    Remembered,
    RetentionRules,
    RulesContext,
)
from millstream.storage.log.aborted import Aborted
from millstream.storage.log.producers import Producers
from millstream.storage.log.segment import PRODUCERS, Segment
from millstream.storage.sealing.batches import Sealer
from millstream.storage.sealing.ranges import LogRange

WRITE_BYTES = 2**20
SEGMENT_OFFSETS_MAX = 2**31 - 1  # As in Kafka; an index entry has four bytes for them.

_OFFSET_MAX = 2**63 - 1


class CompactionPlan(Struct, frozen=True, kw_only=True):
    """All that a run needs to know.

    `segments` reach from the start of the log to the end of what may be compacted, and `contents`
    are theirs.
    """

    directory: str
    segments: Sequence[Segment]
    contents: Sequence[LogRange]
    context: RulesContext
    segment_bytes: int
    index_interval_bytes: int
    keys_bytes_max: int
    sealer: Sealer | None = None  # Encrypts what is written.


class Rewritten(NamedTuple):
    """A segment that is ready to take the place of `old`."""

    old: Sequence[Segment]
    new: Segment


class Outcome(NamedTuple):
    """The result, valid when all rewritten segments are swapped in and durable."""

    end_offset: Offset  # Below it every key stands once.
    due_ms: int  # When the first tombstone or marker that was kept may go; -1 if there is none.
    forgotten: Sequence[Aborted]  # Only their markers are left: fetch replies need not list them.


class Compaction:
    """One run: call `step` until it returns None, then ask for the `outcome`.

    `step` blocks, for another thread, one call at a time; its result must be swapped in
    before the next. It raises `StorageError`, and then leaves nothing that opening the log would
    not remove.
    """

    def __init__(self, plan: CompactionPlan, files: Files) -> None:
        assert plan.segments
        assert len(plan.segments) == len(plan.contents)
        self._plan = plan
        self._files = files
        self._steps = self._run()
        self._rules: RetentionRules | None = None

    @property
    def outcome(self) -> Outcome:
        rules = self._rules
        assert rules is not None
        return Outcome(rules.end_offset, rules.due_ms, rules.forgotten)

    def step(self) -> Rewritten | None:
        """Write one segment in the place of those that are due next; None if none is left."""
        try:
            return next(self._steps, None)
        except OSError as problem:
            raise storage_error(problem, f"compaction of {self._plan.directory}") from problem

    def _run(self) -> Iterator[Rewritten]:
        plan = self._plan
        aborted = AbortedTransactions(plan.context.aborted)
        keys, end_offset = newest_keys(plan, aborted)
        rules = self._rules = RetentionRules(
            plan.context,
            keys,
            aborted,
            end_offset=end_offset,
            remembered=cache(lambda: _remembered(self._files, plan.directory)),
        )
        for group in groups(plan, end_offset):
            rewritten = self._rewrite(group, rules)
            if rewritten is not None:
                yield rewritten

    def _rewrite(self, group: range, rules: RetentionRules) -> Rewritten | None:
        """Write one segment for those of `group`; None if it would not change."""
        plan = self._plan
        old = plan.segments[group.start : group.stop]
        contents = plan.contents[group.start : group.stop]
        output = _Output(
            self._files, old, interval_bytes=plan.index_interval_bytes, sealer=plan.sealer
        )
        is_changed = len(group) > 1
        same_count = 0  # At the beginning, not copied before something else has changed.
        try:
            for header, batch, following in _with_next(contents):
                must_stay = following is None or following.epoch != header.epoch
                kept = rules.retain(header, batch, must_stay=must_stay)
                if not is_changed:
                    if kept == batch:
                        same_count += 1
                        continue
                    is_changed = True
                    output.copy(contents[0], same_count)
                if kept is not None:
                    output.append(kept)
            return Rewritten(old, output.finish()) if is_changed else None
        except BaseException:
            output.discard()
            raise


def newest_keys(plan: CompactionPlan, aborted: AbortedTransactions) -> tuple[KeyMap, Offset]:
    """The keys from `dirty_start` on, and how far they were looked at.

    That is the end of the plan, or the first batch for which there was no memory.
    """
    keys = KeyMap(bytes_max=plan.keys_bytes_max)
    dirty_start = plan.context.dirty_start
    if not plan.context.compacts:
        return keys, plan.segments[-1].end_offset
    for segment, contents in zip(plan.segments, plan.contents, strict=True):
        if segment.end_offset <= dirty_start:
            continue
        for header, batch in contents.batches():
            if header.end_offset <= dirty_start or header.is_control or aborted.covers(header):
                continue
            if keys.is_full:
                return keys, header.base_offset
            keys.add(batch, decompressed_bytes_max=plan.context.decompressed_bytes_max)
    return keys, plan.segments[-1].end_offset


def groups(plan: CompactionPlan, end_offset: Offset) -> Iterator[range]:
    """Which segments become one: neighbours that fit into one, as far as there is work to do."""
    segments = [segment for segment in plan.segments if segment.base_offset < end_offset]
    start, size = 0, 0
    for at, segment in enumerate(segments):
        span = segment.end_offset - segments[start].base_offset
        if at > start and (size + segment.size > plan.segment_bytes or span > SEGMENT_OFFSETS_MAX):
            yield range(start, at)
            start, size = at, 0
        size += segment.size
    yield range(start, len(segments))


class _Output:
    """Gathers small batches into large writes. There is no file before the first of them."""

    def __init__(
        self,
        files: Files,
        old: Sequence[Segment],
        *,
        interval_bytes: int,
        sealer: Sealer | None,
    ) -> None:
        self._files = files
        self._old = old
        self._interval_bytes = interval_bytes
        self._sealer = sealer
        self._replacement: Replacement | None = None
        self._chunks: list[Buffer] = []
        self._headers: list[Header] = []
        self._bytes = 0

    def append(self, batch: Buffer) -> None:
        self._chunks.append(batch)
        self._headers.append(read_header(batch))
        self._bytes += len(batch)
        if self._bytes >= WRITE_BYTES:
            self._flush()

    def copy(self, contents: LogRange, count: int) -> None:
        for _, batch in islice(contents.batches(), count):
            self.append(batch)

    def finish(self) -> Segment:
        self._flush()
        assert self._replacement is not None, "the last batch of a group stays"
        return self._replacement.finish()

    def discard(self) -> None:
        if self._replacement is not None:
            with suppress(OSError):  # Opening the log removes the file.
                self._replacement.discard()

    def _flush(self) -> None:
        if not self._chunks:
            return
        if self._replacement is None:
            self._replacement = Replacement(
                self._files, self._old, interval_bytes=self._interval_bytes
            )
        chunks: Sequence[Buffer] = self._chunks
        headers: Sequence[Header] = self._headers
        if self._sealer is not None:
            chunks, headers = self._sealer.seal(chunks, headers)
        self._replacement.append(chunks, headers)
        self._chunks, self._headers, self._bytes = [], [], 0


def _with_next(
    contents: Sequence[LogRange],
) -> Iterator[tuple[Header, memoryview, Header | None]]:
    """Each batch, and the header of the one behind it."""
    batches = chain.from_iterable(part.batches() for part in contents)
    held = next(batches, None)
    while held is not None:
        following = next(batches, None)
        yield *held, None if following is None else following[0]
        held = following


def _remembered(files: Files, directory: str) -> Remembered:
    ends: set[Offset] = set()
    producer_ids: set[int] = set()
    for name in files.list(directory):
        if not name.endswith(PRODUCERS):
            continue
        try:
            file = files.open(f"{directory}/{name}")
            producers = Producers.decode(file.read(0, file.size()))
        except (FileNotFoundError, DamagedLog):
            continue  # Opening the log will not use it either.
        ends.update(aborted.last_offset for aborted in producers.aborted(0, _OFFSET_MAX))
        views = producers.describe()
        producer_ids.update(v.producer_id for v in views if v.transaction_first_offset >= 0)
    return Remembered(frozenset(ends), frozenset(producer_ids))

"""The log against a plain list of batches, whatever is done to it and however it ends.

The model is a list of batches and the journal's word (start and epoch boundaries). Between two sync
rounds it remembers every state both went through, because a crash may leave any of them: of the
log, the beginning of some state; of the journal, exactly some state, chosen independently.
"""

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.codec.batch import Header, read_header
from millstream.codec.compression import Codec
from millstream.codec.records import decode_all
from millstream.cooperative import all_at_once
from millstream.model import Boundary, Epoch, ReplicaId
from millstream.settings import TopicSettings
from millstream.storage.compaction.replacement import Replacement
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log.producers import Producers
from tests.support.crashing_files import CrashingFiles
from tests.support.logs import (
    append,
    batch,
    open_small,
    read_all,
    searched,
    split,
    stored,
    sync,
)
from tests.support.tiers import sized

VOTERS = frozenset({ReplicaId(1)})
TINY = TopicSettings(segment_bytes=1024, index_interval_bytes=64, segment_ms=5_000)

SHAPES = st.tuples(
    st.integers(1, 4),  # records
    st.integers(0, 120),  # bytes each
    st.integers(-1, 60),  # timestamp
    st.sampled_from([0, 0, 0, 2]),  # gap inside
    st.sampled_from([0, 0, 0, 1, 7]),  # gap before
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
    st.sampled_from([-1, -1, 5, 6]),  # producer
)


class State(NamedTuple):
    """What the log holds; `lineage` are also the batches below its start, for the producers."""

    lineage: tuple[bytes, ...]
    resets: int


class Word(NamedTuple):
    """What the journal says."""

    start: int
    boundaries: tuple[Boundary, ...]


def header_of(data: bytes) -> Header:
    return read_header(data)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = self.make_files()
        self.now_ms = 0
        self.fill = 0
        self.sequences: dict[int, int] = {}
        self.last_epoch = 1
        self.word = Word(0, (Boundary(Epoch(1), 0, VOTERS),))
        self.state = State((), 0)
        self.states = [self.state]  # Since the last round began that has ended.
        self.words = [self.word]
        self.round: tuple | None = None
        self.dropped: set[bytes] = set()  # By compaction.
        self.are_producers_known = True
        self.largest_bytes = 0
        self.log = self.open()

    def make_files(self):
        return MemoryFiles()

    # -- the model -----------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.word.boundaries[-1].epoch

    @property
    def held(self) -> list[bytes]:
        start = self.word.start
        return [
            boundary
            for boundary in self.state.lineage
            if header_of(boundary).end_offset > start and boundary not in self.dropped
        ]

    @property
    def end(self) -> int:
        lineage = self.state.lineage
        end = header_of(lineage[-1]).end_offset if lineage else 0
        return max(end, self.word.start)

    def read_back(self) -> list:
        """All records that can be seen."""
        return [
            record
            for batch in self.held
            for record in decode_all(batch, decompressed_bytes_max=2**20)
            if record.offset >= self.word.start
        ]

    def became(self, state: State | None = None, word: Word | None = None) -> None:
        if state is not None:
            self.state = state
            self.states.append(state)
        if word is not None:
            self.word = word
            self.words.append(word)

    def next_boundary(self, start: int) -> Boundary:
        self.last_epoch += 1  # Consensus opens no epoch twice.
        return Boundary(Epoch(self.last_epoch), start, VOTERS)

    def open_epoch(self) -> None:
        boundary = self.next_boundary(self.log.end_offset)
        self.became(word=Word(self.word.start, (*self.word.boundaries, boundary)))

    def open(self):
        return open_small(
            self.files,
            settings=TINY,
            start_offset=self.word.start,
            boundaries=self.word.boundaries,
        )

    # -- changes -------------------------------------------------------------------------------

    @rule(shapes=st.lists(SHAPES, min_size=1, max_size=4), passed_ms=st.integers(0, 2_000))
    def append(self, shapes: list[tuple], passed_ms: int) -> None:
        self.now_ms += passed_ms
        made = []
        offset = self.log.end_offset
        for count, size, timestamp, gap, gap_before, codec, producer_id in shapes:
            self.fill = (self.fill + 1) % 251
            sequence = self.sequences.get(producer_id, 0)
            made.append(
                batch(
                    offset + gap_before,
                    count,
                    size=size,
                    timestamp=timestamp,
                    gap=gap,
                    fill=self.fill,
                    codec=codec,
                    epoch=self.epoch,
                    producer_id=producer_id,
                    sequence=sequence if producer_id >= 0 else -1,
                )
            )
            if producer_id >= 0:
                self.sequences[producer_id] = sequence + count
            offset = header_of(made[-1]).end_offset
        self.largest_bytes = max(self.largest_bytes, *map(len, made))
        append(self.log, *made, now_ms=self.now_ms)
        for made_batch in made:
            self.became(State((*self.state.lineage, made_batch), self.state.resets))

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        ends = [
            header_of(boundary).end_offset
            for boundary in self.state.lineage
            if boundary not in self.dropped
        ]
        ends = [end for end in ends if end >= self.word.start]
        if not ends:
            return
        end = data.draw(st.sampled_from(ends))
        self.log.truncate(end)
        lineage = tuple(batch for batch in self.state.lineage if header_of(batch).end_offset <= end)
        self.became(State(lineage, self.state.resets))
        self.forget_producers()
        assert self.log.end_offset == self.end
        kept = tuple(b for b in self.word.boundaries if b.start_offset <= self.end)
        self.became(word=Word(self.word.start, kept))
        self.open_epoch()

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.word.start, self.log.end_offset))
        self.log.advance_start(start)
        before = sum(b.start_offset < start for b in self.word.boundaries)
        self.became(word=Word(start, self.word.boundaries[max(0, before - 1) :]))

    @rule(ahead=st.integers(0, 40))
    def reset(self, ahead: int) -> None:
        start = max(0, self.log.end_offset - 15 + ahead)
        boundary = self.next_boundary(start)
        self.became(word=Word(start, (boundary,)))
        self.log.reset(start)
        self.became(State((), self.state.resets + 1))
        self.are_producers_known = True

    @precondition(lambda self: self.round is None)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        sync(self.log)
        self.states, self.words = [self.state], [self.word]
        sealed = self.log.sealed()
        if not sealed:
            return
        first = data.draw(st.integers(0, len(sealed) - 1))
        old = sealed[first : data.draw(st.integers(first + 1, len(sealed)))]
        new = Replacement(self.files, old, interval_bytes=TINY.index_interval_bytes)
        for segment in old:
            for header, content in self.log.opened(segment).batches():
                must_stay = header.has_producer or header.end_offset == old[-1].end_offset
                if must_stay or data.draw(st.booleans()):
                    new.append(*stored(self.log, content, header))
                else:
                    self.dropped.add(bytes(content))
        segment = new.finish()
        self.log.begin_replace(old)()
        assert self.log.replace(old, segment)
        sync(self.log)

    # -- rounds --------------------------------------------------------------------------------

    @precondition(lambda self: self.round is None)
    @rule()
    def begin_sync(self) -> None:
        work = self.log.begin_sync()
        if work is not None:
            self.round = (work, len(self.states) - 1, len(self.words) - 1)

    @precondition(lambda self: self.round is not None)
    @rule()
    def end_sync(self) -> None:
        assert self.round is not None
        work, states, words = self.round
        work()
        self.log.end_sync()
        self.round = None
        self.states, self.words = self.states[states:], self.words[words:]

    # -- ends ----------------------------------------------------------------------------------

    @precondition(lambda self: self.round is None)
    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.states, self.words = [self.state], [self.word]
        self.log = self.open()
        assert not self.log.is_dirty
        assert len(self.log.sealed()) >= self.log.health().segment_count - 1

    def after_crash(self, word: Word) -> None:
        """Open what is left and check that it is a beginning of what there was."""
        self.word = word
        self.round = None
        self.log = self.open()
        records = read_all(self.log)
        start, resets = word.start, self.states[0].resets
        candidates = [self.visible(state, word) for state in self.states]
        assert any(records == candidate[: len(records)] for candidate in candidates), "garbage"
        if all(state.resets == resets for state in self.states):
            common = [batch for batch in self.common(self.states) if batch not in self.dropped]
            kept = [batch for batch in common if header_of(batch).end_offset > start]
            assert records[: len(kept)] == kept, "lost"
        end = self.log.end_offset
        lineages = {
            tuple(boundary for boundary in state.lineage if header_of(boundary).end_offset <= end)
            for state, candidate in zip(self.states, candidates, strict=True)
            if records == candidate[: len(records)]
        }
        if len(lineages) > 1 or any(state.resets != resets for state in self.states):
            # Nothing that can be seen tells what the log held below its start.
            lineages = {tuple(records)}
            self.are_producers_known = False
        self.state = State(lineages.pop(), self.states[-1].resets)
        kept_boundaries = tuple(b for b in word.boundaries if b.start_offset <= end)
        self.word = Word(start, kept_boundaries or (Boundary(Epoch(1), 0, VOTERS),))
        self.states, self.words = [self.state], [self.word]
        self.forget_producers()
        self.open_epoch()
        self.words = [self.word]

    def forget_producers(self) -> None:
        """A cut below both snapshots loses producers of batches that retention removed before."""
        chain = self.log._chain
        base = chain.segments[0].base_offset if chain.segments else self.log.end_offset
        has_gone = any(
            header.has_producer and header.end_offset <= base
            for header in map(header_of, self.state.lineage)
        )
        if has_gone and chain.snapshots.newest < base:
            self.are_producers_known = False

    def visible(self, state: State, word: Word) -> list[bytes]:
        """What of a state the journal lets stand."""
        collected = []
        for boundary in state.lineage:
            header = header_of(boundary)
            if header.end_offset <= word.start or boundary in self.dropped:
                continue
            in_force = [b.epoch for b in word.boundaries if b.start_offset <= header.base_offset]
            if not in_force or in_force[-1] != header.epoch:
                break
            collected.append(boundary)
        return collected

    def common(self, states: list[State]) -> list[bytes]:
        common = list(states[0].lineage)
        for state in states[1:]:
            same = 0
            for mine, other in zip(common, state.lineage, strict=False):
                if mine != other:
                    break
                same += 1
            del common[same:]
        return common

    # -- questions -----------------------------------------------------------------------------

    @invariant()
    def ends_agree(self) -> None:
        assert self.log.start_offset == self.word.start
        assert self.log.end_offset == self.end

    @rule(data=st.data(), bytes_max=st.integers(1, 3_000))
    def read(self, data: st.DataObject, bytes_max: int) -> None:
        offset = data.draw(st.integers(self.word.start, self.end))
        end = data.draw(st.integers(0, self.end + 2))
        part = self.log.read(offset, bytes_max=bytes_max, end_offset=end)
        behind = [batch for batch in self.held if header_of(batch).end_offset > offset]
        seen = [batch for batch in behind if header_of(batch).end_offset <= end]
        if not seen or offset >= end:
            assert part is None
            return
        assert part is not None
        got = split(part.read())
        assert got == seen[: len(got)]
        assert len(got) == 1 or part.size <= bytes_max
        assert part.end_offset <= end
        assert part.end_offset >= header_of(got[-1]).end_offset

    @rule()
    def read_everything(self) -> None:
        assert read_all(self.log) == self.held

    @rule()
    def verify(self) -> None:
        assert self.log.verify() >= len(self.held)

    @rule()
    def base(self) -> None:
        bases = [header_of(batch).base_offset for batch in self.held[:1]]
        assert self.log.base_offset == min([self.word.start, *bases])

    @rule(timestamp=st.integers(-1, 65), data=st.data())
    def look_up_time(self, timestamp: int, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.word.start, self.end))
        cut = next((h for h in map(header_of, self.held) if h.end_offset > end), None)
        seen = [r for r in self.read_back() if cut is None or r.offset < cut.base_offset]
        expected = next(((r.offset, r.timestamp) for r in seen if r.timestamp >= timestamp), None)
        assert searched(self.log.offset_for_time(timestamp, end_offset=end)) == expected
        newest = max(seen, key=lambda record: record.timestamp, default=None)
        if newest is None or newest.timestamp < 0:
            assert searched(self.log.offset_of_max_timestamp(end_offset=end)) is None
        else:
            expected = newest.offset, newest.timestamp
            assert searched(self.log.offset_of_max_timestamp(end_offset=end)) == expected

    @rule(count=st.integers(0, 30))
    def tail(self, count: int) -> None:
        offset = all_at_once(self.log.tail(count, end_offset=self.end))
        behind = [r for r in self.read_back() if r.offset >= offset]
        assert len(behind) >= min(count, len(self.read_back()))
        inside = [h for h in map(header_of, self.held) if h.base_offset < offset < h.end_offset]
        is_dense = all(h.count == h.last_offset_delta + 1 for h in inside)
        if is_dense and offset != self.word.start:
            first = next((h for h in map(header_of, self.held) if h.end_offset > offset), None)
            assert first is None or count == len(behind) or first.base_offset == offset

    @precondition(lambda self: self.are_producers_known)
    @rule()
    def producers(self) -> None:
        expected = Producers()
        for boundary in self.state.lineage:
            expected.apply(header_of(boundary), None)
        assert self.log.producers.describe() == expected.describe()

    @rule()
    def health(self) -> None:
        health = self.log.health()
        assert health.segment_count == len(self.log._chain.segments)
        assert health.size_bytes >= sum(map(len, self.held))
        limit = TINY.index_interval_bytes + self.largest_bytes
        assert self.dropped or health.index_bytes_per_entry_max <= limit


class DiskMachine(LogMachine):
    def make_files(self):
        self.root = Path(tempfile.mkdtemp(prefix="millstream-log-"))
        return DiskFiles(self.root)

    @precondition(lambda self: self.round is None)
    @rule()
    def kill(self) -> None:
        self.log.abandon()
        self.log = self.open()
        self.forget_producers()

    def teardown(self) -> None:
        shutil.rmtree(self.root)


class CrashingMachine(LogMachine):
    def make_files(self):
        return CrashingFiles()

    @rule(
        seed=st.integers(0, 2**16),
        kind=st.sampled_from(["torn", "reordered", "worst", "kill"]),
        data=st.data(),
    )
    def crash(self, seed: int, kind: str, data: st.DataObject) -> None:
        if kind == "kill":
            self.files.kill()
            word = self.word
        else:
            self.files.power_cut(Random(seed), reorder=kind == "reordered", worst=kind == "worst")
            word = self.words[data.draw(st.integers(0, len(self.words) - 1))]
        self.after_crash(word)


QUICK = settings(
    max_examples=sized(60),
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

TestLogInMemory = LogMachine.TestCase
TestLogInMemory.settings = QUICK
TestLogOnDisk = DiskMachine.TestCase
TestLogOnDisk.settings = settings(QUICK, max_examples=sized(15))
TestLogOverCrashes = CrashingMachine.TestCase
TestLogOverCrashes.settings = settings(QUICK, max_examples=sized(150))

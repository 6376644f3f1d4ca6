"""Whatever is written, compacted and restarted: readers see what the model says they must."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.codec.batch import Header
from millstream.codec.compression import Codec
from millstream.codec.markers import ControlKind
from millstream.storage.compaction.rules import KEY_ENTRY_BYTES
from millstream.storage.files.memory import MemoryFiles
from tests.support.compacted_log import RETENTION_MS, CompactedLog
from tests.support.tiers import sized

KEYS = st.sampled_from(["a", "b", "c", "d", "k" * 30, "k" * 31])
VALUES = st.none() | st.sampled_from(["1", "2", "3" * 200])
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4])
TRANSACTIONAL_IDS = st.integers(1, 3)
IDEMPOTENT_IDS = st.integers(11, 12)


class CompactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.it = CompactedLog(MemoryFiles())

    @rule(pairs=PAIRS, codec=CODECS)
    def produce(self, pairs: list[tuple[str, str | None]], codec: Codec) -> None:
        self.it.produce(*pairs, codec=codec)

    @rule(pairs=PAIRS, producer_id=IDEMPOTENT_IDS)
    def produce_idempotently(self, pairs: list[tuple[str, str | None]], producer_id: int) -> None:
        self.it.produce(*pairs, producer_id=producer_id)

    @rule(pairs=PAIRS, producer_id=TRANSACTIONAL_IDS)
    def produce_in_transaction(self, pairs: list[tuple[str, str | None]], producer_id: int) -> None:
        self.it.produce(*pairs, producer_id=producer_id, transactional=True)

    @rule(producer_id=TRANSACTIONAL_IDS, kind=st.sampled_from(ControlKind))
    def end_transaction(self, producer_id: int, kind: ControlKind) -> None:
        self.it.end(producer_id, kind)

    @rule()
    def produce_without_key(self) -> None:
        self.it.produce((None, "x"), ("a", "y"))

    @rule()
    def seal(self) -> None:
        self.it.seal()

    @rule()
    def open_epoch(self) -> None:
        self.it.open_epoch()

    @rule(share=st.sampled_from([0.1, 1.0, 1.5]))
    def let_time_pass(self, share: float) -> None:
        self.it.now_ms += int(RETENTION_MS * share)

    @rule(count=st.sampled_from([1, 3, 1_000]))
    def compact(self, count: int) -> None:
        self.it.seal()
        self.it.compact(keys_bytes_max=count * KEY_ENTRY_BYTES)

    @rule(is_clean=st.booleans(), has_snapshots=st.booleans())
    def restart(self, is_clean: bool, has_snapshots: bool) -> None:
        self.it.restart(is_clean=is_clean, has_snapshots=has_snapshots)

    @precondition(lambda self: self.it.stable_end > self.it.start_offset)
    @rule(data=st.data())
    def move_the_log_start(self, data: st.DataObject) -> None:
        it = self.it
        it.advance_start(data.draw(st.integers(it.start_offset, it.stable_end)))

    @rule(data=st.data(), bytes_max=st.sampled_from([1, 100, 300, 2**20]))
    def read_from_somewhere(self, data: st.DataObject, bytes_max: int) -> None:
        it = self.it
        offset = data.draw(st.integers(it.start_offset, it.log.end_offset))
        it.check_reading(offset, bytes_max=bytes_max)

    @rule()
    def settle(self) -> None:
        """Again and again until nothing changes: then nothing is left that should not be."""
        self.it.seal()
        for _ in range(4):
            self.it.now_ms += RETENTION_MS
            self.it.compact()
        before = self.it.batches()
        self.it.now_ms += RETENTION_MS
        assert not self.it.compact()
        assert self.it.batches() == before
        self.check_clean()

    @invariant()
    def all_is_well(self) -> None:
        self.it.check()

    def check_clean(self) -> None:
        """Below the clean end a key stands once, and no tombstone and no aborted record does.

        A segment that a restart has opened again may hold a transaction which is open now: it is
        not rewritten before that one has ended.
        """
        it = self.it
        ends = [each.end_offset for each in it.log.sealed() if each.end_offset <= it.stable_end]
        clean_end = min(it.clean_end, max(ends, default=0))
        collected = [r for r in it.read_committed(it.start_offset) if r.offset < clean_end]
        keys = [record.key for record in collected]
        assert len(keys) == len(set(keys))
        assert None not in keys
        assert all(record.value is not None for record in collected)
        cleaned = [
            header
            for header, _ in it.batches()
            if header.base_offset >= it.start_offset and header.end_offset <= clean_end
        ]
        count = sum(header.count for header in cleaned)
        in_batches = sum(any(r.offset in range_of(h) for h in cleaned) for r in collected)
        assert count == in_batches + sum(header.is_control for header in cleaned)


def range_of(header: Header) -> range:
    return range(header.base_offset, header.end_offset)


TestCompactionAgainstAModel = CompactionMachine.TestCase
TestCompactionAgainstAModel.settings = settings(
    deadline=None, max_examples=sized(100), stateful_step_count=40
)

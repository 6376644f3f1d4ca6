"""Compaction of the offsets topic: whatever it removes, folding what is left gives the same groups.

Groups commit plainly and in transactions that are committed, aborted or left open, and delete what
they committed; the log is compacted and reopened in between. The model folds every batch ever
written, the log only those that are left.
"""

from collections.abc import Iterable
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millstream.codec.batch import Header
from millstream.codec.encoding import encode_batch
from millstream.codec.markers import ControlKind, decode_marker, encode_marker
from millstream.codec.records import Record, decode_all
from millstream.internal_topics.groups import (
    GroupKey,
    GroupsState,
    GroupValue,
    OffsetKey,
    OffsetValue,
    StoredGroup,
    encode_key,
    encode_value,
)
from millstream.model import TopicPartition
from millstream.storage.files.memory import MemoryFiles
from tests.support.compacted_log import BYTES_MAX, RETENTION_MS, CompactedLog
from tests.support.tiers import sized

GROUP_IDS = st.sampled_from(["a", "b"])
PARTITIONS = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)
PRODUCER_IDS = st.integers(1, 3)
NO_PRODUCER = -1

View = dict[str, tuple[object, object, object]]


def fold(batches: Iterable[tuple[Header, bytes]]) -> GroupsState:
    """As a ledger does it."""
    state = GroupsState()
    for header, data in batches:
        if header.is_control:
            if header.count:
                state.end(decode_marker(data))
            continue
        for record in decode_all(data, decompressed_bytes_max=BYTES_MAX):
            if header.is_transactional:
                state.pend(record, header.producer_id)
            else:
                state.apply(record)
    return state


def view(state: GroupsState) -> View:
    collected = {group_id: state.find(group_id) or StoredGroup() for group_id in state}
    return {key: (entry.value, entry.offsets, entry.pending) for key, entry in collected.items()}


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.it = CompactedLog(MemoryFiles())
        self.written: list[tuple[Header, bytes]] = []
        self.commit_count = 0

    @rule(group_id=GROUP_IDS, partitions=PARTITIONS)
    def commit(self, group_id: str, partitions: list[int]) -> None:
        self.append([(offset_key(group_id, at), self.offset()) for at in partitions])

    @rule(group_id=GROUP_IDS, partitions=PARTITIONS, producer_id=PRODUCER_IDS)
    def commit_in_transaction(self, group_id: str, partitions: list[int], producer_id: int) -> None:
        pairs = [(offset_key(group_id, at), self.offset()) for at in partitions]
        self.append(pairs, producer_id=producer_id)  # type: ignore[arg-type]

    @rule(producer_id=PRODUCER_IDS, kind=st.sampled_from(ControlKind))
    def end(self, producer_id: int, kind: ControlKind) -> None:
        self.put(
            encode_marker(
                kind,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=self.it.now_ms,
                base_offset=self.it.log.end_offset,
                epoch=self.it.epoch,
            )
        )

    @rule(group_id=GROUP_IDS, partitions=PARTITIONS)
    def delete_offsets(self, group_id: str, partitions: list[int]) -> None:
        self.append([(offset_key(group_id, at), None) for at in partitions])

    @rule(group_id=GROUP_IDS, is_over=st.booleans())
    def save_group(self, group_id: str, is_over: bool) -> None:
        self.commit_count += 1
        value = GroupValue(
            protocol_type="consumer",
            generation=self.commit_count,
            protocol=None,
            leader=None,
            changed_ms=0,
            members=(),
        )
        self.append([(encode_key(GroupKey(group_id)), None if is_over else encode_value(value))])

    @rule()
    def open_epoch(self) -> None:
        self.it.open_epoch()

    @rule(share=st.sampled_from([0.1, 1.0]))
    def compact(self, share: float) -> None:
        self.it.seal()
        self.it.now_ms += int(RETENTION_MS * share)
        self.it.compact()

    @rule(is_clean=st.booleans(), has_snapshots=st.booleans())
    def restart(self, is_clean: bool, has_snapshots: bool) -> None:
        self.it.restart(is_clean=is_clean, has_snapshots=has_snapshots)

    @invariant()
    def what_is_left_folds_to_the_same_groups(self) -> None:
        assert view(fold(self.it.batches())) == view(fold(self.written))

    def offset(self) -> bytes:
        self.commit_count += 1
        return encode_value(
            OffsetValue(
                offset=self.commit_count,
                leader_epoch=0,
                metadata="",
                committed_ms=0,
                topic_id=UUID(int=1),
            )
        )

    def append(
        self, pairs: list[tuple[bytes, bytes | None]], *, producer_id: int = NO_PRODUCER
    ) -> None:
        at = self.it.log.end_offset
        self.put(
            encode_batch(
                [Record(at + n, self.it.now_ms, *pair) for n, pair in enumerate(pairs)],
                base_offset=at,
                epoch=self.it.epoch,
                producer_id=producer_id,
                producer_epoch=-1 if producer_id < 0 else 0,
                is_transactional=producer_id >= 0,
            )
        )

    def put(self, data: bytes) -> None:
        self.written.append((self.it._append(data), data))


def offset_key(group_id: str, partition: int) -> bytes:
    target = TopicPartition("orders", partition)
    return encode_key(OffsetKey(group_id, target.topic, target.partition))


TestOffsetsAndCompaction = OffsetsMachine.TestCase
TestOffsetsAndCompaction.settings = settings(
    deadline=None, max_examples=sized(100), stateful_step_count=40
)

"""What must always be true of a cluster of whole nodes, each with a name.

`observe` looks at every live replica and raises with the name of the first claim that is broken.
The history of a log is what was ever seen as committed, by anybody.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from millstream.codec.batch import verify_batches
from millstream.codec.records import decode_all
from millstream.errors import BrokenReplica
from millstream.model import Epoch, LogId, NodeId, Offset
from millstream.replication.replica import Replica

Entry = tuple[Epoch, bytes | None]


def read_committed(replica: Replica, start: Offset) -> dict[Offset, Entry]:
    """Epoch and value of every record from `start` to the high watermark."""
    collected: dict[Offset, Entry] = {}
    end, start = replica.high_watermark, max(start, replica.log.start_offset)
    while start < end:
        part = replica.log.read(start, bytes_max=2**20, end_offset=end)
        if part is None:
            return collected  # A watermark learnt from a log start may lie inside a batch.
        data, at = part.read(), 0
        for header in verify_batches(data):
            for record in decode_all(data, at, decompressed_bytes_max=2**20):
                if record.offset >= start:
                    collected[record.offset] = Epoch(header.epoch), record.value
            at += header.size
        start = part.end_offset
    return collected


@dataclass
class Histories:
    committed: dict[LogId, dict[Offset, Entry]] = field(default_factory=dict)
    leaders: dict[tuple[LogId, Epoch], NodeId] = field(default_factory=dict)
    seen: dict[tuple[NodeId, int, LogId], Offset] = field(default_factory=dict)
    compared: dict[tuple[NodeId, int, LogId], Offset] = field(default_factory=dict)
    epochs: dict[LogId, int] = field(default_factory=dict)  # The newest that anybody was seen in.
    checks: int = 0

    def observe(self, node: NodeId, life: int, replicas: Iterable[Replica]) -> None:
        self.checks += 1
        for replica in replicas:
            is_broken = isinstance(replica.failure, BrokenReplica)
            assert not is_broken, f"NoReplicaBreaksARule: {replica.failure}"
            self._single_leader_per_epoch(node, replica)
            self._monotonic_high_watermark(node, life, replica)
            newest = self.epochs.get(replica.id, 0)
            self.epochs[replica.id] = max(newest, replica.core.epoch)

    def settled_leaders_hold_all(self, replicas: Iterable[Replica]) -> None:
        """Once all nodes were looked at: the leader of the newest epoch that any node has entered
        holds everything. An older leader that was cut off need not, and does not know it yet.
        """
        for replica in replicas:
            is_newest = replica.core.epoch == self.epochs[replica.id]
            if replica.is_leader and replica.is_ready and is_newest:
                history = self.committed.get(replica.id, {})
                assert len(history) <= replica.high_watermark, f"LeaderCompleteness: {replica.id}"

    def acknowledge(self, log: LogId, offset: Offset, value: bytes) -> None:
        entry = self.committed.get(log, {}).get(offset)
        assert entry is not None, f"AcknowledgedIsCommitted: {log} offset {offset} is not"
        assert entry[1] == value, f"AcknowledgedIsCommitted: {log} offset {offset} is another"

    def offsets_never_skip(self) -> None:
        for log, history in self.committed.items():
            assert sorted(history) == list(range(len(history))), f"OffsetsNeverSkip: {log}"

    def nothing_twice(self) -> None:
        for log, history in self.committed.items():
            values = [value for _, value in history.values()]
            assert len(values) == len(set(values)), f"NothingTwice: {log}"

    def _single_leader_per_epoch(self, node: NodeId, replica: Replica) -> None:
        if replica.is_leader:
            owner = self.leaders.setdefault((replica.id, replica.core.epoch), node)
            assert owner == node, f"SingleLeaderPerEpoch: {replica.id} {replica.core.epoch}"

    def _monotonic_high_watermark(self, node: NodeId, life: int, replica: Replica) -> None:
        key = node, life, replica.id
        seen = self.seen.get(key, 0)
        assert replica.high_watermark >= seen, f"MonotonicHighWatermark: {replica.id}"
        if replica.high_watermark > seen:
            history = self.committed.setdefault(replica.id, {})
            fresh = read_committed(replica, self.compared.get(key, 0))
            for offset, entry in fresh.items():
                known = history.setdefault(offset, entry)
                assert known == entry, (
                    f"CommittedNeverChanges: {replica.id} offset {offset} was {known}, "
                    f"node {node} has {entry}"
                )
            self.seen[key] = replica.high_watermark
            self.compared[key] = max(fresh, default=self.compared.get(key, 0) - 1) + 1

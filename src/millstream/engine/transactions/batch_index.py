"""Index of a coordinator's batch groups: their members, and their written and committed state.

A read returns what was written last, committed or not. Updated by `TransactionCoordinator` alone,
which writes groups and transactions in one batch.
"""

from collections import OrderedDict

from millstream.codec.records import Record
from millstream.errors import Overloaded
from millstream.internal_topics.batch_groups import (
    BatchGroupsState,
    BatchGroupValue,
    check_open,
    group_of,
    unknown,
)
from millstream.model import Offset


class BatchIndex:
    def __init__(self) -> None:
        self._stored = BatchGroupsState()
        self._members: dict[str, set[str]] = {}
        # By the offset at which that was written, ascending.
        self._written: OrderedDict[str, tuple[Offset, BatchGroupValue | None]] = OrderedDict()
        # When the lease of an open group was renewed last. In memory only: a new coordinator gives
        # every group a whole lease from its first look.
        self._renewed_ms: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._stored)

    def names(self) -> list[str]:
        return self._stored.names()

    def find(self, group: str) -> BatchGroupValue | None:
        """The value that was written last, committed or not."""
        written = self._written.get(group)
        return self._stored.find(group) if written is None else written[1]

    def members(self, group: str) -> list[str]:
        return sorted(self._members.get(group, ()))

    def written_offset(self, group: str) -> Offset | None:
        """End offset of the latest write that is not known to be committed."""
        written = self._written.get(group)
        return None if written is None else written[0]

    def check_open(self, transactional_id: str, *, members_max: int) -> None:
        """Raise if the id is of a group that is not open for it, or that is full."""
        group = group_of(transactional_id)
        if group is None:
            return
        check_open(transactional_id, self.find(group) or unknown(0))
        members = self._members.get(group, set())
        if transactional_id not in members and len(members) >= members_max:
            raise Overloaded(f"{len(members)} transactions in batch group {group!r}, which is all")

    def renew(self, group: str | None, now_ms: int) -> None:
        """Renew the lease of a group's open transactions, if it has any."""
        if group is not None and group in self._members:
            self._renewed_ms[group] = now_ms

    def renewed_ms(self, group: str, now_ms: int) -> int:
        """When the group was renewed last; the first look at it renews it."""
        return self._renewed_ms.setdefault(group, now_ms)

    def note(self, transactional_id: str, *, is_known: bool) -> None:
        """Add or remove a transactional id."""
        group = group_of(transactional_id)
        if group is None:
            return
        if is_known:
            self._members.setdefault(group, set()).add(transactional_id)
            return
        members = self._members.get(group, set())
        members.discard(transactional_id)
        if not members:
            self._members.pop(group, None)
            self._renewed_ms.pop(group, None)

    def write(self, group: str, value: BatchGroupValue | None, offset: Offset) -> None:
        self._written[group] = (offset, value)
        self._written.move_to_end(group)

    def apply(self, record: Record) -> bool:
        """Apply a committed record; return whether it is about a group."""
        return self._stored.apply(record.key, record.value)

    def forget_written(self, applied_offset: Offset) -> None:
        while self._written and next(iter(self._written.values()))[0] <= applied_offset:
            self._written.popitem(last=False)

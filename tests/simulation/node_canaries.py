"""Bugs planted into whole nodes: the simulation must see each of them, or it sees nothing.

The bugs of consensus itself are planted in `canaries`; these are the driver's: what is done too
early, forgotten or left out between the core and the disk.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from millstream.model import NEVER_VOTED, Position
from millstream.replication.consensus_log import ConsensusLog, Stamped
from millstream.replication.group_commit import GroupCommit
from millstream.replication.replica import Replica
from millstream.storage.journal.journal import Journal
from millstream.storage.log.log import Log


@contextmanager
def acknowledge_before_the_sync() -> Iterator[None]:
    """Reports records as durable as soon as they are written."""

    def append(self: GroupCommit, replica: Replica, batch: Stamped) -> None:
        original(self, replica, batch)
        self.commit(replica, replica.consensus_log.last)

    original = GroupCommit.append
    with patch.object(GroupCommit, "append", append):
        yield


@contextmanager
def sync_nothing_but_the_journal() -> Iterator[None]:
    """Records count as durable without a sync."""
    with _work_left_out(Log):
        yield


@contextmanager
def sync_nothing_but_the_records() -> Iterator[None]:
    """Votes and boundaries count as durable without a sync."""
    with _work_left_out(Journal):
        yield


@contextmanager
def _work_left_out(kind: type[Log] | type[Journal]) -> Iterator[None]:
    """All goes as in a round of syncs, but for the syncs."""

    def begin_sync(self: Any) -> Callable[[], None] | None:  # Either of the two.
        return None if original(self) is None else lambda: None

    original = kind.begin_sync
    with patch.object(kind, "begin_sync", begin_sync):
        yield


@contextmanager
def leave_the_journals_new_name_unsynced() -> Iterator[None]:
    """After a rewrite the file is synced and its name is not."""

    def begin_sync(self: Journal) -> Callable[[], None] | None:
        self._is_renamed = False
        return original(self)

    original = Journal.begin_sync
    with patch.object(Journal, "begin_sync", begin_sync):
        yield


@contextmanager
def forget_votes() -> Iterator[None]:
    """A restarted node remembers its epoch, but not whom it voted for."""

    def state(self: Journal, log: Any) -> Any:
        known = original(self, log)
        hard_state = known.hard_state._replace(voted_for=NEVER_VOTED.voted_for)
        return known._replace(hard_state=hard_state)

    original = Journal.state
    with patch.object(Journal, "state", state):
        yield


@contextmanager
def keep_boundaries_when_cutting() -> Iterator[None]:
    """Truncates records and leaves the boundaries of what is gone."""

    def truncate(self: ConsensusLog, to: Position) -> None:
        self.cuts += 1
        if to.end_offset < self.log.end_offset:
            self.log.truncate(to.end_offset)

    with patch.object(ConsensusLog, "truncate", truncate):
        yield


@contextmanager
def answer_before_commit() -> Iterator[None]:
    """acks=all is answered like acks=1."""

    def committed(self: Replica, end_offset: int, result: object) -> Any:
        return original(self, 0, result)

    original = Replica.committed
    with patch.object(Replica, "committed", committed):
        yield


@contextmanager
def forget_producers() -> Iterator[None]:
    """Retries of an idempotent producer are written again."""
    from millstream.storage.log.producers import Producers

    with patch.object(Producers, "check", lambda self, header: None):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "acknowledge-before-the-sync": acknowledge_before_the_sync,
    "sync-nothing-but-the-journal": sync_nothing_but_the_journal,
    "sync-nothing-but-the-records": sync_nothing_but_the_records,
    "leave-the-journals-new-name-unsynced": leave_the_journals_new_name_unsynced,
    "forget-votes": forget_votes,
    "keep-boundaries-when-cutting": keep_boundaries_when_cutting,
    "answer-before-commit": answer_before_commit,
    "forget-producers": forget_producers,
}

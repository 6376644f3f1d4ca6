"""Who leads which log, here and elsewhere, and the acts of an operator: other voters, a transfer.

Knows its own replicas first. For logs without a replica here `elsewhere` answers, which the cluster
sets: a node alone leads all that it has.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import NotLeader
from millstream.model import NO_EPOCH, Epoch, LogId, NodeId, ReplicaId, node_of
from millstream.raft.member import Effects
from millstream.replication.replica import Replica

if TYPE_CHECKING:  # It imports this module.
    from millstream.replication.hub import Hub


class KnownLeader(NamedTuple):
    epoch: Epoch
    leader: NodeId | None  # None during elections.


UNKNOWN = KnownLeader(NO_EPOCH, None)


class Leadership:
    def __init__(self, hub: "Hub", drive: Callable[[Replica, Callable[[], Effects]], None]) -> None:
        self.elsewhere: Callable[[LogId], KnownLeader | None] = lambda _: None
        # Asks other nodes for leaders, which `elsewhere` knows then; None while there are none.
        self.inquire: Callable[[Sequence[LogId]], Awaitable[None]] | None = None
        self._hub = hub
        self._drive = drive
        self._watchers: list[Callable[[Replica], None]] = []

    def of(self, log_id: LogId) -> KnownLeader:
        """The leader of a log, as far as this node knows."""
        replica = self._hub.replicas.get(log_id)
        news = self.elsewhere(log_id)
        if replica is None:
            return news or UNKNOWN
        if replica.leader is None and news is not None and news.epoch >= replica.core.epoch:
            return news
        return KnownLeader(replica.core.epoch, replica.leader)

    async def find(self, log_ids: Sequence[LogId]) -> None:
        """Have other nodes asked for the leaders that this node does not know.

        A node that was cut off from a leader's election hears of it by those that were not.
        """
        if self.inquire is None:
            return
        unknown = [log_id for log_id in log_ids if self.of(log_id).leader is None]
        if unknown:
            await self.inquire(unknown)

    def learners(self, log_id: LogId, nodes: Sequence[NodeId]) -> frozenset[NodeId]:
        """Those of the nodes whose replicas follow and do not vote, as far as this node knows."""
        replica = self._hub.replicas.get(log_id)
        if replica is None or len(replica.core.voters) >= len(nodes):
            return frozenset()
        return frozenset(nodes).difference(map(node_of, replica.core.voters))

    def watch(self, watcher: Callable[[Replica], None]) -> None:
        """Call `watcher` with every replica here that begins or ends to lead."""
        self._watchers.append(watcher)

    def changed(self, replica: Replica) -> None:
        """The role of a replica has changed."""
        for watcher in self._watchers:
            watcher(replica)

    def change_voters(self, log_id: LogId, voters: frozenset[ReplicaId]) -> None:
        """Begin to change the voters of a log that is led here, by one; `ChangeRefused` says why it
        cannot be now. It has happened when `core.voters` are these."""
        replica = self._led(log_id)
        self._drive(replica, lambda: replica.core.change_voters(voters))

    def transfer(self, log_id: LogId, to: ReplicaId) -> None:
        """Hand the leadership of a log to another replica; `ChangeRefused` says why not."""
        replica = self._led(log_id)
        self._drive(replica, lambda: replica.core.transfer(to))

    def _led(self, log_id: LogId) -> Replica:
        replica = self._hub.find(log_id)
        if not replica.is_leader:
            raise NotLeader(log_id, replica.leader)
        return replica

"""Finds the replica on this node that leads a partition, or says why there is none.

Writes need a leader. Reads need one that is current: it knows all that was ever committed, which
takes a new leader one commit of its own epoch.
"""

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from millstream.control.catalog import Catalog
from millstream.errors import LeaderNotReady, NotLeader, UnknownTopic
from millstream.model import Epoch, LogId, NodeId, TopicPartition
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

KNOWN_MAX = 20_000  # Replicas kept at hand by the name of their topic; others are looked up again.


class Leadership(NamedTuple):
    leader: NodeId | None  # None during elections, and for a log that is damaged here.
    epoch: Epoch
    replicas: Sequence[NodeId]
    learners: frozenset[NodeId] = frozenset()  # Those of them that follow and do not vote.

    def in_step(self, is_up: Callable[[NodeId], bool]) -> list[int]:
        """The replicas that vote, on nodes that can be reached from here."""
        return [node for node in self.replicas if is_up(node) and node not in self.learners]


class Leaders:
    def __init__(self, catalog: Catalog, hub: Hub, *, held: Container[TopicPartition]) -> None:
        """`held` are the partitions in which earlier appends wait for their log to be opened."""
        self._catalog = catalog
        self._hub = hub
        self._held = held
        # Looked up since the catalog was at `_version`: a produce asks for one, a fetch for each
        # of its partitions.
        self._known: dict[TopicPartition, Replica] = {}
        self._writable: dict[TopicPartition, Replica] = {}
        self._version = catalog.version

    def log_id(self, target: TopicPartition) -> LogId:
        """Raises `UnknownTopic`, also for a partition that the topic does not have."""
        return self._catalog.find(target.topic).log(target.partition)

    def find(self, target: TopicPartition) -> Replica:
        """The leader. A replica whose storage has failed is returned, too: it refuses by itself."""
        replica = self._known.get(target)
        if replica is None or replica.is_gone or self._version != self._catalog.version:
            replica = self._here(target)
            self._keep(self._known, target, replica)
        if not replica.is_leader and replica.failure is None:
            raise NotLeader(target, replica.leader)
        return replica

    def find_writable(self, target: TopicPartition) -> Replica:
        """The leader of a topic that is no view."""
        replica = self._writable.get(target)
        if (
            replica is None
            or replica.is_gone
            or not replica.is_leader
            or self._version != self._catalog.version
        ):
            self._catalog.find(target.topic).check_writable()
            if target in self._held:
                raise NotLeader(target, None)
            replica = self.find(target)
            self._keep(self._writable, target, replica)
        return replica

    def find_current(self, target: TopicPartition) -> Replica:
        """The leader, once it knows all that is committed. A failed one still serves readers."""
        replica = self.find(target)
        if not replica.is_ready:
            raise LeaderNotReady(target)
        return replica

    def _here(self, target: TopicPartition) -> Replica:
        """The replica on this node; `NotLeader` says where the leader is if there is none."""
        log_id = self.log_id(target)
        try:
            return self._hub.find(log_id)
        except UnknownTopic:  # The topic is known: its partition lives elsewhere.
            raise NotLeader(target, self._hub.leadership.of(log_id).leader) from None

    def _keep(
        self, replicas: dict[TopicPartition, Replica], target: TopicPartition, replica: Replica
    ) -> None:
        if self._version != self._catalog.version or len(replicas) >= KNOWN_MAX:
            self._known.clear()
            self._writable.clear()
            self._version = self._catalog.version
        replicas[target] = replica

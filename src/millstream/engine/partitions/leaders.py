"""Finds the replica on this node that leads a partition, or says why there is none.

Writes need a leader. Reads need one that is current: it knows all that was ever committed, which
takes a new leader one commit of its own epoch.
"""

from millstream.control.catalog import Catalog
from millstream.errors import NotLeader, NotSettled
from millstream.model import LogId, TopicPartition
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica


class Leaders:
    def __init__(self, catalog: Catalog, hub: Hub) -> None:
        self._catalog = catalog
        self._hub = hub

    def log_id(self, target: TopicPartition) -> LogId:
        """Raises `UnknownTopic`, also for a partition that the topic does not have."""
        return self._catalog.find(target.topic).log(target.partition)

    def find(self, target: TopicPartition) -> Replica:
        """The leader. A replica whose storage has failed is returned, too: it refuses by itself."""
        replica = self._hub.find(self.log_id(target))
        if not replica.is_leader and replica.failure is None:
            raise NotLeader(target, replica.leader)
        return replica

    def find_writable(self, target: TopicPartition) -> Replica:
        """The leader of a topic that is no view."""
        self._catalog.find(target.topic).check_writable()
        return self.find(target)

    def find_current(self, target: TopicPartition) -> Replica:
        """The leader, once it knows all that is committed. A failed one still serves readers."""
        replica = self.find(target)
        if not replica.is_settled:
            raise NotSettled(target)
        return replica

"""This node's replicas kept in step with the catalog: open what is placed here, drop what is not.

Owns that correspondence only. While the control log is folded at start nothing is opened, because
a topic may be deleted again further on; what was deleted is removed all the same, and nothing else
ever is: a directory that no command speaks of stays where it is. A view has no replicas: its logs
are its base's.
"""

import logging

from millstream.control.catalog import Catalog, Topic
from millstream.control.commands import AnyCommand, DeleteTopic
from millstream.model import CONTROL_LOG, NodeId
from millstream.replication.hub import Hub
from millstream.settings import TopicSettings

log = logging.getLogger(__name__)


class Hosting:
    def __init__(self, me: NodeId, hub: Hub, defaults: TopicSettings) -> None:
        self._me = me
        self._hub = hub
        self._defaults = defaults
        self._is_folding = True

    def applied(self, command: AnyCommand, topic: Topic) -> None:
        """Follow a command that was just applied."""
        if topic.is_view:
            return
        if isinstance(command, DeleteTopic):
            self._leave(topic)
        elif not self._is_folding:
            self._keep(topic)

    def finish_folding(self, catalog: Catalog) -> None:
        """The catalog is as far as it was before the restart: open what it places here."""
        self._is_folding = False
        for topic in catalog.topics():
            if not topic.is_view:
                self._keep(topic)
        known = {topic.topic_id for topic in catalog.topics()} | {CONTROL_LOG.topic_id}
        for stray in self._hub.logs_on_disk():
            if stray.topic_id not in known:
                log.warning("left alone a log that no topic speaks of log=%s", stray)

    def _keep(self, topic: Topic) -> None:
        settings = topic.settings(self._defaults)
        for partition, replicas in enumerate(topic.placement):
            if self._me in replicas:
                self._hub.keep(topic.log(partition), frozenset(replicas), settings)

    def _leave(self, topic: Topic) -> None:
        for partition in range(topic.partition_count):
            self._hub.drop(topic.log(partition))

"""More replicas for topics that were made when the cluster was smaller.

The active controller places them by a command; `moving` makes voters of them. Nothing is removed.
"""

import logging
from collections import deque

from millstream.config import Config
from millstream.control.balance import REPLICAS_DEFAULT, added, candidates, machine_count
from millstream.control.catalog import Topic
from millstream.control.commands import AddReplicas
from millstream.engine.cluster.members import Members
from millstream.engine.controller import Controller
from millstream.errors import RequestError
from millstream.model import SYSTEM_SESSION
from millstream.names import INTERNAL_TOPICS, SCHEMAS_TOPIC

_log = logging.getLogger(__name__)


class Growing:
    def __init__(self, members: Members, controller: Controller, config: Config) -> None:
        self._members = members
        self._controller = controller
        own = {SCHEMAS_TOPIC} if config.registry.enabled else frozenset[str]()
        self._own_topics = INTERNAL_TOPICS | own
        self._catalog_version = -1
        self._short: deque[Topic] = deque()  # As of that version of the catalog.

    async def place(self) -> bool:
        """Place more replicas of one topic, if some topic should have more; return whether one was
        tried. For the active controller.

        Not before there are three machines: with two voters either one that is gone stops all.
        """
        self._follow_catalog()
        nodes = self._controller.state.nodes
        up = [each for each in candidates(nodes, ()) if self._members.is_up(each.node_id)]
        if not self._short or machine_count(up) < REPLICAS_DEFAULT:
            return False
        topic = self._short[0]
        self._short.rotate(-1)  # One that is refused does not keep the others waiting.
        try:
            command = AddReplicas(
                name=topic.name,
                topic_id=topic.topic_id,
                count_before=len(topic.placement[0]),
                added=added(nodes, up, topic.placement, REPLICAS_DEFAULT),
            )
            await self._controller.propose(SYSTEM_SESSION, command)
        except RequestError as problem:
            _log.warning("no more replicas yet topic=%s problem=%s", topic.name, problem)
        else:
            _log.info("placed more replicas topic=%s replicas=%d", topic.name, REPLICAS_DEFAULT)
        return True

    def _follow_catalog(self) -> None:
        catalog = self._controller.state.catalog
        if catalog.version == self._catalog_version:
            return
        self._catalog_version = catalog.version
        topics = [topic for topic in catalog.topics() if not topic.is_view]
        self._short = deque(topic for topic in topics if self._is_short(topic))

    def _is_short(self, topic: Topic) -> bool:
        follows = topic.follows_cluster or topic.name in self._own_topics
        return follows and len(topic.placement[0]) < REPLICAS_DEFAULT

"""More replicas for topics that were made when the cluster was smaller.

The active controller places them by a command. They follow as observers, and the leader of their
group makes them voters, one by one, each in an epoch of its own. Nothing is kept in memory only:
what is still to be done follows from the catalog and the voters of each log, so any node goes on
after a crash. Nothing is removed.
"""

import logging
from collections import deque

from millstream.config import Config
from millstream.control.balance import REPLICAS_DEFAULT, added, candidates, machine_count
from millstream.control.catalog import Topic
from millstream.control.commands import AddReplicas
from millstream.engine.cluster.members import Members
from millstream.engine.controller import Controller
from millstream.errors import ChangeRefused, NotLeader, RequestError
from millstream.model import SYSTEM_SESSION, LogId, ReplicaId, node_of
from millstream.names import INTERNAL_TOPICS, SCHEMAS_TOPIC
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

CHANGES_AT_ONCE = 50  # Groups that elect anew in one round.

_log = logging.getLogger(__name__)


class Growing:
    def __init__(self, members: Members, controller: Controller, hub: Hub, config: Config) -> None:
        self._members = members
        self._controller = controller
        self._hub = hub
        own = {SCHEMAS_TOPIC} if config.registry.enabled else frozenset[str]()
        self._own_topics = INTERNAL_TOPICS | own
        self._catalog_version = -1
        # As of that version of the catalog.
        self._short: deque[Topic] = deque()
        self._raised: dict[LogId, frozenset[ReplicaId]] = {}

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

    def admit(self) -> bool:
        """Make voters of replicas that are in step, in the groups that are led here; return whether
        some are not voters yet."""
        self._follow_catalog()
        pending = 0
        for log_id, planned in self._raised.items():
            replica = self._hub.replicas.get(log_id)
            if replica is None or not replica.is_leader or planned <= replica.core.voters:
                continue
            pending += 1
            if pending <= CHANGES_AT_ONCE and _are_in_step(replica, planned):
                newcomer = min(planned - replica.core.voters)
                change_voters(self._hub, log_id, replica.name, replica.core.voters | {newcomer})
        return pending > 0

    def _follow_catalog(self) -> None:
        catalog = self._controller.state.catalog
        if catalog.version == self._catalog_version:
            return
        self._catalog_version = catalog.version
        topics = [topic for topic in catalog.topics() if not topic.is_view]
        self._short = deque(topic for topic in topics if self._is_short(topic))
        self._raised = {
            topic.log(partition): topic.replicas(partition)
            for topic in topics
            for partition, later in enumerate(topic.later)
            if later
        }

    def _is_short(self, topic: Topic) -> bool:
        follows = topic.follows_cluster or topic.name in self._own_topics
        return follows and len(topic.placement[0]) < REPLICAS_DEFAULT


def _are_in_step(replica: Replica, planned: frozenset[ReplicaId]) -> bool:
    """Whether each newcomer could be a voter now. The first waits for the last: a group of two
    stops when either is gone, so it lasts for one election only."""
    core = replica.core
    newcomers = planned - core.voters
    return all(core.refusal_of_voters(core.voters | {each}) is None for each in newcomers)


def change_voters(hub: Hub, log_id: LogId, name: str, voters: frozenset[ReplicaId]) -> bool:
    """Begin to change the voters of a log that is led here; return whether it has begun."""
    try:
        hub.leadership.change_voters(log_id, voters)
    except (ChangeRefused, NotLeader) as refusal:
        _log.debug("the voters stay log=%s reason=%s", name, refusal)
        return False
    nodes = sorted(node_of(voter) for voter in voters)
    _log.info("changing the voters log=%s nodes=%s", name, nodes)
    return True

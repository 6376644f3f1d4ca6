"""Keeps this node's replicas in step with the catalog: opens those placed here, drops the others.
While the control log is folded at start nothing is opened, because
a topic may be deleted again further on, and nothing is removed: one listing afterwards finds what a
crash left of deleted topics, so a start does not pay for each topic that was ever deleted. Only
logs that a command deleted or moved away are removed: a directory of an unknown topic stays where
it is. A view has no replicas: its logs are its base's.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from uuid import UUID

from millstream.control.assignments import replica_on
from millstream.control.catalog import Catalog, Topic
from millstream.control.commands import AnyCommand, DeleteTopic, FinishMoves
from millstream.control.nodes import Node
from millstream.control.resources import Resource, ResourceKind
from millstream.engine.running_config import RunningConfig
from millstream.engine.topic_defaults import TopicDefaults
from millstream.errors import UnknownTopic
from millstream.model import CONTROL_LOG, LogId, NodeId, incarnation_of, node_of
from millstream.names import INTERNAL_TOPICS
from millstream.replication.hub import Hub

_log = logging.getLogger(__name__)

TOPICS_AT_ONCE = 100  # About 3 ms.
DROPPED_AT_ONCE = 500  # Partitions, in about 3 ms.


class Hosting:
    def __init__(
        self, me: NodeId, hub: Hub, defaults: TopicDefaults, running_config: RunningConfig
    ) -> None:
        self._me = me
        self._hub = hub
        self._defaults = defaults
        self._running_config = running_config
        self._lets_rest = running_config.current.opens_logs_on_use
        self._is_folding = True
        self._catalog: Catalog | None = None  # Known when the fold has caught up.
        self._deleted: set[UUID] = set()  # While folding.
        self._given_up: set[LogId] = set()  # While folding: replicas here that moved away.

    def applied(self, command: AnyCommand, outcome: Topic | Resource | Node) -> None:
        """Follow a command that was just applied."""
        if isinstance(outcome, Node):
            return  # `members` follows those.
        if isinstance(outcome, Resource):
            if outcome.kind is ResourceKind.NODE:
                self._follow_settings()
            return
        topic = outcome
        if topic.is_view:
            return
        is_deleted = isinstance(command, DeleteTopic)
        moved_away = self._moved_away(command, topic)
        if self._is_folding:
            self._given_up |= moved_away
            if is_deleted:
                self._deleted.add(topic.topic_id)
        elif is_deleted:
            self._leave(topic)
        else:
            for log_id in moved_away:
                self._hub.drop(log_id)
            self._keep(topic)

    def _moved_away(self, command: AnyCommand, topic: Topic) -> set[LogId]:
        """The logs whose replica here was given up by a command."""
        moves = command.moves if isinstance(command, FinishMoves) else ()
        return {
            topic.log(move.partition) for move in moves if self._me in map(node_of, move.removed)
        }

    def finish_folding(self, catalog: Catalog) -> None:
        """The catalog is as far as it was before the restart: open what it places here."""
        self._is_folding = False
        self._catalog = catalog
        self._drop_given_up(catalog)
        for topic in catalog.topics():
            if not topic.is_view:
                self._keep(topic)
        known = {topic.topic_id for topic in catalog.topics()} | {CONTROL_LOG.topic_id}
        for stray in self._hub.logs_on_disk():
            if stray.topic_id in self._deleted:
                self._hub.drop(stray)  # A crash came between the command and the removal.
            elif stray.topic_id not in known:
                _log.warning("left alone a log that no topic speaks of log=%s", stray)
                self._hub.strays.append(stray)
        for stray in self._hub.logs_in_journal():
            if stray.topic_id in self._deleted:
                self._hub.drop(stray)
        self._deleted.clear()

    def _drop_given_up(self, catalog: Catalog) -> None:
        """Remove what is left of replicas that moved away: also where another one was placed since,
        unless the log is that one's already."""
        left = self._given_up and {*self._hub.logs_on_disk(), *self._hub.logs_in_journal()}
        for log_id in self._given_up.intersection(left):
            with suppress(UnknownTopic):  # It was deleted since.
                topic = catalog.find_id(log_id.topic_id)
                here = replica_on(self._me, topic.assignment(log_id.partition))
                if (
                    here is None
                    or incarnation_of(here) != self._hub.journal.state(log_id).incarnation
                ):
                    self._hub.drop(log_id)
        self._given_up.clear()

    def _follow_settings(self) -> None:
        """Apply the settings of this node that were changed at run time."""
        self._running_config.refresh()
        if self._defaults.refresh() and self._catalog is not None:
            self._keep_some(iter(list(self._catalog.topics())))

    def _keep_some(self, topics: Iterator[Topic]) -> None:
        """Apply new defaults to the topics, some in each turn of the loop."""
        assert self._catalog is not None
        for topic in islice(topics, TOPICS_AT_ONCE):
            with suppress(UnknownTopic):  # It may be deleted or altered by now.
                known = self._catalog.find_id(topic.topic_id)
                if not known.is_view:
                    self._keep(known)
        following = next(topics, None)
        if following is not None:
            asyncio.get_running_loop().call_soon(self._keep_some, chain((following,), topics))

    def _keep(self, topic: Topic) -> None:
        for problem in topic.setting_problems():
            _log.warning("a setting of another version topic=%s problem=%s", topic.name, problem)
        settings = topic.settings(self._defaults.settings)
        # Shards fold internal topics at the start.
        may_rest = self._lets_rest and topic.name not in INTERNAL_TOPICS
        for partition in range(topic.partition_count):
            assignment = topic.assignment(partition)
            me = replica_on(self._me, assignment)
            if me is not None:
                log_id, name = topic.log(partition), f"{topic.name}-{partition}"
                founders = assignment.founders
                self._hub.keep(log_id, founders, settings, me=me, name=name, may_rest=may_rest)

    def _leave(self, topic: Topic, first: int = 0) -> None:
        """Drop the partitions from `first` on, some in each turn of the loop.

        The topic is no longer in the catalog, so none of them is found by its name. If the node
        stops in between, the next start drops the others.
        """
        end = min(topic.partition_count, first + DROPPED_AT_ONCE)
        for partition in range(first, end):
            self._hub.drop(topic.log(partition))
        if end < topic.partition_count:
            asyncio.get_running_loop().call_soon(self._leave, topic, end)

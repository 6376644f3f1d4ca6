"""Moves replicas: the leader of each partition makes voters of newcomers, and lets others go.

A command says where the replicas are to be. Newcomers follow as observers; once all are in step the
leader changes the voters one by one, each in an epoch of its own. When the voters are as planned, a
confirmed leader says so by a command, and only then the nodes drop what has moved away. Nothing is
kept in memory only: what is still to be done follows from the catalog and the voters of each log,
so any node goes on after a crash.

Invariant: a replica is dropped only by the word of a leader that was confirmed after it read the
move, and in whose epoch the replica does not vote.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from millstream.control.assignments import Assignment
from millstream.control.catalog import Topic
from millstream.control.commands import FinishedMove, FinishMoves
from millstream.control.moves import next_voters
from millstream.engine.cluster.draining import is_in_step
from millstream.engine.cluster.members import Members
from millstream.engine.controller import Controller
from millstream.errors import ChangeRefused, NotLeader, RequestError
from millstream.model import SYSTEM_SESSION, LogId, ReplicaId, node_of
from millstream.replication.hub import Hub
from millstream.replication.replica import Replica

CHANGES_AT_ONCE = 50  # Groups that elect anew in one round.
LOGS_AT_ONCE = 500  # Looked at in one turn of the event loop, in about 2 ms.
CONFIRM_S_MAX = 2.0

_log = logging.getLogger(__name__)


class _Changed(NamedTuple):
    """A partition whose replicas are not those that founded it."""

    topic: Topic
    partition: int
    assignment: Assignment


class Moving:
    def __init__(self, members: Members, controller: Controller, hub: Hub) -> None:
        self._members = members
        self._controller = controller
        self._hub = hub
        self._catalog_version = -1
        self._changed: dict[LogId, _Changed] = {}  # As of that version of the catalog.

    async def advance(self) -> bool:
        """Take the next step of every move of a partition that is led here; return whether some
        are not done, or a newcomer looks for its leader."""
        self._follow_catalog()
        pending = 0
        done: list[tuple[_Changed, Replica]] = []
        for at, (log_id, changed) in enumerate(list(self._changed.items()), start=1):
            if at % LOGS_AT_ONCE == 0:
                await asyncio.sleep(0)
            replica = self._hub.replicas.get(log_id)
            if replica is None or replica.failure is not None:
                continue
            assignment = changed.assignment
            if not replica.is_leader:
                pending += self.look_for_leader(replica, assignment.all)
            elif replica.core.voters != frozenset(assignment.replicas):
                pending += 1
                if pending <= CHANGES_AT_ONCE:
                    self._change(replica, assignment)
            elif assignment.is_moving:
                done.append((changed, replica))
        await self._finish(done)
        return pending > 0 or bool(done)

    def _follow_catalog(self) -> None:
        catalog = self._controller.state.catalog
        if catalog.version != self._catalog_version:
            self._catalog_version = catalog.version
            self._changed = {
                topic.log(partition): _Changed(topic, partition, assignment)
                for topic in catalog.topics()
                for partition, assignment in topic.assignments.items()
            }

    def look_for_leader(self, replica: Replica, others: Iterable[ReplicaId]) -> bool:
        """Have a newcomer without a leader ask these replicas; return whether it has none.

        It would ask by itself, after an election timeout with every change of voters, and only
        those that founded the log, which may all be gone.
        """
        if replica.leader is not None or replica.me in replica.core.voters:
            return False
        for other in others:
            if other != replica.me and self._members.is_up(node_of(other)):
                self._hub.drive(replica, partial(replica.core.ask, other))
        return True

    def _change(self, replica: Replica, assignment: Assignment) -> None:
        voters, planned = replica.core.voters, frozenset(assignment.replicas)
        if not _are_in_step(replica, planned):
            return
        lost = frozenset(each for each in voters if not self._members.is_up(node_of(each)))
        following = next_voters(voters, planned, me=replica.me, lost=lost)
        if following is None:
            self._step_down(replica, assignment)
        else:
            change_voters(self._hub, replica.id, replica.name, following)

    def _step_down(self, replica: Replica, assignment: Assignment) -> None:
        """Hand over to a replica that stays: it removes this one."""
        for successor in assignment.replicas:
            if self._members.is_up(node_of(successor)) and is_in_step(replica, successor):
                try:
                    self._hub.leadership.transfer(replica.id, successor)
                    _log.info("handed over log=%s node=%d", replica.name, node_of(successor))
                    return
                except (ChangeRefused, NotLeader) as refusal:
                    _log.debug("not handed over log=%s reason=%s", replica.name, refusal)

    async def _finish(self, done: list[tuple[_Changed, Replica]]) -> None:
        moves: dict[str, tuple[Topic, list[FinishedMove]]] = {}
        for changed, replica in done:
            topic, partition, assignment = changed
            if await self._is_confirmed(replica, assignment):
                move = FinishedMove(
                    partition=partition,
                    moved_offset=assignment.moved_offset,
                    removed=assignment.leaving,
                )
                moves.setdefault(topic.name, (topic, []))[1].append(move)
        for topic, finished in moves.values():
            command = FinishMoves(name=topic.name, topic_id=topic.topic_id, moves=tuple(finished))
            try:
                await self._controller.propose(SYSTEM_SESSION, command)
                _log.info("moved topic=%s partitions=%d", topic.name, len(finished))
            except RequestError as problem:  # The next round tries again, or finds another move.
                _log.info("not finished yet topic=%s problem=%s", topic.name, problem)

    async def _is_confirmed(self, replica: Replica, assignment: Assignment) -> bool:
        """Whether the replica is proven to lead now, with the voters of the plan."""
        epoch = replica.core.epoch
        try:
            async with asyncio.timeout(CONFIRM_S_MAX):
                is_leader = await self._hub.links.confirmed(replica)
        except (TimeoutError, RequestError):
            return False
        is_same = replica.core.epoch == epoch and replica.core.is_established
        return is_leader and is_same and replica.core.voters == frozenset(assignment.replicas)


def _are_in_step(replica: Replica, planned: frozenset[ReplicaId]) -> bool:
    """Whether each newcomer could be a voter now. The first waits for the last: a group of two
    stops when either is gone, so it lasts for one election only."""
    return all(may_vote(replica, each) for each in planned - replica.core.voters)


def may_vote(replica: Replica, newcomer: ReplicaId) -> bool:
    """Whether a newcomer is in step with this leader, so that it could be made a voter now."""
    return replica.core.refusal_of_voters(replica.core.voters | {newcomer}) is None


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

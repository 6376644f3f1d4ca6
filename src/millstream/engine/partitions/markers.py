"""Writes the markers that end a transaction in each of its partitions.

Invariant: every partition of a decided transaction gets a marker, because readers of committed
records wait for it. A marker may be written twice, for example after a restart; the second changes
nothing.
"""

import asyncio
import logging
from collections.abc import Iterable
from uuid import UUID

import msgspec

from millstream.codec.batch import read_header
from millstream.codec.markers import ControlKind, Marker, encode_marker
from millstream.control.catalog import Catalog
from millstream.engine.cluster.peer_calls import Nothing, PeerCalls
from millstream.errors import NotLeader, RequestError, StaleProducerEpoch, UnknownTopic
from millstream.internal_topics.transactions import Participant, TransactionValue
from millstream.model import Appended, LogId, NodeId
from millstream.ports import Clock
from millstream.replication.hub import Hub
from millstream.replication.peering.leadership import KnownLeader
from millstream.replication.replica import Replica

_log = logging.getLogger(__name__)

MARKERS_AT_ONCE = 50  # Written in one step, so that the event loop is not held up.


def write_marker(
    replica: Replica, marker: Marker, *, now_ms: int, must_be_newer: bool = False
) -> "asyncio.Future[Appended]":
    """Write a marker as the leader; done when it is committed.

    `must_be_newer` is for a marker whose epoch no batch of its transaction can have. Raises what
    `Producers.check_marker` and `Replica.append` raise.
    """
    replica.log.producers.check_marker(marker, must_be_newer=must_be_newer)
    data = encode_marker(
        marker.kind,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    appended = replica.append(data, read_header(data))
    return replica.committed(appended.end_offset, appended)


METHOD = "transaction.mark"


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    """A marker for a partition, in one term of its leader: a late one ends no other transaction."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    commits: bool
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class Markers:
    def __init__(
        self, catalog: Catalog, hub: Hub, clock: Clock, peers: PeerCalls | None = None
    ) -> None:
        self._catalog = catalog
        self._hub = hub
        self._clock = clock
        self._peers = peers
        if peers is not None:
            peers.serve(METHOD, _Question, self._mark_for_peer)

    async def write(
        self, value: TransactionValue, participants: Iterable[Participant], *, epoch: int
    ) -> list[Participant]:
        """Write the markers of a transaction; return the partitions that did not get one."""
        marker = Marker(
            ControlKind.COMMIT if value.commits else ControlKind.ABORT,
            value.producer_id,
            value.epoch,
            epoch,
        )
        left: list[Participant] = []
        writing: list[tuple[Participant, asyncio.Future[Appended] | asyncio.Task[None]]] = []
        for count, participant in enumerate(participants, start=1):
            try:
                written = self._begin(participant, marker)
                if written is not None:
                    writing.append((participant, written))
            except StaleProducerEpoch as problem:
                # The producer wrote there in a later epoch, so this transaction is over there.
                _log.warning("left out a marker partition=%s problem=%s", participant, problem)
            except RequestError as problem:
                _log.info("marker not written partition=%s problem=%s", participant.target, problem)
                left.append(participant)
            if count % MARKERS_AT_ONCE == 0:
                await asyncio.sleep(0)
        for participant, written in writing:
            try:
                await written
            except StaleProducerEpoch as problem:
                _log.warning("left out a marker partition=%s problem=%s", participant, problem)
            except RequestError as problem:
                _log.info("marker not known partition=%s problem=%s", participant.target, problem)
                left.append(participant)
        return left

    def _mark(self, replica: Replica, marker: Marker) -> "asyncio.Future[Appended]":
        return write_marker(replica, marker, now_ms=self._clock.now_ms())

    def _begin(
        self, participant: Participant, marker: Marker
    ) -> "asyncio.Future[Appended] | asyncio.Task[None] | None":
        """Write a marker here, or have the leader on another node write it; None if the topic is
        deleted, which ends every transaction there."""
        try:
            self._catalog.find_id(participant.topic_id)
        except UnknownTopic:
            return None
        elsewhere = self._leader_elsewhere(participant)
        if elsewhere is None:
            return self._mark(self._hub.find(participant.log), marker)
        return asyncio.create_task(self._mark_elsewhere(elsewhere, participant, marker))

    def _leader_elsewhere(self, participant: Participant) -> KnownLeader | None:
        """The leader on another node; None if it is here, or is to be looked for here."""
        replica = self._hub.replicas.get(participant.log)
        if self._peers is None or (replica is not None and replica.is_leader):
            return None
        known = self._hub.leadership.of(participant.log)
        return None if known.leader is None else known

    async def _mark_elsewhere(
        self, known: KnownLeader, participant: Participant, marker: Marker
    ) -> None:
        assert self._peers is not None
        assert known.leader is not None
        question = _Question(
            topic_id=participant.topic_id,
            partition=participant.partition,
            leader_epoch=known.epoch,
            commits=marker.kind is ControlKind.COMMIT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )
        await self._peers.ask(known.leader, METHOD, question, Nothing)

    async def _mark_for_peer(self, _node: NodeId, question: _Question) -> Nothing:
        replica = self._hub.find(LogId(question.topic_id, question.partition))
        if not replica.is_leader or replica.core.epoch != question.leader_epoch:
            raise NotLeader(replica.name, replica.leader)
        kind = ControlKind.COMMIT if question.commits else ControlKind.ABORT
        marker = Marker(
            kind, question.producer_id, question.producer_epoch, question.coordinator_epoch
        )
        await self._mark(replica, marker)
        return Nothing()

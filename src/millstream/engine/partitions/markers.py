"""Writes the markers that end a transaction in each of its partitions.

Invariant: every partition of a decided transaction gets a marker, because readers of committed
records wait for it. A marker may be written twice, for example after a restart; the second changes
nothing.
"""

import asyncio
import logging
from collections.abc import Iterable

from millstream.codec.batch import read_header
from millstream.codec.markers import ControlKind, Marker, encode_marker
from millstream.control.catalog import Catalog
from millstream.errors import RequestError, StaleProducerEpoch, UnknownTopic
from millstream.internal_topics.transactions import Participant, TransactionValue
from millstream.model import Appended
from millstream.ports import Clock
from millstream.replication.hub import Hub
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


class Markers:
    def __init__(self, catalog: Catalog, hub: Hub, clock: Clock) -> None:
        self._catalog = catalog
        self._hub = hub
        self._clock = clock

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
        writing: list[tuple[Participant, asyncio.Future[Appended]]] = []
        for count, participant in enumerate(participants, start=1):
            try:
                replica = self._replica(participant)
                if replica is not None:
                    writing.append((participant, self._mark(replica, marker)))
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
            except RequestError as problem:
                _log.info("marker not known partition=%s problem=%s", participant.target, problem)
                left.append(participant)
        return left

    def _mark(self, replica: Replica, marker: Marker) -> "asyncio.Future[Appended]":
        return write_marker(replica, marker, now_ms=self._clock.now_ms())

    def _replica(self, participant: Participant) -> Replica | None:
        """The partition here; None if its topic is deleted, which ends every transaction there."""
        try:
            self._catalog.find_id(participant.topic_id)
        except UnknownTopic:
            return None
        return self._hub.find(participant.log)

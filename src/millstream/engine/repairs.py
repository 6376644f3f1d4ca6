"""Lists damaged records for operators, and gives them up on request.

Owns the gate and the names; finding damage and repairing it is below.
"""

from collections.abc import Callable
from typing import NamedTuple

from millstream.control.catalog import Catalog
from millstream.engine.gate import Gate, Operation
from millstream.model import LogId, Offset, Session, TopicPartition
from millstream.replication.hub import Hub
from millstream.replication.scrubbing import ScrubState
from millstream.storage.log.repair import Skipped
from millstream.storage.log.verifying import BadRange

LISTED_MAX = 1_000  # Of each kind, in one answer.


class Damage(NamedTuple):
    """Damaged records, records that were given up, and logs that did not open."""

    damaged: list[tuple[TopicPartition, BadRange]]
    skipped: list[tuple[TopicPartition, Skipped]]
    closed: list[tuple[TopicPartition, str]]  # Logs that could not be opened, and why.
    scrub: ScrubState
    scrub_bytes_per_second: int


class Repairs:
    def __init__(
        self, gate: Gate, catalog: Catalog, hub: Hub, name_of: Callable[[LogId], str]
    ) -> None:
        self._gate = gate
        self._catalog = catalog
        self._hub = hub
        self._name_of = name_of

    async def list(self, session: Session) -> Damage:
        """The records here that are damaged or were given up, and the logs that did not open."""
        self._gate.admit(session, Operation.DESCRIBE, "cluster")
        hub = self._hub
        damaged = [
            (self._target(log_id), bad)
            for log_id, replica in hub.replicas.items()
            for bad in replica.log.damage()
        ]
        # A repair notes what it gives up before it does: a power cut may come in between.
        unrepaired = {(target, bad.base_offset) for target, bad in damaged}
        skipped = [
            (target, skip)
            for log_id, skip in await hub.skipped()
            if ((target := self._target(log_id)), skip.base_offset) not in unrepaired
        ]
        closed = [(self._target(log_id), str(why)) for log_id, why in hub.damaged.items()]
        closed += [
            (self._target(log_id), str(replica.failure))
            for log_id, replica in hub.replicas.items()
            if replica.failure is not None
        ]
        stray = "its records are on disk, but the control log knows no such topic"
        closed += [(self._target(log_id), stray) for log_id in hub.strays]
        return Damage(
            damaged[:LISTED_MAX],
            skipped[-LISTED_MAX:],
            closed[:LISTED_MAX],
            hub.scrubber.state,
            hub.scrubber.bytes_per_second,
        )

    async def skip(self, session: Session, target: TopicPartition, offset: Offset) -> Skipped:
        """Give up the damaged records at `offset`, so that readers go on behind them."""
        self._gate.admit(session, Operation.ALTER, "cluster")
        log_id = self._catalog.find(target.topic).log(target.partition)
        return await self._hub.skip_damage(log_id, offset)

    def _target(self, log_id: LogId) -> TopicPartition:
        return TopicPartition(self._name_of(log_id), log_id.partition)

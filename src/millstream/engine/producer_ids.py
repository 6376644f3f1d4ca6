"""Allocates producer ids, each once in the life of a cluster.

Owns the unused part of this node's block. Blocks are reserved through the control log, so most ids
cost nothing, and none is allocated twice, whichever node restarts.
"""

from millstream.engine.controller import Controller
from millstream.engine.gate import CLUSTER, Gate, Operation
from millstream.model import Session

BLOCK = 1000


class ProducerIds:
    def __init__(self, gate: Gate, controller: Controller) -> None:
        self._gate = gate
        self._controller = controller
        self._left = range(0)

    async def next(self, session: Session) -> int:
        """Allocate an id that no producer has."""
        self._gate.admit(session, Operation.IDEMPOTENT_WRITE, CLUSTER)
        while not self._left:
            reserved = await self._controller.reserve_producer_ids(session, BLOCK)
            # Another call may have reserved a block meanwhile; that is used up first.
            if not self._left:
                self._left = reserved
        number, self._left = self._left[0], self._left[1:]
        return number

"""Numbers for idempotent producers, each given out once in the life of a cluster.

Owns the block that this node has left. Blocks are reserved through the control log, so a number
costs nothing most of the time and is never given twice, whichever node restarts.
"""

from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Operation
from millstream.model import Session

BLOCK = 1000


class ProducerIds:
    def __init__(self, gate: Gate, controller: Controller) -> None:
        self._gate = gate
        self._controller = controller
        self._left = range(0)

    async def next(self, session: Session) -> int:
        """Give out a number that nobody has."""
        self._gate.admit(session, Operation.CREATE, "producer id")
        while not self._left:
            reserved = await self._controller.reserve_producer_ids(BLOCK)
            # Another caller may have reserved meanwhile; what it has left is used first.
            if not self._left:
                self._left = reserved
        number, self._left = self._left[0], self._left[1:]
        return number

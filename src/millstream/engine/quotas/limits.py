"""Client quotas as administrators ask for them: describe, alter.

Owns the checks of a proposal before it goes to the control log; `accounts` applies the quotas.
"""

from millstream.config import Limits
from millstream.control.commands import AlterQuotas
from millstream.control.quotas import Changes, Entity, check
from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Operation
from millstream.errors import InvalidRequest
from millstream.model import Session

_RESOURCE = "cluster"


class ClientQuotas:
    def __init__(self, gate: Gate, controller: Controller, limits: Limits) -> None:
        self._gate = gate
        self._controller = controller
        self._limits = limits

    def describe(self, session: Session) -> dict[Entity, dict[str, float]]:
        """Every quota there is."""
        self._gate.admit(session, Operation.DESCRIBE_CONFIGS, _RESOURCE)
        return dict(self._controller.state.quotas.limits)

    async def alter(self, session: Session, entity: Entity, changes: Changes) -> None:
        """Set quotas, or with None take them away; they count when this returns."""
        self.check_alter(session, entity, changes)
        await self._controller.alter_quotas(
            session,
            AlterQuotas(
                user=entity.user, client_id=entity.client_id, ip=entity.ip, changes=dict(changes)
            ),
        )

    def check_alter(self, session: Session, entity: Entity, changes: Changes) -> None:
        """Raise what `alter` would raise, and change nothing."""
        self._gate.admit(session, Operation.ALTER_CONFIGS, _RESOURCE)
        check(entity, changes)
        known = self._controller.state.quotas.limits
        if entity not in known and len(known) >= self._limits.quota_entities_max:
            raise InvalidRequest(f"{len(known)} entities have quotas, which is all there may be")

"""The gate of a node with an audit trail: notes refusals, and what the settings ask for."""

from collections.abc import Callable, Mapping

from millstream.engine.audit.recorder import Recorder
from millstream.engine.gate import NOTHING, OWN_END, Gate, Operation, Policy
from millstream.errors import Denied
from millstream.metrics import Metrics
from millstream.model import SYSTEM, Session

# Operation of the ACL and deciding rule, in words.
Explain = Callable[[Session, Operation, str], tuple[str, str]]


class AuditedGate(Gate):
    def __init__(
        self, policy: Policy, metrics: Metrics, recorder: Recorder, explain: Explain | None
    ) -> None:
        super().__init__(policy, metrics)
        self.recorder = recorder
        self._explain = explain

    def refuse(self, session: Session, operation: Operation, resource: str) -> Denied:
        self._note_access("access.denied", "denied", session, operation, resource)
        return super().refuse(session, operation, resource)

    def note(
        self, event: str, session: Session, resource: str, details: Mapping[str, object] = NOTHING
    ) -> None:
        if details is OWN_END and not self.recorder.wants("txn.commit"):
            return  # On with the other events of producers.
        self.recorder.note(event, session, resource=resource, details=dict(details))

    def _note_access(
        self, event: str, result: str, session: Session, operation: Operation, resource: str
    ) -> None:
        explain = self._explain
        self.recorder.note(
            event,
            session,
            result=result,
            operation=operation.name,
            resource=resource,
            rule="" if explain is None else lambda: explain(session, operation, resource),
        )


class GrantNotingGate(AuditedGate):
    """Notes what is allowed as well. A class of its own: others pay nothing for it."""

    def admit(self, session: Session, operation: Operation, resource: str) -> None:
        super().admit(session, operation, resource)
        if session.principal != SYSTEM:
            self._note_access("access.granted", "success", session, operation, resource)

"""Opens what guards and watches a node, where its configuration asks for it: rights, audit trail,
gate, tracing.

A node without them does not even load their modules.
"""

from typing import TYPE_CHECKING

from millstream.config import Config
from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Policy
from millstream.errors import StartupError
from millstream.metrics import Metrics
from millstream.ports import Ports
from millstream.security.settings import authorizes
from millstream.server.listener_specs import listener_specs

if TYPE_CHECKING:
    from millstream.engine.access.rights import Rights
    from millstream.engine.audit.recorder import Recorder
    from millstream.tracing.spans import Tracer


def open_rights(config: Config, controller: Controller) -> "Rights | None":
    """The policy of a node with authorization; without, it is not even loaded."""
    if not authorizes(config.security, config.tls, config.listener):
        return None
    from millstream.engine.access.rights import Rights

    rights = Rights(controller.state.access, controller.state.catalog, config)
    rights.follow(lambda: controller.leader, controller.watch)
    return rights


def open_recorder(config: Config, ports: Ports, metrics: Metrics) -> "Recorder | None":
    """Notes events where there is an audit trail; without, it is not even loaded."""
    has_logins = any(spec.authenticates for spec in listener_specs(config))
    enabled = config.audit.enabled
    if enabled == "off" or (enabled == "auto" and not has_logins):
        return None
    from millstream.engine.audit.recorder import Recorder

    is_whole = has_logins or config.security.authorization == "on"
    return Recorder(config.audit, config.node_id, ports.clock, metrics, is_whole=is_whole)


def open_gate(
    policy: Policy, metrics: Metrics, recorder: "Recorder | None", rights: "Rights | None"
) -> Gate:
    if recorder is None:
        return Gate(policy, metrics)
    from millstream.engine.audit.audited_gate import AuditedGate, GrantNotingGate

    explain = None if rights is None else rights.audit_words
    kind = GrantNotingGate if recorder.wants("access.granted") else AuditedGate
    return kind(policy, metrics, recorder, explain)


def open_tracer(config: Config, cluster_id: str, metrics: Metrics) -> "Tracer | None":
    """Takes spans where there is an endpoint for them; without, OpenTelemetry is not loaded."""
    if not config.tracing.endpoint:
        return None
    try:
        from millstream.server.system.otlp import OtlpTracer
    except ImportError as problem:
        raise StartupError(
            f"tracing.endpoint is set, and OpenTelemetry is not installed ({problem}); install it "
            "with: pip install 'millstream[tracing]'"
        ) from None
    instance_id = f"{cluster_id}/{config.node_id}"
    return OtlpTracer(config.tracing, metrics, instance_id=instance_id)

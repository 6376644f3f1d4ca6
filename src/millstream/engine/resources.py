"""Describes and alters the settings of nodes, groups and client metrics.

Owns the checks of a change before it is proposed to the control log. `topic_defaults`,
`running_config` and `groups.coordinators` apply the settings.
"""

from collections.abc import Mapping

from millstream.config import Config
from millstream.control.commands import AlterResource
from millstream.control.resources import EVERY_NODE, Changes, Resource, ResourceKind, check
from millstream.engine.controller import Controller
from millstream.engine.gate import Gate, Operation, group_resource
from millstream.engine.running_config import RunningConfig
from millstream.engine.topic_defaults import TopicDefaults
from millstream.errors import InvalidRequest, InvalidSetting
from millstream.model import Session

_CLUSTER = "cluster"


class ResourceSettings:
    def __init__(
        self,
        gate: Gate,
        controller: Controller,
        defaults: TopicDefaults,
        running_config: RunningConfig,
        config: Config,
    ) -> None:
        self.defaults = defaults
        self._running_config = running_config
        self._gate = gate
        self._controller = controller
        self._config = config

    def describe(self, session: Session, kind: ResourceKind, name: str) -> Mapping[str, str]:
        """The settings that were set at run time, and no others."""
        self._gate.admit(session, Operation.DESCRIBE_CONFIGS, _guarded(kind, name))
        return dict(self._controller.state.resources.find(kind, name))

    def open(self, session: Session, kind: ResourceKind, name: str) -> Mapping[str, str]:
        """The same for a change of them."""
        self._gate.admit(session, Operation.ALTER_CONFIGS, _guarded(kind, name))
        return dict(self._controller.state.resources.find(kind, name))

    def names(self, session: Session, kind: ResourceKind) -> list[str]:
        """The resources of a kind for which something was set, as far as the session may know."""
        self._gate.admit(session, Operation.DESCRIBE_CONFIGS, _CLUSTER)
        return sorted(
            resource.name
            for resource in self._controller.state.resources.settings
            if resource.kind is kind and self._gate.sees(session, _guarded(kind, resource.name))
        )

    async def alter(
        self, session: Session, kind: ResourceKind, name: str, changes: Changes
    ) -> None:
        """Change settings; None takes one back to its default. They hold when this returns."""
        self.check_alter(session, kind, name, changes)
        await self._controller.alter_resource(
            session, AlterResource(kind=kind.value, name=name, changes=dict(changes))
        )

    def check_alter(
        self, session: Session, kind: ResourceKind, name: str, changes: Changes
    ) -> None:
        """Raise what `alter` would raise, without a change."""
        self._gate.admit(session, Operation.ALTER_CONFIGS, _guarded(kind, name))
        resource = Resource(kind, name)
        if kind is ResourceKind.NODE and name != EVERY_NODE:
            self._check_node(name)
        check(resource, changes)
        if kind is ResourceKind.GROUP:
            self._check_group(name, changes)
        elif kind is ResourceKind.NODE:
            self._running_config.check(changes)
        known, limit = self._controller.state.resources.settings, self._config.limits
        if resource not in known and len(known) >= limit.config_resources_max:
            raise InvalidRequest(
                f"{len(known)} nodes, groups and client metrics have settings of their own, "
                f"at most {limit.config_resources_max} may"
            )

    def admit_to_loggers(self, session: Session, operation: Operation) -> None:
        """Raise unless the session may describe or alter how much this node logs."""
        self._gate.admit(session, operation, _CLUSTER)

    def _check_node(self, name: str) -> None:
        members = self._controller.state.nodes.members()
        nodes = {str(node.node_id) for node in members} or set(map(str, self._config.voters))
        if name not in nodes:
            raise InvalidRequest(f"there is no node {name[:100]!r}; there are {sorted(nodes)}")

    def _check_group(self, name: str, changes: Changes) -> None:
        """The heartbeat interval must be shorter than the session, or members would time out."""
        before = self._controller.state.resources.find(ResourceKind.GROUP, name)
        after = {key: text for key, text in {**before, **changes}.items() if text is not None}
        timing = self._config.timing
        session_ms = after.get("consumer_session_timeout_ms", timing.consumer_session_timeout_ms)
        interval_ms = after.get(
            "consumer_heartbeat_interval_ms", timing.consumer_heartbeat_interval_ms
        )
        if int(interval_ms) >= int(session_ms):
            raise InvalidSetting(
                f"consumer_heartbeat_interval_ms = {interval_ms} is not less than "
                f"consumer_session_timeout_ms = {session_ms}"
            )


def _guarded(kind: ResourceKind, name: str) -> str:
    return group_resource(name) if kind is ResourceKind.GROUP else _CLUSTER

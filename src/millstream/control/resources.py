"""Settings of nodes, groups and client metrics that change at run time, as a fold over commands.

Owns which settings each kind of resource has and the values that they take. Pure: what a setting
does is the engine's. Names are Kafka's with `_` for `.`; those of a node are the settings of topics
that say nothing themselves.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from millstream.control.commands import AlterResource
from millstream.errors import InvalidRequest, InvalidSetting
from millstream.internal_topics.groups import check_text
from millstream.settings import (
    BUILT_IN_SETTINGS,
    OF_ONE_TOPIC,
    StoredSetting,
    whole_number,
    with_overrides,
)

EVERY_NODE = ""  # The name of the settings that hold for all nodes.
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_SESSION_MS = (1_000, 30 * 60 * 1000)
_HEARTBEAT_MS = (1, 60 * 1000)
_MATCH_KEYS = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class Tunable(NamedTuple):
    """A setting of the node's configuration that can change at run time, and its bounds."""

    section: str  # Of the configuration: `limits` or `timing`.
    name: str
    low: int
    high: int


TUNABLES: dict[str, Tunable] = {
    # With 0 no operator could connect to take it back.
    "max_connections": Tunable("limits", "connections_max", 1, _INT32_MAX),
    # Checked that often, a log costs about 12 us: the bound keeps the event loop free.
    "log_cleaner_backoff_ms": Tunable("timing", "compaction_check_ms", 100, _INT64_MAX),
    "log_cleaner_dedupe_buffer_size": Tunable(
        "limits", "compaction_keys_bytes_max", 2**20, _INT64_MAX
    ),
    "producer_id_expiration_ms": Tunable("timing", "producer_expiration_ms", 1, _INT32_MAX),
    "scrub_bytes_per_second": Tunable("limits", "scrub_bytes_per_second", 0, _INT64_MAX),
    "scrub_interval_ms": Tunable("timing", "scrub_interval_ms", 1, _INT64_MAX),
}


class ResourceKind(Enum):
    """The values are part of the format of the control log."""

    NODE = "node"
    GROUP = "group"
    CLIENT_METRICS = "client metrics"


class Resource(NamedTuple):
    kind: ResourceKind
    name: str


Changes = Mapping[str, str | None]  # None: back to the default.


def _check_match(text: str) -> None:
    for part in text.split(",") if text.strip() else ():
        key, separator, pattern = part.strip().partition("=")
        if key not in _MATCH_KEYS or not separator or not pattern:
            raise ValueError(f"a list of key=pattern with keys {', '.join(sorted(_MATCH_KEYS))}")


_RATE = StoredSetting(
    str(_INT64_MAX), whole_number(0, _INT64_MAX), "Stored, no effect. Replication has no throttle."
)
_UNSENT = "Stored, no effect. Clients are not asked for metrics."

THROTTLES: dict[str, StoredSetting] = {
    "leader_replication_throttled_rate": _RATE,
    "follower_replication_throttled_rate": _RATE,
    "replica_alter_log_dirs_io_max_bytes_per_second": _RATE,
}
# A node has these besides the settings of topics.
NODE_SETTINGS: dict[str, StoredSetting] = {
    **THROTTLES,
    **{
        name: StoredSetting("", whole_number(row.low, row.high), "")
        for name, row in TUNABLES.items()
    },
}
# Where a group says nothing, the node's settings hold: the defaults here are not used.
GROUP_SETTINGS: dict[str, StoredSetting] = {
    "consumer_session_timeout_ms": StoredSetting(
        "45000", whole_number(*_SESSION_MS), "When a silent member is lost."
    ),
    "consumer_heartbeat_interval_ms": StoredSetting(
        "5000", whole_number(*_HEARTBEAT_MS), "How often a member is to be heard of."
    ),
}
CLIENT_METRICS_SETTINGS: dict[str, StoredSetting] = {
    "metrics": StoredSetting("", lambda text: None, _UNSENT),
    "interval_ms": StoredSetting("300000", whole_number(100, 3_600_000), _UNSENT),
    "match": StoredSetting("", _check_match, _UNSENT),
}
_TABLES = {
    ResourceKind.NODE: NODE_SETTINGS,
    ResourceKind.GROUP: GROUP_SETTINGS,
    ResourceKind.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}


class Resources:
    """All settings that were changed at run time. `settings` is changed in place."""

    def __init__(self) -> None:
        self.settings: dict[Resource, dict[str, str]] = {}

    def find(self, kind: ResourceKind, name: str) -> Mapping[str, str]:
        return self.settings.get(Resource(kind, name), {})

    def apply(self, command: AlterResource) -> Resource:
        """Change what is set. `check` comes before the proposal."""
        resource = Resource(ResourceKind(command.kind), command.name)
        merged = {**self.settings.get(resource, {}), **command.changes}
        settings = {name: text for name, text in merged.items() if text is not None}
        if settings:
            self.settings[resource] = settings
        else:
            self.settings.pop(resource, None)
        return resource


def check(resource: Resource, changes: Changes) -> None:
    """Raise `InvalidSetting` for a setting that the resource lacks, or a value that is none."""
    check_text(resource.name)
    if resource.kind is not ResourceKind.NODE and not resource.name:
        raise InvalidRequest(f"settings of {resource.kind.value} need a name")
    for name, text in changes.items():
        if text is not None:
            _check_value(resource.kind, name, text)


def _check_value(kind: ResourceKind, name: str, text: str) -> None:
    setting = _TABLES[kind].get(name)
    if setting is not None:
        try:
            setting.check(text)
        except ValueError as expected:
            raise InvalidSetting(f"{name} = {text[:100]!r} is not {expected}") from None
    elif kind is ResourceKind.NODE and name not in OF_ONE_TOPIC:
        with_overrides(BUILT_IN_SETTINGS, {name: text})
    else:
        known = ", ".join(_TABLES[kind])
        raise InvalidSetting(f"{kind.value} has no setting {name[:100]!r}; it has {known}")

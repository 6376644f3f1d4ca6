"""The table `[audit]` of a node's configuration, and the names of the events of the trail."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from millstream.security.secrets import NO_KEY, KeySecret
from millstream.settings import setting

# Every event, and whether it is written unless `audit.events` says something else.
EVENTS: Final = MappingProxyType(
    {
        "auth.success": True,
        "auth.failure": True,
        "auth.logout": True,
        "access.denied": True,
        "access.granted": False,
        "topic.create": True,
        "topic.delete": True,
        "topic.modify": True,
        "user.create": True,
        "user.update": True,
        "user.delete": True,
        "user.password": True,
        "acl.set": True,
        "acl.delete": True,
        "role.create": True,
        "role.update": True,
        "role.delete": True,
        "quota.change": True,
        "config.change": True,
        "cluster.join": True,
        "cluster.leave": True,
        "schema.register": True,
        "schema.delete": True,
        "group.delete": True,
        "offset.reset": True,
        "records.delete": True,
        "dlq.replay": True,
        "dlq.purge": True,
        "delayed.cancel": True,
        "txn.abort": True,  # Of an administrator: those of its producer are off.
        "audit.read": True,
        "group.create": False,
        "offset.commit": False,
        "txn.begin": False,
        "txn.commit": False,
        "data.produce": False,
        "data.consume": False,
        "system.start": True,
        "system.stop": True,
        "tls.reload": True,
        "encryption.change": True,
        "connection.refused": True,
        "audit.gap": True,
    }
)
DEFAULT_EVENTS: Final = tuple(name for name, is_on in EVENTS.items() if is_on)
# Of a node whose listeners ask for no login.
SYSTEM_EVENTS: Final = frozenset({"system.start", "system.stop", "audit.gap"})
# Names of other products that queries take as well.
SYNONYMS: Final = MappingProxyType(
    {"user.modify": ("user.update",), "acl.change": ("acl.set", "acl.delete")}
)


def expand_events(names: tuple[str, ...]) -> frozenset[str]:
    """The events that names and patterns such as `data.*` mean; raise `ValueError`."""
    events: set[str] = set()
    for name in names:
        matching = {name} & EVENTS.keys()
        if name.endswith(".*"):
            matching = {event for event in EVENTS if event.startswith(name[:-1])}
        if not matching:
            raise ValueError(f"there is no event {name!r}; there are {', '.join(EVENTS)}")
        events |= matching
    return frozenset(events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The trail of logins, refusals and administrative acts."""

    enabled: Literal["auto", "on", "off"] = setting(
        "auto",
        "Whether the trail is written. `auto`: once a listener authenticates its clients. `on` "
        "without any such listener: only starts and stops.",
    )
    events: tuple[str, ...] = setting(
        DEFAULT_EVENTS, "The events that are written; `data.*` means all that begin so."
    )
    retention_ms: int = setting(90 * 24 * 60 * 60 * 1000, "How long events are kept.")
    queue_events_max: int = setting(10_000, "Events that wait to be written.")
    window_ms: int = setting(
        1_000, "Equal refusals and failed logins within this time are one event with a count."
    )
    data_window_ms: int = setting(60_000, "The same for events about records.")
    on_failure: Literal["permit", "refuse"] = setting(
        "permit",
        "What happens while events cannot be written: `permit` drops and counts them, `refuse` "
        "lets only super users on this machine log in.",
    )
    chain_key: KeySecret = setting(
        NO_KEY, "Where the key is that signs the chain of events. Empty: hashes without a key."
    )
    exclude_principals: tuple[str, ...] = setting(
        (), "Principals whose logins, refusals and use of records are not written."
    )

    def __post_init__(self) -> None:
        try:
            expand_events(self.events)
        except ValueError as problem:
            raise ValueError(f"audit.events: {problem}") from None
        for name in ("retention_ms", "queue_events_max", "window_ms", "data_window_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"audit.{name} = {getattr(self, name)} is less than 1")
        for principal in self.exclude_principals:
            kind, _, name = principal.partition(":")
            if not (kind and name):
                raise ValueError(f"audit.exclude_principals: {principal!r} is not User:…")

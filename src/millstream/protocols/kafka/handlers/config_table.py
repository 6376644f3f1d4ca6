"""The configs that Kafka's tools know, and what each of them is here.

Owns the names and types, and the reading of topic configs out of requests. A topic config
is one of four: a setting of ours; a setting that is checked, kept and shown, and has no effect; one
that is taken only with a value that says what Millstream does anyway; or unknown and refused.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple

from millstream.errors import InvalidSetting, RequestError
from millstream.settings import (
    BUILT_IN_SETTINGS,
    STORED_SETTINGS,
    TopicSettings,
    effective_settings,
    meanings,
)


class Kind(IntEnum):
    """Kafka's types of configs, by their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Source(IntEnum):
    """Where the value of a config comes from."""

    TOPIC = 1
    NODE_AT_RUN_TIME = 2
    EVERY_NODE_AT_RUN_TIME = 3
    NODE = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class TopicConfig(NamedTuple):
    """A topic setting; a node's default for it goes by another name."""

    kind: Kind
    node_name: str

    @staticmethod
    def setting(name: str) -> str:
        return name.replace(".", "_")

    @staticmethod
    def config(setting: str) -> str:
        return setting.replace("_", ".")


class FixedConfig(NamedTuple):
    """A config that cannot be changed here, and the values that say what is done anyway."""

    kind: Kind
    values: tuple[str, ...]
    meaning: str


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """A config as it is described. The synonyms are where its value comes from, winner first."""

    name: str
    kind: Kind
    synonyms: tuple[Synonym, ...]
    is_read_only: bool
    meaning: str

    @property
    def value(self) -> str | None:
        return self.synonyms[0].value

    @property
    def source(self) -> Source:
        return self.synonyms[0].source


class Inherited(NamedTuple):
    """Defaults of topics: the layers of the node's settings."""

    base: TopicSettings  # As the node was started.
    settings: TopicSettings  # With what was set at run time:
    node: Mapping[str, str]  # for the node,
    every_node: Mapping[str, str]  # and for all of them.


# -- the tables --------------------------------------------------------------------------------

TOPIC_CONFIGS: dict[str, TopicConfig] = {
    "cleanup.policy": TopicConfig(Kind.LIST, "log.cleanup.policy"),
    "retention.ms": TopicConfig(Kind.LONG, "log.retention.ms"),
    "retention.bytes": TopicConfig(Kind.LONG, "log.retention.bytes"),
    "segment.bytes": TopicConfig(Kind.INT, "log.segment.bytes"),
    "segment.ms": TopicConfig(Kind.LONG, "log.roll.ms"),
    "index.interval.bytes": TopicConfig(Kind.INT, "log.index.interval.bytes"),
    "max.message.bytes": TopicConfig(Kind.INT, "message.max.bytes"),
    "compression.type": TopicConfig(Kind.STRING, "compression.type"),
    "message.timestamp.type": TopicConfig(Kind.STRING, "log.message.timestamp.type"),
    "message.timestamp.before.max.ms": TopicConfig(
        Kind.LONG, "log.message.timestamp.before.max.ms"
    ),
    "message.timestamp.after.max.ms": TopicConfig(Kind.LONG, "log.message.timestamp.after.max.ms"),
    "compression.gzip.level": TopicConfig(Kind.INT, "compression.gzip.level"),
    "compression.lz4.level": TopicConfig(Kind.INT, "compression.lz4.level"),
    "compression.zstd.level": TopicConfig(Kind.INT, "compression.zstd.level"),
    "delete.retention.ms": TopicConfig(Kind.LONG, "log.cleaner.delete.retention.ms"),
    "min.compaction.lag.ms": TopicConfig(Kind.LONG, "log.cleaner.min.compaction.lag.ms"),
    "max.compaction.lag.ms": TopicConfig(Kind.LONG, "log.cleaner.max.compaction.lag.ms"),
    "min.cleanable.dirty.ratio": TopicConfig(Kind.DOUBLE, "log.cleaner.min.cleanable.ratio"),
    "message.validation.type": TopicConfig(Kind.STRING, "log.message.validation.type"),
    "min.insync.replicas": TopicConfig(Kind.INT, "min.insync.replicas"),
    "message.ttl.ms": TopicConfig(Kind.LONG, "log.message.ttl.ms"),
    "message.ttl.headers": TopicConfig(Kind.STRING, "log.message.ttl.headers"),
    "message.queue.headers": TopicConfig(Kind.STRING, "log.message.queue.headers"),
    "message.id.window.ms": TopicConfig(Kind.LONG, "log.message.id.window.ms"),
    "message.id.count.max": TopicConfig(Kind.INT, "log.message.id.count.max"),
    "index.key": TopicConfig(Kind.BOOLEAN, "log.index.key"),
    "index.headers": TopicConfig(Kind.LIST, "log.index.headers"),
    "schema.validation.value": TopicConfig(Kind.STRING, "log.schema.validation.value"),
    "schema.validation.key": TopicConfig(Kind.STRING, "log.schema.validation.key"),
    "schema.validation.action": TopicConfig(Kind.STRING, "log.schema.validation.action"),
    "schema.validation.unframed": TopicConfig(Kind.STRING, "log.schema.validation.unframed"),
    "schema.subject.strategy": TopicConfig(Kind.STRING, "log.schema.subject.strategy"),
    "view.of": TopicConfig(Kind.STRING, "view.of"),
    "view.where": TopicConfig(Kind.STRING, "view.where"),
    "owner": TopicConfig(Kind.STRING, "owner"),
    "tags": TopicConfig(Kind.LIST, "tags"),
    "purpose": TopicConfig(Kind.STRING, "purpose"),
    "mask.paths": TopicConfig(Kind.LIST, "mask.paths"),
}

# Kafka's type of each setting without effect, and what a broker's default for it is called.
STORED_CONFIGS: dict[str, tuple[Kind, str]] = {
    "unclean.leader.election.enable": (Kind.BOOLEAN, "unclean.leader.election.enable"),
    "preallocate": (Kind.BOOLEAN, "log.preallocate"),
    "flush.messages": (Kind.LONG, "log.flush.interval.messages"),
    "flush.ms": (Kind.LONG, "log.flush.interval.ms"),
    "file.delete.delay.ms": (Kind.LONG, "log.segment.delete.delay.ms"),
    "segment.jitter.ms": (Kind.LONG, "log.roll.jitter.ms"),
    "segment.index.bytes": (Kind.INT, "log.index.size.max.bytes"),
    "local.retention.ms": (Kind.LONG, "log.local.retention.ms"),
    "local.retention.bytes": (Kind.LONG, "log.local.retention.bytes"),
    "remote.log.copy.disable": (Kind.BOOLEAN, ""),
    "remote.log.delete.on.disable": (Kind.BOOLEAN, ""),
    "leader.replication.throttled.replicas": (Kind.LIST, ""),
    "follower.replication.throttled.replicas": (Kind.LIST, ""),
}

# Every line is a promise that the values do describe what happens here. The first is shown. They
# are not stored like the others: setting them asks for data in another place or format.
FIXED_CONFIGS: dict[str, FixedConfig] = {
    "message.format.version": FixedConfig(
        Kind.STRING, ("3.0-IV1", "3.0"), "Records are kept in format v2."
    ),
    "message.downconversion.enable": FixedConfig(
        Kind.BOOLEAN, ("false",), "Records are sent in the format they are kept in."
    ),
    # A Kafka broker without tiered storage refuses it too.
    "remote.storage.enable": FixedConfig(Kind.BOOLEAN, ("false",), "Nothing is tiered."),
}

TOPIC_MEANINGS = meanings(TopicSettings)


# Those of topics anywhere, those of nodes and groups where a message begins with one.
_SETTING_NAMES = re.compile(
    r"^[a-z_]+(?= = )|(?<![\w'\"])(?:"
    + "|".join(TopicConfig.setting(name) for name in [*TOPIC_CONFIGS, *STORED_CONFIGS])
    + r")(?![\w'\"])"
)

# -- reading -----------------------------------------------------------------------------------


def read_overrides(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Turn the configs of a request into settings; raise `InvalidSetting` for any that has none."""
    overrides: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in configs:
        name, value = own_config(name, value)
        if name in seen:
            raise InvalidSetting(f"{name} is given twice")
        seen.add(name)
        if is_setting(name, value) and value is not None:
            overrides[TopicConfig.setting(name)] = value
    return overrides


_STRATEGIES = {
    "topicnamestrategy": "topic",
    "recordnamestrategy": "record",
    "topicrecordnamestrategy": "topic-record",
}


def own_config(name: str, value: str | None) -> tuple[str, str | None]:
    """Our config for one of Confluent's, and its value; any other one as it is."""
    parts = name.split(".")
    if parts[0] != "confluent" or parts[1:2] not in (["key"], ["value"]):
        return name, value
    if parts[2:] == ["schema", "validation"]:
        switch = {"true": "id", "false": "off"}.get((value or "").strip().lower(), value)
        return f"schema.validation.{parts[1]}", switch
    if parts[2:] == ["subject", "name", "strategy"]:
        kind = (value or "").strip().rpartition(".")[2].lower()
        return "schema.subject.strategy", _STRATEGIES.get(kind, value)
    return name, value


def is_setting(name: str, value: str | None) -> bool:
    """Tell a setting from a config that says what is done anyway; refuse everything else."""
    check_name(name)
    if value is None:
        raise InvalidSetting(f"{name} has no value")
    if name in TOPIC_CONFIGS or name in STORED_CONFIGS:
        return True
    fixed = FIXED_CONFIGS[name]
    if value.strip().lower() not in {known.lower() for known in fixed.values}:
        raise InvalidSetting(
            f"{name} = {value!r} is not supported, only {' or '.join(map(repr, fixed.values))}: "
            f"{fixed.meaning}"
        )
    return False


def check_name(name: str) -> None:
    if not is_known(name):
        from difflib import get_close_matches

        names = [*TOPIC_CONFIGS, *STORED_CONFIGS]
        near = get_close_matches(name[:100], [*names, *FIXED_CONFIGS], n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise InvalidSetting(f"there is no topic config {name[:100]!r}; {hint}")


def error_text(problem: RequestError, *, is_node: bool = False) -> str:
    """The error with Kafka's names of settings: `retention.ms` for the engine's `retention_ms`.

    A node's default has a name of its own, `log.retention.ms`. Names between quotes are the
    client's, and stay as the client wrote them.
    """
    if not isinstance(problem, InvalidSetting):
        return str(problem)

    def kafka_name(match: re.Match[str]) -> str:
        name = TopicConfig.config(match[0])
        return TOPIC_CONFIGS[name].node_name if is_node and name in TOPIC_CONFIGS else name

    return _SETTING_NAMES.sub(kafka_name, str(problem))


def is_known(name: str) -> bool:
    return name in TOPIC_CONFIGS or name in STORED_CONFIGS or name in FIXED_CONFIGS


def is_list(name: str) -> bool:
    """Whether values can be added to a topic config and taken from it."""
    if name in TOPIC_CONFIGS:
        return TOPIC_CONFIGS[name].kind is Kind.LIST
    return name in STORED_CONFIGS and STORED_CONFIGS[name][0] is Kind.LIST


# -- describing --------------------------------------------------------------------------------


def topic_entries(overrides: Mapping[str, str], defaults: Inherited) -> list[Entry]:
    """Every config of a topic, with where its value comes from."""
    settings, _ = effective_settings(defaults.settings, dict(overrides))
    entries = []
    for name, config in TOPIC_CONFIGS.items():
        setting = TopicConfig.setting(name)
        layers = inherited(config.node_name, setting, defaults)
        if setting in overrides:
            own = Synonym(name, _text(getattr(settings, setting)), Source.TOPIC)
            layers = (own, *layers)
        entries.append(Entry(name, config.kind, layers, False, TOPIC_MEANINGS[setting]))
    for name, (kind, node_name) in STORED_CONFIGS.items():
        stored = STORED_SETTINGS[TopicConfig.setting(name)]
        layers = (Synonym(node_name or name, stored.default, Source.DEFAULT),)
        if (text := overrides.get(TopicConfig.setting(name))) is not None:
            layers = (Synonym(name, text.strip(), Source.TOPIC), *layers)
        entries.append(Entry(name, kind, layers, False, f"Stored, no effect. {stored.reason}"))
    for name, fixed in FIXED_CONFIGS.items():
        only = Synonym(name, fixed.values[0], Source.DEFAULT)
        entries.append(Entry(name, fixed.kind, (only,), True, fixed.meaning))
    for setting in sorted(overrides):
        name = setting.replace("_", ".")
        if not is_known(name):
            own = Synonym(name, overrides[setting], Source.TOPIC)
            entries.append(Entry(name, Kind.STRING, (own,), False, "Of another version."))
    return entries


def inherited(node_name: str, setting: str, defaults: Inherited) -> tuple[Synonym, ...]:
    """The layers of a setting below that of a topic, the winner first."""
    at_run_time = (
        (defaults.node, Source.NODE_AT_RUN_TIME),
        (defaults.every_node, Source.EVERY_NODE_AT_RUN_TIME),
    )
    return (
        *(
            Synonym(node_name, shown(setting, overrides[setting]), source)
            for overrides, source in at_run_time
            if setting in overrides
        ),
        *layers_of(node_name, getattr(defaults.base, setting), getattr(BUILT_IN_SETTINGS, setting)),
    )


def shown(setting: str, text: str) -> str | None:
    """A setting as it is spelled when it is described."""
    return _text(getattr(effective_settings(BUILT_IN_SETTINGS, {setting: text})[0], setting))


def layers_of(name: str, value: object, built_in: object) -> tuple[Synonym, ...]:
    last = Synonym(name, _text(built_in), Source.DEFAULT)
    return (last,) if value == built_in else (Synonym(name, _text(value), Source.NODE), last)


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case Enum():
            return str(value.value)
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)

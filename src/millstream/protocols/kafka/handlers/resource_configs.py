"""Configs of what is neither topic nor node: groups, client metrics, and the node's loggers.

Owns their names as clients know them, and how they are described.
"""

import logging
from collections.abc import Mapping

from millstream.config import Config
from millstream.control.resources import (
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    ResourceKind,
)
from millstream.errors import InvalidSetting
from millstream.protocols.kafka.handlers.broker_config_table import (
    RUN_TIME_SETTINGS,
    check_node_name,
)
from millstream.protocols.kafka.handlers.config_table import (
    Entry,
    Kind,
    Source,
    Synonym,
    TopicConfig,
    layers_of,
)

# What a group's configs are called where a node says them for all groups.
_NODE_NAMES = {
    "consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "consumer_heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
}
_CLIENT_METRICS_KINDS = {"metrics": Kind.LIST, "interval_ms": Kind.INT, "match": Kind.LIST}
_BUILT_IN_NODE = Config()

NAMES: dict[ResourceKind, Mapping[str, str]] = {
    ResourceKind.NODE: RUN_TIME_SETTINGS,
    ResourceKind.GROUP: {TopicConfig.config(setting): setting for setting in GROUP_SETTINGS},
    ResourceKind.CLIENT_METRICS: {
        TopicConfig.config(setting): setting for setting in CLIENT_METRICS_SETTINGS
    },
}
_LISTS = {"metrics", "match"}


def setting_of(kind: ResourceKind, name: str) -> str:
    """Our name of a config; raise if the resource has none of that name."""
    if kind is ResourceKind.NODE:
        check_node_name(name)
    setting = NAMES[kind].get(name)
    if setting is None:
        known = ", ".join(NAMES[kind])
        raise InvalidSetting(f"{kind.value} has no config {name[:100]!r}; it has {known}")
    return setting


def is_list(kind: ResourceKind, name: str) -> bool:
    return name in _LISTS or (kind is ResourceKind.NODE and name == "log.cleanup.policy")


def group_entries(overrides: Mapping[str, str], config: Config) -> list[Entry]:
    entries = []
    for setting, row in GROUP_SETTINGS.items():
        name = TopicConfig.config(setting)
        value, built_in = (getattr(source.timing, setting) for source in (config, _BUILT_IN_NODE))
        layers = layers_of(_NODE_NAMES[setting], value, built_in)
        if setting in overrides:
            layers = (Synonym(name, overrides[setting], Source.GROUP), *layers)
        entries.append(Entry(name, Kind.INT, layers, False, row.reason))
    return entries


def client_metrics_entries(overrides: Mapping[str, str]) -> list[Entry]:
    """Nothing, for a name for which nothing was set."""
    entries = []
    for setting, row in CLIENT_METRICS_SETTINGS.items() if overrides else ():
        name = TopicConfig.config(setting)
        layers: tuple[Synonym, ...] = (Synonym(name, row.default, Source.DEFAULT),)
        if setting in overrides:
            layers = (Synonym(name, overrides[setting], Source.CLIENT_METRICS), *layers)
        kind = _CLIENT_METRICS_KINDS[setting]
        entries.append(Entry(name, kind, layers, False, row.reason))
    return entries


# -- loggers -----------------------------------------------------------------------------------

ROOT_LOGGER = "root"
# Kafka's levels. Python has no TRACE: it is DEBUG, where it is set and where it is shown.
LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_LEVEL_NAMES = {level: name for name, level in LEVELS.items()}


def logger_entries() -> list[Entry]:
    """Every logger of this process with the level that holds for it."""
    names = [ROOT_LOGGER, *sorted(_loggers())]
    meaning = "How much is logged; gone when the node stops."
    entries = []
    for name in names:
        level = _LEVEL_NAMES.get(_logger(name).getEffectiveLevel(), "INFO")
        layers = (Synonym(name, level, Source.LOGGER),)
        entries.append(Entry(name, Kind.STRING, layers, False, meaning))
    return entries


def check_level(name: str, value: str | None) -> None:
    """Raise unless there is such a logger and such a level; None: the level of its parent."""
    if name != ROOT_LOGGER and name not in _loggers():
        raise InvalidSetting(f"there is no logger {name[:100]!r}; describe them for their names")
    if value is None and name == ROOT_LOGGER:
        raise InvalidSetting("the level of the root logger can be set, not taken away")
    if value is not None and value not in LEVELS:
        raise InvalidSetting(f"{name} = {value[:100]!r} is not one of {', '.join(LEVELS)}")


def set_level(name: str, value: str | None) -> None:
    _logger(name).setLevel(logging.NOTSET if value is None else LEVELS[value])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT_LOGGER else name)


def _loggers() -> list[str]:
    """Names of loggers and of the packages above them: another would be made, for ever."""
    return list(logging.root.manager.loggerDict)

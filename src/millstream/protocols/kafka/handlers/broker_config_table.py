"""The configs of a node that Kafka's tools read: a name, a type, and where the value comes from.

Owns the table. Defaults of topics are among them, under the names that Kafka gives them.
"""

from collections.abc import Callable
from typing import NamedTuple

from millstream.config import Config
from millstream.control.resources import NODE_SETTINGS, THROTTLES
from millstream.errors import InvalidRequest, InvalidSetting
from millstream.protocols.kafka.context import Endpoint
from millstream.protocols.kafka.handlers.config_table import (
    STORED_CONFIGS,
    TOPIC_CONFIGS,
    TOPIC_MEANINGS,
    Entry,
    Inherited,
    Kind,
    Source,
    Synonym,
    TopicConfig,
    inherited,
    layers_of,
    shown,
)
from millstream.security.settings import transport_of
from millstream.settings import OF_ONE_TOPIC, STORED_SETTINGS

LISTENER = "PLAINTEXT"
MEMORY = "memory"  # Where a node that keeps nothing on disk has its logs.


class NodeConfig(NamedTuple):
    kind: Kind
    read: Callable[[Config], object]
    meaning: str


def directory_of(config: Config) -> str:
    """The directory that tools see as the log directory of a node; there is one."""
    return config.data_dir if config.storage == "disk" else MEMORY


def kafka_listeners(config: Config) -> dict[str, tuple[str, str]]:
    """Protocol and address of each listener that speaks Kafka, by its name."""
    if not config.listener:
        protocol = transport_of(config.security.protocol).kafka_name
        return {protocol: (protocol, f"{config.host}:{config.port}")}
    return {
        name.upper(): (
            transport_of(each.security or config.security.protocol).kafka_name,
            f"{each.host or config.host}:{each.port}",
        )
        for name, each in config.listener.items()
        if "kafka" in each.protocols
    }


# Secrets are none of these, and files of keys neither: they are nothing for clients.
SECURITY_CONFIGS: dict[str, NodeConfig] = {
    "connections.max.reauth.ms": NodeConfig(
        Kind.LONG, lambda c: c.security.session_ms_max, "When a session ends; 0: never."
    ),
    "connection.failed.authentication.delay.ms": NodeConfig(
        Kind.INT, lambda c: c.security.failed_login_delay_ms, "How long a failed login waits first."
    ),
    "sasl.enabled.mechanisms": NodeConfig(
        Kind.LIST, lambda c: ",".join(c.security.mechanisms), "How clients log in."
    ),
    "super.users": NodeConfig(
        Kind.STRING, lambda c: ";".join(c.security.super_users), "They may do everything."
    ),
    "allow.everyone.if.no.acl.found": NodeConfig(
        Kind.BOOLEAN,
        lambda c: c.security.when_no_acl == "allow",
        "Whether topics, groups and transactional ids without an ACL are open.",
    ),
    "ssl.client.auth": NodeConfig(
        Kind.STRING, lambda c: c.tls.client_certificates, "Whether clients show certificates."
    ),
    "ssl.principal.mapping.rules": NodeConfig(
        Kind.STRING, lambda c: c.tls.principal_rules, "How certificates name users."
    ),
    "ssl.enabled.protocols": NodeConfig(
        Kind.LIST,
        lambda c: "TLSv1.3" if c.tls.version_min == "1.3" else "TLSv1.2,TLSv1.3",
        "Versions of TLS.",
    ),
}

NODE_CONFIGS: dict[str, NodeConfig] = {
    **SECURITY_CONFIGS,
    "process.roles": NodeConfig(
        Kind.LIST, lambda c: "broker,controller", "Every node serves clients and votes."
    ),
    "controller.quorum.voters": NodeConfig(
        Kind.LIST,
        lambda c: ",".join(f"{node}@{c.host}:{c.port}" for node in sorted(c.voters)),
        "The nodes that vote on the control log.",
    ),
    "controller.listener.names": NodeConfig(
        Kind.LIST, lambda c: "CONTROLLER", "What the controller's listener is called."
    ),
    "inter.broker.listener.name": NodeConfig(
        Kind.STRING, lambda c: LISTENER, "The listener that nodes use."
    ),
    "listener.security.protocol.map": NodeConfig(
        Kind.STRING,
        lambda c: ",".join(f"{name}:{kind}" for name, (kind, _) in kafka_listeners(c).items()),
        "How listeners are secured.",
    ),
    "listeners": NodeConfig(
        Kind.STRING,
        lambda c: ",".join(f"{name}://{at}" for name, (_, at) in kafka_listeners(c).items()),
        "Where this node listens.",
    ),
    "broker.rack": NodeConfig(Kind.STRING, lambda c: None, "A node has no rack."),
    "node.id": NodeConfig(Kind.INT, lambda c: c.node_id, "The number of this node."),
    "broker.id": NodeConfig(Kind.INT, lambda c: c.node_id, "The number of this node."),
    "log.dir": NodeConfig(Kind.STRING, directory_of, "Where this node keeps its data."),
    "log.dirs": NodeConfig(Kind.STRING, directory_of, "Where this node keeps its data."),
    "num.partitions": NodeConfig(
        Kind.INT, lambda c: c.default_partitions, "Partitions of a topic that does not say."
    ),
    "default.replication.factor": NodeConfig(
        Kind.INT, lambda c: max(1, c.default_replicas), "Replicas of a topic that does not say."
    ),
    "auto.create.topics.enable": NodeConfig(
        Kind.BOOLEAN, lambda c: c.auto_create_topics, "Whether asking for a topic creates it."
    ),
    "offsets.topic.num.partitions": NodeConfig(
        Kind.INT, lambda c: c.offsets_partitions, "Partitions of the topic of groups."
    ),
    "offsets.retention.minutes": NodeConfig(
        Kind.INT,
        lambda c: c.timing.offsets_retention_ms // 60_000,
        "How long the offsets of an empty group are kept.",
    ),
    "offset.metadata.max.bytes": NodeConfig(
        Kind.INT,
        lambda c: c.limits.offset_metadata_length_max,
        "How much text goes with a committed offset.",
    ),
    "group.initial.rebalance.delay.ms": NodeConfig(
        Kind.INT,
        lambda c: c.timing.group_initial_rebalance_delay_ms,
        "How long the first rebalance of a group waits for more members.",
    ),
    "group.min.session.timeout.ms": NodeConfig(
        Kind.INT, lambda c: c.timing.group_session_timeout_ms_min, "The shortest session."
    ),
    "group.max.session.timeout.ms": NodeConfig(
        Kind.INT, lambda c: c.timing.group_session_timeout_ms_max, "The longest session."
    ),
    "group.max.size": NodeConfig(
        Kind.INT, lambda c: c.limits.group_members_max, "How many members a group may have."
    ),
    "socket.request.max.bytes": NodeConfig(
        Kind.INT, lambda c: c.limits.frame_bytes_max, "How large a request may be."
    ),
    "max.connections": NodeConfig(
        Kind.INT, lambda c: c.limits.connections_max, "How many connections are taken."
    ),
    "fetch.max.bytes": NodeConfig(
        Kind.INT, lambda c: c.limits.read_bytes_max, "How much one fetch returns at most."
    ),
    "producer.id.expiration.ms": NodeConfig(
        Kind.INT,
        lambda c: c.timing.producer_expiration_ms,
        "How long an idle producer is remembered.",
    ),
    "log.retention.check.interval.ms": NodeConfig(
        Kind.LONG, lambda c: c.timing.retention_check_ms, "How often old records are looked for."
    ),
    "log.cleaner.backoff.ms": NodeConfig(
        Kind.LONG, lambda c: c.timing.compaction_check_ms, "How often compaction is looked for."
    ),
    "offsets.topic.replication.factor": NodeConfig(
        Kind.INT, lambda c: len(c.voters), "Replicas of the topic of groups."
    ),
    "offsets.retention.check.interval.ms": NodeConfig(
        Kind.LONG, lambda c: c.timing.offsets_check_ms, "How often old offsets are looked for."
    ),
    "transaction.state.log.num.partitions": NodeConfig(
        Kind.INT, lambda c: c.transaction_partitions, "Partitions of the topic of transactions."
    ),
    "transaction.state.log.replication.factor": NodeConfig(
        Kind.INT, lambda c: len(c.voters), "Replicas of the topic of transactions."
    ),
    "transaction.state.log.min.isr": NodeConfig(
        Kind.INT, lambda c: 1, "Replicas that must be in step for a transaction."
    ),
    "transaction.max.timeout.ms": NodeConfig(
        Kind.INT, lambda c: c.timing.transaction_timeout_ms_max, "The longest transaction."
    ),
    "transactional.id.expiration.ms": NodeConfig(
        Kind.INT,
        lambda c: c.timing.transactional_id_expiration_ms,
        "How long an idle transactional id is remembered.",
    ),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": NodeConfig(
        Kind.INT, lambda c: c.timing.transaction_check_ms, "How often overdue ones are looked for."
    ),
    "group.coordinator.rebalance.protocols": NodeConfig(
        Kind.LIST, lambda c: "classic,consumer", "The kinds of groups that are served."
    ),
    "group.consumer.assignors": NodeConfig(
        Kind.LIST, lambda c: "uniform,range", "Assignors of partitions; the first is the default."
    ),
    "group.consumer.max.size": NodeConfig(
        Kind.INT, lambda c: c.limits.group_members_max, "How many members a group may have."
    ),
    "group.consumer.session.timeout.ms": NodeConfig(
        Kind.INT, lambda c: c.timing.consumer_session_timeout_ms, "When a silent member is lost."
    ),
    "group.consumer.heartbeat.interval.ms": NodeConfig(
        Kind.INT,
        lambda c: c.timing.consumer_heartbeat_interval_ms,
        "How often a member is to be heard of.",
    ),
    "delete.topic.enable": NodeConfig(
        Kind.BOOLEAN, lambda c: True, "Whether topics can be deleted."
    ),
    "auto.leader.rebalance.enable": NodeConfig(
        Kind.BOOLEAN, lambda c: False, "Leaders are elected by consensus and stay."
    ),
    "log.cleaner.enable": NodeConfig(Kind.BOOLEAN, lambda c: True, "Whether compaction runs."),
    "log.cleaner.dedupe.buffer.size": NodeConfig(
        Kind.LONG,
        lambda c: c.limits.compaction_keys_bytes_max,
        "How much memory the keys of a compaction may take.",
    ),
    "remote.log.storage.system.enable": NodeConfig(
        Kind.BOOLEAN, lambda c: False, "Nothing is tiered."
    ),
    "scrub.bytes.per.second": NodeConfig(
        Kind.LONG,
        lambda c: c.limits.scrub_bytes_per_second,
        "How fast sealed segments are read again to find damage; 0: not. Millstream's own.",
    ),
    "scrub.interval.ms": NodeConfig(
        Kind.LONG,
        lambda c: c.timing.scrub_interval_ms,
        "From the begin of one search for damage to the next. Millstream's own.",
    ),
    "max.incremental.fetch.session.cache.slots": NodeConfig(
        Kind.INT, lambda c: c.limits.fetch_sessions_max, "How many fetch sessions there may be."
    ),
}

_BUILT_IN_NODE = Config()


# What can be changed at run time: the settings of topics that say nothing, some of the node's own,
# and throttles that are stored only. By Kafka's names; a view and an owner are one topic's affair.
RUN_TIME_SETTINGS: dict[str, str] = {
    **{
        row.node_name: TopicConfig.setting(name)
        for name, row in TOPIC_CONFIGS.items()
        if TopicConfig.setting(name) not in OF_ONE_TOPIC
    },
    **{TopicConfig.config(setting): setting for setting in NODE_SETTINGS},
}
_STARTED_WITH = "It is set when the node starts, not at run time: see docs/configuration.md."

_NO_POOL = "One event loop serves all clients: there is no such pool of threads."
_NO_TIERS = "Nothing is tiered: all records are local."
_SECURITY = "Listeners, TLS and logins are set when the node starts: see docs/configuration.md."
_NO_SHARE = "Groups of this kind are not served."
# What Apache Kafka 4.3 changes at run time and this node does not, with the reason.
REFUSED_AT_RUN_TIME: dict[str, str] = {
    **dict.fromkeys(
        (
            "background.threads",
            "log.cleaner.threads",
            "num.io.threads",
            "num.network.threads",
            "num.recovery.threads.per.data.dir",
            "num.replica.fetchers",
        ),
        _NO_POOL,
    ),
    **{
        node_name: f"{STORED_SETTINGS[TopicConfig.setting(name)].reason} A topic stores it, "
        "without effect."
        for name, (_, node_name) in STORED_CONFIGS.items()
        if node_name
    },
    "log.flush.interval.ms": "Records are synced as durability says, which is set when the node "
    "starts; with durability = write, timing.flush_interval_ms is the longest delay.",
    "log.cleaner.io.buffer.size": "Compaction reads whole batches and has no such buffer.",
    "log.cleaner.io.buffer.load.factor": "Compaction reads whole batches and has no such buffer.",
    "log.cleaner.io.max.bytes.per.second": "The speed of compaction is not limited.",
    "max.connections.per.ip": "Connections are limited for the whole node: max.connections.",
    "max.connections.per.ip.overrides": "Connections are limited for the whole node: "
    "max.connections.",
    "max.connection.creation.rate": "Connections are limited by number: max.connections.",
    "listeners": "The addresses are taken when the node starts: host, port, flux_port and "
    "classic_port in docs/configuration.md.",
    "listener.security.protocol.map": _SECURITY,
    "principal.builder.class": _SECURITY,
    "cordoned.log.dirs": "A node has one data directory: data_dir.",
    "config.providers": "Values are taken as they are, without providers.",
    "metric.reporters": "Metrics are read over HTTP: http_port.",
    "transaction.partition.verification.enable": "Every transactional write is verified.",
    "group.consumer.assignment.interval.ms": "A change of members is assigned at once.",
    "group.coordinator.cached.buffer.max.bytes": "The coordinator keeps no buffers.",
    "group.share.assignment.interval.ms": _NO_SHARE,
    "group.streams.assignment.interval.ms": _NO_SHARE,
    "share.coordinator.cached.buffer.max.bytes": _NO_SHARE,
    "follower.fetch.last.tiered.offset.enable": _NO_TIERS,
}
_REFUSED_PREFIXES = {
    "ssl.": _SECURITY,
    "sasl.": _SECURITY,
    "listener.name.": "A setting is for all listeners of the node, not for one.",
    "remote.": _NO_TIERS,
}


def node_entries(config: Config, advertised: Endpoint, defaults: Inherited) -> list[Entry]:
    """The configs of a node, as a client at `advertised` sees them."""
    entries = []
    for name, row in NODE_CONFIGS.items():
        layers = (
            *_at_run_time(name, defaults),
            *layers_of(name, row.read(config), row.read(_BUILT_IN_NODE)),
        )
        is_read_only = name not in RUN_TIME_SETTINGS
        entries.append(Entry(name, row.kind, layers, is_read_only, row.meaning))
    name = next(iter(kafka_listeners(config)), LISTENER)
    address = f"{name}://{advertised.host}:{advertised.port}"
    synonym = Synonym("advertised.listeners", address, Source.NODE)
    meaning = "Where clients find this node: the address that they dialled, unless one is set."
    entries.append(Entry("advertised.listeners", Kind.STRING, (synonym,), True, meaning))
    for name, topic_config in TOPIC_CONFIGS.items():
        node_name = topic_config.node_name
        setting = TopicConfig.setting(name)
        layers = inherited(node_name, setting, defaults)
        is_read_only = node_name not in RUN_TIME_SETTINGS
        meaning = TOPIC_MEANINGS[setting]
        entries.append(Entry(node_name, topic_config.kind, layers, is_read_only, meaning))
    return entries + _throttles(defaults)


def _throttles(defaults: Inherited) -> list[Entry]:
    """Only where they are set, as in Kafka."""
    entries = []
    for setting, row in THROTTLES.items():
        name = TopicConfig.config(setting)
        layers = _at_run_time(name, defaults)
        if layers:
            entries.append(Entry(name, Kind.LONG, layers, False, row.reason))
    return entries


def _at_run_time(name: str, defaults: Inherited) -> tuple[Synonym, ...]:
    """What was set at run time for a config of the node that is no default of topics."""
    setting = RUN_TIME_SETTINGS.get(name)
    return tuple(
        Synonym(name, overrides[setting], source)
        for overrides, source in (
            (defaults.node, Source.NODE_AT_RUN_TIME),
            (defaults.every_node, Source.EVERY_NODE_AT_RUN_TIME),
        )
        if setting is not None and setting in overrides
    )


def every_node_entries(defaults: Inherited) -> list[Entry]:
    """The configs set for all nodes at run time, and no others."""
    names = {setting: name for name, setting in RUN_TIME_SETTINGS.items()}
    kinds = {row.node_name: row.kind for row in TOPIC_CONFIGS.values()}
    kinds |= {name: row.kind for name, row in NODE_CONFIGS.items()}
    entries = []
    for setting, text in defaults.every_node.items():
        name = names.get(setting)
        if name is not None:
            value = text if setting in NODE_SETTINGS else shown(setting, text)
            layers = (Synonym(name, value, Source.EVERY_NODE_AT_RUN_TIME),)
            entries.append(Entry(name, kinds.get(name, Kind.LONG), layers, False, ""))
    return entries


def check_node_name(name: str) -> None:
    """Raise unless a config of this name can be changed at run time."""
    if name in RUN_TIME_SETTINGS:
        return
    for prefix, reason in _REFUSED_PREFIXES.items():
        if name.startswith(prefix):
            raise InvalidRequest(f"{name[:100]} cannot be altered here. {reason}")
    if name in REFUSED_AT_RUN_TIME:
        raise InvalidRequest(f"{name} cannot be altered here. {REFUSED_AT_RUN_TIME[name]}")
    if name in NODE_CONFIGS or name == "advertised.listeners":
        raise InvalidRequest(f"{name} cannot be altered. {_STARTED_WITH}")
    known = ", ".join(RUN_TIME_SETTINGS)
    raise InvalidSetting(f"a node has no config {name[:100]!r}; at run time there are {known}")

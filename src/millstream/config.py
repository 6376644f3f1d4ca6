"""Frozen settings of a node and the limits it keeps.

Owns what can be configured. Where the values come from is `config_sources`' to know.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from millstream.model import NodeId
from millstream.settings import TopicSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A bound for everything that could grow."""

    connections_max: int = 10_000  # Over all listeners. Less if few files may be opened.
    pipeline_requests_max: int = 64
    connection_idle_ms_max: int = 10 * 60 * 1000
    frame_bytes_max: int = 100 * 2**20
    request_bytes_max: int = 512 * 2**20  # Unanswered, of all clients. At most 1/4 of the memory.
    write_buffer_bytes_max: int = 4 * 2**20
    batch_decompressed_bytes_max: int = 64 * 2**20  # Of one batch, wherever it is unpacked.
    unpacking_bytes_max: int = 256 * 2**20  # Of large batches being unpacked, all together.
    topic_partitions_max: int = 10_000
    node_partitions_max: int = 20_000
    topic_settings_max: int = 100
    read_bytes_max: int = 55 * 2**20
    fetch_wait_ms_max: int = 5 * 60 * 1000
    fetch_sessions_max: int = 1_000
    fetch_session_partitions_max: int = 20_000  # In one session.
    fetch_sessions_partitions_max: int = 250_000  # In all sessions together.
    replica_fetch_bytes_max: int = 8 * 2**20
    append_waiters_max: int = 100_000
    read_waiters_max: int = 100_000
    open_files_max: int = 4_000  # Of segments. Less if few files may be opened.
    index_cache_bytes_max: int = 32 * 2**20
    journal_bytes_max: int = 4 * 2**20
    compaction_keys_bytes_max: int = 128 * 2**20
    scrub_bytes_per_second: int = 8 * 2**20  # Sealed segments read again to find damage. 0: none.
    producer_ids_max: int = 100_000
    groups_max: int = 20_000
    group_members_max: int = 2_000
    member_metadata_bytes_max: int = 2**20
    group_waiters_max: int = 50_000  # Members waiting for a rebalance, over all groups.
    commit_offsets_max: int = 20_000  # Partitions in one commit.
    offset_metadata_length_max: int = 4_096
    transactional_ids_max: int = 100_000
    transaction_partitions_max: int = 10_000  # In one transaction.
    transaction_queued_batches_max: int = 1_000  # Of one producer, waiting for one partition.
    transaction_endings_max: int = 1_000  # Whose markers are being written at the same time.
    batch_members_max: int = 10_000  # Transactions that end as one.
    deferred_ms_max: int = 7 * 24 * 60 * 60 * 1000  # How far ahead a record may be delayed.
    deferred_records_max: int = 5_000_000  # Delayed at once, in one partition of `__deferred`.
    intake_queued_batches_max: int = 1_000  # Waiting to be looked into, for one partition.
    config_resources_max: int = 10_000  # Groups and others whose settings were changed at run time.
    intake_queued_bytes_max: int = 256 * 2**20  # The same for all partitions, in bytes.
    quota_entities_max: int = 10_000  # Users, client ids and pairs of them that have quotas.
    quota_clients_max: int = 10_000  # Whose use of their quota is known.
    quota_burst_ms_max: int = 1_000  # Of its quota, that a client may use up at once.
    throttle_ms_max: int = 30_000
    publish_waiting_max: int = 100_000  # Messages whose topic is being created.
    subscriptions_max: int = 20_000
    delivery_unsettled_max: int = 20_000  # Records of one subscription, sent and not settled.
    delivery_buffered_bytes_max: int = 64 * 2**20  # The same, in bytes of payload.


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things take, in the end all of it measured against `tick_ms`."""

    tick_ms: int = 50
    election_timeout_ms: int = 1_000
    flush_interval_ms: int = 500  # How old an unsynced write may grow with durability "write".
    retention_check_ms: int = 30_000
    compaction_check_ms: int = 15_000
    scrub_interval_ms: int = 24 * 60 * 60 * 1000  # From the begin of one pass to the next.
    producer_expiration_ms: int = 24 * 60 * 60 * 1000
    stop_ms_max: int = 10_000
    group_initial_rebalance_delay_ms: int = 300  # For more members of a new group; Kafka: 3000.
    group_session_timeout_ms_min: int = 6_000
    group_session_timeout_ms_max: int = 30 * 60 * 1000
    group_new_member_join_ms_max: int = 5 * 60 * 1000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_check_ms: int = 10 * 60 * 1000
    transaction_timeout_ms_max: int = 15 * 60 * 1000
    transaction_check_ms: int = 10_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    delivery_save_ms: int = 200  # How old an acknowledgement may grow before it is written.


@dataclass(frozen=True, slots=True, kw_only=True)
class Flux:
    """The Flux protocol: defaults for clients that request nothing else."""

    sub_order: Literal["code", "readme"] = "code"  # SUB subject group sid, or SUB subject sid group
    ack_timeout_ms: int = 5_000  # 0: a message is done when it is sent.
    max_retries: int = 3
    retry_delay_ms: int = 0  # Before the first retry; it doubles with each.
    dead_letters: bool = True  # Whether a message goes there after its last retry, or is given up.
    unacknowledged_max: int = 10_000  # Messages that a subscriber has and did not acknowledge.
    flow_rate: int = 1_000  # Messages a second, where FLOWCTL does not say how many.
    flow_burst: int = 100
    flow_buffer: int = 1_000
    flow_slow_threshold: float = 0.8  # How full the buffer of a slow consumer is, 0 to 1.
    flow_overflow: Literal["block", "drop", "shed"] = "block"  # When the buffer is full.
    line_bytes_max: int = 4_096  # Of a command, without headers and payload.
    header_bytes_max: int = 65_536
    subscriptions_max: int = 1_000  # Of one connection.
    replay_count_max: int = 10_000  # Messages that one PULL or REPLAY may ask for.

    def __post_init__(self) -> None:
        may_be_0 = ("ack_timeout_ms", "max_retries", "retry_delay_ms")
        above_0 = ("flow_rate", "flow_burst", "flow_buffer", "unacknowledged_max")
        bounds = ("line_bytes_max", "header_bytes_max", "subscriptions_max", "replay_count_max")
        for least, names in ((0, may_be_0), (1, above_0 + bounds)):
            for name in names:
                if getattr(self, name) < least:
                    raise ValueError(f"flux.{name} = {getattr(self, name)} is less than {least}")
        if not 0 < self.flow_slow_threshold <= 1:
            raise ValueError(f"flux.flow_slow_threshold = {self.flow_slow_threshold} is not 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Classic:
    """The classic protocol."""

    heartbeat_interval_ms: int = 30_000
    subscriber_silence_ms_max: int = 60_000  # Then a subscriber counts as gone.
    subscribe_pause_ms: int = 50  # Before the first record: clients register handlers late.
    subscriptions_max: int = 1_000  # Of one connection.


ListenerName: TypeAlias = Literal["kafka", "flymq", "flux", "classic", "http"]
DEFAULT_LISTENERS: tuple[ListenerName, ...] = ("kafka", "flymq", "flux", "classic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A node. The defaults run a broker on a laptop."""

    node_id: int = 1
    nodes: tuple[int, ...] = ()  # Empty: this node alone. Clusters are yet to come.
    data_dir: str = "data"
    storage: Literal["disk", "memory"] = "disk"
    durability: Literal["sync", "write"] = "sync"
    host: str = "127.0.0.1"
    listeners: tuple[ListenerName, ...] = DEFAULT_LISTENERS  # The protocols that are served.
    port: int = 9092  # Kafka and FlyMQ clients. 0: a free port, for every listener.
    flux_port: int = 4222
    classic_port: int = 9999
    http_port: int = 9094  # Metrics for Prometheus, if http is among the listeners.
    advertised_host: str = ""  # Empty: the address that the client dialled.
    advertised_port: int = 0  # 0: the port that the client dialled.
    auto_create_topics: bool = True
    default_partitions: int = 1
    default_replicas: int = 1
    limits: Limits = field(default_factory=Limits)
    timing: Timing = field(default_factory=Timing)
    flux: Flux = field(default_factory=Flux)
    classic: Classic = field(default_factory=Classic)
    offsets_partitions: int = 16  # Of the topic that remembers groups; fixed once it exists.
    transaction_partitions: int = 16  # The same for transactions.
    deferred_partitions: int = 4  # The same for delayed records.
    delivery_partitions: int = 4  # The same for subscriptions.
    topic_defaults: TopicSettings = field(default_factory=TopicSettings)

    def __post_init__(self) -> None:
        for name in ("port", "flux_port", "classic_port", "http_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise ValueError(f"{name} = {getattr(self, name)} is not in 0 to 65535")
        if self.node_id < 0:
            raise ValueError(f"node_id = {self.node_id} is negative")
        if self.topic_defaults.view_of or self.topic_defaults.view_where:
            raise ValueError("view_of and view_where make a view of one topic: no node sets them")

    def port_of(self, protocol: Literal["flux", "classic", "http"]) -> int:
        """The port of a listener. With `port = 0` every listener gets a free port."""
        ports = {"flux": self.flux_port, "classic": self.classic_port, "http": self.http_port}
        return ports[protocol] if self.port else 0

    @property
    def voters(self) -> frozenset[NodeId]:
        """The nodes that vote on the control log."""
        return frozenset(NodeId(node) for node in self.nodes or (self.node_id,))

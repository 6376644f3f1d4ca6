"""Settings of a node and its limits, each with its default and its meaning.

The meanings are the table in docs/configuration.md. `config_sources` reads the values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from millstream.model import NODE_BITS, NodeId
from millstream.names import (
    AUDIT_TOPIC,
    DELAYED_TOPIC,
    DELIVERIES_TOPIC,
    DLQ_TOPIC_SUFFIX,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SCHEMAS_TOPIC,
    TRANSACTIONS_TOPIC,
)
from millstream.security.audit import Audit
from millstream.security.settings import (
    Encryption,
    ListenerSettings,
    OAuth,
    Peers,
    ProtocolName,
    Security,
    Tls,
)
from millstream.settings import TopicSettings, setting, tables
from millstream.tracing.settings import Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A bound for everything that could grow."""

    connections_max: int = setting(
        10_000, "Connections over all listeners. Lowered if the system allows few open files."
    )
    pipeline_requests_max: int = setting(
        64, "Requests of one connection that are served before their replies are sent."
    )
    connection_idle_ms_max: int = setting(
        10 * 60 * 1000, "How long a connection may be silent before it is closed."
    )
    frame_bytes_max: int = setting(100 * 2**20, "How large one request may be.")
    request_bytes_max: int = setting(
        512 * 2**20, "Unanswered requests of all clients. At most a quarter of the memory."
    )
    write_buffer_bytes_max: int = setting(
        4 * 2**20, "Replies to one connection that wait for its client to read."
    )
    batch_decompressed_bytes_max: int = setting(
        64 * 2**20, "How large one batch may be when it is decompressed."
    )
    unpacking_bytes_max: int = setting(
        256 * 2**20, "Large batches that are being decompressed, all together."
    )
    topic_partitions_max: int = setting(10_000, "Partitions of one topic.")
    node_partitions_max: int = setting(20_000, "Partitions of all topics.")
    topic_settings_max: int = setting(100, "Settings of one topic.")
    read_bytes_max: int = setting(55 * 2**20, "Records in the reply to one fetch.")
    fetch_wait_ms_max: int = setting(5 * 60 * 1000, "How long a fetch may wait for records.")
    fetch_sessions_max: int = setting(1_000, "Fetch sessions that are remembered.")
    fetch_session_partitions_max: int = setting(20_000, "Partitions in one fetch session.")
    fetch_sessions_partitions_max: int = setting(
        250_000, "Partitions in all fetch sessions together."
    )
    replica_fetch_bytes_max: int = setting(8 * 2**20, "Records in one message between replicas.")
    catchup_bytes_per_second: int = setting(
        100_000_000,
        "How fast a node sends records to replicas that come with a move or a grown cluster. "
        "0: as fast as it can.",
    )
    append_waiters_max: int = setting(
        100_000, "Appends to one partition that wait for their commit."
    )
    read_waiters_max: int = setting(100_000, "Partitions that waiting fetches watch, all together.")
    open_files_max: int = setting(
        4_000, "Open files of segments. Lowered if the system allows few open files."
    )
    index_cache_bytes_max: int = setting(32 * 2**20, "Indexes of segments that are kept in memory.")
    journal_bytes_max: int = setting(
        4 * 2**20, "How large the journal grows before it is rewritten."
    )
    compaction_keys_bytes_max: int = setting(
        128 * 2**20, "Keys that one run of compaction keeps in memory."
    )
    scrub_bytes_per_second: int = setting(
        8 * 2**20, "How fast sealed segments are read again to find damage. 0: not at all."
    )
    index_bytes_per_second: int = setting(
        64 * 2**20, "How fast logs are read to build the indexes of keys and headers."
    )
    producer_ids_max: int = setting(
        100_000, "Idempotent producers of one partition that are remembered."
    )
    groups_max: int = setting(20_000, "Consumer groups.")
    group_members_max: int = setting(2_000, "Members of one group.")
    member_metadata_bytes_max: int = setting(
        2**20, "Subscription data that one group member may send."
    )
    group_waiters_max: int = setting(50_000, "Members that wait for a rebalance, over all groups.")
    commit_offsets_max: int = setting(20_000, "Partitions in one commit of offsets.")
    offset_metadata_length_max: int = setting(
        4_096, "Characters of metadata with one committed offset."
    )
    transactional_ids_max: int = setting(100_000, "Transactional ids that are remembered.")
    transaction_partitions_max: int = setting(10_000, "Partitions in one transaction.")
    transaction_queued_batches_max: int = setting(
        1_000, "Batches of one producer that wait for one partition to join."
    )
    transaction_endings_max: int = setting(
        1_000, "Transactions whose markers are being written at the same time."
    )
    batch_members_max: int = setting(10_000, "Transactions of one Spark batch, which end as one.")
    delay_ms_max: int = setting(7 * 24 * 60 * 60 * 1000, "How far ahead a record may be delayed.")
    delayed_records_max: int = setting(
        5_000_000, f"Records delayed at once, in one partition of `{DELAYED_TOPIC}`."
    )
    intake_queued_batches_max: int = setting(
        1_000, "Batches that wait for their queue headers to be read, in one partition."
    )
    config_resources_max: int = setting(
        10_000, "Groups and other resources whose settings were changed at run time."
    )
    intake_queued_bytes_max: int = setting(256 * 2**20, "The same for all partitions, in bytes.")
    quota_entities_max: int = setting(
        10_000, "Users, client ids and pairs of them that have quotas."
    )
    quota_clients_max: int = setting(10_000, "Clients whose use of their quota is remembered.")
    quota_burst_ms_max: int = setting(
        1_000, "How much of its quota a client may use at once, as time."
    )
    throttle_ms_max: int = setting(
        30_000, "How long a client over its quota is told to wait, at most."
    )
    publish_waiting_max: int = setting(100_000, "Messages that wait for their topic to be created.")
    subscriptions_max: int = setting(20_000, "Push subscriptions.")
    delivery_unsettled_max: int = setting(
        20_000, "Records of one subscription that were sent and are not settled."
    )
    delivery_buffered_bytes_max: int = setting(64 * 2**20, "The same, in bytes of payload.")
    unauthenticated_frame_bytes_max: int = setting(65_536, "One request before a login.")
    unauthenticated_requests_max: int = setting(10, "Requests of a connection before its login.")
    authentication_ms_max: int = setting(10_000, "How long a client may take to log in.")
    unauthenticated_connections_max: int = setting(
        1_000, "Connections that have not logged in yet. Beyond, the oldest is closed."
    )
    address_connections_max: int = setting(0, "Connections of one address. 0: no limit.")
    principal_connections_max: int = setting(0, "Connections of one user. 0: no limit.")
    authentications_max: int = setting(4, "Passwords that are checked at the same time.")
    login_failures_max: int = setting(
        10_000, "Users and addresses whose failed logins are remembered."
    )
    users_max: int = setting(10_000, "Users.")
    roles_max: int = setting(1_000, "Roles, without those that are built in.")
    acls_max: int = setting(50_000, "ACLs.")
    decisions_max: int = setting(100_000, "Answers about rights that are kept in memory.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things take, in the end all of it measured against `tick_ms`."""

    tick_ms: int = setting(50, "The clock of consensus: how often replicas check for a leader.")
    election_timeout_ms: int = setting(
        1_000, "How long a leader may be silent before a follower stands for election."
    )
    flush_interval_ms: int = setting(
        500, 'How old an unsynced write may grow with `durability = "write"`.'
    )
    retention_check_ms: int = setting(30_000, "How often records past their retention are deleted.")
    compaction_check_ms: int = setting(15_000, "How often logs are checked for compaction.")
    scrub_interval_ms: int = setting(
        24 * 60 * 60 * 1000, "From the start of one scrub of all segments to the next."
    )
    producer_expiration_ms: int = setting(
        24 * 60 * 60 * 1000, "How long an idempotent producer is remembered after its last batch."
    )
    leader_balance_ms: int = setting(
        300_000,
        "How often partitions go back to their preferred leaders. 0: only when asked.",
    )
    stop_ms_max: int = setting(10_000, "How long a stop waits for writes to be synced.")
    group_initial_rebalance_delay_ms: int = setting(
        300, "How long a new group waits for more members; Kafka: 3000."
    )
    group_session_timeout_ms_min: int = setting(
        6_000, "The least `session.timeout.ms` that a group member may request."
    )
    group_session_timeout_ms_max: int = setting(
        30 * 60 * 1000, "The greatest `session.timeout.ms` that a group member may request."
    )
    group_new_member_join_ms_max: int = setting(
        5 * 60 * 1000, "How long a member may take to join again with its new id."
    )
    consumer_session_timeout_ms: int = setting(
        45_000, "Session timeout of groups with `group.protocol=consumer`."
    )
    consumer_heartbeat_interval_ms: int = setting(
        5_000, "Heartbeat interval of groups with `group.protocol=consumer`."
    )
    offsets_retention_ms: int = setting(
        7 * 24 * 60 * 60 * 1000,
        "How long offsets are kept after the last member of a group has left.",
    )
    offsets_check_ms: int = setting(10 * 60 * 1000, "How often expired offsets are deleted.")
    transaction_timeout_ms_max: int = setting(
        15 * 60 * 1000, "The greatest `transaction.timeout.ms` that a producer may request."
    )
    transaction_check_ms: int = setting(
        10_000, "How often transactions past their timeout are aborted."
    )
    transaction_end_wait_ms_max: int = setting(
        1_000,
        "How long a request of the next transaction waits until the last one has its markers; "
        "then the client has to retry.",
    )
    transactional_id_expiration_ms: int = setting(
        7 * 24 * 60 * 60 * 1000, "How long an unused transactional id is remembered."
    )
    delivery_save_ms: int = setting(
        200, "How old an acknowledgement may grow before it is written."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flux:
    """The Flux protocol: defaults for clients that request nothing else."""

    sub_order: Literal["code", "readme"] = setting(
        "code", "`code`: SUB subject group sid; `readme`: SUB subject sid group."
    )
    ack_timeout_ms: int = setting(
        5_000, "How long a subscriber may take to acknowledge. 0: a message is done when sent."
    )
    max_retries: int = setting(3, "How often a message is delivered again.")
    retry_delay_ms: int = setting(0, "Wait before the first retry; it doubles with each.")
    dead_letters: bool = setting(
        True,
        f"Whether a message goes to `<topic>{DLQ_TOPIC_SUFFIX}` after its last retry.",
    )
    unacknowledged_max: int = setting(10_000, "Messages that a subscriber may hold unacknowledged.")
    flow_rate: int = setting(
        1_000, "Messages a second of a slow consumer, unless FLOWCTL says how many."
    )
    flow_burst: int = setting(
        100, "Messages that a slow consumer gets at once, unless FLOWCTL says how many."
    )
    flow_buffer: int = setting(
        1_000, "Messages that wait for a slow consumer, unless FLOWCTL says how many."
    )
    flow_slow_threshold: float = setting(0.8, "How full the buffer of a slow consumer is, 0 to 1.")
    flow_overflow: Literal["block", "drop", "shed"] = setting(
        "block", "What happens to a message when the buffer is full."
    )
    line_bytes_max: int = setting(4_096, "How long a command may be, without headers and payload.")
    header_bytes_max: int = setting(65_536, "Headers of one message.")
    subscriptions_max: int = setting(1_000, "Subscriptions of one connection.")
    replay_count_max: int = setting(10_000, "Messages that one PULL or REPLAY may request.")

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

    heartbeat_interval_ms: int = setting(
        30_000, "How often the broker sends a heartbeat to a subscriber."
    )
    subscriber_silence_ms_max: int = setting(
        60_000, "How long a subscriber may be silent before it counts as gone."
    )
    subscribe_pause_ms: int = setting(
        50, "Wait before the first record: clients register handlers late."
    )
    subscriptions_max: int = setting(1_000, "Subscriptions of one connection.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """HTTP: REST, metrics, health. Its connections have a limit of their own."""

    connections_max: int = setting(
        512, "Connections. Beyond, the longest idle one is closed; with none idle: 503."
    )
    header_bytes_max: int = setting(32 * 1024, "Request line and headers of one request.")
    headers_max: int = setting(100, "Headers of one request.")
    header_ms_max: int = setting(10_000, "From the first byte of a request to its last header.")
    body_idle_ms_max: int = setting(30_000, "How long a body may be silent before its end.")
    idle_ms_max: int = setting(75_000, "How long a connection may wait for its next request.")
    body_bytes_max: int = setting(2 * 2**20, "Body of one request.")
    records_body_bytes_max: int = setting(16 * 2**20, "Body of one request that produces records.")
    login_body_bytes_max: int = setting(4 * 1024, "Body of one request before a login.")
    stream_held_bytes_max: int = setting(
        256 * 1024, "Held of a body without end, and of events that a client has not read yet."
    )
    page_max: int = setting(1_000, "Items of one page.")
    page_bytes_max: int = setting(8 * 2**20, "Records of one page, as they are sent.")
    value_bytes_max: int = setting(2**20, "Shown of one key or value; `value_bytes` asks for less.")
    streams_max: int = setting(200, "Streams of events and exports, all together.")
    principal_streams_max: int = setting(20, "The same for one principal.")
    scans_max: int = setting(4, "Searches through records at the same time.")
    scans_waiting_max: int = setting(16, "Searches that wait for their turn.")
    scan_ms_max: int = setting(10_000, "How long one page may search; `budget_ms` asks for less.")
    scan_bytes_max: int = setting(256 * 2**20, "Bytes of records that one page may read.")
    jobs_max: int = setting(16, "Jobs that run at the same time.")
    jobs_remembered_max: int = setting(1_000, "Jobs that are remembered, with those that ended.")
    sessions_max: int = setting(10_000, "Sessions of people who logged in by a browser.")
    answers_remembered_max: int = setting(
        10_000, "Answers to requests with an `Idempotency-Key` that are kept for 10 minutes."
    )
    hosts: tuple[str, ...] = setting(
        (), "Names that may stand in `Host`, beside loopback and the addresses of this machine."
    )
    cors_origins: tuple[str, ...] = setting(
        (), "Origins whose pages may call, such as `https://ops.example.com`."
    )
    export: bool = setting(True, "Whether records may be exported as NDJSON and CSV.")
    loop_share_max: float = setting(
        0.2, "Share of the event loop that HTTP may take while the loop is late, above 0 to 1."
    )

    def __post_init__(self) -> None:
        for field_ in fields(self):
            value = getattr(self, field_.name)
            if type(value) is int and value < 1:
                raise ValueError(f"http.{field_.name} = {value} is less than 1")
        if not 0 < self.loop_share_max <= 1:
            raise ValueError(f"http.loop_share_max = {self.loop_share_max} is not above 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The schema registry, which the HTTP listener serves."""

    enabled: bool = setting(
        True,
        f"Whether this node has a schema registry. Without it `{SCHEMAS_TOPIC}` is a topic like "
        "others, for a registry of its own.",
    )
    compatibility: Literal[
        "NONE",
        "BACKWARD",
        "BACKWARD_TRANSITIVE",
        "FORWARD",
        "FORWARD_TRANSITIVE",
        "FULL",
        "FULL_TRANSITIVE",
    ] = setting(
        "BACKWARD", "Which changes of a schema are allowed, where no subject says otherwise."
    )
    schema_bytes_max: int = setting(2**20, "How large the text of one schema may be.")
    versions_max: int = setting(100_000, "Versions of all subjects.")
    changes_waiting_max: int = setting(
        1_000, "Registrations and other changes that wait for the one before them."
    )
    parsed_max: int = setting(1_000, "Schemas that are kept in memory as they were parsed.")
    parsed_bytes_max: int = setting(16 * 2**20, "The same, in bytes of their texts.")


ListenerName: TypeAlias = ProtocolName
DEFAULT_LISTENERS: tuple[ListenerName, ...] = ("kafka", "flymq", "flux", "classic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A node. The defaults run a broker on a laptop."""

    node_id: int = setting(1, "The number of this node in its cluster.")
    nodes: tuple[int, ...] = setting(
        (), "The nodes that vote on the control log. Empty: this node alone."
    )
    data_dir: str = setting("data", "The directory of logs and journal.")
    storage: Literal["disk", "memory"] = setting(
        "disk", "Where logs are kept. `memory` keeps nothing over a restart."
    )
    durability: Literal["sync", "write"] = setting(
        "sync",
        "`sync`: committed records survive a power cut. `write`: a crash of the process only.",
    )
    host: str = setting("127.0.0.1", "The address that all listeners bind to.")
    listeners: tuple[ListenerName, ...] = setting(
        DEFAULT_LISTENERS, "The protocols that are served."
    )
    port: int = setting(
        9092, "Port of Kafka and FlyMQ clients. 0: a free port, for every listener."
    )
    flux_port: int = setting(4222, "Port of Flux clients.")
    classic_port: int = setting(9999, "Port of classic clients.")
    http_port: int = setting(
        9094, "Port of REST, schema registry, metrics and health, if http is among the listeners."
    )
    peer_port: int = setting(
        9093, "Port of other nodes, open in a cluster only. 0, or with `port = 0`: a free port."
    )
    peer_host: str = setting("", "The address that other nodes connect to. Empty: `host`.")
    peer_address: str = setting(
        "", "HOST:PORT that other nodes are told to connect to. Empty: where it listens."
    )
    rack: str = setting("", "The rack or zone of this node; replicas are spread over racks.")
    machine: str = setting(
        "", "What fails together with this node. Empty: this node alone. One holds no two replicas."
    )
    opens_logs_on_use: bool = setting(
        True,
        "Whether a start leaves logs closed that nothing happened to since the last orderly stop. "
        "Faster with thousands of partitions; the first request to each waits for its log.",
    )
    advertised_host: str = setting(
        "", "The address that clients are sent to. Empty: the one that they dialled."
    )
    advertised_port: int = setting(
        0, "The port that clients are sent to. 0: the one that they dialled."
    )
    auto_create_topics: bool = setting(True, "Whether a request for an unknown topic creates it.")
    required_topic_settings: tuple[str, ...] = setting(
        (), "Settings without which no topic is created, such as `purpose` or `owner`."
    )
    default_partitions: int = setting(1, "Partitions of a topic that is created without a number.")
    default_replicas: int = setting(
        -1, "Replicas of a topic that is created without a number. -1: three, or one a machine."
    )
    limits: Limits = field(default_factory=Limits)
    timing: Timing = field(default_factory=Timing)
    flux: Flux = field(default_factory=Flux)
    classic: Classic = field(default_factory=Classic)
    http: Http = field(default_factory=Http)
    registry: Registry = field(default_factory=Registry)
    tracing: Tracing = field(default_factory=Tracing)
    security: Security = field(default_factory=Security)
    oauth: OAuth = field(default_factory=OAuth)
    tls: Tls = field(default_factory=Tls)
    peers: Peers = field(default_factory=Peers)
    audit: Audit = field(default_factory=Audit)
    encryption: Encryption = field(default_factory=Encryption)
    listener: Mapping[str, ListenerSettings] = tables(
        ListenerSettings, "Listeners by name, in the place of `host`, `port`, `flux_port`, …"
    )
    offsets_partitions: int = setting(16, f"Partitions of `{OFFSETS_TOPIC}`; fixed once it exists.")
    transaction_partitions: int = setting(
        16, f"Partitions of `{TRANSACTIONS_TOPIC}`; fixed once it exists."
    )
    delayed_partitions: int = setting(
        4, f"Partitions of `{DELAYED_TOPIC}`, for delayed records; fixed once it exists."
    )
    delivery_partitions: int = setting(
        4, f"Partitions of `{DELIVERIES_TOPIC}`, for push subscriptions; fixed once it exists."
    )
    audit_partitions: int = setting(4, f"Partitions of `{AUDIT_TOPIC}`; fixed once it exists.")
    topic_defaults: TopicSettings = field(default_factory=TopicSettings)

    def __post_init__(self) -> None:
        for name in ("port", "flux_port", "classic_port", "http_port", "peer_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise ValueError(f"{name} = {getattr(self, name)} is not in 0 to 65535")
        if self.node_id < 0:
            raise ValueError(f"node_id = {self.node_id} is negative")
        if self.node_id >= 1 << NODE_BITS:
            raise ValueError(f"node_id = {self.node_id} is above {(1 << NODE_BITS) - 1}")
        if self.topic_defaults.view_of or self.topic_defaults.view_where:
            raise ValueError("view_of and view_where make a view of one topic: no node sets them")
        for name in ("owner", "tags", "purpose", "mask_paths"):
            if getattr(self.topic_defaults, name):
                raise ValueError(f"{name} is that of one topic: no node sets it")
        known = {part.name for part in fields(TopicSettings)}
        for name in self.required_topic_settings:
            if name.replace(".", "_") not in known:
                raise ValueError(f"required_topic_settings: there is no topic setting {name!r}")

    def port_of(self, protocol: Literal["flux", "classic", "http"]) -> int:
        """The port of a listener. With `port = 0` every listener gets a free port."""
        ports = {"flux": self.flux_port, "classic": self.classic_port, "http": self.http_port}
        return ports[protocol] if self.port else 0

    @property
    def own_topics(self) -> frozenset[str]:
        """The topics that only the broker writes."""
        return INTERNAL_TOPICS | ({SCHEMAS_TOPIC} if self.registry.enabled else set())

    @property
    def voters(self) -> frozenset[NodeId]:
        """The nodes that vote on the control log."""
        return frozenset(NodeId(node) for node in self.nodes or (self.node_id,))

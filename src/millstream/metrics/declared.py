"""Every metric of a node: its name, kind, meaning and labels."""

from millstream.metrics.kinds import Kind, Metric

REQUESTS = Metric(
    "millstream_requests_total",
    Kind.COUNTER,
    "Requests that passed the gate or were refused by it.",
    ("operation", "outcome"),
)
APPENDED_BYTES = Metric(
    "millstream_appended_bytes_total", Kind.COUNTER, "Bytes of batches written by leaders here."
)
APPENDED_BATCHES = Metric(
    "millstream_appended_batches_total", Kind.COUNTER, "Batches written by leaders here."
)
APPENDED_RECORDS = Metric(
    "millstream_appended_records_total", Kind.COUNTER, "Records written by leaders here."
)
DUPLICATE_RECORDS = Metric(
    "millstream_duplicate_records_total",
    Kind.COUNTER,
    "Records whose message id the topic had seen already.",
)
SCHEMA_CHECKS = Metric(
    "millstream_schema_checks_total",
    Kind.COUNTER,
    "Records that were checked against the registry.",
    ("outcome",),
)
DELAYED_RECORDS_TAKEN = Metric(
    "millstream_deferred_records_total", Kind.COUNTER, "Records taken to be delivered later."
)
DELIVERED_RECORDS = Metric(
    "millstream_delivered_records_total",
    Kind.COUNTER,
    "Records pushed to members of subscriptions, each time anew.",
)
REDELIVERED_RECORDS = Metric(
    "millstream_redelivered_records_total",
    Kind.COUNTER,
    "Records pushed to members of subscriptions that had been pushed before.",
)
ACKNOWLEDGED_RECORDS = Metric(
    "millstream_acknowledged_records_total",
    Kind.COUNTER,
    "Records that members of subscriptions are done with.",
)
DROPPED_RECORDS = Metric(
    "millstream_dropped_records_total",
    Kind.COUNTER,
    "Records that the flow policy of a subscription dropped.",
)
DEAD_LETTERS = Metric(
    "millstream_dead_letters_total", Kind.COUNTER, "Records given up and kept as dead letters."
)
READ_BYTES = Metric("millstream_read_bytes_total", Kind.COUNTER, "Bytes handed to readers.")
EXPIRED_RECORDS = Metric(
    "millstream_expired_records_total",
    Kind.COUNTER,
    "Records that a reader was not shown because their time was over, for each reader anew.",
)
FILTERED_RECORDS = Metric(
    "millstream_filtered_records_total",
    Kind.COUNTER,
    "Records that a filter or a view did not show a reader, for each reader anew.",
)
FILTER_READ_BYTES = Metric(
    "millstream_filter_read_bytes_total",
    Kind.COUNTER,
    "Bytes of logs that were read to be filtered.",
)
FILTER_SKIPPED_BYTES = Metric(
    "millstream_filter_skipped_bytes_total",
    Kind.COUNTER,
    "Bytes of logs that filtered reads passed over by an index of keys or headers, about.",
)
INDEX_BUILT_BYTES = Metric(
    "millstream_index_built_bytes_total",
    Kind.COUNTER,
    "Bytes of logs that were read to build indexes of keys and headers.",
)
UNPACKED_BATCHES = Metric(
    "millstream_unpacked_batches_total",
    Kind.COUNTER,
    "Compressed batches that a worker thread unpacked because they are large.",
    ("side",),
)
UNPACKING_BYTES = Metric(
    "millstream_unpacking_bytes",
    Kind.GAUGE,
    "Memory reserved for large batches that are being unpacked.",
    ("side",),
)
UNREADABLE_BATCHES = Metric(
    "millstream_unreadable_batches_total",
    Kind.COUNTER,
    "Batches that cannot be unpacked or decoded: refused, or skipped, for each reader anew.",
    ("outcome",),
)
SYNC_ROUNDS = Metric(
    "millstream_sync_rounds_total", Kind.COUNTER, "Group commits: one makes all waiting durable."
)
SYNC_ROUND_SECONDS = Metric(
    "millstream_sync_round_seconds", Kind.HISTOGRAM, "How long each group commit took."
)
LOOP_LATE_SECONDS = Metric(
    "millstream_loop_late_seconds",
    Kind.HISTOGRAM,
    "How much later than set a timer fired: every 10 ms while busy, else every second.",
)
SYNC_SECONDS = Metric(
    "millstream_sync_seconds_total", Kind.COUNTER, "Time spent in group commits, in seconds."
)
LOOP_STALLS = Metric(
    "millstream_loop_stalls_total",
    Kind.COUNTER,
    "Times that the busy event loop was held up for over 5 ms, as seen by a timer every 10 ms.",
)
LOOP_STALL_SECONDS_MAX = Metric(
    "millstream_loop_stall_seconds_max",
    Kind.GAUGE,
    "The longest time that the event loop was held up in the last minute or two, in seconds.",
)
ELECTIONS_WON = Metric(
    "millstream_elections_won_total", Kind.COUNTER, "Epochs that this node opened as a leader."
)
STORAGE_FAILURES = Metric(
    "millstream_storage_failures_total", Kind.COUNTER, "Writes or syncs that the disk refused."
)
UNREADABLE_RECORDS = Metric(
    "millstream_unreadable_records_total",
    Kind.COUNTER,
    "Records of the broker's own topics that could not be decoded and were skipped.",
    ("topic",),
)
DAMAGED_RANGES = Metric(
    "millstream_damaged_ranges_total",
    Kind.COUNTER,
    "Ranges of records that were not what was written when they were read back.",
)
REPAIRED_RANGES = Metric(
    "millstream_repaired_ranges_total",
    Kind.COUNTER,
    "Ranges of damaged records that were copied anew from another replica.",
)
SCRUBBED_BYTES = Metric(
    "millstream_scrubbed_bytes_total", Kind.COUNTER, "Bytes read again to find damage."
)
SCRUBBED_AT = Metric(
    "millstream_scrub_last_full_pass_timestamp_seconds",
    Kind.GAUGE,
    "When all sealed segments had been read again, in seconds since 1970; 0: not yet.",
)
SCRUB_PASS_BYTES = Metric(
    "millstream_scrub_pass_bytes", Kind.GAUGE, "Bytes read again in the pass that is under way."
)
DAMAGED_NOW = Metric(
    "millstream_damaged_ranges",
    Kind.GAUGE,
    "Ranges of records known to be damaged, and not repaired.",
)
CLEANED_BYTES = Metric(
    "millstream_cleaned_bytes_total",
    Kind.COUNTER,
    "Bytes given back by retention and compaction.",
    ("reason",),
)
_LISTENER = ("listener",)
CONNECTIONS = Metric(
    "millstream_connections", Kind.GAUGE, "Connections of clients, by listener.", _LISTENER
)
CONNECTIONS_TAKEN = Metric(
    "millstream_connections_total", Kind.COUNTER, "Connections taken, by listener.", _LISTENER
)
LOGINS = Metric(
    "millstream_logins_total",
    Kind.COUNTER,
    "Logins, by how they were tried and how they ended.",
    ("protocol", "mechanism", "outcome"),
)
AUDIT_DROPPED = Metric(
    "millstream_audit_dropped_total",
    Kind.COUNTER,
    "Events that are not in the audit trail because it could not be written.",
)
INSECURE_LISTENERS = Metric(
    "millstream_insecure_listeners",
    Kind.GAUGE,
    "Listeners that the network reaches without a login.",
)
CONNECTIONS_REFUSED = Metric(
    "millstream_connections_refused_total",
    Kind.COUNTER,
    "Connections closed at once: connections_max was reached, or few descriptors were left.",
    ("listener", "reason"),
)
APPEND_SECONDS = Metric(
    "millstream_append_seconds",
    Kind.HISTOGRAM,
    "From a batch's arrival to its acknowledgement, for each batch.",
    ("protocol", "acks"),
)
APPEND_FAILURES = Metric(
    "millstream_append_failures_total", Kind.COUNTER, "Batches of clients that were refused."
)
FETCH_FAILURES = Metric(
    "millstream_fetch_failures_total",
    Kind.COUNTER,
    "Partitions of which a reader got an error instead of records.",
)
FETCH_SECONDS = Metric(
    "millstream_fetch_seconds",
    Kind.HISTOGRAM,
    "Reading for one request, without the time that it waited for records.",
    ("protocol",),
)
HTTP_SECONDS = Metric(
    "millstream_http_request_seconds",
    Kind.HISTOGRAM,
    "From the head of a request to its answer, or to the head of a stream.",
    ("route", "method", "class"),
)
REPLICAS = Metric("millstream_replicas", Kind.GAUGE, "Partitions with a replica here.")
FAILED_REPLICAS = Metric(
    "millstream_failed_replicas",
    Kind.GAUGE,
    "Partitions here that take part no more, because their files cannot be read or written.",
)
LEADERS = Metric("millstream_leaders", Kind.GAUGE, "Partitions led here.")
LEADER_CHANGES = Metric(
    "millstream_leader_changes_total",
    Kind.COUNTER,
    "Times that a partition with a replica here got another leader.",
)
PARTITIONS_OFFLINE = Metric(
    "millstream_partitions_offline", Kind.GAUGE, "Partitions here that have no leader now."
)
PARTITIONS_UNDER_REPLICATED = Metric(
    "millstream_partitions_under_replicated",
    Kind.GAUGE,
    "Partitions led here of which a replica is behind, or not heard.",
)
DISK_FREE_BYTES = Metric(
    "millstream_disk_free_bytes", Kind.GAUGE, "Free space of the data directory's file system."
)
DISK_BYTES = Metric(
    "millstream_disk_bytes", Kind.GAUGE, "The size of the data directory's file system."
)
REQUEST_MEMORY_BYTES = Metric(
    "millstream_request_memory_bytes", Kind.GAUGE, "Memory of requests that are not answered yet."
)
HEALTH = Metric(
    "millstream_health",
    Kind.GAUGE,
    "The status of a check: 0 healthy, 1 degraded, 2 unhealthy.",
    ("check",),
)
BUILD_INFO = Metric(
    "millstream_build_info", Kind.GAUGE, "1, with the versions as labels.", ("version", "python")
)
_REGISTRY = "millstream_"  # The topic that ends like the name of this metric is spelled elsewhere.
SCHEMAS = Metric(f"{_REGISTRY}schemas", Kind.GAUGE, "Schemas that the registry knows by id.")
SPANS_DROPPED = Metric(
    "millstream_spans_dropped_total",
    Kind.COUNTER,
    "Spans that were not exported: too many in a second, a full queue, or a refusal.",
)
DISK_USABLE = Metric(
    "millstream_disk_usable", Kind.GAUGE, "1 while the data directory is trusted, else 0."
)
DISK_FULL = Metric(
    "millstream_disk_full", Kind.GAUGE, "1 while appends are refused for want of space, else 0."
)

_PARTITION = ("topic", "partition")
LOW_WATERMARK = Metric(
    "millstream_partition_low_watermark", Kind.GAUGE, "The first offset there is.", _PARTITION
)
HIGH_WATERMARK = Metric(
    "millstream_partition_high_watermark",
    Kind.GAUGE,
    "The offset behind the last committed record.",
    _PARTITION,
)
LAST_STABLE_OFFSET = Metric(
    "millstream_partition_last_stable_offset",
    Kind.GAUGE,
    "Where the oldest open transaction begins, or the high watermark.",
    _PARTITION,
)
END_OFFSET = Metric(
    "millstream_partition_end_offset",
    Kind.GAUGE,
    "The offset behind the last record, committed or not.",
    _PARTITION,
)
PARTITION_BYTES = Metric(
    "millstream_partition_bytes", Kind.GAUGE, "What the files of the log hold.", _PARTITION
)
PARTITION_SEGMENTS = Metric(
    "millstream_partition_segments", Kind.GAUGE, "Files that the log is cut into.", _PARTITION
)
INDEX_ENTRIES = Metric(
    "millstream_partition_index_entries",
    Kind.GAUGE,
    "Places of the log that the index knows; the bytes by these are its density.",
    _PARTITION,
)
INDEX_STRETCH_BYTES = Metric(
    "millstream_partition_index_stretch_bytes",
    Kind.GAUGE,
    "The longest stretch of the log between two entries of the index.",
    _PARTITION,
)
INDEX_GAPS = Metric(
    "millstream_partition_index_gaps",
    Kind.GAUGE,
    "Files of the log whose index is not proven to be whole.",
    _PARTITION,
)
TERMS_BYTES = Metric(
    "millstream_partition_terms_bytes",
    Kind.GAUGE,
    "The size of the index of keys and headers, if the topic has one.",
    _PARTITION,
)
TERMS_MISSING_BYTES = Metric(
    "millstream_partition_terms_missing_bytes",
    Kind.GAUGE,
    "Bytes of the log that the index of keys and headers does not cover yet.",
    _PARTITION,
)
REPLICA_LAG = Metric(
    "millstream_replica_lag_records",
    Kind.GAUGE,
    "Records that the replica furthest behind its leader here does not hold yet.",
    _PARTITION,
)
_TOPIC = ("topic",)
TOPIC_APPENDED_RECORDS = Metric(
    "millstream_topic_appended_records_total",
    Kind.COUNTER,
    "Records written by leaders here, by topic.",
    _TOPIC,
)
TOPIC_APPENDED_BYTES = Metric(
    "millstream_topic_appended_bytes_total",
    Kind.COUNTER,
    "Bytes of batches written by leaders here, by topic.",
    _TOPIC,
)
TOPIC_READ_BYTES = Metric(
    "millstream_topic_read_bytes_total",
    Kind.COUNTER,
    "Bytes handed to readers, by the topic that has the log.",
    _TOPIC,
)
GROUP_LAG_SECONDS = Metric(
    "millstream_group_lag_seconds",
    Kind.GAUGE,
    "The age of the oldest record of a topic that a group has committed nothing behind.",
    ("group", "topic"),
)
GROUP_MEMBERS = Metric("millstream_group_members", Kind.GAUGE, "Members of a group.", ("group",))
GROUP_STATE = Metric(
    "millstream_group_state", Kind.GAUGE, "1, with a group's state as a label.", ("group", "state")
)
DEAD_LETTERS_WAITING = Metric(
    "millstream_dead_letters_waiting",
    Kind.GAUGE,
    "Dead letters of a topic that were not sent back.",
    _TOPIC,
)
TRANSACTIONS_OPEN = Metric(
    "millstream_transactions_open", Kind.GAUGE, "Transactions coordinated here that have not ended."
)
TRANSACTIONS = Metric(
    "millstream_transactions_total",
    Kind.COUNTER,
    "Transactions that were decided here.",
    ("outcome",),
)
DELAYED_LATE_SECONDS = Metric(
    "millstream_delayed_late_seconds",
    Kind.HISTOGRAM,
    "From the time of a delayed record to its append, for the first of each batch.",
)
GROUP_LAG = Metric(
    "millstream_group_lag",
    Kind.GAUGE,
    "Records of a topic that a group has committed nothing behind yet.",
    ("group", "topic"),
)
DELAYED_RECORDS = Metric(
    "millstream_delayed_records", Kind.GAUGE, "Records that wait here for their time."
)
# Subscriptions without a name are one, with an empty name.
_SUBSCRIPTION = ("subscription",)
SUBSCRIBERS = Metric(
    "millstream_subscribers", Kind.GAUGE, "Members of the subscription.", _SUBSCRIPTION
)
SLOW_SUBSCRIBERS = Metric(
    "millstream_slow_subscribers",
    Kind.GAUGE,
    "Members whose subscription has more waiting than their flow policy calls slow.",
    _SUBSCRIPTION,
)
OUTSTANDING_RECORDS = Metric(
    "millstream_outstanding_records",
    Kind.GAUGE,
    "Records that members have and that they are not done with.",
    _SUBSCRIPTION,
)
WAITING_RECORDS = Metric(
    "millstream_waiting_records",
    Kind.GAUGE,
    "Records read for a subscription that no member has room for.",
    _SUBSCRIPTION,
)
HTTP_LONG_TURNS = Metric(
    "millstream_http_long_turns_total",
    Kind.COUNTER,
    "Turns of HTTP that held the event loop for more than 5 ms.",
)
CUT_SHORT = Metric(
    "millstream_metrics_cut_short",
    Kind.GAUGE,
    "1 if there are more of these than have samples of their own, else 0.",
    ("kind",),
)

# As the client libraries of Prometheus name them.
PROCESS_CPU = Metric(
    "process_cpu_seconds_total", Kind.COUNTER, "CPU time of the process, in seconds."
)
PROCESS_START = Metric(
    "process_start_time_seconds", Kind.GAUGE, "When the process started, in seconds since 1970."
)
PROCESS_RESIDENT = Metric(
    "process_resident_memory_bytes", Kind.GAUGE, "Memory of the process that is in RAM."
)
PROCESS_VIRTUAL = Metric(
    "process_virtual_memory_bytes", Kind.GAUGE, "The address space of the process."
)
PROCESS_OPEN_FDS = Metric("process_open_fds", Kind.GAUGE, "File descriptors that are open.")
PROCESS_MAX_FDS = Metric(
    "process_max_fds", Kind.GAUGE, "File descriptors that the process may open."
)

DECLARED: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)

"""The panels of the dashboards and the alert rules: tables of titles and PromQL.

`{}` in an expression is the selector of the chosen brokers, `[R]` the range of rates. A test holds
every expression against a real broker with load, scraped by a real Prometheus.
"""

from typing import Final, NamedTuple


class Panel(NamedTuple):
    title: str
    unit: str  # In Grafana's words.
    expressions: tuple[tuple[str, str], ...]  # Each with its legend.


class Dashboard(NamedTuple):
    name: str
    title: str
    panels: tuple[Panel, ...]


class Alert(NamedTuple):
    name: str
    expression: str
    minutes: int  # For so long before it fires.
    severity: str
    summary: str


def _rate(metric: str, by: str = "") -> str:
    total = f"sum by ({by})" if by else "sum"
    return f"{total} (rate({metric}{{}}[R]))"


def _quantile(metric: str, by: str, share: str = "0.99") -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{}}[R])))"


BROKER: Final = Dashboard(
    "broker",
    "Broker",
    (
        Panel("Records in", "cps", ((_rate("millstream_appended_records_total"), "records"),)),
        Panel(
            "Bytes in and out",
            "Bps",
            (
                (_rate("millstream_appended_bytes_total"), "in"),
                (_rate("millstream_read_bytes_total"), "out"),
            ),
        ),
        Panel(
            "Requests",
            "reqps",
            ((_rate("millstream_requests_total", "operation"), "{{operation}}"),),
        ),
        Panel(
            "Append, p99",
            "s",
            (
                (
                    _quantile("millstream_append_seconds", "protocol, acks"),
                    "{{protocol}} acks={{acks}}",
                ),
            ),
        ),
        Panel(
            "Fetch, p99",
            "s",
            ((_quantile("millstream_fetch_seconds", "protocol"), "{{protocol}}"),),
        ),
        Panel(
            "Sync round, p99",
            "s",
            ((_quantile("millstream_sync_round_seconds", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Event loop late, p99",
            "s",
            ((_quantile("millstream_loop_late_seconds", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Connections",
            "short",
            (("sum by (listener) (millstream_connections{})", "{{listener}}"),),
        ),
        Panel(
            "Health (0 healthy, 2 unhealthy)",
            "short",
            (("max by (check) (millstream_health{})", "{{check}}"),),
        ),
        Panel(
            "Disk free",
            "percentunit",
            (("millstream_disk_free_bytes{} / millstream_disk_bytes{}", "{{instance}}"),),
        ),
        Panel(
            "Memory",
            "bytes",
            (
                ("process_resident_memory_bytes{}", "process {{instance}}"),
                ("millstream_request_memory_bytes{}", "requests {{instance}}"),
            ),
        ),
        Panel("CPU", "percentunit", (("rate(process_cpu_seconds_total{}[R])", "{{instance}}"),)),
        Panel(
            "Partitions",
            "short",
            (
                ("sum (millstream_leaders{})", "led"),
                ("sum (millstream_partitions_offline{})", "offline"),
                ("sum (millstream_partitions_under_replicated{})", "under-replicated"),
            ),
        ),
        Panel(
            "HTTP, p99",
            "s",
            ((_quantile("millstream_http_request_seconds", "route"), "{{route}}"),),
        ),
    ),
)
TOPICS: Final = Dashboard(
    "topics",
    "Topics",
    (
        Panel(
            "Records in",
            "cps",
            ((_rate("millstream_topic_appended_records_total", "topic"), "{{topic}}"),),
        ),
        Panel(
            "Bytes in",
            "Bps",
            ((_rate("millstream_topic_appended_bytes_total", "topic"), "{{topic}}"),),
        ),
        Panel(
            "Bytes out",
            "Bps",
            ((_rate("millstream_topic_read_bytes_total", "topic"), "{{topic}}"),),
        ),
        Panel("Size", "bytes", (("sum by (topic) (millstream_partition_bytes{})", "{{topic}}"),)),
        Panel(
            "Records kept",
            "short",
            (
                (
                    (
                        "sum by (topic) (millstream_partition_high_watermark{} - "
                        "millstream_partition_low_watermark{})"
                    ),
                    "{{topic}}",
                ),
            ),
        ),
        Panel(
            "Segments",
            "short",
            (("sum by (topic) (millstream_partition_segments{})", "{{topic}}"),),
        ),
    ),
)
GROUPS: Final = Dashboard(
    "groups",
    "Consumer groups",
    (
        Panel(
            "Lag in records",
            "short",
            (("sum by (group, topic) (millstream_group_lag{})", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Lag in time",
            "s",
            (("max by (group, topic) (millstream_group_lag_seconds{})", "{{group}} {{topic}}"),),
        ),
        Panel("Members", "short", (("sum by (group) (millstream_group_members{})", "{{group}}"),)),
        Panel(
            "States", "short", (("count by (state) (millstream_group_state{} == 1)", "{{state}}"),)
        ),
    ),
)
QUEUES: Final = Dashboard(
    "queues",
    "Queues",
    (
        Panel(
            "Delivered",
            "cps",
            (
                (_rate("millstream_delivered_records_total"), "delivered"),
                (_rate("millstream_redelivered_records_total"), "again"),
            ),
        ),
        Panel(
            "Acknowledged",
            "cps",
            ((_rate("millstream_acknowledged_records_total"), "acknowledged"),),
        ),
        Panel("Dead letters", "cps", ((_rate("millstream_dead_letters_total"), "given up"),)),
        Panel(
            "Dead letters waiting",
            "short",
            (("sum by (topic) (millstream_dead_letters_waiting{})", "{{topic}}"),),
        ),
        Panel("Delayed records", "short", (("sum (millstream_delayed_records{})", "waiting"),)),
        Panel(
            "Delayed records late, p99",
            "s",
            ((_quantile("millstream_delayed_late_seconds", "instance"), "{{instance}}"),),
        ),
        Panel(
            "Outstanding",
            "short",
            (("sum by (subscription) (millstream_outstanding_records{})", "{{subscription}}"),),
        ),
        Panel(
            "Slow members",
            "short",
            (("sum by (subscription) (millstream_slow_subscribers{})", "{{subscription}}"),),
        ),
    ),
)
SPARK: Final = Dashboard(
    "spark",
    "Spark",
    (
        Panel(
            "Read by topic",
            "Bps",
            ((_rate("millstream_topic_read_bytes_total", "topic"), "{{topic}}"),),
        ),
        Panel(
            "Written by topic",
            "cps",
            ((_rate("millstream_topic_appended_records_total", "topic"), "{{topic}}"),),
        ),
        Panel(
            "Transactions of sinks",
            "cps",
            ((_rate("millstream_transactions_total", "outcome"), "{{outcome}}"),),
        ),
        Panel("Open transactions", "short", (("sum (millstream_transactions_open{})", "open"),)),
        Panel(
            "Filters",
            "Bps",
            (
                (_rate("millstream_filter_read_bytes_total"), "read"),
                (_rate("millstream_filter_skipped_bytes_total"), "spared by an index"),
            ),
        ),
        Panel(
            "Fetch, p99",
            "s",
            (
                (
                    (
                        "histogram_quantile(0.99, sum by (le) "
                        '(rate(millstream_fetch_seconds_bucket{protocol="kafka"}[R])))'
                    ),
                    "kafka",
                ),
            ),
        ),
    ),
)
DASHBOARDS: Final = (BROKER, TOPICS, GROUPS, QUEUES, SPARK)

ALERTS: Final = (
    Alert(
        "MillstreamDown",
        'up{job="millstream"} == 0',
        1,
        "critical",
        "Prometheus cannot reach the broker.",
    ),
    Alert(
        "MillstreamUnhealthy",
        "max by (instance, check) (millstream_health) == 2",
        0,
        "critical",
        "A health check fails: millstream health says what to do.",
    ),
    Alert(
        "MillstreamDegraded",
        "max by (instance, check) (millstream_health) == 1",
        10,
        "warning",
        "A health check has been degraded for 10 minutes.",
    ),
    Alert(
        "MillstreamDiskNotTrusted",
        "millstream_disk_usable == 0",
        0,
        "critical",
        "A sync failed: restart the broker, which reads back what the disk holds.",
    ),
    Alert(
        "MillstreamDiskFull",
        "millstream_disk_full == 1",
        0,
        "critical",
        "Produce requests are refused until there is space.",
    ),
    Alert(
        "MillstreamDiskFills",
        "predict_linear(millstream_disk_free_bytes[6h], 86400) < 0",
        30,
        "warning",
        "The disk will be full within a day.",
    ),
    Alert(
        "MillstreamFailedReplicas",
        "millstream_failed_replicas > 0",
        0,
        "critical",
        "Partitions stopped: millstream health names them.",
    ),
    Alert(
        "MillstreamStorageFailures",
        "increase(millstream_storage_failures_total[5m]) > 0",
        0,
        "critical",
        "The disk refuses writes.",
    ),
    Alert(
        "MillstreamDamagedRecords",
        "millstream_damaged_ranges > 0",
        0,
        "critical",
        "Records are not what was written: see the page about damaged records.",
    ),
    Alert(
        "MillstreamPartitionsOffline",
        "millstream_partitions_offline > 0",
        1,
        "critical",
        "Partitions have no leader.",
    ),
    Alert(
        "MillstreamUnderReplicated",
        "millstream_partitions_under_replicated > 0",
        10,
        "warning",
        "A replica has been behind for 10 minutes.",
    ),
    Alert(
        "MillstreamSlowDisk",
        "rate(millstream_sync_seconds_total[5m]) / rate(millstream_sync_rounds_total[5m]) > 0.1",
        10,
        "warning",
        "The disk is slow: acks=all waits for it.",
    ),
    Alert(
        "MillstreamStalls",
        "millstream_loop_stall_seconds_max > 0.5",
        10,
        "warning",
        "The machine is overloaded, or swaps.",
    ),
    Alert(
        "MillstreamRefusals",
        "increase(millstream_connections_refused_total[5m]) > 0",
        0,
        "warning",
        "Clients are turned away: raise limits, or find the client that leaks.",
    ),
    Alert(
        "MillstreamGroupBehind",
        "millstream_group_lag_seconds > 300",
        10,
        "warning",
        "A group has been more than 5 minutes behind for 10 minutes.",
    ),
    Alert(
        "MillstreamDeadLetters",
        "increase(millstream_dead_letters_total[15m]) > 0",
        0,
        "warning",
        "Records were given up and wait as dead letters.",
    ),
)

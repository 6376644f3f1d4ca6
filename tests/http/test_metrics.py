"""`/metrics` as Prometheus reads it: names, labels, formats, bounds, and steps."""

import gzip
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from millstream.metrics import DECLARED, Kind, Metrics, Sample
from millstream.metrics.declared import GROUP_LAG
from millstream.protocols.http.calls import Call
from millstream.protocols.http.monitoring import metrics as handler
from tests.support.http import HttpClient, HttpNode

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# As table 4.1 of the specification has them; where it says "door" the code says what that is.
LABELS = {
    "connections": {"listener"},
    "connections_total": {"listener"},
    "append_seconds": {"protocol", "acks"},
    "fetch_seconds": {"protocol"},
    "http_request_seconds": {"route", "method", "class"},
    "topic_appended_records_total": {"topic"},
    "topic_appended_bytes_total": {"topic"},
    "topic_read_bytes_total": {"topic"},
    "group_lag_seconds": {"group", "topic"},
    "group_members": {"group"},
    "group_state": {"group", "state"},
    "delayed_late_seconds": set(),
    "transactions_open": set(),
    "transactions_total": {"outcome"},
    "sync_round_seconds": set(),
    "loop_late_seconds": set(),
    "request_memory_bytes": set(),
    "health": {"check"},
    "build_info": {"version", "python"},
    "schemas": set(),
    "spans_dropped_total": set(),
    "partitions_offline": set(),
    "partitions_under_replicated": set(),
    "leader_changes_total": set(),
}


@pytest.fixture(scope="module")
def used(node: HttpNode) -> HttpNode:
    """A node that has served a producer, a reader with a group, and a dead letter's topic."""
    ask = node.ask
    assert ask.post("/v1/topics", {"name": "sold", "partitions": 2}).status == 201
    records = [{"key": {"text": str(at)}, "value": {"text": "x" * 20}} for at in range(10)]
    assert ask.post("/v1/topics/sold/records", {"records": records}).status == 200
    assert ask.get("/v1/topics/sold/records").status == 200
    node.broker.call(_commit)
    return node


async def _commit(broker: Any) -> None:
    from millstream.engine.groups.views import Commit
    from millstream.model import Session, TopicPartition

    groups = broker._running.node.groups
    await groups.commit_offsets(Session(), "billing", {TopicPartition("sold", 0): Commit(0)})


def families(ask: HttpClient, path: str = "/metrics") -> dict[str, Family]:
    answer = ask.get(path)
    assert answer.status == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    parsed = list(text_string_to_metric_families(answer.text.decode()))
    # The parser leaves `_total` away; there are gauges of that name.
    named = {family.name + "_total" * (family.type == "counter"): family for family in parsed}
    assert len(named) == len(parsed), "a family stands twice"
    return named


def value(ask: HttpClient, sample: str, path: str = "/metrics", **labels: str) -> float:
    (only,) = (
        each.value
        for family in families(ask, path).values()
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    )
    return cast("float", only)


@pytest.mark.parametrize("name", LABELS)
def test_a_metric_has_its_labels(used: HttpNode, name: str) -> None:
    base = name.removesuffix("_total")
    samples = [
        sample
        for family in families(used.ask).values()
        for sample in family.samples
        if sample.name in {f"millstream_{name}", f"millstream_{base}_count"}
    ]

    assert samples, name
    assert all(set(sample.labels) == LABELS[name] for sample in samples)


def test_a_topic_shows_what_went_in_and_out(used: HttpNode) -> None:
    read_bytes = value(used.ask, "millstream_topic_read_bytes_total", topic="sold")

    assert value(used.ask, "millstream_topic_appended_records_total", topic="sold") == 10
    assert value(used.ask, "millstream_topic_appended_bytes_total", topic="sold") > 200
    assert read_bytes > 200
    lag = value(used.ask, "millstream_group_lag", group="billing", topic="sold")
    assert lag > 0
    assert 0 < value(used.ask, "millstream_group_lag_seconds", group="billing") < 600
    assert value(used.ask, "millstream_group_members", group="billing") == 0
    assert value(used.ask, "millstream_group_state", group="billing", state="Empty") == 1


def test_appends_and_requests_are_timed(used: HttpNode) -> None:
    appended = value(used.ask, "millstream_append_seconds_count", protocol="http", acks="all")
    route = "/v1/topics/{topic}/records"
    posts = value(
        used.ask,
        "millstream_http_request_seconds_count",
        **{"route": route, "class": "2xx"},
        method="POST",
    )

    assert appended >= 1
    assert posts == 1
    used.ask.get("/no/such/path")
    unknown = {"route": "(unknown)", "method": "-", "class": "4xx"}
    assert value(used.ask, "millstream_http_request_seconds_count", **unknown) >= 1


def test_the_process_is_described_as_client_libraries_do(used: HttpNode) -> None:
    present = families(used.ask)

    for name in ("cpu_seconds_total", "start_time_seconds", "resident_memory_bytes", "max_fds"):
        assert present[f"process_{name}"].samples[0].value > 0


def test_openmetrics_is_sent_where_it_is_asked_for(used: HttpNode) -> None:
    answer = used.ask.get("/metrics", Accept=f"{OPENMETRICS},text/plain;q=0.5")

    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith(b"# EOF\n")
    names = [f.name for f in openmetrics.text_string_to_metric_families(answer.text.decode())]
    assert "millstream_append_seconds" in names
    assert "millstream_sync_rounds" in names
    plain = used.ask.get("/metrics", Accept=f"{OPENMETRICS};q=0.1,text/plain")
    assert plain.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("encodings", "is_packed"),
    [("gzip, deflate", True), ("*", True), ("gzip;q=0", False), ("br", False), ("", False)],
)
def test_a_client_that_takes_gzip_gets_it(used: HttpNode, encodings: str, is_packed: bool) -> None:
    answer = used.ask.get("/metrics", **{"Accept-Encoding": encodings})

    assert (answer.headers.get("content-encoding") == "gzip") is is_packed
    text = gzip.decompress(answer.text) if is_packed else answer.text
    assert text.startswith(b"# HELP millstream_acknowledged_records_total")


def test_one_topic_can_be_asked_for(used: HttpNode) -> None:
    topics = {
        sample.labels.get("topic")
        for family in families(used.ask, "/metrics?topic=sold").values()
        for sample in family.samples
        if family.name != "millstream_metrics_cut_short"
    }

    assert topics == {"sold"}
    assert used.ask.get("/metrics?names=other").status == 400


def test_every_declared_metric_has_a_kind_that_its_name_tells() -> None:
    for metric in DECLARED:
        assert metric.name.startswith(("millstream_", "process_"))
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)


# -- names of others ---------------------------------------------------------------------------

KAFKA = [
    "brokers",
    "broker_info",
    "topic_partitions",
    "topic_partition_current_offset",
    "topic_partition_oldest_offset",
    "topic_partition_leader",
    "topic_partition_replicas",
    "topic_partition_in_sync_replica",
    "topic_partition_leader_is_preferred",
    "topic_partition_under_replicated_partition",
    "consumergroup_current_offset",
    "consumergroup_current_offset_sum",
    "consumergroup_lag",
    "consumergroup_lag_sum",
    "consumergroup_members",
    "server_brokertopicmetrics_messagesin_total",
    "server_brokertopicmetrics_bytesin_total",
    "server_brokertopicmetrics_bytesout_total",
    "server_brokertopicmetrics_totalproducerequests_total",
    "server_brokertopicmetrics_totalfetchrequests_total",
    "server_brokertopicmetrics_failedproducerequests_total",
    "server_brokertopicmetrics_failedfetchrequests_total",
    "server_replicamanager_partitioncount",
    "server_replicamanager_leadercount",
    "server_replicamanager_underreplicatedpartitions",
    "controller_kafkacontroller_activecontrollercount",
    "controller_kafkacontroller_offlinepartitionscount",
    "log_log_size",
]


def test_kafka_dashboards_find_every_name_they_know(used: HttpNode) -> None:
    path = "/metrics?names=kafka"

    assert set(families(used.ask, path)) == {f"kafka_{name}" for name in KAFKA}
    of = {"topic": "sold", "partition": "0"}
    ends = [
        value(used.ask, "kafka_topic_partition_current_offset", path, topic="sold", partition=at)
        for at in ("0", "1")
    ]
    assert sum(ends) == 10
    assert value(used.ask, "kafka_topic_partition_in_sync_replica", path, **of) == 1
    assert (
        value(used.ask, "kafka_consumergroup_lag", path, consumergroup="billing", **of) == ends[0]
    )
    produced = "kafka_server_brokertopicmetrics_messagesin_total"
    assert value(used.ask, produced, path, topic="sold") == 10
    assert value(used.ask, produced, path, topic="") >= 10
    assert value(used.ask, "kafka_brokers", path) == 1


def test_names_of_flymq_and_fluxmq_have_true_values(used: HttpNode) -> None:
    fly, flux = "/metrics?names=flymq", "/metrics?names=fluxmq"

    assert value(used.ask, "flymq_topic_messages_produced_total", fly, topic="sold") == 10
    assert value(used.ask, "flymq_topic_messages_total", fly, topic="sold") == 10
    assert value(used.ask, "flymq_consumer_group_lag", fly, group="billing", topic="sold") > 0
    assert value(used.ask, "flymq_produce_latency_seconds_count", fly) >= 1
    assert value(used.ask, "flymq_is_leader", fly) == 1
    assert value(used.ask, "flymq_transactions_active", fly) == 0
    assert value(used.ask, "fluxmq_messages_produced_total", flux) >= 10
    assert value(used.ask, "fluxmq_consumer_group_lag", flux, group="billing") > 0
    assert value(used.ask, "fluxmq_uptime_seconds", flux) > 0
    topics = {
        sample.labels["topic"]
        for family in families(used.ask, fly + "&topic=sold").values()
        for sample in family.samples
    }
    assert topics == {"sold"}


# -- bounds ------------------------------------------------------------------------------------


class Ticking:
    """A clock for which every look takes 40 us."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.00004
        return self.now_s


def rendered(count: int, labels: Iterator[tuple[str, ...]]) -> tuple[bytes, int]:
    """The body of an answer with `count` samples, and the steps that it took."""
    live = Metrics()
    live.watch(lambda: (Sample(GROUP_LAG, next(labels), at) for at in range(count)))
    security = SimpleNamespace(public_metrics=True)
    services = SimpleNamespace(
        metrics=live, elapsed_s=Ticking(), config=SimpleNamespace(security=security)
    )
    call = cast("Call", SimpleNamespace(services=services, extra={}))
    steps = handler.metrics(call, handler.Query())
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value.body, taken
        taken += 1


def test_no_more_series_are_sent_than_the_bound() -> None:
    body, steps = rendered(40_000, ((f"g{at}", "t") for at in range(40_000)))

    lines = [line for line in body.splitlines() if not line.startswith(b"#")]
    assert len(lines) == handler.SERIES_MAX + 1
    assert b'millstream_metrics_cut_short{kind="series"} 1' in lines
    assert steps > 100


def test_no_more_bytes_are_sent_than_the_bound() -> None:
    body, _ = rendered(20_000, ((f"{at}" * 100, "t" * 200) for at in range(20_000)))

    assert handler.BODY_BYTES_MAX * 0.4 < len(body) <= handler.BODY_BYTES_MAX
    assert list(text_string_to_metric_families(body.decode()))


def test_fluxmq_finds_its_snapshot(ask: HttpClient) -> None:
    deadline = time.monotonic() + 30
    figures = ask.get("/metrics/json").json
    while not figures["memory_usage_mb"] and time.monotonic() < deadline:  # Noted each second.
        figures = ask.get("/metrics/json").json

    assert figures.keys() == {
        "messages_per_second",
        "active_connections",
        "memory_usage_mb",
        "cpu_usage_percent",
        "disk_io_mb_per_sec",
        "disk_usage_percent",
    }
    assert figures["memory_usage_mb"] > 1

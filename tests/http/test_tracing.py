"""Spans of a node, as a collector of OpenTelemetry receives them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.openmetrics import parser as openmetrics

from millstream.config_sources import load
from millstream.security.audit import Audit
from millstream.security.settings import Security
from millstream.server.system import otlp
from millstream.tracing.settings import Tracing
from tests.support.collector import Collector, attributes_of, collector
from tests.support.documents import blocks
from tests.support.http import HttpNode, http_node
from tests.support.kafka_clients import SECONDS_MAX, batching_producer, until
from tests.support.source_tree import ROOT

TRACE = "0af7651916cd43dd8448eb211c80319c"
UNSAMPLED = f"00-{TRACE}-b7ad6b7169203331-00"


class Traced:
    """A node with Kafka and HTTP, and the collector of its spans."""

    def __init__(self, node: HttpNode, spans: Collector) -> None:
        self.node, self.ask, self.spans = node, node.ask, spans
        self.bootstrap = node.broker.bootstrap

    def produce(self, topic: str, *parents: str, **options: object) -> None:
        settings = {key.replace("_", "."): value for key, value in options.items()}
        producer = batching_producer(self.bootstrap, topic, {"client.id": "shop", **settings})
        for parent in parents:
            producer.produce(topic, b"bought", headers=_headers(parent), partition=0)
        assert producer.flush(SECONDS_MAX) == 0

    def consume(self, topic: str, count: int) -> None:
        reader = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "x", "client.id": "billing"}
        )
        try:
            reader.assign([TopicPartition(topic, 0, 0)])
            assert len(reader.consume(count, timeout=SECONDS_MAX)) == count
        finally:
            reader.close()

    def dropped(self) -> float:
        for line in self.ask.get("/metrics").text.decode().splitlines():
            if line.startswith("millstream_spans_dropped_total"):
                return float(line.split()[1])
        raise AssertionError("there is no millstream_spans_dropped_total")


def _headers(parent: str) -> list[tuple[str, str | bytes | None]]:
    return [("traceparent", parent)] if parent else []


def parent(span: int) -> str:
    return f"00-{TRACE}-{span:016x}-01"


@pytest.fixture(scope="module", autouse=True)
def short_delay() -> Iterator[None]:
    """Spans are sent soon: a test waits for each."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(otlp, "EXPORT_DELAY_S", 0.05)
        yield


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    with collector() as spans:
        tracing = Tracing(endpoint=spans.endpoint, service_name="mill")
        with http_node(tracing=tracing) as node:
            yield Traced(node, spans)


def test_an_append_continues_the_trace_of_its_record(traced: Traced) -> None:
    traced.produce("alone", parent(1))

    (span,) = traced.spans.named("append alone")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, f"{1:016x}")
    assert span.kind == span.SPAN_KIND_SERVER
    assert [event.name for event in span.events] == ["written", "committed"]
    assert span.start_time_unix_nano <= span.events[0].time_unix_nano <= span.end_time_unix_nano
    assert attributes_of(span) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "append",
        "messaging.operation.type": "send",
        "messaging.destination.name": "alone",
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "shop",
        "messaging.kafka.offset": 0,
        "messaging.batch.message_count": 1,
    }
    assert traced.spans.paths == {"/v1/traces"}
    resource = traced.spans.resources[0]
    assert resource["service.name"] == "mill"
    assert resource["service.instance.id"].endswith("/1")


def test_a_redrive_continues_the_traces_of_its_letters(traced: Traced) -> None:
    traced.ask.post("/v1/topics", {"name": "sent-back"})
    origin = {"ms-dlq-topic": "sent-back", "ms-dlq-partition": "0", "ms-dlq-offset": "0"}
    parents = [parent(1), parent(2), UNSAMPLED]
    letters = [{"value": "x", "headers": {**origin, "traceparent": each}} for each in parents]
    made = traced.ask.post("/v1/topics/sent-back.dlq/records", {"records": letters})
    assert made.status == 200, made.text

    for offset in (2, 0):  # The unsampled one leaves no span.
        sent = traced.ask.post(f"/v1/dead-letters/sent-back/0/{offset}:replay", {})
        assert sent.status == 200, sent.text

    (span,) = traced.spans.named("redrive sent-back")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, f"{1:016x}")
    attributes = attributes_of(span)
    assert attributes["messaging.operation.name"] == "redrive"
    assert attributes["messaging.kafka.offset"] == 1
    assert attributes["messaging.batch.message_count"] == 1


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "gzip", "snappy"])
def test_several_records_are_links_of_the_append_and_of_its_reader(
    traced: Traced, codec: str
) -> None:
    topic = f"several-{codec}"
    traced.produce(topic, parent(1), "", UNSAMPLED, parent(2), compression_type=codec)
    traced.consume(topic, 4)

    linked = [f"{1:016x}", f"{2:016x}"]
    appends = traced.spans.named(f"append {topic}")
    fetched = traced.spans.named(f"fetch {topic}")[0]
    if len(appends) == 1:  # As usual: the client sends all of them in one batch.
        assert appends[0].parent_span_id == b""
        assert [link.span_id.hex() for link in appends[0].links] == linked
    assert {link.trace_id.hex() for link in fetched.links} == {TRACE}
    assert [link.span_id.hex() for link in fetched.links] == linked
    assert fetched.parent_span_id == b""
    attributes = attributes_of(fetched)
    assert attributes["messaging.operation.type"] == "receive"
    assert attributes["messaging.kafka.offset"] == 0
    assert attributes["messaging.client.id"] == "billing"


def test_records_without_a_sampled_context_leave_no_span(traced: Traced) -> None:
    traced.produce("quiet", "", UNSAMPLED)
    traced.consume("quiet", 2)
    traced.produce("loud", parent(9))

    traced.spans.named("append loud")  # It was ended after the others.
    assert {span.name for span in traced.spans.spans}.isdisjoint({"append quiet", "fetch quiet"})


def test_a_request_of_http_continues_its_trace(traced: Traced) -> None:
    traced.ask.get("/v1/topics", traceparent=parent(3))
    traced.ask.get("/v1/topics", traceparent=UNSAMPLED)
    traced.ask.get("/v1/topics")
    traced.ask.get("/no/such/path", traceparent=parent(4))

    (refused,) = traced.spans.named("HTTP")
    (span,) = traced.spans.named("GET /v1/topics")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, f"{3:016x}")
    assert span.kind == span.SPAN_KIND_SERVER
    assert span.start_time_unix_nano < span.end_time_unix_nano
    assert attributes_of(span) == {
        "http.request.method": "GET",
        "http.route": "/v1/topics",
        "http.response.status_code": 200,
    }
    assert attributes_of(refused)["http.response.status_code"] == 404
    assert attributes_of(refused)["http.request.method"] == "_OTHER"


def test_histograms_have_the_traces_as_exemplars(traced: Traced) -> None:
    traced.produce("exemplary", parent(5))
    traced.ask.get("/v1/whoami", traceparent=parent(6))

    answer = traced.ask.get("/metrics", accept="application/openmetrics-text; version=1.0.0")

    exemplars: dict[str, set[str]] = {}
    for family in openmetrics.text_string_to_metric_families(answer.text.decode()):
        for sample in family.samples:
            if sample.exemplar is not None:
                traces = exemplars.setdefault(family.name, set())
                traces.add(sample.exemplar.labels["trace_id"])
    assert TRACE in exemplars["millstream_append_seconds"]
    assert TRACE in exemplars["millstream_http_request_seconds"]


def test_a_part_of_all_requests_begins_a_trace() -> None:
    with collector() as spans:
        tracing = Tracing(endpoint=f"{spans.endpoint}/v1/traces", sample_rate=1.0)
        with http_node(tracing=tracing) as node:
            traced = Traced(node, spans)
            traced.produce("sampled", "")
            traced.consume("sampled", 1)
            appended, fetched = spans.named("append sampled")[0], spans.named("fetch sampled")[0]
        assert spans.resources[0]["service.name"] == "millstream"
    assert appended.parent_span_id == fetched.parent_span_id == b""
    assert len({appended.trace_id, fetched.trace_id, b"\0" * 16}) == 3


def test_spans_beyond_the_limit_of_a_second_are_dropped_and_counted() -> None:
    with collector() as spans:
        tracing = Tracing(endpoint=spans.endpoint, sample_rate=1.0, spans_per_s_max=1)
        with http_node(tracing=tracing) as node:
            traced = Traced(node, spans)
            for _ in range(20):
                traced.ask.get("/v1/whoami")
            until(lambda: traced.dropped() > 0, "a dropped span")


def test_a_collector_that_refuses_costs_spans_and_no_request() -> None:
    with collector() as spans:
        spans.status = 400
        with http_node(tracing=Tracing(endpoint=spans.endpoint)) as node:
            traced = Traced(node, spans)
            traced.produce("kept", parent(1))
            traced.consume("kept", 1)
            until(lambda: traced.dropped() > 0, "a dropped span")


@pytest.mark.slow
def test_a_node_stops_while_its_collector_is_gone() -> None:
    with collector() as spans:
        endpoint = spans.endpoint
    with http_node(tracing=Tracing(endpoint=endpoint)) as node:
        Traced(node, spans).produce("kept", parent(1))

    assert spans.spans == []


def test_what_waits_is_sent_before_a_node_has_stopped() -> None:
    with collector() as spans:
        with http_node(tracing=Tracing(endpoint=spans.endpoint)) as node:
            Traced(node, spans).produce("last", parent(1))
        assert [span.name for span in spans.spans] == ["append last"]


def test_records_are_noted_in_the_audit_trail_beside_their_spans() -> None:
    settings: dict[str, Any] = {
        "audit": Audit(enabled="on", events=("data.*",)),
        "security": Security(authorization="on", super_users=("User:ANONYMOUS",)),
    }
    with (
        collector() as spans,
        http_node(tracing=Tracing(endpoint=spans.endpoint), **settings) as node,
    ):
        traced = Traced(node, spans)
        traced.produce("both", parent(1))
        traced.consume("both", 1)
        kinds = node.broker.call(_partition_classes)
        spans.named("append both")
        spans.named("fetch both")
    assert {"TracedPartitions", "AuditedPartitions"} <= set(kinds)


# Any: the broker inside the blocking one.
async def _partition_classes(broker: Any) -> list[str]:
    return [kind.__name__ for kind in type(broker._running.node.partitions).__mro__]


def test_the_file_of_the_page_turns_tracing_on(tmp_path: Path) -> None:
    (text,) = blocks((ROOT / "docs" / "tracing.md").read_text(encoding="utf-8"), "toml")
    file = tmp_path / "millstream.toml"
    file.write_text(text)

    assert load(path=str(file), environment={}).tracing == Tracing(endpoint="http://localhost:4318")
    environment = {"MILLSTREAM_TRACING__SAMPLE_RATE": "0.5"}
    assert load(path=str(file), environment=environment).tracing.sample_rate == 0.5


IN_A_PROCESS = """
import sys
{before}
from millstream.errors import StartupError
from millstream.tracing.settings import Tracing
from tests.support.http import http_node
try:
    with http_node(tracing=Tracing({tracing})) as node:
        assert node.ask.get("/v1/topics").status == 200
        print([name for name in sys.modules if name.startswith("opentelemetry")])
except StartupError as problem:
    print(problem)
"""


def run(tracing: str, before: str = "") -> str:
    code = IN_A_PROCESS.format(tracing=tracing, before=before)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def test_without_an_endpoint_opentelemetry_is_not_loaded() -> None:
    assert run("sample_rate=1.0") == "[]"


def test_a_node_without_the_extra_says_what_to_install() -> None:
    message = run("endpoint='http://localhost:4318'", "sys.modules['opentelemetry'] = None")

    assert "pip install 'millstream[tracing]'" in message

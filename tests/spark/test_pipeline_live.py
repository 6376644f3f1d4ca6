"""Pipelines report to `_pipelines`; top, stop, restart and backfill work from there."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from pyspark.sql import SparkSession

from millstream.cli.commands.pipeline import pipeline
from millstream.cli.pipeline import live
from millstream.spark.pipelines.status.report import PipelineReport, now_ms, reports
from millstream.spark.pipelines.status.topic import StatusTopic
from tests.spark.sinks import committed_values, until
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

GRAMS = """
name: NAME
trigger_seconds: 0.2
bootstrap: ADDRESS
flows:
  - name: grams
    source: {topic: TOPIC, schema: "id bigint, kg double", malformed: MALFORMED}
    sql: SELECT id, kg * 1000 AS grams FROM source
    sink: {topic: TOPIC-grams, key: id}
"""
ORDERS = ['{"id": 1, "kg": 2.5}', '{"id": 2, "kg": 1}']


class Written:
    """A pipeline in a directory of its own, and the commands that a user types."""

    def __init__(self, directory: Path, address: str, topic: str, malformed: str = "skip") -> None:
        self.directory, self.address, self.name = directory, address, f"mill-{topic}"
        text = GRAMS.replace("TOPIC", topic).replace("ADDRESS", address)
        text = text.replace("NAME", self.name).replace("MALFORMED", malformed)
        (directory / "pipeline.yml").write_text(text, encoding="utf-8")

    def do(self, command: str, *flags: str) -> Result:
        return CliRunner().invoke(pipeline, [command, str(self.directory), *flags])

    def send(self, command: Any) -> int:
        return live.send(command, {"path": str(self.directory)})

    def report(self) -> PipelineReport | None:
        with StatusTopic(self.address, {}) as topic:
            listed = reports(topic.read(), now_ms()) if topic.exists() else []
        return next((report for report in listed if report.name == self.name), None)

    def is_running(self, since_ms: int = 0) -> bool:
        report = self.report()
        if report is None or report.state != "running" or report.started_ms <= since_ms:
            return False
        return since_ms > 0 or report.flows[0].batch >= 0


@pytest.fixture
def written(broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path) -> Written:
    topics.create(topic)
    topics.send(topic, [order.encode() for order in ORDERS])
    return Written(tmp_path, broker.address, topic)


def test_a_running_pipeline_reports_and_is_restarted_and_stopped_from_elsewhere(
    spark: SparkSession, broker: BrokerProcess, written: Written
) -> None:
    codes: list[int] = []

    def operate() -> None:
        until(written.is_running, "the first batch", 120)
        first = written.report()
        assert first is not None
        codes.append(written.send("restart"))
        until(lambda: written.is_running(first.started_ms), "the second run")
        codes.append(written.send("stop"))

    operator = threading.Thread(target=operate, daemon=True)
    operator.start()
    written.do("run", "--continuous")
    operator.join(60)

    assert codes == [0, 0]
    report = written.report()
    assert report is not None
    assert report.state == "stopped"
    assert report.flows[0].writes == [report.flows[0].reads[0] + "-grams"]
    shown = CliRunner().invoke(pipeline, ["top", "--bootstrap", broker.address])
    assert [line.split()[1] for line in shown.stdout.splitlines() if written.name in line] == [
        "stopped"
    ]
    refused = written.do("stop")
    assert refused.exit_code == 1
    assert f"pipeline {written.name} is stopped" in refused.stderr


def test_the_topic_of_reports_is_compacted_and_a_pipeline_that_ends_says_so(
    spark: SparkSession, broker: BrokerProcess, written: Written
) -> None:
    assert written.do("run").exit_code == 0

    report = written.report()
    assert report is not None
    flow = report.flows[0]
    assert (report.state, flow.rows_in, flow.rows_out, flow.lag) == ("done", 2, 2, 0)
    admin = AdminClient({"bootstrap.servers": broker.address})
    resource = ConfigResource(ResourceType.TOPIC, "_pipelines")
    settings = admin.describe_configs([resource])[resource].result(30)
    assert settings["cleanup.policy"].value == "compact"


def test_a_backfill_fills_a_time_once(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, written: Written
) -> None:
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    for _ in range(2):
        done = written.do("backfill", "--from", "2020-01-01", "--to", end, "--output", "json")
        assert done.exit_code == 0, done.stderr

    assert json.loads(done.stdout)["flows"] == [{"flow": "grams", "rows_written": 2}]
    values = committed_values(broker.address, f"{topic}-grams")
    assert sorted(json.loads(value)["grams"] for value in values) == [1000.0, 2500.0]
    for flags, problem in (
        (("--from", "soon", "--to", end), "--from is 'soon', expected a time"),
        (("--from", end, "--to", "2020-01-01"), "is not before --to"),
    ):
        refused = written.do("backfill", *flags)
        assert refused.exit_code == 1
        assert problem in refused.stderr


def test_malformed_values_become_dead_letters_in_the_batch_of_the_other_rows(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic)
    topics.send(topic, [b"no order", *(order.encode() for order in ORDERS)])
    written = Written(tmp_path, broker.address, topic, malformed="dlq")

    done = written.do("run", "--output", "json")

    assert done.exit_code == 0, done.stderr
    total = json.loads(done.stdout)["total"]
    assert (total["rows_in"], total["rows_out"], total["rows_quarantined"]) == (3, 2, 1)
    assert committed_values(broker.address, f"{topic}.dlq") == [b"no order"]
    assert len(committed_values(broker.address, f"{topic}-grams")) == len(ORDERS)

"""Queries of Spark's own connector move here: their settings, and their checkpoints."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from millstream.cli.main import commands
from millstream.spark.options.migration import CONNECTION, CONSUMER, PRODUCER
from tests.interop.spark.conftest import fetched
from tests.spark.sinks import each_once, numbers
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess

WAIT_SECONDS = 120
NAMES = """
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

public class Names {
    public static void main(String[] arguments) {
        for (String name : ConsumerConfig.configNames()) System.out.println("consumer " + name);
        for (String name : ProducerConfig.configNames()) System.out.println("producer " + name);
    }
}
"""


def java_names(jars: list[Path], directory: Path) -> dict[str, set[str]]:
    """The settings of Kafka's consumer and producer, as their own classes list them."""
    program = directory / "Names.java"
    program.write_text(NAMES, encoding="utf-8")
    classes = ":".join(map(str, jars))
    command = ["java", "-cp", classes, str(program)]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    names: dict[str, set[str]] = {"consumer": set(), "producer": set()}
    for line in printed.splitlines():
        kind, _, name = line.partition(" ")
        if kind in names:
            names[kind].add(name)
    return names


def test_the_table_has_every_setting_of_kafkas_clients(tmp_path: Path) -> None:
    from benchmarks.kafka.install import kafka_jars

    names = java_names(sorted(fetched(kafka_jars).glob("*.jar")), tmp_path)
    ours = {
        "consumer": {setting.name for setting in (*CONNECTION, *CONSUMER)},
        "producer": {setting.name for setting in (*CONNECTION, *PRODUCER)},
    }

    assert len(names["consumer"]) > 100
    assert {kind: known - ours[kind] for kind, known in names.items()} == {
        "consumer": set(),
        "producer": set(),
    }


def copy(
    spark: SparkSession, form: str, broker: BrokerProcess, checkpoint: Path, target: str
) -> None:
    query = (
        spark.readStream.format(form)
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", "old")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(value as string) value")
        .dropDuplicates(["value"])
        .writeStream.format(form)
        .option("kafka.bootstrap.servers", broker.address)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_SECONDS)


@pytest.mark.timeout(600)
def test_a_checkpoint_of_the_connector_goes_on_with_offsets_and_state(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, tmp_path: Path
) -> None:
    topics.create("old", partitions=2)
    topics.create("moved", partitions=2)
    for partition in range(2):
        topics.send("old", [b"%d" % n for n in range(partition, 20, 2)], partition=partition)
    copy(spark, "kafka", broker, tmp_path / "theirs", "moved")

    arguments = ["adopt", str(tmp_path / "theirs"), "--into", str(tmp_path / "ours")]
    answer = CliRunner().invoke(commands, ["pipeline", *arguments, "--output", "json"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.output)["offsets"] == [{"old": {"0": 10, "1": 10}}]
    # Values that the connector has seen are duplicates still: its state came along.
    topics.send("old", [b"%d" % n for n in range(10, 30)], partition=0)
    copy(spark, "millstream", broker, tmp_path / "ours", "moved")

    assert numbers(broker.address, "moved") == each_once(30)

"""`millstream pipeline` on a real broker and real Spark: run, dry-run, status, test, and errors."""

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from millstream.cli.commands.pipeline import pipeline
from millstream.spark.pipelines import runner, spec_tests
from millstream.spark.pipelines.failures import InvalidPipeline, PipelineFailed
from millstream.spark.pipelines.queries import Context
from millstream.spark.pipelines.spec import load
from millstream.spark.pipelines.summaries import Summary
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT, SOURCE

WAIT_SECONDS = 120

GRAMS = """
name: mill
flows:
  - name: grams
    source:
      topic: TOPIC
      schema: id bigint, kg double
      malformed: skip
    sql:
      - SELECT id, kg FROM source WHERE kg > 0
      - SELECT id, CAST(kg * 1000 AS BIGINT) AS grams FROM source
    sink: {topic: TOPIC-grams, key: id}
"""
TWICE = """
  - name: twice
    source: {topic: TOPIC-grams, schema: id bigint, grams bigint}
    sql: SELECT id, grams, grams % 2 AS odd FROM source
    sink: {table: tables/grams, partition_by: [odd]}
"""
ORDERS = ['{"id": 1, "kg": 2.5}', '{"id": 2, "kg": 0}', "no order", '{"id": 3, "kg": 0.001}']


class Pipeline:
    """A pipeline in a directory of its own, and the command that a user types."""

    def __init__(self, directory: Path, topic: str, address: str) -> None:
        self.directory = directory
        self.topic = topic
        self.address = address

    def write(self, text: str) -> "Pipeline":
        text = text.replace("TOPIC", self.topic)
        (self.directory / "pipeline.yml").write_text(text, encoding="utf-8")
        return self

    def do(self, command: str, *flags: str, bootstrap: str | None = None) -> Result:
        where = [] if command == "test" else ["--bootstrap", bootstrap or self.address]
        return CliRunner().invoke(pipeline, [command, str(self.directory), *where, *flags])

    def json(self, command: str, *flags: str) -> Any:
        result = self.do(command, "--output", "json", *flags)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def context(self, spark: SparkSession, **fields: Any) -> Context:
        return Context(
            spark=spark,
            bootstrap=self.address,
            state_dir=str(self.directory / ".millstream"),
            name="mill",
            **fields,
        )


@pytest.fixture
def mill(
    tmp_path: Path, topic: str, broker: BrokerProcess, spark: SparkSession
) -> Iterator[Pipeline]:
    here = Path.cwd()
    yield Pipeline(tmp_path, topic, broker.address)
    os.chdir(here)  # A command goes to where the pipeline lies.


def values(spark: SparkSession, broker: BrokerProcess, topic: str) -> list[tuple[str, str]]:
    """Keys and values of a topic, as text."""
    reader = spark.read.format("millstream").option("kafka.bootstrap.servers", broker.address)
    rows = reader.option("subscribe", topic).load().selectExpr("string(key)", "string(value)")
    return sorted((row[0], row[1]) for row in rows.collect())


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def test_rows_go_through_sql_to_a_topic_once(
    mill: Pipeline, topics: Topics, spark: SparkSession, broker: BrokerProcess
) -> None:
    topics.create(mill.topic)
    topics.send(mill.topic, ORDERS)
    mill.write(GRAMS)

    first = mill.json("run")["flows"]["grams"]
    topics.send(mill.topic, ['{"id": 4, "kg": 1}'])
    second = mill.json("run")["flows"]["grams"]

    assert (first["rows_in"], first["rows_out"], first["lag"]) == (4, 2, {mill.topic: 0})
    assert first["details"]["observed"] == {"malformed": {"malformed": 1}}
    assert (second["rows_in"], second["offsets"]) == (1, {mill.topic: {"0": 5}})
    grams = values(spark, broker, f"{mill.topic}-grams")
    assert [key for key, _ in grams] == ["1", "3", "4"]
    assert json.loads(grams[0][1]) == {"id": 1, "grams": 2500}


def test_a_flow_sees_what_the_one_before_it_wrote(
    mill: Pipeline, topics: Topics, spark: SparkSession
) -> None:
    topics.create(mill.topic)
    topics.send(mill.topic, ORDERS)
    mill.write(
        GRAMS
        + TWICE.replace(
            "{topic: TOPIC-grams, schema: id bigint, grams bigint}",
            "\n      topic: TOPIC-grams\n      schema: id bigint, grams bigint",
        )
    )

    result = mill.do("run")

    assert result.exit_code == 0, result.stderr
    assert "pipeline mill is done after" in result.stdout
    assert "batch 0: 4 rows in" in result.stderr
    grams = spark.read.parquet(str(mill.directory / "tables" / "grams"))
    assert sorted((row.id, row.grams, row.odd) for row in grams.collect()) == [
        (1, 2500, 0),
        (3, 1, 1),
    ]


def test_status_says_where_a_pipeline_stands(mill: Pipeline, topics: Topics) -> None:
    topics.create(mill.topic)
    topics.send(mill.topic, ORDERS)
    mill.write(GRAMS)

    before = mill.do("status")
    mill.json("run")
    topics.send(mill.topic, ORDERS)
    (after,) = mill.json("status")["queries"]

    assert before.stdout == "pipeline mill has not run yet\n"
    assert after["checkpoint"]["is_committed"]
    assert after["lag"] == after["group_lag"] == {mill.topic: 4}
    assert "mill.grams" in mill.do("status").stdout


def test_a_dry_run_says_what_would_run_and_runs_nothing(mill: Pipeline, topics: Topics) -> None:
    topics.create(mill.topic)
    mill.write(GRAMS)

    answer = mill.json("dry-run")

    assert answer["columns"] == {"grams": "key string, value string"}
    assert answer["flows"][0]["goes_on"] == "from the start"
    assert not (mill.directory / ".millstream").exists()
    assert "pipeline mill is fine" in mill.do("dry-run").stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id, kg FROM", "id, kgs FROM", "flow grams, sql 1: A column"),
        ("SELECT id, CAST", "SELEC id, CAST", "flow grams, sql 2: "),
        ("key: id", "key: kg", "sink.key: there is no column kg; there are id, grams"),
        ("id bigint, kg double", "id bigint, kg dubble", "flow grams, source: schema is"),
        (", key: id", ", format: raw", "flow grams, sink: required attribute 'value' not found"),
    ],
)
def test_a_dry_run_finds_what_is_wrong(
    mill: Pipeline, topics: Topics, old: str, new: str, said: str
) -> None:
    topics.create(mill.topic)

    result = mill.write(GRAMS.replace(old, new)).do("dry-run")

    assert result.exit_code == 1
    assert result.stderr.startswith("millstream: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_wrong_topic_is_said_before_spark_starts(mill: Pipeline, topics: Topics) -> None:
    topics.create(mill.topic)

    result = mill.write(GRAMS.replace("topic: TOPIC\n", "topic: TOPICS\n")).do("run")

    assert result.exit_code == 1
    assert f"there is no topic {mill.topic}S at {mill.address}" in result.stderr
    assert f"did you mean {mill.topic}" in result.stderr


def test_an_unreachable_broker_is_one_sentence(mill: Pipeline) -> None:
    result = mill.write(GRAMS).do("run", bootstrap="127.0.0.1:1")

    assert result.exit_code == 1
    assert "no broker answers at 127.0.0.1:1: start one with `millstream serve`" in result.stderr


def test_misuse_has_its_own_exit_code(mill: Pipeline) -> None:
    assert mill.write(GRAMS).do("run", "--bogus").exit_code == 2
    assert mill.do("run", "--output", "xml").exit_code == 2


def test_a_value_that_is_not_of_the_schema_fails_a_strict_flow(
    mill: Pipeline, topics: Topics
) -> None:
    topics.create(mill.topic)
    topics.send(mill.topic, ORDERS)

    result = mill.write(GRAMS.replace("malformed: skip", "malformed: fail")).do("run")

    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("millstream: mill.grams/rows: ")
    assert f"not JSON of the schema: topic, partition, offset {mill.topic} 0 2" in last


def test_continuous_flows_run_side_by_side_until_told_to_stop(
    mill: Pipeline, topics: Topics, spark: SparkSession, broker: BrokerProcess
) -> None:
    topics.create(mill.topic)
    topics.create(f"{mill.topic}-grams")
    mill.write(
        GRAMS + "  - name: copy\n    source: {topic: TOPIC-grams}\n"
        "    sink: {topic: TOPIC-copy, format: raw}\n    sql: SELECT key, value FROM source\n"
    )
    context = mill.context(spark, is_continuous=True, trigger_seconds=0.0)
    spec = load(mill.directory / "pipeline.yml")
    collected: dict[str, Summary] = {}
    thread = threading.Thread(
        target=lambda: collected.update(runner.run(spec, context, mill.directory))
    )

    thread.start()
    topics.send(mill.topic, ORDERS)
    wait_until(lambda: f"{mill.topic}-copy" in topics.names())
    topics.send(mill.topic, ORDERS)
    wait_until(lambda: len(values(spark, broker, f"{mill.topic}-copy")) == 4)
    context.stop.set()
    thread.join(WAIT_SECONDS)

    assert (collected["grams"].rows_in, collected["copy"].rows_out) == (8, 4)


def test_the_first_failure_stops_all_flows(
    mill: Pipeline, topics: Topics, spark: SparkSession
) -> None:
    topics.create(mill.topic)
    mill.write(
        GRAMS.replace("skip", "fail") + "  - name: copy\n    source: {topic: TOPIC}\n"
        "    sink: {topic: TOPIC-copy, format: raw}\n    sql: SELECT key, value FROM source\n"
    )
    context = mill.context(spark, is_continuous=True, trigger_seconds=0.0)
    topics.send(mill.topic, ORDERS)

    with pytest.raises(PipelineFailed, match="not JSON of the schema"):
        runner.run(load(mill.directory / "pipeline.yml"), context, mill.directory)

    assert spark.streams.active == []


@pytest.mark.parametrize("template", ["sql", "validate"])
def test_examples_of_a_template_pass(mill: Pipeline, template: str) -> None:
    os.chdir(mill.directory)
    made = CliRunner().invoke(pipeline, ["init", "demo", "--template", template])

    result = CliRunner().invoke(pipeline, ["test", "demo"])

    assert made.exit_code == 0, made.stderr
    assert result.stdout.startswith("pass  "), result.stdout + result.stderr
    assert result.exit_code == 0


def test_an_example_that_fails_says_which_rows(mill: Pipeline) -> None:
    tests = """
tests:
  - name: wrong
    flow: grams
    input: {TOPIC: [{value: {id: 1, kg: 1}}]}
    expected: [{id: 1, grams: 1}]
"""
    result = mill.write(GRAMS + tests).do("test")

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "FAIL  grams: wrong",
        '      expected, and missing: {"id": 1, "grams": 1}',
        '      not expected: {"grams": 1000, "id": 1}',
    ]


def test_a_pipeline_without_examples_says_so(mill: Pipeline) -> None:
    result = mill.write(GRAMS).do("test")

    assert result.exit_code == 1
    assert "pipeline.yml has no tests" in result.stderr


def test_a_table_can_not_be_partitioned_by_what_is_not_there(
    mill: Pipeline, topics: Topics, spark: SparkSession
) -> None:
    topics.create(mill.topic)
    mill.write(GRAMS.replace("topic: TOPIC-grams, key: id", "table: t, partition_by: [day]"))
    spec = load(mill.directory / "pipeline.yml")

    with pytest.raises(InvalidPipeline, match="there is no column day; there are id, grams"):
        runner.analyse(spec, mill.context(spark), mill.directory)


def test_a_table_of_another_run_is_not_taken_for_ones_own(
    mill: Pipeline, topics: Topics, spark: SparkSession
) -> None:
    """Spark's file sink would take the new run's first batches for written, and leave them out."""
    topics.create(mill.topic)
    topics.send(mill.topic, ORDERS)
    mill.write(GRAMS.replace("topic: TOPIC-grams, key: id", "table: t"))
    spec = load(mill.directory / "pipeline.yml")
    runner.run(spec, mill.context(spark), mill.directory)
    runner.run(spec, mill.context(spark), mill.directory)  # The same run goes on.
    anew = replace(mill.context(spark), state_dir=str(mill.directory / "elsewhere"))

    with pytest.raises(InvalidPipeline, match=r"flow grams, sink: table is .* of another run"):
        runner.run(spec, anew, mill.directory)

    assert spark.read.parquet(str(mill.directory / "t")).count() == 2


def test_a_table_is_not_written_from_an_older_checkpoint(
    mill: Pipeline, topics: Topics, spark: SparkSession
) -> None:
    topics.create(mill.topic)
    mill.write(GRAMS.replace("topic: TOPIC-grams, key: id", "table: t"))
    spec, context = load(mill.directory / "pipeline.yml"), mill.context(spark)
    state, copy = Path(context.state_dir), mill.directory / "copy"
    for _ in range(2):
        topics.send(mill.topic, ORDERS)
        runner.run(spec, context, mill.directory)
        if not copy.exists():
            shutil.copytree(state, copy)
    count = spark.read.parquet(str(mill.directory / "t")).count()
    shutil.rmtree(state)
    copy.rename(state)

    with pytest.raises(InvalidPipeline, match=r"holds files of batch 1, .* ends with batch 0"):
        runner.run(spec, context, mill.directory)

    assert spark.read.parquet(str(mill.directory / "t")).count() == count


def test_updates_go_to_a_topic(
    mill: Pipeline, topics: Topics, spark: SparkSession, broker: BrokerProcess
) -> None:
    topics.create(mill.topic)
    topics.send(mill.topic, ORDERS)
    text = GRAMS.replace("key: id}", "key: odd, output_mode: update}").replace(
        "SELECT id, CAST(kg * 1000 AS BIGINT) AS grams FROM source",
        "SELECT id % 2 AS odd, count(*) AS orders FROM source GROUP BY 1",
    )
    spec = load(mill.write(text).directory / "pipeline.yml")

    runner.run(spec, mill.context(spark), mill.directory)
    topics.send(mill.topic, ['{"id": 4, "kg": 1}', '{"id": 5, "kg": 1}'])
    runner.run(spec, mill.context(spark), mill.directory)

    assert values(spark, broker, f"{mill.topic}-grams") == [
        ("0", '{"odd":0,"orders":1}'),
        ("1", '{"odd":1,"orders":2}'),
        ("1", '{"odd":1,"orders":3}'),
    ]


YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTED = YAML.findall((ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8"))
EXAMPLES = [*DOCUMENTED, (SOURCE / "demo" / "orders.yml").read_text(encoding="utf-8")]


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_examples_in_documents_pass(text: str, tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "pipeline.yml").write_text(text, encoding="utf-8")

    verdicts = spec_tests.run(spark, load(tmp_path / "pipeline.yml"))

    assert verdicts
    assert [verdict for verdict in verdicts if not verdict.is_passed] == []

"""Each ready-made pipeline against a broker: what it reads, writes, counts and goes on with."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from millstream.spark.errors import InvalidOption
from millstream.spark.pipelines.queries import Context, read
from millstream.spark.pipelines.ready import (
    aggregate,
    archive,
    dedup,
    dlq_report,
    enrich,
    redrive,
    replay,
    traffic,
    validate,
)
from millstream.spark.pipelines.ready.archive import read_archive
from millstream.spark.pipelines.summaries import Summary
from tests.spark.frames import at, written
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

# Records of these tests carry old times: retention would take them on a machine that is slow.
FOREVER = {"retention_ms": -1}
TRAFFIC_PAGE = ROOT / "examples" / "traffic-report" / "traffic_page.py"


class Runner:
    """Runs pipelines as a file of parameters would, and reads topics back."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, directory: Path) -> None:
        self.context = Context(
            spark=spark,
            bootstrap=broker.address,
            state_dir=str(directory / "state"),
            name=f"run-{directory.name}",
        )

    def run(self, module: Any, *, name: str = "", **values: Any) -> Summary:
        context = self.context.named(f"{self.context.name}-{name or module.__name__}")
        summary = module.run(context, msgspec.convert(values, module.Parameters))
        assert isinstance(summary, Summary)
        return summary

    def rows(self, topic: str) -> list[dict[str, Any]]:
        records = read(self.context, topic, includeHeaders="true")
        return written(records.orderBy("partition", "offset"))

    def values(self, topic: str) -> list[Any]:
        return [json.loads(row["value"]) for row in self.rows(topic)]


@pytest.fixture
def runner(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Runner:
    return Runner(spark, broker, tmp_path)


def ms(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1000)


def spell(*values: object) -> list[str]:
    return [json.dumps(value) for value in values]


def test_validate_writes_good_and_bad_rows_and_redrive_sends_the_bad_back(
    runner: Runner, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=2, **FOREVER)
    topics.send(topic, spell({"id": 1}, {"id": None}), key=b"k", headers=[("h", b"1")])
    topics.send(topic, [*spell({"id": 4}), "?", *spell({"id": 0})], partition=1)
    asked: dict[str, Any] = {
        "topic": topic,
        "schema": "id bigint",
        "expectations": [
            {"name": "has id", "kind": "not_null", "field": "id"},
            {"name": "divides", "kind": "expression", "sql": "id is null or 8 / id > 0"},
        ],
    }

    first = runner.run(validate, **asked)
    again = runner.run(validate, **asked)

    assert (first.rows_in, first.rows_out, first.rows_quarantined) == (5, 2, 3)
    assert first.details["expectations"] == {
        "schema": {"good": 4, "bad": 1},
        "has id": {"good": 4, "bad": 1},
        "divides": {"good": 4, "bad": 1},
    }
    assert again.rows_in == 0, "the checkpoint says that all is done"
    assert sorted(value["id"] for value in runner.values(f"{topic}.valid")) == [1, 4]
    answers = {
        (row["headers"]["ms-dlq-reason"], row["headers"]["ms-dlq-offset"])
        for row in runner.rows(f"{topic}.dlq")
    }
    assert answers == {("has id", "1"), ("schema", "1"), ("divides", "2")}

    report = runner.run(dlq_report, topic=f"{topic}.dlq")
    everything = runner.run(dlq_report)
    assert report.rows_in == 3
    assert everything.rows_in >= 3
    assert {(row["reason"], row["letters"]) for row in report.details["by_reason"]} == {  # type: ignore[attr-defined]
        ("has id", 1),
        ("schema", 1),
        ("divides", 1),
    }

    back: dict[str, Any] = {
        "topic": f"{topic}.dlq",
        "where": "reason = 'has id'",
        "rows_per_second": 100,
    }
    dry = runner.run(redrive, **back, dry_run=True)
    driven = runner.run(redrive, **back)
    then = runner.run(redrive, **back, dry_run=True)
    runner.run(redrive, **back)
    assert (dry.rows_in, dry.rows_out) == (1, 0)
    assert (driven.rows_in, driven.rows_out, driven.details["passed_over_rows"]) == (3, 1, 2)
    assert then.rows_in == 0
    (returned,) = (row for row in runner.rows(topic) if "ms-redrive-count" in row["headers"])
    assert (returned["key"], returned["headers"]) == ("k", {"h": "1", "ms-redrive-count": "1"})


def test_aggregate_writes_closed_windows_and_counts_late_rows(
    runner: Runner, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, **FOREVER)
    topics.send(topic, spell({"shop": "a", "n": 1}, {"shop": "b", "n": 2}), timestamp=ms(0))
    topics.send(topic, spell({"shop": "a", "n": 4}), timestamp=ms(300))
    asked: dict[str, Any] = {
        "topic": topic,
        "schema": "shop string, n bigint",
        "window": {"kind": "tumbling", "size": "1 minute"},
        "watermark": "1 minute",
        "group_by": ["shop"],
        "aggregates": {"total": "sum(n)"},
        "to": f"{topic}.totals",
    }

    first = runner.run(aggregate, **asked)
    topics.send(topic, spell({"shop": "a", "n": 100}), timestamp=ms(10))
    second = runner.run(aggregate, **asked)

    assert (first.rows_in, first.details["late_rows"]) == (3, 0)
    assert second.details["late_rows"] == 1
    collected = {
        row["key"]: json.loads(row["value"])["total"] for row in runner.rows(f"{topic}.totals")
    }
    assert collected == {"a": 1, "b": 2}

    table = {**asked, "to": None, "path": str(tmp_path / "table")}
    summary = runner.run(aggregate, name="table", **table)
    rows = runner.context.spark.read.parquet(str(tmp_path / "table")).collect()
    assert summary.rows_out == len(rows) == 2


def test_dedup_passes_each_event_once(runner: Runner, topics: Topics, topic: str) -> None:
    topics.create(topic, **FOREVER)
    topics.send(topic, spell({"id": 1}, {"id": 1}, {"id": 2}))
    asked: dict[str, Any] = {
        "topic": topic,
        "to": f"{topic}.once",
        "schema": "id bigint",
        "by": ["id"],
    }

    first = runner.run(dedup, **asked)
    topics.send(topic, spell({"id": 2}, {"id": 3}))
    second = runner.run(dedup, **asked)

    assert (first.rows_in, first.rows_out, first.details["duplicate_rows"]) == (3, 2, 1)
    assert second.details["duplicate_rows"] == 1
    assert sorted(value["id"] for value in runner.values(f"{topic}.once")) == [1, 2, 3]


def test_enrich_joins_a_topic_as_a_table_files_and_a_stream(
    runner: Runner, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, **FOREVER)
    topics.create(f"{topic}.who", **FOREVER)
    topics.send(topic, spell({"id": 1, "who": "a"}, {"id": 2, "who": "z"}), timestamp=ms(0))
    topics.send(f"{topic}.who", spell({"name": "Ann"}, {"name": "Anna"}), key=b"a", timestamp=ms(9))
    (tmp_path / "names.csv").write_text("who,name\na,Aron\n", encoding="utf-8")
    asked = {"topic": topic, "schema": "id bigint, who string", "add": ["other.name"]}
    table = {"kind": "topic", "topic": f"{topic}.who", "schema": "name string"}
    files = {"kind": "files", "format": "csv", "path": str(tmp_path / "names.csv")}
    stream = {**table, "kind": "stream", "within": "1 minute"}
    ways = {
        "table": (table, "this.who = other.record_key", "left"),
        "files": (files, "this.who = other.who", "inner"),
        "stream": (stream, "this.who = cast(other.record.key as string)", "inner"),
    }

    collected = {}
    for name, (other, condition, how) in ways.items():
        to = f"{topic}.{name}"
        summary = runner.run(
            enrich, name=name, **asked, other=other, join_on=condition, how=how, to=to
        )
        assert summary.rows_out == len(runner.rows(to))
        collected[name] = sorted((value["id"], value["name"]) for value in runner.values(to))

    assert collected == {
        "table": [(1, "Anna"), (2, None)],
        "files": [(1, "Aron")],
        "stream": [(1, "Ann"), (1, "Anna")],
    }


def test_an_archive_goes_on_where_it_was_and_is_replayed_as_it_was(
    runner: Runner, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, partitions=2, **FOREVER)
    topics.send(topic, spell(*range(5)), key=b"k", headers=[("h", b"1")], timestamp=ms(0))
    topics.send(topic, spell(*range(5, 8)), partition=1, timestamp=ms(3600))
    path = str(tmp_path / "archive")

    first = runner.run(archive, topic=topic, path=path)
    topics.send(topic, [None], timestamp=ms(5))
    second = runner.run(archive, topic=topic, path=path)

    assert (first.rows_in, first.rows_out, second.rows_in) == (8, 8, 1)
    assert (Path(path) / f"topic={topic}" / "date=2026-03-02" / "hour=0").is_dir()
    assert read_archive(runner.context.spark, path).count() == 9

    with pytest.raises(InvalidOption, match="files of another run"):
        runner.run(archive, name="another", topic=topic, path=path)

    to = f"{topic}.again"
    topics.create(to, partitions=2, **FOREVER)
    asked: dict[str, Any] = {"path": path, "topic": topic, "to": to, "until_offset": 4}
    dry = runner.run(replay, **asked, dry_run=True)
    done = runner.run(replay, **asked)
    paced = runner.run(replay, **{**asked, "from_offset": 3, "rows_per_second": 50})

    assert (dry.rows_in, dry.rows_out) == (7, 0)
    assert (done.rows_in, done.rows_out, paced.rows_out) == (7, 7, 1)
    rows = runner.rows(to)
    assert [row["value"] for row in rows if row["partition"] == 0] == ["0", "1", "2", "3", "3"]
    assert [row["value"] for row in rows if row["partition"] == 1] == ["5", "6", "7"]
    assert (rows[0]["key"], rows[0]["headers"]["h"]) == ("k", "1")
    assert {row["timestamp"].timestamp() * 1000 for row in rows} == {ms(0), ms(3600)}


def test_traffic_writes_its_tables(
    runner: Runner, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, partitions=2, **FOREVER)
    for seconds in range(4):
        topics.send(topic, ["x" * 100] * 5, key=b"<k>", timestamp=ms(seconds))

    summary = runner.run(traffic, topic=topic, output=str(tmp_path / "report"))

    assert summary.rows_in == 20
    tables = json.loads((tmp_path / "report" / "traffic.json").read_text(encoding="utf-8"))
    assert tables["topics"][0]["records"] == 20
    assert tables["keys"][0] == {
        "topic": topic,
        "key": "<k>",
        "records": 20,
        "bytes": 20 * 103,
        "share": 1.0,
        "rank": 1,
    }
    drawn = subprocess.run(
        [sys.executable, TRAFFIC_PAGE, tmp_path / "report" / "traffic.json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "&lt;k&gt;" in drawn.stdout


def test_no_rows_make_an_empty_summary(
    runner: Runner, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.create(topic, **FOREVER)

    reported = runner.run(traffic, topic=topic, output=str(tmp_path))
    archived = runner.run(archive, topic=topic, path=str(tmp_path / "archive"))

    assert (reported.rows_in, archived.rows_in, archived.rows_out) == (0, 0, 0)
    assert json.loads((tmp_path / "traffic.json").read_text(encoding="utf-8"))["topics"] == []

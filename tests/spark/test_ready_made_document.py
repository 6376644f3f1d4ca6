"""docs/ready-made-pipelines.md: its examples run, and its tables name every parameter."""

import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml
from pyspark.sql import SparkSession

from millstream.spark.pipelines.queries import Context, read
from millstream.spark.pipelines.ready import catalog
from millstream.spark.pipelines.ready.records import FromTopic
from millstream.spark.pipelines.summaries import Summary
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

DOCUMENT = (ROOT / "docs" / "ready-made-pipelines.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: part for part in re.split(r"^## ", DOCUMENT, flags=re.MULTILINE)[1:]
}
_EXAMPLE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^\| parameter .*?\n\n", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"`(\w+)`")


def test_every_pipeline_has_a_section() -> None:
    assert set(SECTIONS) == set(catalog.names())


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_names_every_parameter(name: str) -> None:
    kind = catalog.find(name).parameters
    shared = set(FromTopic.__struct_fields__) if issubclass(kind, FromTopic) else set()
    table = _TABLE.search(SECTIONS[name])
    assert table is not None
    cells = [line.split("|")[1] for line in table[0].strip().splitlines()[2:]]

    named = {name for cell in cells for name in _NAMES.findall(cell)}

    assert named == {field.name for field in msgspec.structs.fields(kind)} - shared


def test_the_examples_run_one_after_the_other(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: Topics,
    tmp_path: Path,
) -> None:
    topics.create("orders", partitions=2)
    topics.create("customers", cleanup_policy="compact")
    good = {"id": 1, "customer": "7", "amount": 5.0, "currency": "EUR"}
    bad = {**good, "id": 2, "currency": "euro"}
    topics.send("orders", [*(json.dumps(order) for order in (good, good, bad)), "?"], key=b"7")
    topics.send("customers", [json.dumps({"name": "Ann", "since": "2020-05-01"})], key=b"7")

    collected: dict[str, Summary] = {}
    for section in SECTIONS.values():
        (text,) = _EXAMPLE.findall(section)
        flow = yaml.safe_load(text)
        for place in {"path", "output"} & set(flow["with"]):
            flow["with"][place] = str(tmp_path / flow["with"][place])
        ready_made = catalog.find(flow["use"])
        context = Context(
            spark=spark,
            bootstrap=broker.address,
            state_dir=str(tmp_path / "state"),
            name=f"document.{flow['name']}",
        )
        collected[flow["name"]] = ready_made.run(
            context, ready_made.checked(flow["with"], "document")
        )

    rows = {name: (summary.rows_in, summary.rows_out) for name, summary in collected.items()}
    assert rows == {
        "checked": (4, 2),
        "totals": (2, 1),
        "once": (2, 1),
        "named": (1, 1),
        "kept": (6, 6),
        "again": (3, 3),
        "letters": (2, 0),
        "back": (2, 1),
        "report": (8, 0),
        "quiet": (2, 0),
    }
    assert collected["checked"].rows_quarantined == 2
    context = Context(spark=spark, bootstrap=broker.address, state_dir="", name="reader")
    (named,) = read(context, "orders.named").collect()
    assert json.loads(named.value) == {
        "id": 1,
        "customer": "7",
        "amount": 5.0,
        "name": "Ann",
        "customer_since": 2020,
    }
    assert (tmp_path / "report" / "traffic.json").stat().st_size > 0

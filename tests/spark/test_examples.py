"""The programs of examples/spark, as they stand there, on the session of these tests."""

import importlib.util
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millstream.spark import enable_update_mode
from tests.support.broker_process import BrokerProcess
from tests.support.source_tree import ROOT

FOLDER = ROOT / "examples" / "spark"


def example(name: str) -> Any:  # A module.
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RESULTS = {
    "word_count": {"the": 3, "mill": 2, "grinds": 1, "stream": 1, "turns": 1},
    "join_two_topics": [(1, 0.5, "card"), (3, 1.5, "cash")],
    "sessions": [("ann", 1), ("ann", 2), ("bob", 2)],
    "sql_over_topics": [("ann", 6.0), ("bob", 9.0)],
    "upsert_to_parquet": {"ann": "new@ann", "bob": "old@bob"},
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_example_gives_what_it_says(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, name: str
) -> None:
    enable_update_mode()

    assert example(name).run(spark, broker.address, tmp_path) == RESULTS[name]


def test_a_replay_has_the_records_of_the_day_alone(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    replay = example("replay_a_day")

    assert replay.run(spark, broker.address, tmp_path) == [
        (f"{hours}h", replay.DAY + timedelta(hours=hours)) for hours in (0, 11, 23)
    ]


def test_every_example_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*RESULTS, "replay_a_day"}

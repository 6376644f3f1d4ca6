"""Declarative projects: what is decided before Spark's engine takes over."""

from pathlib import Path

import pytest

from millstream.spark.pipelines.declarative import gained, has_tables, local_storage, settings
from millstream.spark.pipelines.project import TEMPLATES


@pytest.mark.parametrize(
    "definition",
    [
        "@dp.table\ndef t(): ...",
        "@dp.materialized_view(name='t')",
        'dp.create_streaming_table("t")',
        "CREATE OR REFRESH STREAMING TABLE t AS SELECT 1",
        "create materialized view t as select 1",
        TEMPLATES["sdp"]["transformations/orders.py"],
    ],
)
def test_tables_are_noticed(definition: str) -> None:
    assert has_tables(["import x", definition])


def test_topics_alone_need_no_catalog() -> None:
    assert not has_tables(
        ['dp.create_sink("out", "millstream", {})', "@dp.append_flow(target='out')"]
    )


def test_a_catalog_that_lasts_is_asked_for_only_with_tables(tmp_path: Path) -> None:
    key = "spark.sql.catalogImplementation"

    assert settings(tmp_path, "local[2]", is_hive=True)[key] == "hive"
    assert key not in settings(tmp_path, "local[2]", is_hive=False)


def test_a_cluster_gets_no_settings_of_a_laptop(tmp_path: Path) -> None:
    assert "spark.driver.host" not in settings(tmp_path, "spark://host:7077", is_hive=False)


def test_storage_elsewhere_is_not_looked_at(tmp_path: Path) -> None:
    assert local_storage("s3://bucket/state", tmp_path) is None
    assert local_storage("file:///state", tmp_path) == Path("/state/_checkpoints")
    assert local_storage("state", tmp_path) == tmp_path / "state" / "_checkpoints"


def test_what_flows_went_on_by_is_counted() -> None:
    before = {"a": {"t": {"0": 5}}}
    after = {"a": {"t": {"0": 7, "1": 2}}, "b": {"t": {"0": 1}}}

    assert gained(before, after) == 5

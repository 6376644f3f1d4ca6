"""Declarative projects: what is decided before Spark's engine takes over."""

from pathlib import Path

from millstream.spark.pipelines.declarative import gained, local_storage, settings


def test_the_catalog_lasts_whatever_the_definitions_are(tmp_path: Path) -> None:
    for master in ("local[2]", "spark://host:7077"):
        chosen = settings(tmp_path, master)
        assert chosen["spark.sql.catalogImplementation"] == "hive"
        url = chosen["spark.hadoop.javax.jdo.option.ConnectionURL"]
        assert f"{tmp_path}/.millstream/metastore" in url


def test_a_cluster_gets_no_settings_of_a_laptop(tmp_path: Path) -> None:
    assert "spark.driver.host" not in settings(tmp_path, "spark://host:7077")


def test_storage_elsewhere_is_not_looked_at(tmp_path: Path) -> None:
    assert local_storage("s3://bucket/state", tmp_path) is None
    assert local_storage("file:///state", tmp_path) == Path("/state/_checkpoints")
    assert local_storage("state", tmp_path) == tmp_path / "state" / "_checkpoints"


def test_what_flows_went_on_by_is_counted() -> None:
    before = {"a": {"t": {"0": 5}}}
    after = {"a": {"t": {"0": 7, "1": 2}}, "b": {"t": {"0": 1}}}

    assert gained(before, after) == 5

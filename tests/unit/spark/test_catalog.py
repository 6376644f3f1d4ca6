"""Names of tables, and workers that lack the package."""

from pathlib import Path

import pytest

from millstream.spark.catalog import register, table_names
from millstream.spark.errors import InvalidOption, WorkerLacksPackage
from millstream.spark.workers import check_python


def test_names_of_topics_become_names_of_tables() -> None:
    assert table_names(["orders", "orders.eu-1", "Bills"]) == {
        "bills": "Bills",
        "orders": "orders",
        "orders_eu_1": "orders.eu-1",
    }


def test_two_topics_of_one_name_are_told() -> None:
    with pytest.raises(InvalidOption, match=r"topics a-b and a\.b would both be table a_b"):
        table_names(["a-b", "a.b"])


def test_a_catalog_keeps_no_secret() -> None:
    with pytest.raises(InvalidOption, match=r"a table can't keep kafka\.sasl\.password"):
        register(None, "a:1", options={"kafka.sasl.password": "x"})  # type: ignore[arg-type]


def test_another_python_for_workers_is_told_before_spark_starts(tmp_path: Path) -> None:
    for says in ("exit 1", "echo 0.0.1"):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{says}\n", "utf-8")
        python.chmod(0o755)
        with pytest.raises(WorkerLacksPackage, match="install the same on every node"):
            check_python(str(python))
    with pytest.raises(WorkerLacksPackage, match="does not run"):
        check_python(str(tmp_path / "nothing"))

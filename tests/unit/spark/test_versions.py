"""Which Sparks are taken, and what the others are told."""

import pytest

from millstream.spark.errors import UnsupportedSpark
from millstream.spark.versions import (
    ADMISSION_CONTROL,
    FEATURES,
    REAL_TIME_MODE,
    SPARK_END,
    SPARK_MIN,
    SUPPORTED,
    check,
    table,
)
from tests.support.source_tree import ROOT


@pytest.mark.parametrize("text", ["3.5.9", "4.4.0", "5.0.0.dev1", "unknown"])
def test_another_spark_is_told_which_ones_there_are(text: str) -> None:
    with pytest.raises(UnsupportedSpark, match=f"this is Spark {text}; .* needs Spark 4.0 to 4.3"):
        check(text)


@pytest.mark.parametrize("text", ["4.0.0", "4.1.4", "4.2.1", "4.3.0", "4.3.0.dev0"])
def test_every_spark_4_is_taken(text: str) -> None:
    assert check(text) in SUPPORTED


def test_the_range_is_that_of_the_package() -> None:
    low, end = ("{}.{}".format(*version) for version in (SPARK_MIN, SPARK_END))

    assert f'"pyspark>={low},<{end}"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_what_does_not_work_everywhere_says_what_happens_instead() -> None:
    for feature in FEATURES:
        assert feature.otherwise or all(feature.works_in(version) for version in SUPPORTED)


def test_the_table_has_a_cell_for_each_version() -> None:
    rows = {row["feature"]: row["works"] for row in table()}

    assert rows[ADMISSION_CONTROL.name.replace("`", "")] == {
        "4.0": False,
        "4.1": False,
        "4.2": True,
        "4.3": True,
    }
    assert set(rows[REAL_TIME_MODE.name].values()) == {False}  # type: ignore[attr-defined]

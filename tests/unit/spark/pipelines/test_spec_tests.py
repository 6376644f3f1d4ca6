"""Expected rows and found ones: compared in any order, each as often as it is there."""

from datetime import UTC, date, datetime

from millstream.spark.pipelines.spec_tests import compare


def test_order_does_not_matter() -> None:
    assert compare([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}]) == ([], [])


def test_a_row_counts_as_often_as_it_is_there() -> None:
    assert compare([{"a": 1}, {"a": 1}], [{"a": 1}]) == ([{"a": 1}], [])
    assert compare([{"a": 1}], [{"a": 1}, {"a": 1}]) == ([], [{"a": 1}])


def test_columns_that_are_not_named_do_not_matter() -> None:
    assert compare([{"a": 1}], [{"a": 1, "b": 2}]) == ([], [])


def test_no_rows_expected_means_no_rows_at_all() -> None:
    assert compare([], [{"a": 1}]) == ([], [{"a": 1}])


def test_times_are_compared_as_spark_writes_them() -> None:
    expected = [{"at": datetime(2026, 1, 1, 12, tzinfo=UTC), "day": date(2026, 1, 1)}]

    differences = compare(expected, [{"at": "2026-01-01T12:00:00.000Z", "day": "2026-01-01"}])

    assert differences == ([], [])

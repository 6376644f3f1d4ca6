"""Rows, offsets and lag, counted from what Spark reports."""

from typing import Any

from millstream.spark.pipelines.summaries import OBSERVED, Summary, add, positions, total


def batch(**fields: Any) -> dict[str, Any]:
    """A micro-batch as Spark spells it."""
    return {
        "batchId": 0,
        "numInputRows": 10,
        "sources": [
            {"endOffset": {"orders": {"0": 6, "1": 4}}, "latestOffset": '{"orders": {"0": 9}}'}
        ],
        "observedMetrics": {OBSERVED: {"rows_out": 9, "rows_quarantined": 2}},
        **fields,
    }


def test_batches_add_up() -> None:
    found = add(add(Summary(), batch()), batch())

    assert (found.rows_in, found.rows_out, found.rows_quarantined) == (20, 18, 4)
    assert found.offsets == {"orders": {"0": 6, "1": 4}}


def test_lag_is_what_is_left_of_known_partitions() -> None:
    assert add(Summary(), batch()).lag == {"orders": 3}


def test_a_batch_without_rows_observes_nothing() -> None:
    found = add(Summary(), batch(numInputRows=0, observedMetrics={}))

    assert (found.rows_out, found.details) == (0, {})


def test_what_others_observe_adds_up_in_details() -> None:
    one = batch(observedMetrics={"mine": {"bad": 2}}, stateOperators=[])
    two = batch(
        observedMetrics={"mine": {"bad": 3}}, stateOperators=[{"numRowsDroppedByWatermark": 4}]
    )

    found = add(add(Summary(), one), two)

    assert found.details == {"observed": {"mine": {"bad": 5}}, "late_rows": 4}


def test_offsets_of_other_sources_are_left_out() -> None:
    assert positions('{"logOffset": 3}') == {}
    assert positions("no json") == {}
    assert positions(None) == {}
    assert positions(7) == {}


def test_flows_side_by_side_take_the_time_they_took_together() -> None:
    one = Summary(rows_in=10, seconds=2, offsets={"a": {"0": 5}})
    two = Summary(rows_in=30, seconds=2, offsets={"a": {"0": 3, "1": 1}}, is_stopped=True)

    found = total([one, two], seconds=2)

    assert (found.rows_in, found.rows_per_second, found.is_stopped) == (40, 20, True)
    assert found.offsets == {"a": {"0": 5, "1": 1}}


def test_no_time_is_no_speed() -> None:
    assert Summary(rows_in=5).rows_per_second == 0

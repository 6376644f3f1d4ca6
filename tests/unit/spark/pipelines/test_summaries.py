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
        "observedMetrics": {OBSERVED: {"rows_written": 9, "rows_quarantined": 2}},
        **fields,
    }


def test_batches_add_up_and_quarantined_rows_are_not_out() -> None:
    summary = add(add(Summary(), batch()), batch())

    assert (summary.rows_in, summary.rows_out, summary.rows_quarantined) == (20, 14, 4)
    assert summary.rows_written == 18
    assert summary.offsets == {"orders": {"0": 6, "1": 4}}


def test_lag_is_what_is_left_of_known_partitions() -> None:
    assert add(Summary(), batch()).lag == {"orders": 3}


def test_a_batch_without_rows_observes_nothing() -> None:
    summary = add(Summary(), batch(numInputRows=0, observedMetrics={}))

    assert (summary.rows_out, summary.details) == (0, {})


def test_what_others_observe_adds_up_in_details() -> None:
    report = batch(observedMetrics={"mine": {"bad": 2}}, stateOperators=[])
    second = batch(
        observedMetrics={"mine": {"bad": 3}}, stateOperators=[{"numRowsDroppedByWatermark": 4}]
    )

    summary = add(add(Summary(), report), second)

    assert summary.details == {"observed": {"mine": {"bad": 5}}, "late_rows": 4}


def test_offsets_of_other_sources_are_left_out() -> None:
    assert positions('{"logOffset": 3}') == {}
    assert positions("no json") == {}
    assert positions(None) == {}
    assert positions(7) == {}


def test_flows_side_by_side_take_the_time_they_took_together() -> None:
    first_summary = Summary(rows_in=10, seconds=2, offsets={"a": {"0": 5}})
    second = Summary(rows_in=30, seconds=2, offsets={"a": {"0": 3, "1": 1}}, is_stopped=True)

    summary = total([first_summary, second], seconds=2)

    assert (summary.rows_in, summary.rows_per_second, summary.is_stopped) == (40, 20, True)
    assert summary.offsets == {"a": {"0": 5, "1": 1}}


def test_no_time_is_no_speed() -> None:
    assert Summary(rows_in=5).rows_per_second == 0

"""What `millstream pipeline` prints: tables that line up, and JSON with everything in it."""

import json

from millstream.cli.pipeline import text
from millstream.spark.pipelines.summaries import Progress, Summary

CHECK = Summary(
    rows_in=50_000,
    rows_out=49_500,
    rows_quarantined=500,
    seconds=4.0,
    offsets={"orders": {"0": 30_000, "1": 20_000}},
    lag={"orders": 7},
    details={"observed": {"x": {"y": 1}}, "late_rows": 3},
)
IDLE = Summary(seconds=1.0)


def test_a_summary_is_a_table_with_where_reading_ended() -> None:
    shown = text.run_text("mill", {"check": CHECK, "idle": IDLE}, CHECK)

    assert shown.splitlines() == [
        "pipeline mill is done after 4.0 s",
        "",
        "FLOW   ROWS IN  ROWS OUT  QUARANTINED  SECONDS  ROWS PER SECOND  LAG",
        "check    50000     49500          500      4.0            12500    7",
        "idle         0         0            0      1.0                0    0",
        "all      50000     49500          500      4.0            12500    7",
        "",
        "check read up to orders 0:30000 1:20000",
        "idle read up to nothing new",
        "check late rows: 3",
    ]


def test_a_stopped_run_says_so() -> None:
    shown = text.run_text("mill", {}, Summary(is_stopped=True))

    assert shown.startswith("pipeline mill was stopped")


def test_json_has_everything() -> None:
    parsed = json.loads(text.as_json(text.run_json("mill", {"check": CHECK}, CHECK)))

    check = parsed["flows"]["check"]
    assert (parsed["pipeline"], check["rows_per_second"]) == ("mill", 12_500.0)
    assert check["details"]["observed"] == {"x": {"y": 1}}


def test_progress_is_one_line() -> None:
    progress = Progress(
        pipeline="mill.check",
        query="validate",
        batch=2,
        batch_rows=1_000,
        batch_seconds=0.25,
        so_far=CHECK,
    )

    assert text.progress_line(progress) == (
        "mill.check/validate batch 2: 1,000 rows in 0.2 s; so far 50,000 in, 49,500 out, "
        "500 quarantined, lag 7"
    )


def test_no_rows_are_no_table() -> None:
    assert text.table([]) == ""


def test_details_that_are_rows_are_tables() -> None:
    rates = [{"topic": "orders", "per_second": 12.3456}, {"topic": "returns", "per_second": 0.5}]
    checks = {"has an item": {"good": 5, "bad": 1}}
    summary = Summary(details={"rates": rates, "expectations": checks, "latency_is": "append"})

    shown = text.run_text("mill", {"look": summary}, summary)

    assert shown.splitlines()[6:] == [
        "look latency is: append",
        "",
        "look rates:",
        "TOPIC    PER SECOND",
        "orders        12.35",
        "returns         0.5",
        "",
        "look expectations:",
        "NAME         GOOD  BAD",
        "has an item     5    1",
    ]


def test_a_long_table_says_how_many_rows_are_left_out() -> None:
    summary = Summary(details={"rates": [{"second": second} for second in range(60)]})

    shown = text.run_text("mill", {"look": summary}, summary)

    assert shown.splitlines()[-1] == "and 10 more rows; --output json has all of them"

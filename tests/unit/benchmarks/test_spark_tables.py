"""What a Spark benchmark says: figures, verdicts, and what it could not measure."""

import pytest
from benchmarks.kafka.comparison import Sample
from benchmarks.kafka.trials import TrialFailed
from benchmarks.spark.connectors import (
    AT_LEAST_ONCE,
    CONNECTOR,
    MILLSTREAM,
    OURS_ALIKE_NAME,
    PARQUET,
    THEIRS_ALIKE_NAME,
)
from benchmarks.spark.install import CONNECTOR_VERSION, TOKENS_VERSION
from benchmarks.spark.run import DURABILITY, FIRST_JOB, TO_NOTHING, TO_TOPIC, Plan, Run
from benchmarks.spark.tables import render
from benchmarks.spark.trials import check_counts, rates

READ, WRITE = "read 100 B", "write 100 B"


def run(*values: tuple[str, str, str, float], has_connector: bool = True) -> Run:
    """A run that measured `(way, setting, name, value)`; the same again is the next round."""
    measured = Run(plan=Plan(), has_connector=has_connector)
    rounds: dict[tuple[str, str, str], int] = {}
    for way, setting, name, value in values:
        number = rounds.setdefault((way, setting, name), 0)
        rounds[way, setting, name] += 1
        measured.samples.add(
            Sample(
                peer=way,
                durability=DURABILITY,
                setting=setting,
                name=name,
                round=number,
                value=value,
            )
        )
    return measured


def line(measured: Run, start: str) -> str:
    text = render(measured, command="c", facts={"cores": "2"})
    return next(line for line in text.splitlines() if line.startswith(start))


def test_a_read_stands_beside_its_rival_and_its_limit() -> None:
    measured = run(
        (MILLSTREAM, READ, "rows_per_s", 900_000),
        (MILLSTREAM, READ, "mb_per_s", 90),
        (CONNECTOR, READ, "rows_per_s", 600_000),
        (CONNECTOR, READ, "mb_per_s", 60),
        (PARQUET, READ, "rows_per_s", 2_000_000),
        (PARQUET, READ, "mb_per_s", 200),
    )

    assert line(measured, "| 100 B |") == (
        "| 100 B | 900,000 (90.00) | 600,000 (60.00) | 2,000,000 (200) | 1.50 | >= 1.0x met |"
    )


def test_equal_settings_have_a_table_with_latency_beside_throughput() -> None:
    paced = "100 B at 10,000 records/s"
    measured = run(
        (OURS_ALIKE_NAME, WRITE, "rows_per_s", 600_000),
        (THEIRS_ALIKE_NAME, WRITE, "rows_per_s", 300_000),
        (OURS_ALIKE_NAME, paced, "p50_ms", 200),
        (THEIRS_ALIKE_NAME, paced, "p50_ms", 100),
    )

    assert line(measured, "| write 100 B, rows/s") == (
        "| write 100 B, rows/s | 600,000 | 300,000 | 2.00 |"
    )
    text = render(measured, command="c", facts={})
    assert "| end to end p50, ms | 200 | 100 | 2.00 |" in text
    alone = render(run(has_connector=False), command="c", facts={})
    assert "## Both at equal settings" not in alone


def test_a_ratio_is_taken_within_rounds() -> None:
    measured = run(
        *[(MILLSTREAM, READ, "rows_per_s", value) for value in (100.0, 400.0, 300.0)],
        *[(CONNECTOR, READ, "rows_per_s", value) for value in (200.0, 200.0, 300.0)],
    )

    assert "| 1.00 | >= 1.0x met |" in line(measured, "| 100 B |")


def test_a_goal_that_is_missed_is_said_to_be() -> None:
    measured = run(
        (MILLSTREAM, TO_NOTHING, "trigger_s", 0.2),
        (MILLSTREAM, TO_TOPIC, "trigger_s", 0.4),
        (MILLSTREAM, FIRST_JOB, "archive_s", 5.5),
    )

    assert line(measured, f"| trigger, {TO_NOTHING}").endswith("| <= 0.3 met |")
    assert line(measured, f"| trigger, {TO_TOPIC}").endswith("| <= 0.3 **missed** |")
    assert line(measured, "| 1,000,000 rows").endswith("| <= 5 **missed** |")


def test_the_goal_of_the_sink_is_that_of_exactly_once() -> None:
    measured = run(
        (MILLSTREAM, WRITE, "rows_per_s", 200_000), (AT_LEAST_ONCE, WRITE, "rows_per_s", 500_000)
    )
    text = render(measured, command="c", facts={})

    assert ">= 300,000 rows/s **missed**" in text


def test_a_connector_that_is_missing_is_said_to_be() -> None:
    measured = run((MILLSTREAM, READ, "rows_per_s", 900_000), has_connector=False)

    assert line(measured, f"- {CONNECTOR}:").endswith("not available, left out")
    assert [sink.name for sink in measured.sinks] == [MILLSTREAM, AT_LEAST_ONCE]


def test_the_versions_of_the_connector_are_said_not_to_be_those_of_spark() -> None:
    said = line(run(), f"- {CONNECTOR}:")

    assert CONNECTOR_VERSION in said
    assert TOKENS_VERSION in said
    assert "Not the connector of Spark 4.3" in said


def test_a_trial_that_failed_is_named_and_has_no_figure() -> None:
    measured = run()
    measured.failures.append("Millstream, read 100 B, round 1: found 2, expected 3")

    text = render(measured, command="c", facts={})

    assert "found 2, expected 3" in text
    assert "| 100 B | - | - | - | - |  |" in text


def test_rows_that_are_missing_give_no_figure() -> None:
    with pytest.raises(TrialFailed, match="expected"):
        check_counts({"rows": 9}, {"rows": 10})


def test_rates_are_rows_and_megabytes_of_values() -> None:
    assert rates(1_000_000, 100, 2.0) == {"rows_per_s": 500_000, "mb_per_s": 50}

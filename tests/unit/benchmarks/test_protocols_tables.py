"""The measurements of the protocols, and their tables."""

import json
from pathlib import Path

import pytest
from benchmarks.kafka.comparison import Sample
from benchmarks.kafka.job import Broken
from benchmarks.kafka.peers import JETSTREAM, MILLSTREAM
from benchmarks.protocols.client import LEAD_S_MIN, Task, lateness, lead
from benchmarks.protocols.run import (
    CORE_NATS,
    DEFERRED,
    FAN_OUT,
    PINNED,
    WITH_ACKS,
    WITHOUT_ACKS,
    Plan,
    Run,
)
from benchmarks.protocols.tables import render
from benchmarks.protocols.trials import Cell

CELL = f"publish {Cell(size=128)}"


def rendered(*values: tuple[str, str, str, float], failures: tuple[str, ...] = ()) -> str:
    """The text of a run that measured `(side, setting, name, value)` once each, with sync."""
    run = Run(plan=Plan(), nats=None, root=Path(), failures=list(failures))
    for side, setting, name, value in values:
        run.samples.add(
            Sample(peer=side, durability="sync", setting=setting, name=name, round=0, value=value)
        )
    return render(run, command="c", facts={"cores": "2"})


def line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def task(count: int) -> Task:
    return Task(host="h", port=1, dialect="flux", topic="t", size=16, count=count)


def test_a_part_that_was_not_measured_has_no_table() -> None:
    run = Run(plan=Plan(parts=(FAN_OUT,)), nats=None, root=Path())

    titles = [row for row in render(run, command="c", facts={}).splitlines() if row[:3] == "## "]

    assert titles == ["## Fan-out, Millstream stored as well (sync)"]


def test_a_task_survives_the_way_to_the_client() -> None:
    sent = task(5)

    assert Task(**json.loads(sent.text())).text() == sent.text()


def test_publishing_stands_beside_jetstream_with_ratio_verdict_and_cost() -> None:
    text = rendered(
        (MILLSTREAM, CELL, "per_s", 400_000),
        (MILLSTREAM, CELL, "cpu_us", 2.5),
        (JETSTREAM, CELL, "per_s", 200_000),
    )

    assert line(text, "| sync | 128 B, 1 subject(s)").startswith(
        "| sync | 128 B, 1 subject(s) | 400,000 | 200,000 | 2.00 | >= 1.0x met | 2.50 / - |"
    )


@pytest.mark.parametrize(("rate", "said"), [(300_000, "met"), (299_999, "**missed**")])
@pytest.mark.parametrize("cell", PINNED)
def test_the_goal_on_one_core_is_judged_where_the_broker_has_one(
    cell: Cell, rate: int, said: str
) -> None:
    text = rendered((MILLSTREAM, f"publish {cell}", "per_s", rate))

    assert f">= 300,000/s {said}" in line(text, f"| sync | {cell}")


@pytest.mark.parametrize(("rate", "said"), [(10_000, "met"), (9_999, "**missed**")])
def test_a_flymq_client_that_waits_has_a_goal(rate: int, said: str) -> None:
    text = rendered((MILLSTREAM, "one by one", "per_s", rate))

    assert f">= 10,000/s {said}" in line(text, "| sync | 128 B |")


@pytest.mark.parametrize(("p99", "said"), [(49.0, "met"), (50.0, "**missed**")])
def test_delayed_records_are_judged_by_their_p99_and_by_none_being_early(
    p99: float, said: str
) -> None:
    text = rendered(
        (MILLSTREAM, DEFERRED, "deferred_p99_ms", p99),
        (MILLSTREAM, DEFERRED, "deferred_min_ms", 0.5),
    )

    assert f"p99 < 50 ms {said}; never early met" in text


def test_fan_out_is_compared_without_acknowledgements() -> None:
    setting = f"fan out {Cell(size=16, listeners=10)}"

    text = rendered(
        (WITH_ACKS, setting, "per_s", 300),
        (WITHOUT_ACKS, setting, "per_s", 500),
        (CORE_NATS, setting, "per_s", 1_000),
    )

    assert "| sync | 16 B, 1:10 | 300 | 500 | 1,000 | 0.50 |" in text


def test_a_trial_that_failed_is_named_and_leaves_a_gap() -> None:
    text = rendered((MILLSTREAM, CELL, "per_s", 1_000), failures=("JetStream: 3 missing",))

    assert "- JetStream: 3 missing" in text
    assert "| sync | 128 B, 1 subject(s) | 1,000 | - | - |  |" in text


def test_lateness_counts_from_when_each_record_was_due() -> None:
    arrivals = [(1.005, [(b"", b"0" * 15 + b"0")]), (1.030, [(b"", b"0" * 15 + b"1")])]

    figures = lateness(arrivals, [1_000, 1_010])

    assert figures["min_ms"] == pytest.approx(5.0)
    assert figures["max_ms"] == pytest.approx(20.0)


def test_a_record_that_came_early_breaks_the_run() -> None:
    with pytest.raises(Broken, match="before it was due"):
        lateness([(0.9999, [(b"", b"0" * 16)])], [1_000])


def test_the_first_is_due_after_all_are_taken_in_or_the_run_is_given_up() -> None:
    assert lead(task(100_000), 0.0001) > LEAD_S_MIN + 10
    with pytest.raises(Broken, match="to be taken in"):
        lead(task(100_000), 0.001)

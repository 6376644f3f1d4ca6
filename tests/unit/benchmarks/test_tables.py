"""What is measured, and how it reads."""

from pathlib import Path

from benchmarks.kafka.cells import PARTITIONS, SIZES, Plan, Run, cells, turn
from benchmarks.kafka.comparison import Sample
from benchmarks.kafka.peers import KAFKA, MILLSTREAM, Peer, millstream
from benchmarks.kafka.tables import render

CELL = "100 B, acks=all, 1 partition(s)"


def run(*values: tuple[str, str, str, float]) -> Run:
    """A run of two peers that measured `(peer, setting, name, value)` once each."""
    ours = millstream()
    theirs = Peer(
        name=KAFKA,
        version="4",
        client=(),
        speaks_kafka=True,
        durability={"write": "its way", "sync": "its other way"},
        prepare=ours.prepare,
    )
    run = Run(plan=Plan(), peers=[ours, theirs], jars=None, root=Path())
    for peer, setting, name, value in values:
        durability = "write" if setting else "sync"
        run.samples.add(
            Sample(
                peer=peer,
                durability=durability,
                setting=setting,
                name=name,
                round=0,
                value=value,
            )
        )
    return run


def line(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def test_all_cells_are_measured_where_both_sides_promise_the_same() -> None:
    assert len(set(cells("write", SIZES, PARTITIONS))) == 8
    assert {cell.acks for cell in cells("sync", SIZES, PARTITIONS)} == {"all"}


def test_every_second_round_begins_with_the_other_peer() -> None:
    assert [turn(["a", "b"], number) for number in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]


def test_a_rate_stands_beside_its_rival_with_ratio_and_verdict() -> None:
    measured = run(
        (MILLSTREAM, CELL, "produce_per_s", 150_000), (KAFKA, CELL, "produce_per_s", 100_000)
    )

    text = render(measured, ["write"], command="c", facts={"cores": "2"})

    assert line(text, "| produce |").startswith(
        f"| produce | {CELL} | 150,000 | 100,000 | 1.50 | >= 1.2x met |"
    )
    assert "- Apache Kafka: its way" in text
    assert "- cores: 2" in text


def test_a_missed_goal_cannot_be_overlooked() -> None:
    measured = run(
        (MILLSTREAM, CELL, "ack_p50_ms", 5.0),
        (KAFKA, CELL, "ack_p50_ms", 4.0),
        (MILLSTREAM, "", "first_ack_s", 1.5),
        (MILLSTREAM, "", "idle_rss_mb", 79.0),
    )

    text = render(measured, ["write"], command="c", facts={})

    assert "p50 < Kafka **missed**" in line(text, "| produce to ack |")
    assert "< 1 s **missed**" in line(text, "| process start")
    assert "< 80 MB met" in line(text, "| memory (RSS), idle")


def test_a_trial_that_failed_is_named_and_leaves_a_gap() -> None:
    measured = run((MILLSTREAM, CELL, "produce_per_s", 150_000))
    measured.failures.append("Apache Kafka, write: 3 of 10 missing")
    measured.notes.append("JetStream, sync: latency, because")

    text = render(measured, ["write"], command="c", facts={})

    assert "- Apache Kafka, write: 3 of 10 missing" in text
    assert "- JetStream, sync: latency, because" in text
    assert f"| produce | {CELL} | 150,000 | - | - |  |" in text


def test_a_compiled_client_has_its_own_rows_and_goals() -> None:
    larger = CELL.replace("100 B", "1024 B")
    measured = run(
        (MILLSTREAM, CELL, "compiled_produce_per_s", 1_250_000),
        (KAFKA, CELL, "compiled_produce_per_s", 1_000_000),
        (MILLSTREAM, CELL, "compiled_produce_cpu_us", 0.1),
        (MILLSTREAM, CELL, "compiled_produce_client_cpu_us", 0.5),
        (MILLSTREAM, larger, "compiled_produce_per_s", 125_000),
        (KAFKA, larger, "compiled_produce_per_s", 100_000),
    )

    text = render(measured, ["write"], command="c", facts={})

    row = f"| produce, compiled client | {CELL} | 1,250,000 | 1,000,000 | 1.25 | >= 1.2x met |"
    assert f"{row} 0.10 / - | 0.50 / - | - / - |" in text
    assert ">= 1.3x **missed**" in line(text, f"| produce, compiled client | {larger}")


def test_turns_of_the_loop_that_took_long_are_counted() -> None:
    measured = run((MILLSTREAM, CELL, "stalls", 2.0))

    text = render(measured, ["write"], command="c", facts={})

    assert f"| {CELL} | 2.00 |" in text

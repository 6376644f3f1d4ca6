"""Growth figures become tables that say which goal was missed and what could not be measured."""

import json
from pathlib import Path

import pytest
from benchmarks import report
from benchmarks.growth.load import last_topic
from benchmarks.growth.series import Point
from benchmarks.growth.tables import publish
from benchmarks.kafka.peers import KAFKA, MILLSTREAM


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    return tmp_path


def point(peer: str, size: int, problem: str = "", **figures: float) -> Point:
    return Point(series="partitions", peer=peer, size=size, figures=figures, problem=problem)


def published(results: Path, *points: Point) -> str:
    publish(points, command="a command", versions={}, circumstances={})
    return (results / "growth.md").read_text(encoding="utf-8")


def test_a_missed_goal_is_marked_for_our_broker_alone(results: Path) -> None:
    text = published(
        results,
        point(MILLSTREAM, 3_000, idle_cpu_percent=2.0, create_s=1.0),
        point(KAFKA, 3_000, idle_cpu_percent=3.0, create_s=9.0),
    )
    assert "| 3,000 | Millstream | 2.00 (≤ 1 **missed**) | 1.00 (≤ 1.5 met) |" in text
    assert "| 3,000 | Apache Kafka | 3.00 | 9.00 |" in text


def test_a_point_without_figures_says_why(results: Path) -> None:
    text = published(
        results,
        point(MILLSTREAM, 10, rss_mb=40.0, create_s=0.1),
        point(KAFKA, 10, problem="it died with 137"),
    )
    assert "| 10 | Apache Kafka | it died with 137 |  |" in text


def test_the_json_keeps_every_point(results: Path) -> None:
    published(results, point(MILLSTREAM, 10, rss_mb=40.0))
    kept = json.loads((results / "growth.json").read_text(encoding="utf-8"))
    assert [p["figures"] for p in kept["points"]] == [{"rss_mb": 40.0}]


def test_series_that_are_not_measured_keep_their_points(results: Path) -> None:
    kept = Point(series="members", peer=MILLSTREAM, size=10, figures={"join_s": 2.5})
    published(results, kept, point(MILLSTREAM, 10, rss_mb=40.0))

    text = published(results, point(MILLSTREAM, 10, rss_mb=50.0))

    assert "| 10 | Millstream | 2.50 |" in text
    assert "| 10 | Millstream | 50.00 |" in text
    assert "40.00" not in text


def test_the_last_topic_takes_the_partitions_that_three_do_not_divide() -> None:
    assert last_topic(10) == "growth-00002"
    assert last_topic(3_000) == "growth-00999"

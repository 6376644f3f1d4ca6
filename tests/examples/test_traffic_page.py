"""The page of a traffic report: self-contained, well formed, and true to its tables."""

import json
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.support.source_tree import ROOT

EXAMPLE = ROOT / "examples" / "traffic-report" / "traffic_page.py"
NAMES = runpy.run_path(str(EXAMPLE))
SERIES_MAX, page = NAMES["SERIES_MAX"], NAMES["page"]

_VOID = {"meta"}


class Outline(HTMLParser):
    """The tags of a page; fails where they are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def count(self, tag: str) -> int:
        return sum(1 for name, _ in self.tags if name == tag)


def moment(minute: int) -> str:
    return f"2026-03-01T12:{minute:02}:00+00:00"


def tables(*topics: str) -> dict[str, list[dict[str, Any]]]:
    return {
        "topics": [{"topic": topic, "records": 10, "first": moment(0)} for topic in topics],
        "rates": [
            {"topic": topic, "time": moment(minute), "records_per_second": float(minute)}
            for topic in topics
            for minute in range(3)
        ],
        "latency": [
            {"topic": topic, "ms_p50": 1.5, "ms_p90": 2.0, "ms_p99": 400.0} for topic in topics
        ],
        "partitions": [{"topic": topic, "partition": 0, "share": 1.0} for topic in topics],
        "keys": [
            {"topic": topic, "key": key, "share": 0.5} for topic in topics for key in ("<k>", None)
        ],
    }


def made(report: dict[str, list[dict[str, Any]]]) -> str:
    text: str = page(report, latency_is="latency", at=moment(5))
    return text


def test_a_page_needs_nothing_else() -> None:
    text = made(tables("a", "b"))

    assert not any("src" in attrs or "href" in attrs for _, attrs in Outline(text).tags)
    assert "http" not in text
    assert "prefers-color-scheme: dark" in text


def test_each_topic_has_a_curve_and_bars() -> None:
    outline = Outline(made(tables("a", "b")))

    assert outline.count("polyline") == 2
    assert outline.count("rect") == 2 * (3 + 1 + 2)
    assert outline.count("svg") == 4


def test_a_curve_ends_at_the_top_of_its_scale() -> None:
    outline = Outline(made(tables("a")))

    (curve,) = (attrs for tag, attrs in outline.tags if tag == "polyline")
    assert curve["points"] == "70.0,232.0 459.0,122.0 848.0,12.0"


def test_what_users_wrote_is_text() -> None:
    text = made(tables("<script>"))

    assert "<script>" not in text
    assert "&lt;k&gt;" in text


def test_of_many_topics_the_largest_are_plotted_and_all_are_listed() -> None:
    names = [f"t{number}" for number in range(SERIES_MAX + 3)]
    text = made(tables(*names))

    assert Outline(text).count("polyline") == SERIES_MAX
    assert all(f">{name}<" in text for name in names)


def test_a_single_point_is_seen_and_no_points_are_no_plot() -> None:
    table = tables("a")
    table["rates"] = table["rates"][:1]

    assert Outline(made(table)).count("circle") == 1
    assert Outline(made(tables())).count("svg") == 0


def test_the_command_reads_the_report_of_the_pipeline(tmp_path: Path) -> None:
    report = tmp_path / "traffic.json"
    report.write_text(json.dumps({"at": moment(5), "latency_is": "age", **tables("a")}))

    drawn = subprocess.run(
        [sys.executable, EXAMPLE, report], capture_output=True, text=True, check=True
    )

    assert Outline(drawn.stdout).count("svg") == 4
    assert "1 topics at 2026-03-01T12:05:00+00:00" in drawn.stdout

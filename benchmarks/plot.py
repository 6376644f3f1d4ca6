"""Draws the rates beside Kafka's as a picture: `python -m benchmarks.plot`.

Takes the samples that `make bench` kept in benchmarks/results/kafka.json, so that the picture of
docs/performance.md never has other figures than the results.
"""

import json
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.report import RESULTS

PICTURE = RESULTS.parent.parent / "docs" / "pictures" / "rates.svg"
PEERS = {"Millstream": "#2a7f9e", "Apache Kafka": "#b9b4a7"}
DURABILITY = "sync"  # Every record is on the disk before it is acknowledged.
SETTINGS = {
    "100 B, acks=all, 1 partition(s)": "100 B, 1 partition",
    "100 B, acks=all, 6 partition(s)": "100 B, 6 partitions",
    "1024 B, acks=all, 1 partition(s)": "1 KiB, 1 partition",
    "1024 B, acks=all, 6 partition(s)": "1 KiB, 6 partitions",
}
ACTS = {"produce_per_s": "produce", "consume_per_s": "consume"}

WIDTH, LABELS, FIGURES = 720, 200, 80
BAR, PAIR, TOP = 11, 34, 34
STYLE = "font-family='sans-serif' font-size='12' fill='#444'"


def rate(samples: list[dict[str, Any]], peer: str, act: str, setting: str) -> float:
    """The median of the rounds, as the tables of the results have it."""
    cell = (peer, act, setting, DURABILITY)
    return median(
        sample["value"]
        for sample in samples
        if (sample["peer"], sample["name"], sample["setting"], sample["durability"]) == cell
    )


def picture(samples: list[dict[str, Any]]) -> str:
    """Two bars for each cell, the longest as wide as there is room."""
    cells = [(act, setting) for act in ACTS for setting in SETTINGS]
    rates = {cell: {peer: rate(samples, peer, *cell) for peer in PEERS} for cell in cells}
    longest = max(value for pair in rates.values() for value in pair.values())
    height = TOP + PAIR * len(cells)
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' role='img'>"
    lines = [head, "<title>Records per second with fsync, Millstream and Apache Kafka</title>"]
    lines += _legend()
    for row, (act, setting) in enumerate(cells):
        lines += _row(row, f"{ACTS[act]} {SETTINGS[setting]}", rates[act, setting], longest)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    for at, (peer, colour) in enumerate(PEERS.items()):
        left = LABELS + at * 120
        yield f"<rect x='{left}' y='8' width='{BAR}' height='{BAR}' fill='{colour}'/>"
        yield f"<text x='{left + BAR + 6}' y='18' {STYLE}>{peer}</text>"


def _row(row: int, label: str, pair: dict[str, float], longest: float) -> Iterator[str]:
    top = TOP + row * PAIR
    yield f"<text x='{LABELS - 10}' y='{top + 15}' text-anchor='end' {STYLE}>{label}</text>"
    for at, (peer, colour) in enumerate(PEERS.items()):
        width = round((WIDTH - LABELS - FIGURES) * pair[peer] / longest)
        y = top + at * (BAR + 1)
        yield f"<rect x='{LABELS}' y='{y}' width='{width}' height='{BAR}' fill='{colour}'/>"
        text = f"{round(pair[peer], -3):,.0f}/s"
        yield f"<text x='{LABELS + width + 6}' y='{y + BAR - 1}' {STYLE}>{text}</text>"


def drawn() -> str:
    results = json.loads((RESULTS / "kafka.json").read_text(encoding="utf-8"))
    return picture(results["samples"])


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")

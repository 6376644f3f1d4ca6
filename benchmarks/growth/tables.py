"""The growth figures as tables, with the goals that some of them have."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks import report
from benchmarks.growth.curves import TITLES
from benchmarks.growth.series import DURABILITY, IDLE_SECONDS, SERIES, Point
from benchmarks.kafka.peers import MILLSTREAM
from benchmarks.report import keep, machine, number, table

# At most this, for our own broker: series, size, figure.
GOALS: Mapping[tuple[str, int, str], float] = {
    ("partitions", 3_000, "idle_cpu_percent"): 1.0,
    ("partitions", 20_000, "idle_cpu_percent"): 3.0,
    ("partitions", 3_000, "create_s"): 1.5,
    ("partitions", 3_000, "start_clean_s"): 1.5,
    ("partitions", 3_000, "start_killed_s"): 1.5,
    ("partitions", 3_000, "rss_mb"): 100.0,
}


def publish(
    points: Sequence[Point],
    *,
    command: str,
    versions: Mapping[str, str],
    circumstances: Mapping[str, str],
) -> None:
    """Print the tables and write them to `benchmarks/results/growth.{md,json}`.

    Series that were not measured now keep the points of their last run.
    """
    measured = {point.series for point in points}
    points = [*points, *(point for point in _kept() if point.series not in measured)]
    facts = machine() | dict(versions) | dict(circumstances)
    lines = ["# growth", "", f"`{command}`", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [f"- durability: {DURABILITY}, no fsync before an answer, on both sides"]
    lines += [f"- idle: over {IDLE_SECONDS:.0f} s, all threads of the broker"]
    for series in SERIES:
        own = [point for point in points if point.series == series.name]
        if own:
            lines += ["", f"## {series.name}", "", *_table(series.unit, own)]
    content = {"command": command, "machine": facts, "points": [asdict(p) for p in points]}
    keep("growth", "\n".join(lines) + "\n", content)


def _kept() -> list[Point]:
    path = report.RESULTS / "growth.json"
    if not path.exists():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Point(**point) for point in content["points"]]


def _table(unit: str, points: Sequence[Point]) -> list[str]:
    names = [name for name in TITLES if any(name in point.figures for point in points)]
    rows = []
    for point in points:
        if point.problem:
            rows.append([f"{point.size:,}", point.peer, point.problem, *[""] * (len(names) - 1)])
            continue
        rows.append([f"{point.size:,}", point.peer, *(_cell(point, name) for name in names)])
    return table([unit, "", *(TITLES[name] for name in names)], rows)


def _cell(point: Point, name: str) -> str:
    value = number(point.figures.get(name))
    goal = GOALS.get((point.series, point.size, name))
    if goal is None or point.peer != MILLSTREAM:
        return value
    is_met = point.figures[name] <= goal
    return f"{value} (≤ {goal:g} {'met' if is_met else '**missed**'})"

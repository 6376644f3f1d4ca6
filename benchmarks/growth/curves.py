"""Curves of the growth figures, as SVG files for the documents.

matplotlib is not a dependency: `make bench` installs it for itself.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.growth.series import Point, Series

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
TITLES = {
    "idle_cpu_percent": "CPU while idle, % of a core",
    "rss_mb": "memory, MB",
    "create_s": "create, s",
    "stop_s": "stop, s",
    "start_clean_s": "start after a clean stop, s",
    "start_killed_s": "start after kill -9, s",
    "join_s": "all members assigned, s",
    "accept_s": "accepted, s",
    "transaction_ms": "one transaction, ms",
    "p50_ms": "small produce beside it, p50 ms",
    "p99_ms": "small produce beside it, p99 ms",
}
COLORS = ("#1f6f8b", "#d1495b", "#7a7a7a")


def draw(series: Series, points: Sequence[Point], directory: Path = PICTURES) -> Path:
    """Draw every figure of a series over its sizes; returns the file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": series.name, "font.size": 8})
    from matplotlib import pyplot

    names = [name for name in TITLES if any(name in point.figures for point in points)]
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(3 * columns, 2.3 * rows), squeeze=False, layout="constrained"
    )
    for place, axis in enumerate(axes.flat):
        if place >= len(names):
            axis.set_visible(False)
            continue
        name = names[place]
        for color, peer in zip(COLORS, _peers(points), strict=False):
            line = [(p.size, p.figures[name]) for p in points if p.peer == peer and p.figures]
            axis.plot(*zip(*line, strict=True), marker="o", markersize=3, color=color, label=peer)
        axis.set(title=TITLES[name], xlabel=series.unit, xscale="log", ylim=(0, None))
        axis.grid(visible=True, alpha=0.3)
    axes.flat[0].legend(frameon=False)
    path = directory / f"growth-{series.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _peers(points: Iterable[Point]) -> list[str]:
    """Return the peers that have figures, in the order of their points."""
    return list(dict.fromkeys(point.peer for point in points if point.figures))

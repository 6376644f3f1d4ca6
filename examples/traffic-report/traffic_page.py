"""Draws the report of the ready-made pipeline `traffic` as one HTML page with plots in SVG.

    python traffic_page.py report/traffic.json > traffic.html

The input is the `traffic.json` that the pipeline writes to its `output` directory. The page needs
no other file. Colours are variables of its style, so plots are readable in light and in dark.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TypeAlias

Row: TypeAlias = Mapping[str, object]

SERIES_MAX = 6  # As many colours as one can tell apart; the largest topics get one.

_WIDTH, _HEIGHT = 860, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 12, 12, 28
_BAR, _LABEL = 20, 240  # Height of a bar with its gap, width of its label.

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5d6670; --line: #d8dde2; --page: #fff;
  --c0: #2563b8; --c1: #c2530a; --c2: #12805c; --c3: #8b3fb0; --c4: #b3261e; --c5: #6b6a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa4ae; --line: #3a424a;
  --page: #15181b; --c0: #6ea8f0; --c1: #f09a5a; --c2: #55c79d; --c3: #c792e6; --c4: #f2877f;
  --c5: #cfcb4a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; } p { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } .text { text-align: left; }
svg { width: 100%; height: auto; display: block; margin: .5rem 0; }
svg text { fill: var(--soft); font-size: 12px; } svg .name { fill: var(--ink); }
.grid { stroke: var(--line); } .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .4em 0 1em; }
"""


def page(tables: Mapping[str, Sequence[Row]], *, latency_is: str, at: str) -> str:
    """Return the page. `tables` are the tables of `traffic.json`, each a list of rows."""
    topics = [str(row["topic"]) for row in tables["topics"]]
    by_size = sorted(tables["topics"], key=lambda row: -_number(row["records"]))
    shown = [str(row["topic"]) for row in by_size[:SERIES_MAX]]
    colours = {topic: index for index, topic in enumerate(shown)}
    plotted = f" Plotted are the {SERIES_MAX} largest." if len(topics) > SERIES_MAX else ""
    heading = (
        f"{len(topics)} topics at {at}.{plotted}" if topics else f"There are no records, at {at}."
    )
    meanings = {
        "latency": "From when a record was sent to the time that it carries, in ms.",
        "age": "From the time that a record carries to the time of this report, in ms.",
    }
    sections = [
        _section("Topics", "", "", tables["topics"]),
        _section("Rates", "Records per second.", _curves(tables["rates"], colours), ()),
        _section(
            latency_is.capitalize(),
            meanings[latency_is],
            _bars(_latency_bars(tables["latency"], colours)),
            tables["latency"],
        ),
        _section(
            "Partitions",
            "Share of a topic's records in each of its partitions.",
            _bars(_share_bars(tables["partitions"], "partition", colours)),
            tables["partitions"],
        ),
        _section(
            "Keys",
            "Share of a topic's records with its most frequent keys.",
            _bars(_share_bars(tables["keys"], "key", colours)),
            tables["keys"],
        ),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Traffic</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>Traffic</h1>\n"
        f"<p>{escape(heading)}{_legend(colours)}</p>\n{''.join(sections)}</body>\n</html>\n"
    )


# -- parts -----------------------------------------------------------------------------------------


def _section(title: str, text: str, plot: str, rows: Sequence[Row]) -> str:
    about = f"<p>{escape(text)}</p>\n" if text else ""
    return f"<section>\n<h2>{escape(title)}</h2>\n{about}{plot}{_table(rows)}</section>\n"


def _legend(colours: Mapping[str, int]) -> str:
    return "".join(
        f'<span class="key" style="background:var(--c{index})"></span>{escape(topic)}'
        for topic, index in colours.items()
    )


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    is_text = {name: any(isinstance(row[name], str) for row in rows) for name in names}
    kind = {name: ' class="text"' if is_text[name] else "" for name in names}
    head = "".join(f"<th{kind[name]}>{escape(name.replace('_', ' '))}</th>" for name in names)
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind[name]}>{escape(_shown(row[name]))}</td>" for name in names)
        + "</tr>\n"
        for row in rows
    )
    return f'<div class="wide"><table>\n<tr>{head}</tr>\n{body}</table></div>\n'


# -- plots -----------------------------------------------------------------------------------------


def _curves(rows: Sequence[Row], colours: Mapping[str, int]) -> str:
    """A line for each topic over time."""
    points = [
        (str(row["topic"]), _moment(row["time"]), _number(row["records_per_second"]))
        for row in rows
        if row["topic"] in colours
    ]
    if not points:
        return ""
    first, last = min(at for _, at, _ in points), max(at for _, at, _ in points)
    top = _round_up(max(rate for _, _, rate in points))
    across = (_WIDTH - _LEFT - _RIGHT) / max(last - first, 1e-9)
    down = (_HEIGHT - _TOP - _BOTTOM) / top

    def place(at: float, rate: float) -> tuple[float, float]:
        return round(_LEFT + (at - first) * across, 1), round(_HEIGHT - _BOTTOM - rate * down, 1)

    parts = _axes(top, first, last)
    for topic, index in colours.items():
        mine = sorted(place(at, rate) for name, at, rate in points if name == topic)
        path = " ".join(f"{x},{y}" for x, y in mine)
        stroke = f'style="stroke:var(--c{index})"'
        title = f"<title>{escape(topic)}</title>"
        if len(mine) == 1:  # A line of one point is not seen.
            x, y = mine[0]
            fill = f'style="fill:var(--c{index})"'
            parts.append(f'<circle cx="{x}" cy="{y}" r="4" {fill}>{title}</circle>')
        elif mine:
            parts.append(f'<polyline class="curve" {stroke} points="{path}">{title}</polyline>')
    return _svg(_HEIGHT, parts, "records per second over time")


def _axes(top: float, first: float, last: float) -> list[str]:
    parts = []
    for step in range(5):
        rate = top * step / 4
        y = round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * step / 4, 1)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{_shown(rate)}</text>')
    ends = [(_LEFT, "start", first), (_WIDTH - _RIGHT, "end", last)]
    for x, anchor, at in ends[: 1 if first == last else 2]:
        text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        parts.append(f'<text x="{x}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{text}</text>')
    return parts


def _bars(bars: Sequence[tuple[str, float, str, int]]) -> str:
    """Bars from left to right: label, length, text at the end, colour."""
    if not bars:
        return ""
    longest = max(length for _, length, _, _ in bars) or 1.0
    room = _WIDTH - _LABEL - 90
    parts = []
    for index, (label, length, text, colour) in enumerate(bars):
        y = index * _BAR
        width = round(max(room * length / longest, 1), 1)
        parts.append(
            f'<text class="name" x="{_LABEL - 8}" y="{y + 14}" text-anchor="end">'
            f"{escape(label)}</text>"
            f'<rect x="{_LABEL}" y="{y + 3}" width="{width}" height="{_BAR - 6}" rx="2" '
            f'style="fill:var(--c{colour})"/>'
            f'<text x="{_LABEL + width + 6}" y="{y + 14}">{escape(text)}</text>'
        )
    return _svg(len(bars) * _BAR, parts, "bars")


def _latency_bars(
    rows: Sequence[Row], colours: Mapping[str, int]
) -> list[tuple[str, float, str, int]]:
    return [
        (_label(row, name), max(0.0, length), f"{_shown(length)} ms", index)
        for row in rows
        if (index := colours.get(str(row["topic"]))) is not None
        for name in ("p50", "p90", "p99")
        for length in (_number(row[f"ms_{name}"]),)
    ]


def _share_bars(
    rows: Sequence[Row], of: str, colours: Mapping[str, int]
) -> list[tuple[str, float, str, int]]:
    return [
        (
            _label(row, row[of]),
            _number(row["share"]),
            f"{_number(row['share']):.1%}",
            index,
        )
        for row in rows
        if (index := colours.get(str(row["topic"]))) is not None
    ]


def _svg(height: int, parts: Sequence[str], label: str) -> str:
    inside = "\n".join(parts)
    size = f'viewBox="0 0 {_WIDTH} {height}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">\n{inside}\n</svg>\n'


# -- numbers and words -----------------------------------------------------------------------------

_LABEL_LENGTH_MAX = 34


def _number(cell: object) -> float:
    assert isinstance(cell, int | float)
    return float(cell)


def _moment(cell: object) -> float:
    return datetime.fromisoformat(str(cell)).timestamp()


def _round_up(number: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 and so on, up and down."""
    if number <= 0:
        return 1.0
    base = 10.0 ** math.floor(math.log10(number))
    return next(base * nice for nice in (1, 2, 5, 10) if number <= base * nice * (1 + 1e-9))


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 or cell == int(cell) else f"{cell:,.3g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _label(row: Row, of: object) -> str:
    """A topic and its part, both cut if long: the end tells bars of one topic apart."""
    part = _cut("(no key)" if of is None else str(of), _LABEL_LENGTH_MAX // 2)
    return f"{_cut(str(row['topic']), _LABEL_LENGTH_MAX - len(part) - 1)} {part}"


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python traffic_page.py traffic.json > traffic.html")
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    at = datetime.fromisoformat(report["at"]).isoformat(timespec="seconds")
    sys.stdout.write(page(report, latency_is=report["latency_is"], at=at))


if __name__ == "__main__":
    main()

"""How results are printed and kept: a table for people, the same as JSON for comparisons."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.kafka.comparison import Goal

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: what was measured, in which unit, against which goal."""

    name: str
    value: float
    unit: str
    settings: str
    goal: str = ""
    is_met: bool | None = None


def machine() -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "file system": _file_system(),
        "commit": _commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def publish(part: str, command: str, figures: list[Figure]) -> None:
    """Print the figures and write them to `benchmarks/results/<part>.{json,md}`."""
    facts = machine()
    lines = [f"# {part}", "", f"`{command}`", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "| measured | | settings | goal |", "|---|---|---|---|"]
    for figure in figures:
        verdict = {True: " (met)", False: " (missed)", None: ""}[figure.is_met]
        value = f"{figure.value:,.2f}" if figure.value < 100 else f"{figure.value:,.0f}"
        lines.append(
            f"| {figure.name} | {value} {figure.unit} | {figure.settings} "
            f"| {figure.goal}{verdict} |"
        )
    content = {"command": command, "machine": facts, "figures": [asdict(f) for f in figures]}
    keep(part, "\n".join(lines) + "\n", content, indent=2)


def keep(part: str, text: str, content: Mapping[str, object], *, indent: int = 1) -> None:
    """Print a text and write it and its content to `benchmarks/results/<part>.{md,json}`."""
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{part}.md").write_text(text, encoding="utf-8")
    said = json.dumps(content, indent=indent) + "\n"
    (RESULTS / f"{part}.json").write_text(said, encoding="utf-8")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def verdict(goal: Goal | None) -> str:
    if goal is None:
        return ""
    return f"{goal.text} {'met' if goal.is_met else '**missed**'}"


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _file_system() -> str:
    return subprocess.run(
        ["df", "--output=fstype", "."], capture_output=True, text=True, check=False
    ).stdout.split()[-1]


def _commit() -> str:
    return subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()

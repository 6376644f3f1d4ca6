"""What the documents show: commands with their output, and programs, in the order of the page."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.source_tree import ROOT

STEP_SECONDS_MAX = 240  # A step may start Spark.


class Step(NamedTuple):
    """A command of a `console` block, and what the document says it prints."""

    command: str
    output: str


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(text: str, kind: str) -> list[str]:
    """The fenced blocks of that kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Program(NamedTuple):
    """A `python` block, and what the `text` block right behind it says that it prints."""

    code: str
    output: str | None


_FENCED = re.compile(
    r"^```(?P<kind>console|python)\n(?P<body>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```)?",
    re.MULTILINE | re.DOTALL,
)


def plot(text: str) -> list[Step | Program]:
    """The commands and programs of a page, in order."""
    acts: list[Step | Program] = []
    for fenced in _FENCED.finditer(text):
        if fenced["kind"] == "console":
            acts += steps(fenced[0])
        else:
            acts.append(Program(fenced["body"], fenced["output"]))
    return acts


def steps(text: str) -> list[Step]:
    """The commands of all `console` blocks, in order."""
    collected = []
    for block in blocks(text, "console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            collected.append(Step(command, output))
    return collected


def carried_out(step: Step, *, directory: Path, environment: Mapping[str, str]) -> Step:
    """The same step with what it really prints, on either stream."""
    result = subprocess.run(
        ["/bin/sh", "-c", step.command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory,
        env=environment,
        timeout=STEP_SECONDS_MAX,
        check=False,
    )
    return Step(step.command, result.stdout)

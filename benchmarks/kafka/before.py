"""One commit beside an earlier one: a ratio for every cell, in which 1 is no change.

A rate or a latency is noisy on a shared machine; the broker's CPU time for a record is less so.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.kafka.cells import Run
from benchmarks.kafka.comparison import Samples
from benchmarks.kafka.peers import BEFORE, MILLSTREAM, Durability
from benchmarks.report import keep, machine, number, table

RATIO_MIN = 0.98  # Of what it was before.


def publish_before(
    run: Run,
    durabilities: Sequence[Durability],
    *,
    command: str,
    part: str,
    circumstances: Mapping[str, str],
) -> None:
    """Print the ratios and write them to `benchmarks/results/<part>.{md,json}`."""
    facts = machine() | circumstances  # type: ignore[operator]
    versions = {peer.name: peer.version for peer in run.peers}
    lines = ["# before and after", "", f"`{command}`", ""]
    lines += [f"- {name}: {value}" for name, value in (facts | versions).items()]
    lines += [f"- failed: {failure}" for failure in run.failures]
    lines += ["", f"Better is above 1; below {RATIO_MIN} is marked.", ""]
    lines += table(
        ["measured", "before", "after", "ratio", "rounds", ""],
        [
            row
            for durability in dict.fromkeys(sample.durability for sample in run.samples.all)
            for row in _rows(run.samples, durability)
        ],
    )
    content = {
        "command": command,
        "machine": facts,
        "versions": versions,
        "plan": asdict(run.plan),
        "failures": run.failures,
        "samples": [asdict(sample) for sample in run.samples.all],
    }
    keep(part, "\n".join(lines) + "\n", content)


def _rows(samples: Samples, durability: str) -> list[list[str]]:
    names = dict.fromkeys(
        sample.name
        for sample in samples.all
        if sample.durability == durability and not sample.name.endswith("_busy")
    )
    rows = []
    for name in names:
        for setting in samples.settings(durability, name):
            after = samples.rounds(MILLSTREAM, durability, setting, name)
            before = samples.rounds(BEFORE, durability, setting, name)
            common = sorted(number for number in after.keys() & before.keys() if before[number])
            if not common or not all(after[number] for number in common):
                continue
            ratios = [after[number] / before[number] for number in common]
            if not name.endswith("_per_s"):  # Of times and sizes, less is better.
                ratios = [1 / ratio for ratio in ratios]
            ratio = statistics.median(ratios)
            rows.append(
                [
                    f"{name}, {durability}, {setting}" if setting else f"{name}, {durability}",
                    number(samples.median(BEFORE, durability, setting, name)),
                    number(samples.median(MILLSTREAM, durability, setting, name)),
                    f"{ratio:.2f}",
                    f"{min(ratios):.2f} to {max(ratios):.2f}",
                    "" if ratio >= RATIO_MIN else "**below**",
                ]
            )
    return rows

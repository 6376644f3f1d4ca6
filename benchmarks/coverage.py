"""`python -m benchmarks.coverage FILE`: publish the share of lines that the fast tests run.

FILE is the JSON report of coverage.py. The result is a row for each package of `src/millstream`.
"""

import json
import sys
from collections import Counter
from pathlib import Path, PurePath

from benchmarks.report import Figure, publish

SOURCE = PurePath("src/millstream")


def figures(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> list[Figure]:
    """The whole first, then each package, the one with the least covered lines first."""
    covered: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for name, file in report["files"].items():
        package = PurePath(name).relative_to(SOURCE).parts[0].removesuffix(".py")
        for key in ("all of src/millstream", package):
            covered[key] += file["summary"]["covered_lines"]
            lines[key] += file["summary"]["num_statements"]
    shares = {key: 100 * covered[key] / count for key, count in lines.items() if count}
    total = shares.pop("all of src/millstream")
    rows = [("all of src/millstream", total), *sorted(shares.items(), key=lambda row: row[1])]
    return [
        Figure(key, share, "% of lines", f"{lines[key]:,} statements; tests: the fast tier")
        for key, share in rows
    ]


if __name__ == "__main__":
    publish(
        "coverage",
        "make coverage",
        figures(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))),
    )

"""Rows as lines of CSV (RFC 4180)."""

import csv
from collections.abc import Iterable, Sequence


class _Lines:
    """A file that the csv module writes to."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        self.parts.append(text)
        return len(text)


def csv_lines(rows: Iterable[Sequence[object]]) -> bytes:
    lines = _Lines()
    csv.writer(lines).writerows(rows)
    return "".join(lines.parts).encode()

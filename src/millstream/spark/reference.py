"""The tables of docs/spark/migrating.md and docs/spark/versions.md, made from the code."""

from collections.abc import Iterable

from millstream.spark.options.migration import (
    CONNECTION,
    CONSUMER,
    PRODUCER,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    Setting,
)
from millstream.spark.versions import FEATURES, SUPPORTED, spell

_PARTS: dict[str, tuple[str, tuple[Setting, ...]]] = {
    "Options of the source": ("", SOURCE_OPTIONS),
    "Options of the sink": ("", SINK_OPTIONS),
    "Settings of connections": ("kafka.", CONNECTION),
    "Settings of Kafka's consumer": ("kafka.", CONSUMER),
    "Settings of Kafka's producer": ("kafka.", PRODUCER),
}


def migration() -> str:
    return "\n\n".join(
        f"### {title}\n\n" + _table(prefix, settings)
        for title, (prefix, settings) in _PARTS.items()
    )


def versions() -> str:
    names = [spell(version) for version in SUPPORTED]
    lines = [f"| | {' | '.join(names)} | where not |", f"|---|{'---|' * len(names)}---|"]
    for feature in FEATURES:
        cells = ["yes" if feature.works_in(version) else "no" for version in SUPPORTED]
        lines.append(f"| {feature.name} | {' | '.join(cells)} | {feature.otherwise} |")
    return "\n".join(lines)


def _table(prefix: str, settings: Iterable[Setting]) -> str:
    """A row for all settings that have the same treatment and note."""
    alike: dict[tuple[str, str], list[str]] = {}
    for setting in settings:
        alike.setdefault((setting.treatment.value, setting.note), []).append(setting.name)
    lines = ["| option | | note |", "|---|---|---|"]
    for (treatment, note), names in alike.items():
        spelled = ", ".join(f"`{prefix}{name}`" for name in names)
        lines.append(f"| {spelled} | {treatment} | {note.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)

"""Compatibility levels: which versions a new schema is compared with, and in which direction."""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from millstream.schemas.definition import Difference, Schema


class Level(Enum):
    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def has_new_readers(self) -> bool:
        """The new schema must read what the old ones wrote."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def has_old_readers(self) -> bool:
        """The old schemas must read what the new one writes."""
        return self.value.startswith(("FORWARD", "FULL"))


class Earlier(NamedTuple):
    version: int
    schema: Schema
    text: str


class Breach(NamedTuple):
    """Why a new schema is refused: what breaks, against which version, for whom."""

    version: int
    text: str
    differences: Sequence[Difference]
    are_old_readers: bool

    def messages(self) -> Iterator[str]:
        """As registry clients print it, one line for each difference."""
        reader, writer = ("old", "new") if self.are_old_readers else ("new", "old")
        for difference in self.differences:
            yield difference.text(reader=reader, writer=writer)


def breaches(
    new: Schema, earlier: Sequence[Earlier], level: Level, *, is_lenient: bool = False
) -> Iterator[Breach]:
    """What `level` forbids, against the latest version or all of them; `earlier` is in order.

    Lazy: a caller that must not take long takes one version at a time.
    """
    compared = earlier if level.is_transitive else earlier[-1:]
    for old in reversed(compared):
        if level.has_new_readers:
            broken = _broken(new.differences(old.schema), is_lenient=is_lenient)
            if broken:
                yield Breach(old.version, old.text, broken, are_old_readers=False)
        if level.has_old_readers:
            broken = _broken(old.schema.differences(new), is_lenient=is_lenient)
            if broken:
                yield Breach(old.version, old.text, broken, are_old_readers=True)


def verbose(refused: Iterable[Breach], level: Level) -> list[str]:
    """The messages of a refused check, with the old schema and the level at the end."""
    lines: list[str] = []
    for breach in refused:
        lines += breach.messages()
        lines += [f"{{oldSchemaVersion: {breach.version}}}", f"{{oldSchema: '{breach.text}'}}"]
    if lines:
        lines.append(f"{{compatibility: '{level.value}'}}")
    return lines


def _broken(differences: Sequence[Difference], *, is_lenient: bool) -> list[Difference]:
    return [
        each for each in differences if each.breaks and not (is_lenient and each.passes_lenient)
    ]

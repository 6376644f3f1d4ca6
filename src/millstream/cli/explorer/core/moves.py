"""Plans the move of a group's offsets, and words the plan that is confirmed before it is done.

Owns reading `PLACE [TOPIC...]`, keeping goals inside of what a partition has, and the lines of
the question. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from millstream.cli.options import parse_place
from millstream.client import StartPoint, TopicPartition

MOVES_SHOWN_MAX = 10
PLACES = "earliest, latest, an offset, a time such as 2026-05-01T12:00:00Z, or an age such as 15m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition of a group; `before` is None where it has committed nothing."""

    at: TopicPartition
    before: int | None
    after: int

    def __str__(self) -> str:
        start = "-" if self.before is None else f"{self.before:,}"
        return f"{self.at}: {start} → {self.after:,}{self._meaning}"

    @property
    def _meaning(self) -> str:
        if self.before is None or self.before == self.after:
            return ""
        count = abs(self.after - self.before)
        return f"  ({count:,} {'skipped' if self.after > self.before else 'again'})"


def plan(
    goals: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[Move]:
    """The moves to `goals`, each no further than its partition goes."""
    return [
        Move(at=at, before=committed.get(at), after=min(max(goal, begins[at]), ends[at]))
        for at, goal in sorted(goals.items())
    ]


def lines(moves: Sequence[Move]) -> str:
    shown = [str(move) for move in moves[:MOVES_SHOWN_MAX]]
    if len(moves) > MOVES_SHOWN_MAX:
        shown.append(f"… and {len(moves) - MOVES_SHOWN_MAX:,} more partitions")
    return "\n".join(shown)


def read_place(text: str, *, now: datetime) -> StartPoint:
    """A place as it was typed; `ValueError` with a sentence if it is none."""
    try:
        return parse_place(text.strip(), now=now)
    except (ValueError, OverflowError):
        raise ValueError(f"{text.strip()!r} is not {PLACES}.") from None


def read_target(text: str, *, now: datetime) -> tuple[StartPoint, tuple[str, ...]]:
    """`PLACE [TOPIC...]`: a place, and the topics it is for."""
    place, *topics = text.split() or [""]
    return read_place(place, now=now), tuple(topics)

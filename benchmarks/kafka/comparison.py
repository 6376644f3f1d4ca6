"""From rounds to verdicts: medians, ratios taken within a round, goals met or missed.

Pure: knows no broker and no clock. A ratio is the median of the rounds' ratios, because what
disturbs a machine for a minute disturbs both sides of the same round.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RATIO_GOAL = 1.2
COMPILED_PRODUCE_1_KIB_GOAL = 1.3
FIRST_ACK_SECONDS_GOAL = 1.0
IDLE_RSS_MB_GOAL = 80.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of one trial. `setting` is what both sides have in common, as text."""

    peer: str
    durability: str
    setting: str
    name: str
    round: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a value must be: a bound of its own, or better than a rival's by a factor."""

    text: str
    is_met: bool


class Samples:
    """All values of a run, asked for by what they measure."""

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.all = list(samples)

    def add(self, sample: Sample) -> None:
        self.all.append(sample)

    def rounds(self, peer: str, durability: str, setting: str, name: str) -> dict[int, float]:
        key = (peer, durability, setting, name)
        return {
            sample.round: sample.value
            for sample in self.all
            if (sample.peer, sample.durability, sample.setting, sample.name) == key
        }

    def median(self, peer: str, durability: str, setting: str, name: str) -> float | None:
        values = self.rounds(peer, durability, setting, name).values()
        return statistics.median(values) if values else None

    def ratio(
        self, ours: str, theirs: str, durability: str, setting: str, name: str
    ) -> float | None:
        """The median of ours / theirs over the rounds that both finished."""
        our_rounds = self.rounds(ours, durability, setting, name)
        their_rounds = self.rounds(theirs, durability, setting, name)
        common = our_rounds.keys() & their_rounds.keys()
        if not common:
            return None
        return statistics.median(our_rounds[number] / their_rounds[number] for number in common)

    def settings(self, durability: str, name: str) -> list[str]:
        """What was measured under `name`, in the order in which it was first measured."""
        return list(
            dict.fromkeys(
                sample.setting
                for sample in self.all
                if (sample.durability, sample.name) == (durability, name)
            )
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank)."""
    assert ordered
    assert 0 < share <= 1
    return ordered[math.ceil(share * len(ordered)) - 1]


def at_least(ratio: float | None, factor: float = RATIO_GOAL) -> Goal | None:
    """The goal of a rate: so many times the rival's."""
    return None if ratio is None else Goal(text=f">= {factor}x", is_met=ratio >= factor)


def below(value: float | None, bound: float | None, text: str) -> Goal | None:
    """The goal of a latency or a size."""
    if value is None or bound is None:
        return None
    return Goal(text=text, is_met=value < bound)

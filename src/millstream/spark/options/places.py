"""Reads the options that name topics, offsets and times: what a query reads, from where to where.

Pure. Owns the four ways to name partitions and the five ways to name a position in them, by the
rules of Spark's Kafka connector.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from millstream.model import TopicPartition
from millstream.spark.errors import InvalidOption
from millstream.spark.options.subjects import OPTION as SUBJECTS
from millstream.spark.options.subjects import Subjects, subjects

LATEST, EARLIEST = -1, -2  # As in JSON offsets, and in Kafka's ListOffsets.

T = TypeVar("T")

# -- what to read ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Topics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    expression: str

    def matches(self, topic: str) -> bool:
        return re.fullmatch(self.expression, topic) is not None


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Topics | Pattern | Assigned | Subjects

# -- from where to where ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The same for all partitions: `EARLIEST` or `LATEST`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The group's committed offsets; `fallback` for partitions without one."""

    fallback: int


@dataclass(frozen=True, slots=True)
class Specific:
    offsets: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after this time, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    timestamps_ms: dict[TopicPartition, int]


Place: TypeAlias = Everywhere | Committed | Specific | AtTime | AtTimes


def subscription(options: Mapping[str, str]) -> Subscription:
    names = ("subscribe", "subscribePattern", "assign", SUBJECTS)
    used = [name for name in names if name.lower() in options]
    if len(used) != 1:
        problem = "one of these options must be specified" if not used else "only one may be used"
        raise InvalidOption(f"{problem}: {', '.join(names)}")
    text = options[used[0].lower()].strip()
    if used == ["subscribe"]:
        topics = tuple(dict.fromkeys(t for t in (t.strip() for t in text.split(",")) if t))
        if not topics:
            raise InvalidOption(f"subscribe is {text!r}, expected topics: a,b")
        return Topics(topics)
    if used == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as problem:
            raise InvalidOption(f"subscribePattern is no regular expression: {problem}") from None
        if not text:
            raise InvalidOption("subscribePattern is empty")
        return Pattern(text)
    return subjects(text) if used == [SUBJECTS] else _assigned(text)


def _assigned(text: str) -> Assigned:
    example = '{"topic": [0, 1]}'
    topics = _json_object("assign", text, example)
    partitions = []
    for topic, numbers in topics.items():
        if not isinstance(numbers, list) or not all(_is_whole(number) for number in numbers):
            raise InvalidOption(f"assign is {text!r}, expected {example}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise InvalidOption(f"assign is {text!r}, expected {example}")
    return Assigned(tuple(sorted(set(partitions))))


# -- places ----------------------------------------------------------------------------------------


def starting(options: Mapping[str, str], *, is_streaming: bool) -> Place:
    timed = _timed(options, "startingTimestamp", "startingOffsetsByTimestamp")
    text = options.get("startingoffsets", "latest" if is_streaming else "earliest").strip()
    is_committed = timed is None and text.lower() == "committed"
    if "startingoffsetsfallback" in options and not is_committed:
        raise InvalidOption(
            "startingOffsetsFallback means nothing unless startingOffsets=committed"
        )
    if timed is not None:
        return timed
    named = {"earliest": EARLIEST, "latest": LATEST}
    if is_committed:
        fallback = choice(options, "startingOffsetsFallback", named, "earliest")
        if fallback == LATEST and not is_streaming:
            raise InvalidOption("startingOffsetsFallback can't be latest for batch queries")
        return Committed(fallback)
    place = _named_or_specific("startingOffsets", text, named)
    is_latest = place == Everywhere(LATEST) or (
        isinstance(place, Specific) and LATEST in place.offsets.values()
    )
    if is_latest and not is_streaming:
        raise InvalidOption("startingOffsets can't be latest for batch queries")
    return place


def ending(options: Mapping[str, str]) -> Place:
    timed = _timed(options, "endingTimestamp", "endingOffsetsByTimestamp")
    if timed is not None:
        return timed
    text = options.get("endingoffsets", "latest").strip()
    if text.lower() == "earliest":
        raise InvalidOption("endingOffsets can't be earliest")
    place = _named_or_specific("endingOffsets", text, {"latest": LATEST})
    if isinstance(place, Specific) and EARLIEST in place.offsets.values():
        raise InvalidOption("endingOffsets can't be earliest (-2) in any partition")
    return place


def _timed(options: Mapping[str, str], same: str, each: str) -> Place | None:
    if same.lower() in options:
        return AtTime(_timestamp(same, options[same.lower()]))
    if each.lower() in options:
        times = _per_partition(each, options[each.lower()], '{"topic": {"0": 1700000000000}}')
        if any(ms < 0 for ms in times.values()):
            raise InvalidOption(f"{each} has a negative time")
        return AtTimes(times)
    return None


def _named_or_specific(name: str, text: str, named: Mapping[str, int]) -> Place:
    if text.lower() in named:
        return Everywhere(named[text.lower()])
    offsets = _per_partition(name, text, f'{", ".join(named)} or {{"topic": {{"0": 23}}}}')
    if any(offset < EARLIEST for offset in offsets.values()):
        raise InvalidOption(f"{name} has an offset below -2")
    return Specific(offsets)


def _per_partition(name: str, text: str, example: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text, example).items():
        if not isinstance(partitions, dict):
            raise InvalidOption(f"{name} is {text!r}, expected {example}")
        for partition, number in partitions.items():
            if not partition.isdecimal() or not _is_whole(number):
                raise InvalidOption(f"{name} is {text!r}, expected {example}")
            offsets[TopicPartition(topic, int(partition))] = number
    return offsets


def choice(options: Mapping[str, str], name: str, choices: Mapping[str, T], default: str) -> T:
    text = options.get(name.lower(), default).strip().lower()
    if text not in choices:
        raise InvalidOption(f"{name} is {text!r}, expected one of {', '.join(choices)}")
    return choices[text]


def _timestamp(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidOption(f"{name} is {text!r}, expected milliseconds since 1970")
    return int(text)


def _json_object(name: str, text: str, example: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError:
        raise InvalidOption(f"{name} is {text!r}, expected {example}") from None
    if not isinstance(parsed, dict):
        raise InvalidOption(f"{name} is {text!r}, expected {example}")
    return parsed


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)

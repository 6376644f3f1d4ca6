"""The orders of the demonstration, and the expected outcome of each. Pure.

Owns the names of the topics, which `orders.yml` shares, and the counts that prove that every order
arrived exactly once. One order in each hundred weighs nothing and is put aside.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream.client import Message
from millstream.demo.events import Item, Results
from millstream.demo.failures import DemoFailed
from millstream.names import DLQ_REASON_HEADER, DLQ_TOPIC_SUFFIX

ORDERS, VALID, PUT_ASIDE, BY_MINUTE = (
    "orders",
    "orders.valid",
    f"orders{DLQ_TOPIC_SUFFIX}",
    "orders-by-minute",
)
ITEMS = ("flour", "oats", "rye", "spelt")
BAD_EVERY = 100
_FIRST = datetime(2026, 1, 1, 12, tzinfo=UTC)
_SECONDS = 3600  # The orders of the tour are of one hour, over and over.


def order(number: int, at: datetime | None = None) -> str:
    """The order of that number; `at` some time, or else one that follows from the number."""
    when = _FIRST + timedelta(seconds=number % _SECONDS) if at is None else at
    return json.dumps(
        {
            "id": number,
            "item": ITEMS[number % len(ITEMS)],
            "kg": 0 if number % BAD_EVERY == 0 else 1 + number % 50,
            "at": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    )


def results(letters: Iterable[Message], figures: Iterable[Message]) -> Results:
    """Add up the dead letters and the figures of windows."""
    reasons = Counter((letter.header(DLQ_REASON_HEADER) or b"?").decode() for letter in letters)
    # An update of a window replaces the one before it: the last one counts.
    windows: dict[tuple[str, str], dict[str, Any]] = {}  # JSON, as the pipeline spells it.
    for message in figures:
        figure = json.loads(message.value)
        windows[figure["window_start"], figure["item"]] = figure
    return Results(
        reasons=dict(reasons),
        window_count=len(windows),
        items=tuple(
            Item(
                item=item,
                orders=sum(
                    window["orders"] for window in windows.values() if window["item"] == item
                ),
                kg=sum(window["kg"] for window in windows.values() if window["item"] == item),
            )
            for item in ITEMS
        ),
    )


def check_results(results: Results, count: int) -> None:
    """Raise unless every order was either added up or put aside."""
    bad = bad_count(count)
    added, aside = sum(item.orders for item in results.items), sum(results.reasons.values())
    if (added, aside) != (count - bad, bad):
        raise DemoFailed(f"{added:,} orders were added up and {aside:,} put aside, of {count:,}")


def check_found(numbers_by_topic: Mapping[str, list[int]], count: int) -> None:
    """Raise unless every order is there exactly once: as it came, and as good or as bad."""
    everything = range(count)
    bad = set(everything[::BAD_EVERY])
    expected = {ORDERS: everything, VALID: [n for n in everything if n not in bad], PUT_ASIDE: bad}
    for topic, numbers in numbers_by_topic.items():
        if sorted(numbers) != sorted(expected[topic]):
            raise DemoFailed(
                f"{topic} has {len(numbers):,} orders, {len(set(numbers)):,} different ones, "
                f"instead of {len(expected[topic]):,}"
            )


def bad_count(count: int) -> int:
    return len(range(0, count, BAD_EVERY))


def number_of(message: Message) -> int:
    return int(json.loads(message.value)["id"])

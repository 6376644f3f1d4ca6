"""The books of the demonstration: what is missing, doubled or in the wrong place is found."""

import json

import pytest

from millstream.client import Message
from millstream.demo import DemoFailed
from millstream.demo.orders import (
    BAD_EVERY,
    BY_MINUTE,
    ITEMS,
    ORDERS,
    PUT_ASIDE,
    VALID,
    bad_count,
    check_found,
    check_results,
    number_of,
    order,
    results,
)
from millstream.demo.pipeline import FILE, FLOWS
from millstream.names import DLQ_REASON_HEADER
from tests.support.source_tree import SOURCE

COUNT = 250
NUMBERS = list(range(COUNT))
BAD = NUMBERS[::BAD_EVERY]
GOOD = [number for number in NUMBERS if number not in BAD]


def message(topic: str, value: str, *headers: tuple[str, bytes]) -> Message:
    return Message(
        topic=topic,
        partition=0,
        offset=0,
        timestamp_ms=0,
        key=None,
        value=value.encode(),
        headers=headers,
    )


def letters(count: int) -> list[Message]:
    return [
        message(PUT_ASIDE, order(0), (DLQ_REASON_HEADER, b"weighs something")) for _ in range(count)
    ]


def window(start: str, item: str, count: int) -> Message:
    figure = {"window_start": start, "item": item, "orders": count, "kg": 2.0 * count}
    return message(BY_MINUTE, json.dumps(figure))


def test_one_order_in_a_hundred_weighs_nothing() -> None:
    weights = [json.loads(order(number))["kg"] for number in NUMBERS]

    assert [number for number, kg in enumerate(weights) if kg == 0] == BAD
    assert bad_count(COUNT) == len(BAD)


def test_an_order_says_its_number() -> None:
    assert number_of(message(ORDERS, order(17))) == 17


def test_everything_in_its_place_is_fine() -> None:
    check_found({ORDERS: NUMBERS[::-1], VALID: GOOD, PUT_ASIDE: BAD}, COUNT)


@pytest.mark.parametrize(
    "results_by_topic",
    [
        {ORDERS: NUMBERS[1:]},
        {ORDERS: [*NUMBERS, 7]},
        {ORDERS: [*NUMBERS[1:], 7]},
        {ORDERS: NUMBERS, VALID: [*GOOD, BAD[0]]},
        {ORDERS: NUMBERS, VALID: GOOD, PUT_ASIDE: []},
    ],
    ids=["one is missing", "one is doubled", "both", "a bad one passed", "none put aside"],
)
def test_what_is_not_in_its_place_is_found(results_by_topic: dict[str, list[int]]) -> None:
    with pytest.raises(DemoFailed, match="orders"):
        check_found(results_by_topic, COUNT)


def test_the_last_word_on_a_window_counts() -> None:
    outcome = results(letters(3), [window("12:00", "rye", 1), window("12:00", "rye", 247)])

    assert outcome.reasons == {"weighs something": 3}
    assert outcome.window_count == 1
    assert [item.orders for item in outcome.items] == [
        247 if item == "rye" else 0 for item in ITEMS
    ]
    check_results(outcome, COUNT)


def test_an_order_that_was_not_added_up_is_found() -> None:
    outcome = results(letters(3), [window("12:00", "rye", 246)])

    with pytest.raises(DemoFailed, match="246 orders were added up and 3 put aside, of 250"):
        check_results(outcome, COUNT)


def test_the_pipeline_has_the_topics_and_flows_that_are_watched() -> None:
    text = (SOURCE / "demo" / FILE).read_text(encoding="utf-8")

    assert text.index("topic: orders\n") < text.index(f"to: {VALID}\n") < text.index(BY_MINUTE)
    assert all(f"- name: {flow.removeprefix('orders.')}\n" in text for flow in FLOWS)

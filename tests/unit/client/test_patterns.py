"""Wildcards over topic names, held against a matcher that walks the levels one by one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.errors import Refused
from millstream.client.patterns import Pattern, is_pattern, subscription


def naive(pattern: list[str], name: list[str]) -> bool:
    """Whether the levels match, by the words of the table in the module."""
    if not pattern:
        return not name
    first, tail = pattern[0], pattern[1:]
    if first == "#":
        return True
    if first == ">":
        return len(name) > 1 or (len(name) == 1 and name[0] != "")
    if not name:
        return False
    if first == "+":
        return naive(tail, name[1:])
    if first == "*":
        return name[0] != "" and naive(tail, name[1:])
    return first == name[0] and naive(tail, name[1:])


def naive_matches(pattern: str, name: str) -> bool:
    levels = re.split("[./]", pattern)
    if name.startswith("__") and levels[0] in ("+", "*", "#", ">"):
        return False
    return naive(levels, re.split("[./]", name))


LITERALS = st.sampled_from(["", "a", "b", "_", "__", "_a", "__a", "ab"])
NAMES = st.builds(
    lambda levels, separator: separator.join(levels),
    st.lists(LITERALS, min_size=1, max_size=4),
    st.sampled_from("./"),
)
PATTERNS = st.builds(
    lambda levels, last, separator: separator.join([*levels, *last]),
    st.lists(LITERALS | st.sampled_from(["+", "*"]), min_size=1, max_size=3),
    st.sampled_from([[], ["#"], [">"]]),
    st.sampled_from("./"),
)


@given(PATTERNS | st.sampled_from(["#", ">", "+", "*"]), NAMES)
def test_a_pattern_matches_what_the_naive_matcher_matches(pattern: str, name: str) -> None:
    assert Pattern(pattern).matches(name) == naive_matches(pattern, name)


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("sensors/+/temp", "sensors/kitchen/temp", True),
        ("sensors/+/temp", "sensors.kitchen.temp", True),
        ("sensors/+/temp", "sensors/temp", False),
        ("sensors/+/temp", "sensors/a/b/temp", False),
        ("sensors/+/temp", "sensors//temp", True),
        ("logs/#", "logs", True),
        ("logs/#", "logs/a/b", True),
        ("logs/#", "logs-a", False),
        ("logs/#", "logsa", False),
        ("orders.*.created", "orders.eu.created", True),
        ("orders.*.created", "orders..created", False),
        ("orders.*.created", "orders.eu.fr.created", False),
        ("orders.>", "orders.eu.created", True),
        ("orders.>", "orders", False),
        ("orders.>", "orders.", False),
        ("#", "anything.at.all", True),
        ("#", "__consumer_offsets", False),
        (">", "_schemas", True),
        ("*", "one", True),
        ("*", "one.two", False),
        ("__consumer_offsets.#", "__consumer_offsets", True),
        ("a.b", "a.b", True),
        ("a.b", "axb", False),
    ],
)
def test_the_edges_are_exact(pattern: str, name: str, is_match: bool) -> None:
    assert Pattern(pattern).matches(name) is is_match


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("orders-*", "whole level"),
        ("a/b+/c", "whole level"),
        ("logs/#/x", "nothing may follow"),
        ("orders.>.x", "nothing may follow"),
        ("a.**", "whole level"),
        ("a b.*", "no topic name"),
        ("a(.*", "no topic name"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        Pattern(pattern)


def test_names_and_regular_expressions_are_subscribed_as_they_are() -> None:
    assert [subscription(text) for text in ("orders", "a.b-c_d", "^orders-.*")] == [
        "orders",
        "a.b-c_d",
        "^orders-.*",
    ]
    assert not is_pattern("a.b-c_d")
    assert subscription("orders.*") == Pattern("orders.*").regex


@given(PATTERNS)
def test_a_regex_uses_only_what_posix_and_re2_know(pattern: str) -> None:
    assert "(?" not in Pattern(pattern).regex
    assert "\\" not in Pattern(pattern).regex

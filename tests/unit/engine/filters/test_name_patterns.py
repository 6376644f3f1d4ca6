"""Patterns of topic names: what they match, what is refused, and that none takes long."""

import re
import string
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.engine.filters.name_patterns import Pattern
from millstream.errors.groups import InvalidPattern

NAMES = ["a", "b", "ab", "orders", "orders.eu", "orders-2", "ORDERS", "__offsets", "x9", "aaaa"]
PATTERNS = [
    "orders", "orders.*", "orders[.].*", r"orders\..+", "^orders$", "^a|^b$", "(a|b)+", "(?:ab)?",
    "[a-c]*", "[^a-z]+", "[^a]", r"\w+", r"\d", r"\D+", r".*\d", r"[\w.]+", "a{4}", "a{2,}",
    "a{1,3}",
    "(a{2}){2}", "(?i)orders", ".*?", "a*?", "[a-zA-Z]+", "(?P<x>a)b", "[.-]",
    "[a-]+", "[]a]+", r"\Aab", "a||b", "()", "(^a)", "(b$)", "x$y", "a^b", "^^a", "a$$",
    r"[\d_]+.*", "a|", r"orders\-2", "[+-.]*.*",
]  # fmt: skip

atoms = st.sampled_from([*"ab9._", ".", "[ab]", "[^a]", r"\d", r"\w", "^", "$"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda part: f"(?:{part}){{1,3}}"),
    ),
    max_leaves=6,
)
names = st.text(alphabet="ab9._", min_size=1, max_size=6)


@pytest.mark.parametrize("text", PATTERNS)
def test_a_pattern_means_what_it_means_elsewhere(text: str) -> None:
    pattern = Pattern(text)

    for name in NAMES:
        assert pattern.matches(name) == bool(re.fullmatch(text, name)), name


@given(patterns, names)
@example("(?:a|ab)(?:c|bcd)?", "ab")
def test_any_pattern_agrees_with_a_backtracking_matcher(text: str, name: str) -> None:
    assert Pattern(text).matches(name) == bool(re.fullmatch(text, name))


def test_classes_of_characters_go_by_name() -> None:
    assert Pattern("[[:alpha:]]+").matches("orders")
    assert not Pattern("[[:^alpha:]]+").matches("orders")
    assert Pattern("[[:digit:]x]+").matches("x9")


@pytest.mark.parametrize(
    "text",
    ["(", ")", "(a", "a)", "[", "[a", "[b-a]", "*", "a**", "a{2}{3}", "a{3,2}", "a{1001}", "\\",
     "(?=a)", "(?<!a)", "(?<=a)", r"(a)\1", r"\b", r"\p{L}", "(?P<9>a)", "[[:nope:]]", "(?z)a",
     "(" * 60 + ")" * 60, "a" * 1_025, "(a{1000}){1000}", "((((){1000}){1000}){1000}){1000}",
     r"[a-\d]", "[[:alpha"],
)  # fmt: skip
def test_what_cannot_be_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidPattern, match="is no pattern of topics"):
        Pattern(text)


@given(st.text(alphabet=string.printable, max_size=12))
def test_whatever_is_written_is_a_pattern_or_is_refused(text: str) -> None:
    with suppress(InvalidPattern):
        Pattern(text).matches("orders")


@pytest.mark.parametrize("text", ["(a*)*b", "(a|a)*b", "a*" * 30 + "b", "(.*.*)*x"])
def test_a_pattern_that_would_backtrack_for_ever_is_answered_at_once(text: str) -> None:
    assert not Pattern(text).matches("a" * 249)


def test_a_pattern_that_costs_too_much_is_refused_when_that_shows() -> None:
    pattern = Pattern("(a|b)*a" + "(a|b){300}" * 2)
    name = "".join("ab"[number * number % 7 % 2] for number in range(249))
    names = [name[at:] + name[:at] for at in range(249)]

    with pytest.raises(InvalidPattern, match="costs too much"):
        list(map(pattern.matches, names))

"""Regular expressions whose cost is known before the search begins."""

import sys
import time

import pytest

from millstream.engine.filters.regexes import (
    PATTERN_LENGTH_MAX,
    PROGRAM_SIZE_MAX,
    STEPS_MAX,
    InvalidRegex,
    Regex,
)


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("ERROR", b"an ERROR here", True),
        ("ERROR", b"an error here", False),
        ("(?i)error", b"an ERROR here", True),
        ("^a.c$", b"abc", True),
        ("^a.c$", b"xabc", False),
        ("^a.c$", "aéc".encode(), True),
        (r"\d{3}-\d{4}", b"call 555-1234 now", True),
        ("naïve", "so naïve".encode(), True),
        ("a|", b"", True),
        (".", b"\xff", False),
    ],
)
def test_a_pattern_is_searched_for_in_bytes(pattern: str, text: bytes, is_found: bool) -> None:
    assert Regex(pattern).found_in(text) is is_found


@pytest.mark.parametrize("pattern", ["ERROR", "user 17", "a-b_c/d:e", "", "a.b", "a+", r"\d", "é"])
def test_a_pattern_without_special_signs_is_known_as_a_literal(pattern: str) -> None:
    regex = Regex(pattern)

    expected = pattern in {"ERROR", "user 17", "a-b_c/d:e"}

    assert (regex.literal == pattern.encode()) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(", "[z-a]", "a**", r"(a)\1", "(?=a)b", "a{1001}", "x" * (PATTERN_LENGTH_MAX + 1)],
)
def test_what_re2_does_not_know_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(InvalidRegex, match=r".+"):
        Regex(pattern)


def test_a_program_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidRegex, match=rf"at most {PROGRAM_SIZE_MAX}|too large"):
        Regex(".{1000}" * 2)


def test_a_pattern_that_backtracking_would_never_finish_takes_no_time() -> None:
    regex = Regex("(x+x+)+y")
    began = time.perf_counter()

    is_found = regex.found_in(b"x" * 2**20)

    assert not is_found
    assert time.perf_counter() - began < 5


def test_no_text_is_searched_further_than_the_budget_reaches() -> None:
    regex = Regex("a.{50}b")
    reach = regex.text_bytes_max

    assert reach <= STEPS_MAX
    assert regex.found_in(b"-" * (reach - 60) + b"a" + b"-" * 50 + b"b")
    assert not regex.found_in(b"-" * reach + b"a" + b"-" * 50 + b"b")


def test_a_pattern_is_refused_while_the_library_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)

    with pytest.raises(InvalidRegex, match="RE2 cannot be loaded"):
        Regex("a+b")

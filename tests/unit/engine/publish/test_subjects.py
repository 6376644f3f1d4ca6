"""Subjects and wildcards: the edges that others get wrong."""

import pytest

from millstream.engine.publish.subjects import (
    SUBJECT_LENGTH_MAX,
    Pattern,
    Style,
    SubjectTrie,
    check_subject,
    subject_of,
    topic_of,
)
from millstream.errors.deliveries import InvalidSubject


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders.us", False),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b", False),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("z.>", "z", False),
        ("z.>", "z.a", True),
        ("z.>", "z.a.b.c", True),
        (">", "z", True),
        ("*.>", "a", False),
        ("*.>", "a.b", True),
        ("a*", "ab", False),
        ("a*", "a*", True),
        ("a.b>", "a.b>", True),
        ("a.b>", "a.bc", False),
    ],
)
def test_dot_patterns_match_as_in_nats(pattern: str, subject: str, matches: bool) -> None:
    assert Pattern.parse(pattern).matches(subject) is matches


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("#", "a/b", True),
        ("sensors/+/temp", "sensors/temp", False),
        ("sensors/+/temp", "sensors/1/temp", True),
        ("sensors/+/temp", "sensors//temp", True),
        ("+", "a", True),
        ("+", "a/b", False),
        ("+/+", "/a", True),
        ("a.b", "a.b", True),
        ("+", "a.b", True),
    ],
)
def test_slash_patterns_match_as_in_mqtt(pattern: str, subject: str, matches: bool) -> None:
    assert Pattern.parse(pattern, Style.SLASH).matches(subject) is matches


@pytest.mark.parametrize("text", ["", "a..b", ".a", "a.", "a.>.b", ">.a", "a b", "a\tb", "a\x00"])
def test_a_dot_pattern_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidSubject):
        Pattern.parse(text)


@pytest.mark.parametrize("text", ["", "a/#/b", "#/a", "a+/b", "a/b#", "+a"])
def test_a_slash_pattern_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidSubject):
        Pattern.parse(text, Style.SLASH)


def test_a_subject_is_bounded() -> None:
    Pattern.parse("a" * SUBJECT_LENGTH_MAX)
    with pytest.raises(InvalidSubject, match="1 to"):
        Pattern.parse("a" * (SUBJECT_LENGTH_MAX + 1))


@pytest.mark.parametrize("text", ["orders.*", "orders.>", ">", "*"])
def test_nothing_is_published_under_a_wildcard(text: str) -> None:
    with pytest.raises(InvalidSubject, match="wildcards"):
        check_subject(text)


def test_a_record_without_the_header_has_its_topics_name() -> None:
    assert subject_of("orders", ()) == "orders"
    assert subject_of("orders", (("ms-subject", b"orders.us"),)) == "orders.us"
    assert subject_of("orders", (("ms-subject", b""),)) == "orders"
    assert subject_of("orders", (("ms-subject", None), ("other", b"x"))) == "orders"


def test_a_subject_lives_in_the_topic_of_its_first_token() -> None:
    assert topic_of("orders.us.created") == "orders"
    assert topic_of("orders") == "orders"


@pytest.mark.parametrize(
    ("pattern", "topic", "may_be"),
    [
        ("orders.>", "orders", True),
        ("orders.us.created", "orders", True),
        ("orders.>", "orders.us", True),
        ("orders.>", "payments", False),
        ("*.us", "payments", True),
        (">", "payments", True),
        ("DLQ.>", "orders.dlq", True),
        ("DLQ.orders.us", "orders.dlq", True),
        ("orders", "orders.dlq", True),
        ("payments.>", "orders.dlq", False),
    ],
)
def test_only_topics_that_can_hold_a_subject_are_looked_at(
    pattern: str, topic: str, may_be: bool
) -> None:
    assert Pattern.parse(pattern).may_be_in(topic) is may_be


def test_an_item_under_several_patterns_is_found_once() -> None:
    trie: SubjectTrie[str] = SubjectTrie()
    trie.add(Pattern.parse("a.*"), "item")
    trie.add(Pattern.parse("a.>"), "item")
    trie.add(Pattern.parse("a.b"), "item")

    assert trie.match("a.b") == ("item",)
    assert len(trie) == 3


def test_adding_twice_is_adding_once() -> None:
    trie: SubjectTrie[str] = SubjectTrie()
    trie.add(Pattern.parse("a"), "item")
    trie.add(Pattern.parse("a"), "item")

    assert trie.remove(Pattern.parse("a"), "item")
    assert trie.match("a") == ()
    assert not trie.remove(Pattern.parse("a"), "item")
    assert not trie.remove(Pattern.parse("b.c"), "item")

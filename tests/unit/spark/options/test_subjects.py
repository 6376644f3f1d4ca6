"""Subjects with wildcards: the broker's own matching and our filter agree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.codec.records import Record
from millstream.engine.filters.filter import parse
from millstream.engine.publish.subjects import Pattern, Style
from millstream.errors.deliveries import InvalidSubject
from millstream.spark.errors import InvalidOption
from millstream.spark.options.subjects import Subjects, subjects
from tests.support.tiers import sized

tokens = st.sampled_from(["orders", "eu", "a'b", "x+y", "(", "*", ">", "+", "#", "ü", ""])


def in_topic(subject: str | None) -> Record:
    headers = () if subject is None else (("ms-subject", subject.encode()),)
    return Record(0, 0, None, b"v", headers)


@settings(max_examples=sized(300), deadline=None)
@given(st.sampled_from([".", "/"]), st.lists(tokens, min_size=1, max_size=4), st.data())
def test_a_pattern_takes_what_the_broker_would_take(
    separator: str, parts: list[str], data: st.DataObject
) -> None:
    text = separator.join(parts)
    style = Style.SLASH if "/" in text or text in ("+", "#") else Style.DOT
    try:
        theirs = Pattern.parse(text, style)
    except InvalidSubject:
        with pytest.raises(InvalidOption, match="subscribeSubjects"):
            subjects(text)
        return
    ours = subjects(text)
    plain = st.sampled_from(["orders", "eu", "a'b", "x+y", "(", "ü", "zz"])
    subject = separator.join(data.draw(st.lists(plain, min_size=1, max_size=5)))

    assert parse(ours.where).matches(in_topic(subject), "t") == theirs.matches(subject)
    for topic in ("orders", "orders.eu", "eu", "zz"):
        assert ours.may_be_in(topic) or not theirs.may_be_in(topic)


def test_a_record_without_a_subject_has_its_topics() -> None:
    expected = subjects("orders, bills.>")

    assert parse(expected.where).matches(in_topic(None), "orders")
    assert not parse(expected.where).matches(in_topic(None), "bills")


def test_only_topics_that_may_hold_a_subject_are_looked_at() -> None:
    expected = Subjects(("orders.*.created",))

    assert [t for t in ("orders", "orders.eu", "bills") if expected.may_be_in(t)] == [
        "orders",
        "orders.eu",
    ]
    assert Subjects(("*.created",)).may_be_in("bills")


@pytest.mark.parametrize("text", ["", " , ", "a.>.b", "a..b", "a/#/b", "a/b+"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="subscribeSubjects"):
        subjects(text)

"""The names of views that have none of their own."""

from millstream.model import topic_name
from millstream.view_names import view_name


def test_a_topic_and_a_filter_have_one_name() -> None:
    assert view_name("orders", "key") == view_name("orders", "key")
    assert view_name("orders", "key") != view_name("orders", "value")
    assert view_name("orders", "key") != view_name("order", "key")


def test_the_name_is_one_that_a_topic_may_have() -> None:
    for topic in ("orders", "a.b_c-d", "x" * 249):
        assert topic_name(view_name(topic, "value ~ 'ä\n'")) == view_name(topic, "value ~ 'ä\n'")


def test_topics_that_differ_only_far_behind_have_views_that_differ() -> None:
    assert view_name("x" * 248 + "a", "key") != view_name("x" * 248 + "b", "key")

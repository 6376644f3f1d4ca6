"""A table keeps its options in a comment, and no secrets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.errors import InvalidOption
from millstream.spark.options.tables import (
    CARRIER,
    comment,
    for_reading,
    for_writing,
    kept_options,
    table_options,
)

KEPT = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}


@given(st.dictionaries(st.text(), st.text()))
def test_all_options_come_back(options: dict[str, str]) -> None:
    assert kept_options({CARRIER: comment(options)}) == options


def test_only_create_table_names_options_twice() -> None:
    created = {f"option.{name}": text for name, text in KEPT.items()}

    assert table_options({**KEPT, **created, "provider": "millstream"}) == KEPT
    assert table_options(KEPT) is None


def test_rows_of_no_table_have_no_options() -> None:
    assert kept_options({"key": None, CARRIER: None}) == {}
    assert kept_options({CARRIER: "0: the producer's time"}) == {}


def test_a_damaged_comment_is_a_sentence() -> None:
    with pytest.raises(InvalidOption, match="create the table anew"):
        kept_options({CARRIER: comment(KEPT)[:-1]})


@pytest.mark.parametrize(
    "name", ["kafka.sasl.password", "kafka.sasl.jaas.config", "kafka.ssl.keystore.key"]
)
def test_a_secret_is_not_kept(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"a table can't keep {name}"):
        table_options({f"option.{name}": "s3cret"})
    named = "${directory:/run/secrets:kafka}"
    assert table_options({f"option.{name}": named}) == {name: named}


def test_a_table_of_one_topic_is_written_to() -> None:
    assert for_writing(KEPT | {"startingoffsets": "earliest"}) == {
        "kafka.bootstrap.servers": "a:1",
        "topic": "orders",
    }
    assert for_reading(KEPT | {"topic": "other"}) == KEPT
    assert for_writing({}) == {}
    with pytest.raises(InvalidOption, match="not of one topic"):
        for_writing({"subscribe": "a,b"})

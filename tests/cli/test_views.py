"""`millstream view`, and `--filter` of consume and subscribe."""

from collections.abc import Callable

import pytest

from millstream.view_names import view_name
from tests.cli.conftest import Cli

WHERE = "value contains 'bad'"


@pytest.fixture
def topic(cli: Cli, names: Callable[[], str]) -> str:
    name = names()
    cli.run("topic", "create", name)
    cli.run("produce", name, typed="good\nbad 1\ngood\nbad 2\n")
    return name


def test_a_view_is_created_listed_described_read_and_deleted(
    cli: Cli, names: Callable[[], str], topic: str
) -> None:
    view = names()

    said = cli.text("view", "create", view, "--from", topic, "--where", WHERE)

    assert said == f"created view {view} of {topic}\n"
    expected = {"view": view, "topic": topic, "partitions": 1, "where": WHERE}
    assert expected in cli.json("view", "list")
    assert topic not in {view["view"] for view in cli.json("view", "list")}
    listed = {row["topic"]: row["view_of"] for row in cli.json("topic", "list")}
    assert (listed[view], listed[topic]) == (topic, None)
    assert "VIEW OF" in cli.text("topic", "list")
    assert f"that of {topic}" in cli.text("topic", "describe", view)
    assert cli.json("view", "describe", view)["where"] == WHERE
    assert WHERE in cli.text("view", "describe", view)
    assert cli.text("consume", view) == "bad 1\nbad 2\n"
    assert cli.text("view", "delete", view, "--yes") == f"deleted {view}\n"
    assert view not in {row["topic"] for row in cli.json("topic", "list")}
    assert len(cli.text("consume", topic).splitlines()) == 4


def test_what_is_no_filter_no_topic_and_no_view_is_refused(
    cli: Cli, names: Callable[[], str], topic: str
) -> None:
    view = names()

    said = cli.refusal("view", "create", view, "--from", topic, "--where", "colour == red")
    assert "at character 1 ('colour == red')" in said
    said = cli.refusal("view", "create", view, "--from", "no", "--where", "key")
    assert "there is no topic 'no'" in said
    assert "is no view" in cli.refusal("view", "describe", topic)
    assert "is no view" in cli.refusal("view", "delete", topic, "--yes")
    assert "--where" in cli.misuse("view", "create", view, "--from", topic)


def test_a_view_that_exists_is_refused_unless_that_is_fine(
    cli: Cli, names: Callable[[], str], topic: str
) -> None:
    view = names()
    again = ("view", "create", view, "--from", topic, "--where", WHERE)
    cli.run(*again)

    assert "exists already" in cli.refusal(*again)
    assert cli.json(*again, "--if-not-exists")["created"] is False


def test_a_topic_with_views_is_not_deleted(cli: Cli, names: Callable[[], str], topic: str) -> None:
    view = names()
    cli.run("view", "create", view, "--from", topic, "--where", WHERE)

    assert f"view delete {view}" in cli.refusal("topic", "delete", topic, "--yes")
    cli.run("topic", "delete", topic, view, "--yes")
    assert topic not in {row["topic"] for row in cli.json("topic", "list")}


def test_nothing_is_produced_to_a_view(cli: Cli, names: Callable[[], str], topic: str) -> None:
    view = names()
    cli.run("view", "create", view, "--from", topic, "--where", WHERE)

    assert view in cli.refusal("produce", view, "bad")


def test_consume_and_subscribe_filter_in_the_broker(cli: Cli, topic: str) -> None:
    assert cli.text("consume", topic, "--filter", WHERE) == "bad 1\nbad 2\n"
    assert cli.text("consume", topic, "--filter", "value ~ '2$'") == "bad 2\n"
    followed = cli.text("subscribe", topic, "--filter", WHERE, "--from", "earliest", "--count", "2")
    assert followed == "bad 1\nbad 2\n"
    said = cli.refusal("consume", topic, "--filter", "colour")
    assert f"cannot read {topic!r} through the filter: filter, at character 1 ('colour')" in said
    assert "view-of" not in said


def test_reading_through_a_filter_leaves_nothing_behind(cli: Cli, topic: str) -> None:
    before = cli.json("topic", "list")

    cli.run("consume", topic, "--filter", WHERE)
    cli.run("consume", topic, "--filter", "colour", code=1)

    assert cli.json("topic", "list") == before
    cli.run("topic", "delete", topic, "--yes")


def test_an_automatic_view_of_an_older_client_goes_with_its_topic(cli: Cli, topic: str) -> None:
    old = view_name(topic, WHERE)
    cli.run("view", "create", old, "--from", topic, "--where", WHERE)

    cli.run("topic", "delete", topic, "--yes")

    assert old not in {row["topic"] for row in cli.json("topic", "list")}


def test_a_group_reads_on_through_a_filter(cli: Cli, names: Callable[[], str], topic: str) -> None:
    group = names()

    first = cli.text("consume", topic, "--filter", WHERE, "--group", group)
    cli.run("produce", topic, typed="good\nbad 3\n")
    second = cli.text("consume", topic, "--filter", WHERE, "--group", group)

    assert (first, second) == ("bad 1\nbad 2\n", "bad 3\n")

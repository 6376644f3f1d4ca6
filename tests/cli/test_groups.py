"""`millstream group`: who reads what, and where they go on."""

from collections.abc import Callable

import pytest

from millstream.client import connect
from tests.cli.conftest import Cli


@pytest.fixture
def topic(cli: Cli, names: Callable[[], str]) -> str:
    name = names()
    cli.run("topic", "create", name)
    cli.run("produce", name, typed="a\nb\nc\n")
    return name


@pytest.fixture
def group(cli: Cli, topic: str, names: Callable[[], str]) -> str:
    """Has read two of three records and left."""
    name = names()
    cli.run("consume", topic, "--group", name, "--count", "2")
    return name


def test_a_group_is_listed_and_described(cli: Cli, group: str) -> None:
    assert {"group": group, "state": "empty", "kind": "classic"} in cli.json("group", "list")
    assert group in cli.text("group", "list")
    described = cli.json("group", "describe", group)
    assert (described["state"], described["members"]) == ("empty", [])
    assert "no members" in cli.text("group", "describe", group)


def test_members_are_shown_with_what_they_read(
    cli: Cli, topic: str, names: Callable[[], str]
) -> None:
    name = names()
    address = str(cli.environment["MILLSTREAM_BOOTSTRAP"])
    with connect(address) as client, client.consumer(topic, group=name) as consumer:
        consumer.wait_assigned()

        (member,) = cli.json("group", "describe", name)["members"]

        assert member["partitions"] == [f"{topic}-0"]
        cli.refusal("group", "delete", name, "--yes")
        cli.refusal("group", "reset", name, "--to", "latest", "-t", topic, "--yes")


def test_lag_counts_what_was_not_read(cli: Cli, topic: str, group: str) -> None:
    shown = cli.json("group", "lag", group)

    assert shown["lag"] == 1
    assert shown["partitions"] == [
        {
            "topic": topic,
            "partition": 0,
            "committed": 2,
            "end_offset": 3,
            "lag": 1,
            "member": None,
        }
    ]
    assert "total lag 1" in cli.text("group", "lag", group)


@pytest.mark.parametrize(
    ("to", "expected"), [("earliest", "abc"), ("latest", ""), ("1", "bc"), ("1h", "abc")]
)
def test_a_group_goes_on_where_it_is_reset_to(
    cli: Cli, topic: str, group: str, to: str, expected: str
) -> None:
    cli.run("group", "reset", group, "--to", to, "--yes")

    assert cli.text("consume", topic, "--group", group, "--format", "%v") == expected


def test_a_reset_can_be_tried_and_asks_first(cli: Cli, topic: str, group: str) -> None:
    tried = cli.json("group", "reset", group, "--to", "earliest", "--dry-run")
    cli.run("group", "reset", group, "--to", "earliest", typed="n\n", code=1)

    assert tried == [{"topic": topic, "partition": 0, "offset": 0}]
    assert cli.json("group", "lag", group)["lag"] == 1


def test_a_group_that_committed_nothing_needs_a_topic(
    cli: Cli, topic: str, names: Callable[[], str]
) -> None:
    name = names()

    said = cli.refusal("group", "reset", name, "--to", "earliest", "--yes")
    assert f"group {name!r} has committed nothing" in said
    assert "--topic" in said
    cli.run("group", "reset", name, "--to", "latest", "--topic", topic, "--yes")
    assert cli.json("group", "lag", name)["lag"] == 0
    assert "no-such-topic" in cli.refusal(
        "group", "reset", name, "--to", "latest", "--topic", "no-such-topic", "--yes"
    )


def test_deleting_asks_first(cli: Cli, group: str) -> None:
    cli.run("group", "delete", group, typed="n\n", code=1)
    assert group in cli.text("group", "list")

    cli.run("group", "delete", group, typed="y\n")
    assert group not in cli.text("group", "list")


@pytest.mark.parametrize("command", [["describe"], ["lag"], ["delete", "--yes"]])
def test_a_wrong_group_is_named(cli: Cli, command: list[str]) -> None:
    assert "no-such-group" in cli.refusal("group", *command, "no-such-group")


def test_bad_flags_are_misuse(cli: Cli) -> None:
    assert "Missing option '--to'" in cli.misuse("group", "reset", "a")
    assert "is not earliest" in cli.misuse("group", "reset", "a", "--to", "noon")
    assert "No such command 'lags'" in cli.misuse("group", "lags")

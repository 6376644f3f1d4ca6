"""`millstream topic`: create, list, describe, alter, delete, and what is refused."""

from collections.abc import Callable

import pytest

from tests.cli.conftest import NOBODY, Cli


def test_a_topic_is_created_listed_and_described(cli: Cli, names: Callable[[], str]) -> None:
    name = names()

    said = cli.text("topic", "create", name, "--partitions", "3", "--set", "retention.ms=60000")

    assert said == f"created topic {name}\n"
    listed = {row["topic"]: row for row in cli.json("topic", "list")}
    assert listed[name] == {
        "topic": name,
        "partitions": 3,
        "replicas": 1,
        "view_of": None,
    }
    assert name in cli.text("topic", "list")
    described = cli.json("topic", "describe", name)
    assert [item["end_offset"] for item in described["partitions"]] == [0, 0, 0]
    text = cli.text("topic", "describe", name)
    assert "retention.ms" in text
    assert "60000" in text


def test_topics_are_listed_with_their_bytes_on_disk(cli: Cli, names: Callable[[], str]) -> None:
    name = names()
    cli.run("topic", "create", name)
    cli.run("produce", name, "x" * 5_000)
    view = f"{name}-view"
    cli.run("view", "create", view, "--from", name, "--where", "value contains 'x'")

    listed = {row["topic"]: row for row in cli.json("topic", "list", "--bytes")}

    assert 5_000 < listed[name]["bytes"] < 6_000
    assert listed[view]["bytes"] is None
    assert str(listed[name]["bytes"]) in cli.text("topic", "list", "--bytes")


def test_a_topic_that_exists_is_refused_unless_that_is_fine(
    cli: Cli, names: Callable[[], str]
) -> None:
    name = names()
    cli.run("topic", "create", name)

    assert "exists already" in cli.refusal("topic", "create", name)
    assert cli.json("topic", "create", name, "--if-not-exists")["created"] is False


def test_settings_and_partitions_are_altered(cli: Cli, names: Callable[[], str]) -> None:
    name = names()
    cli.run("topic", "create", name, "--set", "segment_bytes=4096")  # Dots or underscores.

    cli.run("topic", "alter", name, "--set", "retention.ms=5000", "--unset", "segment.bytes")
    cli.run("topic", "alter", name, "--partitions", "4")

    described = cli.json("topic", "describe", name)
    changed = {
        item["name"]: item["value"] for item in described["settings"] if not item["is_default"]
    }
    assert changed == {"retention.ms": "5000"}
    assert len(described["partitions"]) == 4


def test_deleting_asks_first(cli: Cli, names: Callable[[], str]) -> None:
    kept, gone = names(), names()
    cli.run("topic", "create", kept)
    cli.run("topic", "create", gone)

    assert "nothing was done" in cli.run("topic", "delete", kept, typed="n\n", code=1).stderr
    assert "nothing was done" in cli.run("topic", "delete", kept, code=1).stderr
    cli.run("topic", "delete", gone, "--yes")

    listed = {row["topic"] for row in cli.json("topic", "list")}
    assert kept in listed
    assert gone not in listed


def test_the_verbs_of_flymq_are_the_same_commands(cli: Cli, names: Callable[[], str]) -> None:
    name = names()

    cli.run("create", name)

    assert name in cli.text("topics")
    assert cli.json("info", name)["name"] == name
    assert cli.json("groups", "list") == cli.json("group", "list")
    cli.run("delete", name, "--yes")
    assert name not in cli.text("topics")


@pytest.mark.parametrize("command", [["describe"], ["alter", "--partitions", "2"], ["delete"]])
def test_a_wrong_topic_is_named(cli: Cli, command: list[str]) -> None:
    assert "no-such-topic" in cli.refusal("topic", *command, "no-such-topic")


def test_bad_names_and_values_are_refused(cli: Cli, names: Callable[[], str]) -> None:
    name = names()
    cli.run("topic", "create", name, "--partitions", "2")

    assert "a/b" in cli.refusal("topic", "create", "a/b")
    assert "colour" in cli.refusal("topic", "create", names(), "--set", "colour=red")
    said = cli.refusal("topic", "create", names(), "--set", "retenton.ms=5")
    assert "there is no topic config 'retenton.ms'; did you mean retention.ms?" in said
    for command in (["alter", name], ["create", names()]):
        said = cli.refusal("topic", *command, "--set", "retention.ms=soon")
        assert "retention.ms = 'soon'" in said
        said = cli.refusal("topic", *command, "--set", "compression.gzip.level=0")
        assert "compression.gzip.level = 0" in said
    assert "at least 1" in cli.refusal("topic", "create", names(), "--partitions", "0")
    cli.refusal("topic", "alter", name, "--partitions", "1")


def test_bad_flags_are_misuse(cli: Cli) -> None:
    assert "No such option" in cli.misuse("topic", "list", "--colour")
    assert "Missing argument" in cli.misuse("topic", "create")
    assert "KEY=VALUE" in cli.misuse("topic", "create", "a", "--set", "b")
    assert "Nothing to change" in cli.misuse("topic", "alter", "a")
    assert "not a valid integer" in cli.misuse("topic", "create", "a", "--partitions", "x")


@pytest.mark.parametrize(
    "command",
    [
        ["topic", "create", "a"],
        ["topic", "list"],
        ["topic", "describe", "a"],
        ["topic", "alter", "a", "--partitions", "2"],
        ["topic", "delete", "a", "--yes"],
        ["produce", "a", "b"],
        ["consume", "a"],
        ["subscribe", "a"],
        ["group", "list"],
        ["group", "describe", "a"],
        ["group", "lag", "a"],
        ["group", "reset", "a", "--to", "earliest", "--yes"],
        ["group", "delete", "a", "--yes"],
        ["txn", "list"],
        ["txn", "describe", "a"],
        ["txn", "abort", "a", "--yes"],
        ["health"],
        ["bench", "--count", "1"],
    ],
    ids=" ".join,
)
def test_an_unreachable_broker_is_one_sentence_with_the_way_out(
    offline: Cli, command: list[str]
) -> None:
    said = offline.refusal(*command, "--bootstrap", NOBODY)

    assert NOBODY in said
    assert "millstream serve" in said


def test_the_health_of_a_topic_is_shown_with_the_lag_of_its_groups(
    cli: Cli, names: Callable[[], str]
) -> None:
    topic, group = names(), names()
    cli.run("topic", "create", topic, "--partitions", "2")
    cli.run("produce", topic, "--partition", "1", typed="a\nb\nc\n")
    assert "no group reads it" in cli.text("topic", "describe", topic, "--health")
    cli.run("consume", topic, "--group", group)
    cli.run("produce", topic, "--partition", "1", typed="d\n")

    answer = cli.json("topic", "describe", topic, "--health")

    empty, full = answer["partitions"]
    assert (empty["high_watermark"], empty["size_bytes"]) == (0, 0)
    assert (full["low_watermark"], full["high_watermark"], full["end_offset"]) == (0, 4, 4)
    assert (full["last_stable_offset"], full["segment_count"], full["index_gaps"]) == (4, 1, 0)
    assert full["size_bytes"] > 0
    lags = [lag for lag in answer["lags"] if lag["partition"] == 1]
    assert lags == [{"group_id": group, "partition": 1, "committed_offset": 3, "records": 1}]
    assert group in cli.text("topic", "describe", topic, "--health")
    assert "nowhere" in cli.refusal("topic", "describe", "nowhere", "--health")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "7 days"),
        ({"retention.ms": "3600000", "retention.bytes": "5000000"}, "1 hour, at most 5,000,000 by"),
        ({"retention.ms": "1500"}, "1500 ms"),
        ({"retention.ms": "-1"}, "for ever"),
        ({"cleanup.policy": "compact"}, "the last record of each key"),
    ],
)
def test_describe_shows_the_retention_that_applies(
    cli: Cli, names: Callable[[], str], settings: dict[str, str], expected: str
) -> None:
    name = names()
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    cli.run("topic", "create", name, *flags)

    (line,) = [
        line for line in cli.text("topic", "describe", name).splitlines() if "retention  " in line
    ]
    assert line.removeprefix("retention").strip().startswith(expected)

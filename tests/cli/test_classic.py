"""`millstream classic` against a real broker."""

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Cli
from tests.support.broker_process import BrokerProcess


@pytest.fixture
def at(broker: BrokerProcess) -> list[str]:
    return ["--port", str(broker.config.classic_port)]


def test_what_is_published_is_printed_to_who_joins(
    cli: Cli, at: list[str], names: Callable[[], str]
) -> None:
    topic, subscription = names(), names()
    assert (
        cli.text("classic", "create-topic", topic, *at)
        == f"created topic {topic} with 1 partitions\n"
    )
    cli.text("classic", "publish", topic, "left out", *at)
    cli.text("classic", "create-subscription", subscription, topic, "--offset", "1", *at)
    cli.text("classic", "publish", topic, "hello", "--properties", '{"colour": "red"}', *at)
    cli.text("classic", "publish", topic, "world", *at)

    shown = cli.text("classic", "join-subscription", subscription, "--count", "2", *at)

    assert shown.splitlines() == [
        f"[{topic}@1] (sub: {subscription}) hello",
        f"[{topic}@2] (sub: {subscription}) world",
    ]


def test_subscribe_reads_a_topic_without_a_subscription_of_its_own(
    cli: Cli, at: list[str], names: Callable[[], str]
) -> None:
    topic = names()
    cli.text("classic", "create-topic", topic, *at)
    cli.text("classic", "publish", topic, "hello", "--properties", '{"n": 1}', *at)

    line = cli.text("classic", "subscribe", topic, "--count", "1", "--output", "json", *at)

    shown = json.loads(line)
    assert (shown["offset"], shown["value"], shown["properties"]["n"]) == (0, "hello", "1")


def test_a_subscription_is_deleted_after_a_question(
    cli: Cli, at: list[str], names: Callable[[], str]
) -> None:
    topic, subscription = names(), names()
    cli.text("classic", "create-topic", topic, *at)
    cli.text("classic", "create-subscription", subscription, topic, *at)

    cli.run("classic", "delete-subscription", subscription, *at, typed="n\n", code=1)
    cli.text("classic", "delete-subscription", subscription, "--yes", *at)
    assert "does not exist" in cli.refusal(
        "classic", "delete-subscription", subscription, "--yes", *at
    )


def test_subscribe_shows_one_partition_if_it_is_told_so(
    cli: Cli, at: list[str], names: Callable[[], str]
) -> None:
    topic = names()
    cli.text("classic", "create-topic", topic, "--partitions", "2", *at)
    for partition in ("0", "1", "1"):
        cli.text("classic", "publish", topic, f"to {partition}", "--partition", partition, *at)

    shown = cli.text("classic", "subscribe", topic, "--partition", "1", "--count", "2", *at)

    assert [line.split(") ")[1] for line in shown.splitlines()] == ["to 1", "to 1"]


def test_what_cannot_be_a_property_is_misuse(cli: Cli, at: list[str]) -> None:
    for properties in ({"a=b": "c"}, {"a": "\0"}, {"topic": "t"}, {"data": "d"}, {"self": "s"}):
        said = cli.misuse(
            "classic", "publish", "t", "x", "--properties", json.dumps(properties), *at
        )

        assert f"{next(iter(properties))!r} cannot be one" in said


def test_a_flag_that_cannot_be_is_named(cli: Cli, at: list[str]) -> None:
    assert "'--port'" in cli.misuse("classic", "publish", "t", "x", "--port", "70000")
    assert "'--partitions'" in cli.misuse("classic", "create-topic", "t", "--partitions", "0", *at)
    assert "'--retention'" in cli.misuse("classic", "create-topic", "t", "--retention", "long", *at)
    assert "'--offset'" in cli.misuse(
        "classic", "create-subscription", "s", "t", "--offset", "-1", *at
    )
    assert "'--count'" in cli.misuse("classic", "join-subscription", "s", "--count", "0", *at)
    assert "'--wrong'" in cli.misuse("classic", "subscribe", "t", "--wrong", *at)
    assert "SUBSCRIPTION" in cli.misuse("classic", "join-subscription", *at)


def test_what_cannot_be_done_is_one_sentence(cli: Cli, offline: Cli, at: list[str]) -> None:
    assert "Topic 'nowhere' does not exist" in cli.refusal(
        "classic", "publish", "nowhere", "x", *at
    )
    assert "does not exist" in cli.refusal("classic", "join-subscription", "nobody", *at)
    assert "no classic broker at" in offline.refusal("classic", "publish", "t", "x", "--port", "1")
    assert "no classic broker at nowhere.invalid" in offline.refusal(
        "classic", "join-subscription", "s", "--host", "nowhere.invalid"
    )
    assert "is not a topic name" in cli.refusal("classic", "create-topic", "a/b", *at)
    assert "is not a topic name" in cli.refusal("classic", "subscribe", "a/b", *at)
    assert "not JSON" in cli.misuse("classic", "publish", "t", "x", "--properties", "{", *at)
    assert "not a JSON object" in cli.misuse(
        "classic", "publish", "t", "x", "--properties", "1", *at
    )


def test_the_classic_verbs_stand_under_classic_only(offline: Cli) -> None:
    for verb in ("create-topic", "publish", "join-subscription"):
        assert "No such command" in offline.misuse(verb, "orders")

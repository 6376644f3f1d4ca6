"""Which broker a command talks to: what was said most directly wins."""

import stat
from pathlib import Path

import pytest

from millstream.cli.connection import with_secrets
from tests.cli.conftest import NOBODY, Cli


def test_the_first_context_is_used_at_once(offline: Cli) -> None:
    offline.run("context", "add", "home", "localhost:1")
    offline.run("context", "add", "work", "work.example:2", "--set", "security.protocol=SSL")

    assert offline.json("context", "list") == [
        {"name": "home", "bootstrap": "localhost:1", "settings": [], "current": True},
        {
            "name": "work",
            "bootstrap": "work.example:2",
            "settings": ["security.protocol"],
            "current": False,
        },
    ]


def test_another_context_can_be_used_and_forgotten(offline: Cli) -> None:
    offline.run("context", "add", "home", "localhost:1")
    offline.run("context", "add", "work", "localhost:2")

    offline.run("context", "use", "work")
    offline.run("context", "delete", "home", typed="y\n")

    assert [row["name"] for row in offline.json("context", "list")] == ["work"]
    assert "work" in offline.text("context", "list")


def test_only_the_owner_can_read_the_contexts(offline: Cli, tmp_path: Path) -> None:
    offline.run("context", "add", "home", "localhost:1", "--set", "sasl.username=ann")

    (path,) = tmp_path.rglob("contexts.json")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in offline.text("context", "list")


def test_a_context_that_is_not_there_is_named_with_those_that_are(offline: Cli) -> None:
    offline.run("context", "add", "home", "localhost:1")

    assert "there are: home" in offline.refusal("context", "use", "hom")
    assert "no context 'hom'" in offline.refusal("topic", "list", "--context", "hom")
    assert "no context 'hom'" in offline.refusal("context", "delete", "hom", "--yes")


def test_without_a_yes_nothing_is_forgotten(offline: Cli) -> None:
    offline.run("context", "add", "home", "localhost:1")

    assert "nothing was done" in offline.run("context", "delete", "home", code=1).stderr
    assert len(offline.json("context", "list")) == 1


def test_a_damaged_file_is_named(offline: Cli, tmp_path: Path) -> None:
    offline.run("context", "add", "home", "localhost:1")
    (path,) = tmp_path.rglob("contexts.json")
    path.write_text("[]")

    assert "contexts.json is damaged" in offline.refusal("context", "list")


def test_a_setting_without_a_value_is_misuse(offline: Cli) -> None:
    assert "KEY=VALUE" in offline.misuse("context", "add", "a", "b:1", "--set", "acks")


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_what_is_said_directly_wins_over_the_context_in_use(cli: Cli, how: str) -> None:
    address = str(cli.environment.pop("MILLSTREAM_BOOTSTRAP"))
    cli.run("context", "add", "gone", NOBODY)
    if how == "variable":
        cli.environment["MILLSTREAM_BOOTSTRAP"] = address
    flags = ["--bootstrap", address] if how == "flag" else []

    assert cli.json("topic", "list", *flags) == []
    assert "gone" not in cli.refusal("topic", "list", "--context", "gone")


def test_the_context_in_use_is_where_commands_go(cli: Cli) -> None:
    address = str(cli.environment.pop("MILLSTREAM_BOOTSTRAP"))
    cli.run("context", "add", "here", address)

    assert cli.json("health")["status"] == "healthy"


def test_client_settings_can_be_passed_to_one_command(cli: Cli) -> None:
    assert (
        cli.json("topic", "list", "-X", "client.id=mine", "-X", "socket_keepalive_enable=true")
        is not None
    )
    assert "sasl.usr" in cli.refusal("topic", "list", "-X", "sasl.usr=ann")
    assert "not a librdkafka setting" in cli.refusal("topic", "list", "-X", "timeout_s=1")
    assert "-X takes KEY=VALUE" in cli.misuse("topic", "list", "-X", "acks")


def test_a_setting_of_one_command_wins_over_the_context(cli: Cli) -> None:
    address = cli.environment["MILLSTREAM_BOOTSTRAP"]
    cli.run("context", "add", "wrong", str(address), "--set", "security.protocol=nonsense")

    assert "security.protocol" in cli.refusal("topic", "list", "--context", "wrong")
    cli.run("topic", "list", "--context", "wrong", "-X", "security.protocol=PLAINTEXT")


def test_a_context_refers_to_secrets_and_keeps_none(offline: Cli, tmp_path: Path) -> None:
    refused = offline.run(
        "context", "add", "home", "localhost:1", "--set", "sasl.password=secret", code=1
    )
    offline.run("context", "add", "home", "localhost:1", "--set", "sasl.password=env:PASSWORD")

    assert "sasl.password must be file:PATH or env:NAME" in refused.output
    assert with_secrets({"sasl.password": "literal"}) == {"sasl.password": "literal"}

"""`millstream config`: what a node is told, and by whom."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import NOBODY, Cli


def test_each_value_is_shown_with_its_origin(offline: Cli, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("flux_port = 5\n[timing]\ntick_ms = 7\n")
    offline.environment["MILLSTREAM_STORAGE"] = "memory"

    shown = offline.json("config", "show", "--config", str(file), "--port", "9")

    origins = {row["key"]: (row["value"], row["origin"]) for row in shown}
    assert origins["port"] == (9, "flag --port")
    assert origins["storage"] == ("memory", "environment MILLSTREAM_STORAGE")
    assert origins["timing.tick_ms"] == (7, f"file {file}")
    assert origins["http_port"] == (9094, "default")
    assert origins["topic_defaults.cleanup_policy"] == ("delete", "default")


def test_only_what_was_asked_for_is_shown(offline: Cli) -> None:
    assert len(offline.json("config", "show", "port")) == 1
    assert len(offline.json("config", "show", "timing", "port")) > 5
    assert offline.text("config", "show", "--changed") == "everything is at its default\n"


def test_an_unknown_key_and_a_bad_value_name_themselves(offline: Cli) -> None:
    assert "no key 'prot'" in offline.refusal("config", "show", "prot")

    offline.environment["MILLSTREAM_PROT"] = "1"
    said = offline.refusal("config", "show")
    assert "environment MILLSTREAM_PROT" in said
    assert "did you mean port?" in said

    offline.environment["MILLSTREAM_PROT"] = None
    offline.environment["MILLSTREAM_TIMING__TICK_MS"] = "soon"
    said = offline.refusal("config", "show")
    assert "timing.tick_ms = 'soon' is not a whole number" in said
    assert "environment MILLSTREAM_TIMING__TICK_MS" in said


def test_every_key_says_what_it_takes(offline: Cli) -> None:
    keys = {row["key"]: row for row in offline.json("config", "keys")}

    assert keys["durability"]["takes"] == "one of sync, write"
    assert keys["timing.tick_ms"]["variable"] == "MILLSTREAM_TIMING__TICK_MS"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_commands(offline: Cli, shell: str) -> None:
    assert "_MILLSTREAM_COMPLETE" in offline.text("completion", shell)
    assert "install" in offline.json("completion", shell)


def test_completion_knows_the_commands() -> None:
    environment = {"_MILLSTREAM_COMPLETE": "bash_complete", "COMP_WORDS": "millstream top"}
    shown = subprocess.run(
        [Path(sys.executable).parent / "millstream"],
        env={**environment, "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "topic" in shown.stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("topic describe or", ["orders", "orders-2"]),
        ("consume orders-", ["orders-2"]),
        ("consume orders --group bil", ["billing"]),
        ("group lag ", ["billing"]),
        ("topic describe none", []),
    ],
)
def test_completion_asks_the_broker_for_names(cli: Cli, typed: str, expected: list[str]) -> None:
    for name in ("orders", "orders-2"):
        cli.run("topic", "create", name, "--if-not-exists")
    cli.run("consume", "orders", "--group", "billing")

    assert completed(cli, typed) == expected


def test_completion_is_silent_without_a_broker(offline: Cli) -> None:
    offline.environment["MILLSTREAM_BOOTSTRAP"] = NOBODY

    assert completed(offline, "topic describe or") == []


def completed(cli: Cli, typed: str) -> list[str]:
    words = ["millstream", *typed.split(" ")]
    environment = {
        **os.environ,
        **{name: value for name, value in cli.environment.items() if value is not None},
        "_MILLSTREAM_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    shown = subprocess.run(
        [Path(sys.executable).parent / "millstream"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    return [line.partition(",")[2] for line in shown.stdout.splitlines() if line]


def test_an_unknown_shell_or_command_is_misuse(offline: Cli) -> None:
    assert "'bash', 'zsh', 'fish'" in offline.misuse("completion", "tcsh")
    assert "Did you mean 'topic'?" in offline.misuse("topc")
    assert "No such option" in offline.misuse("config", "show", "--colour")

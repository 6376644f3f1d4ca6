"""The pages on production, upgrades and migrations: their commands, settings and metrics exist."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from millstream.cli.main import ALIASES, commands
from millstream.cli.reference import setting_rows
from millstream.metrics import DECLARED
from millstream.settings import TopicSettings
from tests.support.documents import blocks
from tests.support.source_tree import ROOT

PAGES = ("run-in-production", "upgrade", "migrate-from-kafka", "migrate-from-queues", "deploy")
NAMED_SETTING = re.compile(r"`(?:limits|timing|security|http)\.([a-z_]+)`")


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def command_lines(text: str) -> Iterator[list[str]]:
    """The words behind `millstream` of every command in a block or in a row of a table."""
    lines = [line for block in blocks(text, "text") for line in block.splitlines()]
    lines += re.findall(r"`(millstream [^`]+)`", text)
    for line in lines:
        for part in re.findall(r"(?:^|[\s/])millstream ([a-z].*)", line.split("#")[0]):
            yield shlex.split(re.split(r"\s(?:&&|\|)\s", part)[0])


def checked(words: list[str]) -> str | None:
    """What is wrong with a command line, None if its command and flags exist."""
    command: click.Command = commands
    words = [*ALIASES.get(words[0], words[0]).split(), *words[1:]]
    while isinstance(command, click.Group):
        if not words:
            return None  # A group is named, such as `millstream user`.
        child = command.get_command(click.Context(command), words[0])
        if child is None:
            return f"there is no {' '.join(words)}"
        command, words = child, words[1:]
    known = {name for option in command.params for name in option.opts} | {"--help"}
    unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in known]
    return f"{command.name} has no {unknown}" if unknown else None


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_flag_exists(page: str) -> None:
    lines = list(command_lines(text_of(page)))

    assert lines, "the page shows commands"
    assert [problem for words in lines if (problem := checked(words))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_and_setting_exists(page: str) -> None:
    text = text_of(page)
    metrics = set(re.findall(r"\bmillstream_[a-z_]+", text))
    assert metrics - {metric.name for metric in DECLARED} == set()
    keys = {str(row["key"]).rpartition(".")[2] for row in setting_rows()}
    assert set(NAMED_SETTING.findall(text)) - keys == set()
    topic_settings = set(TopicSettings.__dataclass_fields__)
    named = set(re.findall(r"--set ([\w.]+)=", text))
    assert {key.replace(".", "_") for key in named} - topic_settings == set()

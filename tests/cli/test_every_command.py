"""What holds for every command there is."""

from collections.abc import Iterator

import click
import pytest

from millstream.cli.main import ALIASES, commands

# A node speaks by its log, the explorer on its screen; pipelines have flags of their own.
WITHOUT_OUTPUT = ("serve", "pipeline", "explore")


def leaves(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


LEAVES = dict(leaves(commands))
CONFIRMED = (
    "topic delete",
    "group reset",
    "group delete",
    "txn abort",
    "dlq purge",
    "delayed cancel",
    "context delete",
    "classic delete-subscription",
)


def flags(command: click.Command) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_says_what_it_does(name: str) -> None:
    assert (LEAVES[name].help or "").strip()


@pytest.mark.parametrize("name", [n for n in LEAVES if not n.startswith(WITHOUT_OUTPUT)])
def test_every_command_answers_people_and_programs(name: str) -> None:
    assert "--output" in flags(LEAVES[name])


@pytest.mark.parametrize("name", CONFIRMED)
def test_every_command_that_destroys_can_be_told_not_to_ask(name: str) -> None:
    assert "--yes" in flags(LEAVES[name])


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_is_a_command(alias: str) -> None:
    assert commands.get_command(click.Context(commands), alias) is not None

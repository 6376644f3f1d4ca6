"""What holds for every command there is."""

import inspect
from collections.abc import Iterator
from types import FunctionType

import click

from millstream.cli.main import ALIASES, commands

# A node speaks by its log, the explorer on its screen; pipelines have flags of their own; exports
# and tails of the audit trail are JSON in any case.
WITHOUT_OUTPUT = ("serve", "pipeline", "explore", "audit export", "audit tail")


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


def calls(function: FunctionType, name: str) -> bool:
    """Whether `function`, or a function of its module that it calls, calls `name`."""
    seen, waiting = set(), [function]
    while waiting:
        function = waiting.pop()
        names = set(function.__code__.co_names)
        if name in names:
            return True
        seen.add(function)
        neighbours = [function.__globals__.get(other) for other in sorted(names)]
        waiting += [
            other
            for other in neighbours
            if isinstance(other, FunctionType)
            and other.__module__ == function.__module__
            and other not in seen
        ]
    return False


def body(command: click.Command) -> FunctionType:
    function = inspect.unwrap(command.callback) if command.callback else None
    assert isinstance(function, FunctionType)
    return function


def flags(command: click.Command) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


def test_every_command_says_what_it_does() -> None:
    assert [name for name, command in LEAVES.items() if not (command.help or "").strip()] == []


def test_every_command_answers_people_and_programs() -> None:
    silent = [name for name, command in LEAVES.items() if "--output" not in flags(command)]

    assert [name for name in silent if not name.startswith(WITHOUT_OUTPUT)] == []


def test_every_command_that_asks_can_be_told_not_to_ask() -> None:
    asking = {name for name, command in LEAVES.items() if calls(body(command), "confirm")}

    assert {"topic delete", "group reset", "view delete"} <= asking  # The search finds some.
    assert asking == {name for name, command in LEAVES.items() if "--yes" in flags(command)}


def test_every_alias_is_a_command() -> None:
    context = click.Context(commands)

    assert [alias for alias in ALIASES if commands.get_command(context, alias) is None] == []

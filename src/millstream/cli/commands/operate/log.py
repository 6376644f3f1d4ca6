"""`millstream log`: how much each module of a running broker logs."""

from typing import TYPE_CHECKING

import click

from millstream.cli.connection import connected
from millstream.cli.render import Answer, CommandGroup, Refused, answered, rows

if TYPE_CHECKING:
    from millstream.client import Client

LEVELS = ("debug", "info", "warn", "error", "inherit")


@click.group(cls=CommandGroup)
def log() -> None:
    """Show and change log levels of a running broker, by module."""


@log.command()
@click.argument("name", default="")
@answered
@connected
def levels(client: "Client", name: str) -> Answer:
    """Show the level of each logger, or of those whose names begin with NAME."""
    node = client.admin.describe_cluster().nodes[0]
    held = client.log_levels.list(node)
    shown = [
        {"logger": logger, "level": level.lower()}
        for logger, level in sorted(held.items())
        if logger.startswith(name)
    ]
    return rows(shown, nothing=f"no logger begins with {name}")


@log.command("set")
@click.argument("logger")
@click.argument("level", type=click.Choice(LEVELS))
@answered
@connected
def set_level(client: "Client", logger: str, level: str) -> Answer:
    """Change the level of LOGGER, such as millstream.replication, until the broker stops.

    `inherit` takes the change back: the level of the logger above it holds again.
    """
    node = client.admin.describe_cluster().nodes[0]
    if logger not in client.log_levels.list(node):
        raise Refused(f"there is no logger {logger!r}; `millstream log levels` lists them")
    client.log_levels.set(node, logger, None if level == "inherit" else level.upper())
    held = client.log_levels.list(node)[logger].lower()
    return Answer({"logger": logger, "level": held}, f"{logger} logs from {held} on")

"""`millstream view`: create, list, describe, delete."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.completing import complete_topic, complete_view
from millstream.cli.connection import connected
from millstream.cli.render import Answer, CommandGroup, answered, card, confirm, rows, yes_option

if TYPE_CHECKING:
    from millstream.client import Client


@click.group(cls=CommandGroup)
def view() -> None:
    """Show some records of a topic as a topic of its own, which every Kafka client can read."""


@view.command()
@click.argument("name")
@click.option(
    "--from",
    "topic",
    required=True,
    metavar="TOPIC",
    shell_complete=complete_topic,
    help="The topic whose records it shows.",
)
@click.option(
    "--where",
    required=True,
    metavar="FILTER",
    help="The records it shows, such as \"value ~ 'ERROR'\" or \"$.user.id == 'u-17'\".",
)
@click.option("--if-not-exists", "is_lenient", is_flag=True, help="Fine if it is there already.")
@answered
@connected
def create(client: "Client", name: str, topic: str, where: str, is_lenient: bool) -> Answer:
    """Create a view."""
    from millstream.client import AlreadyExists

    client.admin.describe_topic(topic)  # Refused in words of --from if there is none.
    data = {"view": name, "topic": topic, "where": where}
    try:
        client.views.create(name, of=topic, where=where)
    except AlreadyExists:
        if not is_lenient:
            raise
        return Answer(data | {"created": False}, f"{name} is there already")
    return Answer(data | {"created": True}, f"created view {name} of {topic}")


@view.command("list")
@answered
@connected
def list_views(client: "Client") -> Answer:
    """List the views."""
    return rows(
        [
            {
                "view": view.name,
                "topic": view.topic,
                "partitions": view.partition_count,
                "where": view.where,
            }
            for view in client.views.list()
        ],
        nothing="no views yet; `millstream view create NAME --from TOPIC --where FILTER` makes one",
    )


@view.command()
@click.argument("name", shell_complete=complete_view)
@answered
@connected
def describe(client: "Client", name: str) -> Answer:
    """Show a view's topic and filter."""
    view = asdict(client.views.describe(name))
    return Answer(view, card(view))


@view.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_view)
@yes_option
@answered
@connected
def delete(client: "Client", names: tuple[str, ...], is_yes: bool) -> Answer:
    """Delete views. The topics that they show keep all their records."""
    for name in names:
        client.views.describe(name)  # A topic must not go by mistake.
    confirm(f"Delete {', '.join(names)}?", is_yes=is_yes)
    for name in names:
        client.views.delete(name)
    return Answer({"deleted": list(names)}, f"deleted {', '.join(names)}")

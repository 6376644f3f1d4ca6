"""`millstream group`: members, lag and committed offsets of groups."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.completing import complete_group, complete_topic
from millstream.cli.connection import connected
from millstream.cli.options import read_place
from millstream.cli.render import (
    Answer,
    CommandGroup,
    Refused,
    answered,
    card,
    confirm,
    rows,
    table,
    yes_option,
)

if TYPE_CHECKING:
    from millstream.client import Client, Lag, StartPoint


@click.group(cls=CommandGroup)
def group() -> None:
    """Look at consumer groups, their lag and their offsets."""


@group.command("list")
@answered
@connected
def list_groups(client: "Client") -> Answer:
    """List the groups."""
    return rows(
        [
            {"group": group.group_id, "state": group.state, "kind": group.kind}
            for group in client.admin.list_groups()
        ],
        nothing="no groups yet; `millstream consume TOPIC --group NAME` makes one",
    )


@group.command()
@click.argument("name", shell_complete=complete_group)
@answered
@connected
def describe(client: "Client", name: str) -> Answer:
    """Show a group's members and what each of them reads."""
    group = client.admin.describe_group(name)
    head = asdict(group)
    del head["members"]
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": list(map(str, member.partitions)),
        }
        for member in group.members
    ]
    text = f"{card(head)}\n\n{table(members) if members else 'no members at the moment'}"
    return Answer({**head, "members": members}, text)


@group.command()
@click.argument("name", shell_complete=complete_group)
@answered
@connected
def lag(client: "Client", name: str) -> Answer:
    """Show how many records a group is behind, partition by partition."""
    lags = client.admin.group_lag(name)
    lines = [_lag_row(partition_lag) for partition_lag in lags]
    total = sum(partition_lag.records for partition_lag in lags)
    text = f"{table(lines)}\n\ntotal lag {total}" if lines else f"{name} has committed nothing yet"
    return Answer({"group": name, "lag": total, "partitions": lines}, text)


@group.command()
@click.argument("name", shell_complete=complete_group)
@click.option(
    "--to",
    callback=read_place,
    metavar="PLACE",
    required=True,
    help="earliest, latest, an offset or a time.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topic,
    help="Only this topic; may be repeated.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Show the new offsets, change nothing.")
@yes_option
@answered
@connected
def reset(
    client: "Client",
    name: str,
    to: "StartPoint",
    topics: tuple[str, ...],
    is_dry: bool,
    is_yes: bool,
) -> Answer:
    """Set the offsets at which a group goes on. It must have no members at that moment.

    A time is written 2026-05-01T12:00:00Z, an age 15m (s, m, h or d).
    """
    goals = client.admin.reset_group(name, to, topics=topics or None, dry_run=True)
    lines = [
        {"topic": at.topic, "partition": at.partition, "offset": offset}
        for at, offset in sorted(goals.items())
    ]
    if not lines:
        raise Refused(
            f"group {name!r} has committed nothing: `millstream group list` shows the groups; "
            "to give it offsets all the same, name a topic with --topic"
        )
    if not is_dry:
        confirm(f"Move group {name} in {len(lines)} partitions?", is_yes=is_yes)
        client.admin.reset_group(name, goals)
    return rows(lines, nothing="")


@group.command()
@click.argument("name", shell_complete=complete_group)
@yes_option
@answered
@connected
def delete(client: "Client", name: str, is_yes: bool) -> Answer:
    """Delete a group and the offsets it has committed."""
    client.admin.describe_group(name)
    confirm(f"Delete group {name} and its offsets?", is_yes=is_yes)
    client.admin.delete_group(name)
    return Answer({"deleted": name}, f"deleted group {name}")


def _lag_row(lag: "Lag") -> dict[str, object]:
    return {
        "topic": lag.topic,
        "partition": lag.partition,
        "committed": lag.committed_offset,
        "end_offset": lag.end_offset,
        "lag": lag.records,
        "member": lag.member_id,
    }

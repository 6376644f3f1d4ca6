"""`millstream cluster`: the nodes of a cluster, invitations to it, and joining it."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.commands.operate.node import node_flags
from millstream.cli.connection import connected
from millstream.cli.options import pairs
from millstream.cli.render import (
    Answer,
    CommandGroup,
    answered,
    confirm,
    table,
    yes_option,
)

if TYPE_CHECKING:
    from millstream.client import Client


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Make one cluster of several nodes, and see how it is."""


@cluster.command()
@answered
@connected
def invite(client: "Client") -> Answer:
    """Print a token with which one node joins within an hour. Keep it secret."""
    token = client.cluster.invite()
    return Answer({"token": token}, token)


@cluster.command()
@click.argument("token")
@node_flags
@click.option(
    "-X",
    "client_settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A librdkafka setting for the question, such as sasl.username=ann; repeatable.",
)
@answered
def join(token: str, path: str | None, client_settings: tuple[str, ...], **flags: object) -> Answer:
    """Make an empty data directory that of a new node; then start it with `millstream serve`."""
    from millstream.cli.cluster.joining import join as join_by_token
    from millstream.config_sources import load

    config = load(path=path, flags=flags)
    membership = join_by_token(token, config, pairs(client_settings, "-X"))
    data = {
        "node_id": membership.node_id,
        "cluster_id": membership.cluster_id,
        "data_dir": config.data_dir,
        "peer_address": membership.address,
    }
    text = (
        f"node {membership.node_id} of cluster {membership.cluster_id}; "
        f"start it with: millstream serve --data-dir {config.data_dir}"
    )
    return Answer(data, text)


@cluster.command()
@answered
@connected
def status(client: "Client") -> Answer:
    """Show the nodes: which are up, what each leads, and what would not survive a loss.

    The exit code is 1 if a node is down or a replica is behind.
    """
    described = client.cluster.describe()
    nodes = described.nodes
    shown = [
        {
            "node": node.node_id,
            "state": node.state if node.is_up else "down",
            "votes": "controller" if node.is_controller else "yes" if node.is_voter else "no",
            "address": node.address or "-",
            "peers": node.peer_address or "-",
            "rack": node.rack or "-",
            "leads": node.leader_count if node.leader_count >= 0 else "-",
            "replicas": node.replica_count if node.replica_count >= 0 else "-",
            "behind": node.behind_count if node.behind_count >= 0 else "-",
            "version": node.version or "-",
        }
        for node in nodes
    ]
    notes = _notes(len(nodes), sum(not node.is_up for node in nodes))
    if 0 < described.level < min(node.level_highest for node in nodes):
        notes.append(
            f"cluster.version is {described.level}, and every node knows a later level: finish the "
            "upgrade with: millstream cluster upgrade"
        )
    is_fine = all(node.is_up and node.behind_count <= 0 for node in nodes)
    text = "\n".join([table(shown), *notes])
    data = {
        "level": described.level,
        "nodes": [asdict(node) for node in nodes],
        "notes": notes,
    }
    return Answer(data, text, is_fine)


@cluster.command()
@click.option("--level", type=int, metavar="N", help="The level; the highest that a node knows.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say whether it can be; change nothing.")
@answered
@connected
def upgrade(client: "Client", level: int | None, is_dry: bool) -> Answer:
    """Finish a rolling upgrade: write what only the newer version knows.

    Restart every node with the newer version first. There is no way back to the older one.
    """
    cluster_now = client.cluster.describe()
    level = level or cluster_now.level_next
    data = {"level_before": cluster_now.level, "level": level, "dry_run": is_dry}
    if level == cluster_now.level:
        return Answer(data, f"cluster.version is {level}, the highest that the nodes know")
    client.cluster.upgrade(level, dry_run=is_dry)
    change = f"from {cluster_now.level} to {level}"
    if is_dry:
        return Answer(data, f"cluster.version can be raised {change}: every node knows it")
    return Answer(data, f"cluster.version was raised {change}: older versions no longer start")


@cluster.command()
@click.argument("node_id", type=int, metavar="NODE")
@answered
@connected
def drain(client: "Client", node_id: int) -> Answer:
    """Let other nodes lead, and give a node no new replicas, until `undrain`."""
    client.cluster.drain(node_id)
    return Answer(
        {"draining": node_id}, f"node {node_id} hands over what it leads, and gets no new replicas"
    )


@cluster.command()
@click.argument("node_id", type=int, metavar="NODE")
@answered
@connected
def undrain(client: "Client", node_id: int) -> Answer:
    """Take back a node that is drained, or that is decommissioned and not removed yet."""
    client.cluster.undrain(node_id)
    return Answer({"active": node_id}, f"node {node_id} is active")


@cluster.command()
@click.argument("node_id", type=int, metavar="NODE")
@click.option(
    "--to",
    "successor",
    type=int,
    metavar="NODE",
    help="The node that takes all its replicas. Otherwise they are spread over all nodes.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Say whether it can leave; change nothing.")
@yes_option
@answered
@connected
def decommission(
    client: "Client", node_id: int, successor: int | None, is_dry: bool, is_yes: bool
) -> Answer:
    """Move everything away from a node, also a dead one, then remove it for ever.

    It is refused if some replica would have no place. `cluster moves` shows what is left to move,
    and `cluster undrain` takes the node back until it is removed.
    """
    if not is_dry:
        confirm(f"Remove node {node_id} for ever, once it is empty?", is_yes=is_yes)
    client.cluster.decommission(node_id, successor=successor, dry_run=is_dry)
    data = {"leaving": node_id, "to": successor, "dry_run": is_dry}
    if is_dry:
        return Answer(data, f"node {node_id} can leave")
    return Answer(data, f"node {node_id} leaves: its replicas move away, then it is removed")


@cluster.command()
@click.argument("old", type=int, metavar="OLD")
@click.argument("new", type=int, metavar="NEW")
@yes_option
@answered
@connected
def replace(client: "Client", old: int, new: int, is_yes: bool) -> Answer:
    """Give all replicas of a node to another one, then remove it for ever.

    For a node whose disk is lost: let a new node join, then say which one it replaces.
    """
    confirm(f"Remove node {old} for ever, once node {new} has its replicas?", is_yes=is_yes)
    client.cluster.decommission(old, successor=new)
    return Answer({"leaving": old, "to": new}, f"node {new} takes the replicas of node {old}")


def _nodes(
    context: click.Context, _argument: click.Parameter, text: str | None
) -> list[int] | None:
    """The nodes of a partition; None to cancel its move."""
    if (text is None) != bool(context.params.get("is_cancelled")):
        raise click.UsageError("say the nodes, such as 1,2,4, or --cancel")
    try:
        return None if text is None else [int(node) for node in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{text!r} are no nodes: say them as in 1,2,4") from None


@cluster.command()
@click.argument("topic")
@click.argument("partition", type=int)
@click.argument("nodes", metavar="[NODE,NODE...]", required=False, callback=_nodes)
@click.option(
    "--cancel", "is_cancelled", is_flag=True, is_eager=True, help="Go back to where it was."
)
@answered
@connected
def move(
    client: "Client", topic: str, partition: int, nodes: list[int] | None, is_cancelled: bool
) -> Answer:
    """Move a partition to these nodes; the first is preferred as its leader.

    Clients go on meanwhile. `cluster moves` lists the partition until it is done.
    """
    client.cluster.move(topic, {partition: nodes})
    data = {"topic": topic, "partition": partition, "nodes": nodes}
    if is_cancelled or nodes is None:
        return Answer(data, f"{topic}-{partition} goes back to where it was")
    return Answer(data, f"{topic}-{partition} moves to {', '.join(map(str, nodes))}")


@cluster.command()
@answered
@connected
def moves(client: "Client") -> Answer:
    """List the partitions that move between nodes."""
    moving = client.cluster.moves()
    shown = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": _listed(each.replicas),
            "adding": _listed(each.adding),
            "removing": _listed(each.removing),
        }
        for each in moving
    ]
    text = table(shown) if shown else "nothing moves"
    return Answer({"moves": [asdict(each) for each in moving]}, text)


@cluster.command()
@click.option(
    "--nodes",
    "node_count",
    type=click.IntRange(3, 5),
    default=3,
    show_default=True,
    metavar="N",
    help="Processes on this machine.",
)
@answered
def demo(node_count: int) -> Answer:
    """See a failover: three nodes on this machine, one killed and back, and nothing lost.

    Needs no broker and no network, and leaves nothing behind. The exit code is 1 if an acknowledged
    record is missing.
    """
    from millstream.cli.cluster.demo import run

    steps = []
    for step in run(node_count):
        click.echo(step.text, err=True)
        steps.append(step)
    figures = {step.event: step.figures for step in steps}
    is_fine = figures["read"]["lost"] == figures["read"]["twice"] == 0
    return Answer(figures, "", is_fine)


def _listed(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes)) or "-"


def _notes(count: int, down_count: int) -> list[str]:
    notes = []
    if count == 1:
        notes.append("one node: records are as safe as its disk; grow with: cluster invite")
    elif count == 2:
        notes.append("two nodes are not safer than one: with either gone, nothing is written")
    if down_count:
        notes.append(
            f"{down_count} of {count} nodes cannot be reached from the node that was asked"
        )
    return notes

"""`millstream cluster`: the nodes of a cluster, invitations to it, and joining it."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.commands.operate.node import node_flags
from millstream.cli.connection import connected
from millstream.cli.options import pairs
from millstream.cli.render import Answer, CommandGroup, answered, table

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
    nodes = client.cluster.nodes()
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
    is_fine = all(node.is_up and node.behind_count <= 0 for node in nodes)
    text = "\n".join([table(shown), *notes])
    return Answer({"nodes": [asdict(node) for node in nodes], "notes": notes}, text, is_fine)


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
    """Take a drained node back."""
    client.cluster.undrain(node_id)
    return Answer({"active": node_id}, f"node {node_id} is active")


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

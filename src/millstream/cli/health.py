"""`millstream health`: whether the cluster serves every partition, as an exit code."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import connected
from millstream.cli.render import Answer, answered, card

if TYPE_CHECKING:
    from millstream.client import Client


@click.command()
@answered
@connected
def health(client: "Client") -> Answer:
    """Say whether all partitions have a leader and all replicas; exit with 1 if not."""
    cluster = client.admin.describe_cluster()
    topics = client.admin.list_topics(with_internal=True)
    leaderless: list[str] = []
    behind: list[str] = []
    partition_count = 0
    for topic in topics:
        for one in client.admin.partitions(topic.name):
            partition_count += 1
            if one.leader_id is None:
                leaderless.append(f"{topic.name}-{one.partition}")
            elif len(one.in_sync_ids) < len(one.replica_ids):
                behind.append(f"{topic.name}-{one.partition}")
    is_fine = not leaderless and not behind
    facts = {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "topics": len(topics),
        "partitions": partition_count,
        "without_leader": leaderless,
        "without_all_replicas": behind,
    }
    nodes = [f"{node.node_id} at {node.host}:{node.port}" for node in cluster.nodes]
    status = "healthy" if is_fine else "unhealthy"
    return Answer(
        {"status": status, **facts, "nodes": [asdict(node) for node in cluster.nodes]},
        card({"status": status, **facts, "nodes": nodes}),
        is_fine,
    )

"""`millstream health`: whether the cluster serves every partition, as an exit code."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.render import Answer, answered, card, instant

if TYPE_CHECKING:
    from millstream.client import Client, StorageProblem
    from millstream.client.extensions.damage import ClosedLog, DamagedRange, DamageReport


@click.command()
@click.option(
    "--url",
    metavar="URL",
    help="Ask /health/ready of a node's HTTP instead, such as http://localhost:9094.",
)
@answered
@connection_options
def health(target: Target, url: str | None) -> Answer:
    """Say whether all partitions have a leader, all replicas, space and sound records.

    Exits with 1 if not. Damage that is listed is that of the first broker; `given up` is what was
    repaired. With --url the checks of one node count, and nothing but HTTP is needed.
    """
    if url is not None:
        return _readiness(url)
    with open_client(target) as client:
        return _cluster_health(client)


def _readiness(url: str) -> Answer:
    from millstream.cli.monitoring.scrape import readiness

    is_ready, report = readiness(url)
    wrong = {
        check["name"]: check["message"]
        for check in report["checks"]
        if check["status"] != "healthy"
    }
    return Answer(report, card({"status": report["status"], **wrong}), is_ready)


def _cluster_health(client: "Client") -> Answer:
    cluster = client.admin.describe_cluster()
    topics = client.admin.list_topics(with_internal=True)
    leaderless: list[str] = []
    behind: list[str] = []
    partition_count = 0
    for topic in topics:
        for partition in client.admin.partitions(topic.name):
            partition_count += 1
            if partition.leader_id is None:
                leaderless.append(f"{topic.name}-{partition.partition}")
            elif len(partition.in_sync_ids) < len(partition.replica_ids):
                behind.append(f"{topic.name}-{partition.partition}")
    problems = _storage_problems(client)
    refusing = [f"{problem.topic}-{problem.partition}" for problem in problems]
    is_full = any(problem.is_disk_full for problem in problems)
    report = _damage(client)
    damaged = [] if report is None else [_range(damage) for damage in report.damaged]
    closed = [] if report is None else [f"{_name(log)}: {log.problem}" for log in report.closed]
    skipped = [] if report is None else [_range(skip) for skip in report.skipped]
    is_fine = not (leaderless or behind or damaged or closed or problems)
    facts: dict[str, object] = {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "topics": len(topics),
        "partitions": partition_count,
        "without_leader": leaderless,
        "without_all_replicas": behind,
        "damaged": damaged,
        "closed": closed,
        "given_up": skipped,
        "last_scrub": _last_scrub(report),
        "disk_full": is_full,
        "taking_no_records": refusing,
    }
    nodes = [f"{node.node_id} at {node.host}:{node.port}" for node in cluster.nodes]
    status = "healthy" if is_fine else "disk full" if is_full else "unhealthy"
    return Answer(
        {"status": status, **facts, "nodes": [asdict(node) for node in cluster.nodes]},
        card({"status": status, **facts, "nodes": nodes}),
        is_fine,
    )


def _damage(client: "Client") -> "DamageReport | None":
    """None from a broker that is no Millstream, or an older one."""
    from millstream.client import NotSupported

    try:
        return client.damage.list()
    except NotSupported:
        return None


def _name(log: "DamagedRange | ClosedLog") -> str:
    return f"{log.topic}/{log.partition}"


def _range(damage: "DamagedRange") -> str:
    return (
        f"{_name(damage)}@{damage.base_offset} to {damage.end_offset - 1}, "
        f"{damage.file} at {damage.position}, {damage.size} bytes: {damage.reason}"
    )


def _last_scrub(report: "DamageReport | None") -> str | None:
    if report is None:
        return None
    scrubbing = report.scrubbing
    if not scrubbing.bytes_per_second:
        return "off"
    if scrubbing.last_full_pass_ms < 0:
        return f"none yet, {scrubbing.pass_bytes} bytes of the first"
    return instant(datetime.fromtimestamp(scrubbing.last_full_pass_ms / 1000, UTC))


def _storage_problems(client: "Client") -> "tuple[StorageProblem, ...]":
    from millstream.client import NotSupported

    try:
        return client.storage_problems()
    except NotSupported:
        return ()  # Only Millstream has this API.

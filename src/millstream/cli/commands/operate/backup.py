"""`millstream backup` and `millstream restore`: all records at one moment, and back."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.render import Answer, answered, fields, instant, progress

if TYPE_CHECKING:
    from millstream.cli.backup import making
    from millstream.cli.backup.manifest import Backup
    from millstream.client import Client
    from millstream.client.models import BrokerNode


@click.command()
@click.argument("target_path", type=click.Path(path_type=Path), metavar="TARGET")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Back up only the node with this data_dir, which may be stopped.",
)
@answered
@connection_options
def backup(target: Target, target_path: Path, data_dir: Path | None) -> Answer:
    """Copy all records, groups, settings and users to the new directory TARGET.

    Nodes go on meanwhile, and the copy of each is that of one moment. A single node is copied on
    its machine, as its user; the nodes of a cluster are asked for what they lead, from anywhere.
    Every batch of the copy is verified; the exit code is 1 if one is damaged or a node is missing.
    """
    from millstream.cli.backup import making

    making.check_target(target_path)
    if data_dir is not None and not making.is_running(data_dir):
        with making.stopped_source(data_dir) as source:
            return _copied(source, target_path)
    with open_client(target) as client:
        nodes = client.admin.describe_cluster().nodes
        if data_dir is None and len(nodes) > 1:
            return _copied_cluster(client, nodes, target_path)
        with making.running_source(client, data_dir) as source:
            return _copied(source, target_path)


@click.command()
@click.argument("source", type=click.Path(path_type=Path), metavar="BACKUP")
@click.argument("data_dir", type=click.Path(path_type=Path), required=False)
@click.option("--check", "is_checked", is_flag=True, help="Compare all files; restore nothing.")
@click.option(
    "--partial",
    "is_partial",
    is_flag=True,
    help="Of a cluster: partitions that no backup has are empty.",
)
@answered
def restore(source: Path, data_dir: Path | None, is_checked: bool, is_partial: bool) -> Answer:
    """Make the new data directory DATA_DIR of a BACKUP, as a cluster of its own.

    Every file is compared with its checksum. A cluster id of its own keeps the restored node apart
    from the one that was backed up; with encryption the id stays, as keys are bound to it. The
    backup of a cluster becomes one node, which others may join.
    """
    from millstream.cli.backup import restoring

    if is_checked == (data_dir is not None):
        raise click.UsageError("Pass DATA_DIR, or --check to restore nothing.")
    backups = restoring.read_backups(source)
    made = {"backup": str(source), **_sums(backups), "version": backups[0].manifest.version}
    with progress("reading", sum(each.manifest.size_bytes for each in backups)) as advance:
        if data_dir is None:
            for each in backups:
                restoring.check_backup(each, advance)
            return fields(made)
        restored = restoring.restore_backups(backups, data_dir, advance, is_partial=is_partial)
    number = "" if restored.node_id == 1 else f" --node-id {restored.node_id}"
    made |= {"node_id": restored.node_id, "cluster_id": restored.cluster_id}
    if restored.missing:
        made["empty"] = restored.missing
    return fields(made | {"start_it": f"millstream serve --data-dir {data_dir}{number}"})


def _copied(source: "making.Source", target: Path) -> Answer:
    from millstream.cli.backup import making

    with progress("copying", sum(source.sizes.values())) as advance:
        made = making.make_backup(source, target, advance)
    return _answer(target, [made.backup], made.problems)


def _copied_cluster(client: "Client", nodes: "Sequence[BrokerNode]", target: Path) -> Answer:
    from millstream.cli.backup import cluster

    with (
        cluster.cluster_sources(client, nodes) as sources,
        progress("copying", sources.size_bytes) as advance,
    ):
        made = cluster.make_cluster_backup(sources, target, advance)
    return _answer(target, made.backups, made.problems)


def _answer(target: Path, backups: "Sequence[Backup]", problems: list[str]) -> Answer:
    answer = fields({"backup": str(target), **_sums(backups), "problems": problems})
    return answer._replace(is_fine=not problems)


def _sums(backups: "Sequence[Backup]") -> dict[str, object]:
    first = backups[0].manifest
    node_ids = [each.manifest.node_id for each in backups]
    return {
        "made": instant(datetime.fromtimestamp(first.made_ms / 1000, UTC)),
        "logs": len(set().union(*(each.manifest.logs for each in backups))),
        "bytes": sum(each.manifest.size_bytes for each in backups),
        "node_id": node_ids[0] if len(node_ids) == 1 else node_ids,
        "cluster_id": first.cluster_id,
    }

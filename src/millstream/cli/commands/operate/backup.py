"""`millstream backup` and `millstream restore`: a node's records at one moment, and back."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.render import Answer, answered, fields, instant, progress

if TYPE_CHECKING:
    from millstream.cli.backup import making


@click.command()
@click.argument("target_path", type=click.Path(path_type=Path), metavar="TARGET")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The data_dir of the node, which may be stopped. Else the node names it.",
)
@answered
@connection_options
def backup(target: Target, target_path: Path, data_dir: Path | None) -> Answer:
    """Copy all records, groups, settings and users of a node to the new directory TARGET.

    The node goes on meanwhile, and the copy is that of one moment. Run it on the node's machine, as
    its user. Every batch of the copy is verified; the exit code is 1 if one is damaged.
    """
    from millstream.cli.backup import making

    making.check_target(target_path)
    if data_dir is not None and not making.is_running(data_dir):
        with making.stopped_source(data_dir) as source:
            return _answer(_copied(source, target_path))
    with open_client(target) as client, making.running_source(client, data_dir) as source:
        return _answer(_copied(source, target_path))


@click.command()
@click.argument("source", type=click.Path(path_type=Path), metavar="BACKUP")
@click.argument("data_dir", type=click.Path(path_type=Path), required=False)
@click.option("--check", "is_checked", is_flag=True, help="Compare all files; restore nothing.")
@answered
def restore(source: Path, data_dir: Path | None, is_checked: bool) -> Answer:
    """Make the new data directory DATA_DIR of a BACKUP, as a cluster of its own.

    Every file is compared with its checksum. A cluster id of its own keeps the restored node apart
    from the one that was backed up; with encryption the id stays, as keys are bound to it.
    """
    from millstream.cli.backup import restoring
    from millstream.cli.backup.manifest import read_manifest

    if is_checked == (data_dir is not None):
        raise click.UsageError("Pass DATA_DIR, or --check to restore nothing.")
    with progress("reading", read_manifest(source).size_bytes) as advance:
        if data_dir is None:
            manifest = restoring.check_backup(source, advance)
            cluster_id = manifest.cluster_id
        else:
            manifest, cluster_id = restoring.restore_backup(source, data_dir, advance)
    made: dict[str, object] = {
        "backup": str(source),
        "made": _instant(manifest.made_ms),
        "version": manifest.version,
        "logs": manifest.log_count,
        "bytes": manifest.size_bytes,
        "node_id": manifest.node_id,
        "cluster_id": cluster_id,
    }
    if data_dir is not None:
        number = "" if manifest.node_id == 1 else f" --node-id {manifest.node_id}"
        made["start_it"] = f"millstream serve --data-dir {data_dir}{number}"
    return fields(made)


def _copied(source: "making.Source", target: Path) -> "making.Made":
    from millstream.cli.backup import making

    with progress("copying", sum(source.sizes.values())) as advance:
        return making.make_backup(source, target, advance)


def _answer(made: "making.Made") -> Answer:
    manifest = made.backup.manifest
    answer = fields(
        {
            "backup": str(made.backup.path),
            "made": _instant(manifest.made_ms),
            "logs": manifest.log_count,
            "bytes": manifest.size_bytes,
            "node_id": manifest.node_id,
            "cluster_id": manifest.cluster_id,
            "problems": made.problems,
        }
    )
    return answer._replace(is_fine=not made.problems)


def _instant(milliseconds: int) -> str:
    return instant(datetime.fromtimestamp(milliseconds / 1000, UTC))

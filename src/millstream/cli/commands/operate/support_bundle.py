"""`millstream support-bundle`: facts about a node in one archive, for a person who helps."""

from pathlib import Path

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.render import Answer, Refused, answered


@click.command("support-bundle")
@click.argument("file", type=click.Path(path_type=Path), default="millstream-support.tar.gz")
@click.option("--config", "path", metavar="FILE", help="The node's configuration file.")
@click.option("--data-dir", metavar="DIR", help="The node's data directory.  [as configured]")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A log file of the node, of which the end is taken; repeatable.",
)
@click.option(
    "--url", default="http://localhost:9094", show_default=True, help="HTTP, for its metrics."
)
@click.option("--anonymous", "is_anonymous", is_flag=True, help="Hide names of topics and groups.")
@answered
@connection_options
def support_bundle(
    target: Target,
    file: Path,
    path: str | None,
    data_dir: str | None,
    logs: tuple[Path, ...],
    url: str,
    is_anonymous: bool,
) -> Answer:
    """Write versions, settings, topics, groups, metrics and log lines to the archive FILE.

    No record, key or password is in it. A node that is down is no hindrance: what cannot be had is
    named in the bundle.
    """
    from millstream.cli.support import bundle

    if file.exists():
        raise Refused(f"{file} exists: name another file")
    sources = bundle.Sources(
        target=target,
        config_path=path,
        data_dir=data_dir,
        logs=logs,
        http=url,
        is_anonymous=is_anonymous,
    )
    parts = bundle.gather(sources, open_client)
    bundle.write(parts, file)
    missing = sorted(name.removesuffix(".missing") for name in parts if name.endswith(".missing"))
    made = {"file": str(file), "parts": len(parts), "missing": missing}
    text = f"wrote {file} with {len(parts)} parts; read it before you pass it on"
    if missing:
        text += f"\nnot to be had, and why is in it: {', '.join(missing)}"
    return Answer(made, text)

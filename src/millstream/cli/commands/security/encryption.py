"""`millstream encryption`: keys of encryption at rest, and which records they protect."""

from dataclasses import asdict
from pathlib import Path

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.render import Answer, CommandGroup, Refused, answered, fields, rows


@click.group(cls=CommandGroup)
def encryption() -> None:
    """Make a root key, rotate keys, and see what is encrypted."""


@encryption.command()
@click.argument("file", type=click.Path(path_type=Path))
@answered
def key(file: Path) -> Answer:
    """Make a root key in FILE, readable by its owner alone. Who loses it loses the records."""
    from millstream.cli.root_key import make_root_key
    from millstream.errors import StartupError

    try:
        check = make_root_key(file)
    except StartupError as problem:
        raise Refused(str(problem)) from None
    made = {"file": str(file), "check": check}
    return Answer(
        made,
        f"made {file}, check {check}\n"
        "Keep a copy in another place: without this key no encrypted record can be read.\n"
        f'[encryption]\nmode = "on"\nkey = "file:{file}"',
    )


@encryption.command()
@answered
@connection_options
def status(target: Target) -> Answer:
    """Show the mode, the root key's check value, and the bytes that each key has sealed."""
    with open_client(target) as client:
        report = client.encryption.describe()
    state = asdict(report)
    keys = state.pop("keys")
    shown = fields(state).text
    if keys:
        shown += "\n\n" + rows(list(keys), nothing="").text
    return Answer({**state, "keys": list(keys)}, shown)


@encryption.command()
@click.option("--root", is_flag=True, help="Use encryption.key instead of encryption.old_key.")
@click.option("--master", is_flag=True, help="Make a new master key and wrap all keys by it.")
@answered
@connection_options
def rotate(target: Target, root: bool, master: bool) -> Answer:
    """Make a new data key for each topic. Old keys stay, to read what they have sealed."""
    if root and master:
        raise click.UsageError("Pass --root or --master, not both.")
    with open_client(target) as client:
        count = client.encryption.rotate("root" if root else "master" if master else "data")
    if root:
        text = "the root key was changed: encryption.old_key can be removed from the settings"
    elif master:
        text = f"a new master key wraps {count} data keys"
    else:
        text = f"{count} topics have new data keys; seal old records with: encryption rewrite"
    return Answer({"count": count}, text)


@encryption.command()
@answered
@connection_options
def rewrite(target: Target) -> Answer:
    """Seal old records with the keys of today, in the background; `status` shows what is left."""
    with open_client(target) as client:
        count = client.encryption.rewrite()
    return Answer({"count": count}, f"{count} partitions are being rewritten")


@encryption.command()
@click.option("--lift", is_flag=True, help="Let nodes that write in clear start again.")
@answered
@connection_options
def require(target: Target, lift: bool) -> Answer:
    """Let only nodes that encrypt what they write join and start. Refused while one does not."""
    with open_client(target) as client:
        client.encryption.require(is_required=not lift)
    text = (
        "nodes that write in clear may join and start"
        if lift
        else "only nodes that encrypt what they write join and start from now on"
    )
    return Answer({"is_required": not lift}, text)

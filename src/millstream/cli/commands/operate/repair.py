"""`millstream repair`: skips records or commands that cannot be read or applied, on request."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.options import key_option
from millstream.cli.render import Answer, Refused, answered, card, confirm, yes_option

_PLACE = re.compile(r"(?P<topic>.+)/(?P<partition>\d+)@(?P<offset>\d+)", re.ASCII)


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


class PlaceType(click.ParamType):  # type: ignore[type-arg]
    name = "place"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        if isinstance(value, Place):
            return value
        match = _PLACE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not TOPIC/PARTITION@OFFSET, such as orders/0@1234", param, ctx)
        return Place(match["topic"], int(match["partition"]), int(match["offset"]))


@click.command()
@click.option(
    "--skip",
    "place",
    type=PlaceType(),
    metavar="TOPIC/PARTITION@OFFSET",
    help="Give up the damaged records at this offset. Readers go on behind them.",
)
@click.option(
    "--skip-command",
    "command_offset",
    type=click.IntRange(0),
    metavar="OFFSET",
    help="Leave out the command at OFFSET of the control log, which the node cannot apply.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The data_dir of a node that is stopped.",
)
@key_option
@yes_option
@answered
@connection_options
def repair(
    target: Target,
    place: Place | None,
    command_offset: int | None,
    data_dir: Path | None,
    key_reference: str,
    is_yes: bool,
) -> Answer:
    """Give up unreadable records, or a command that cannot be applied.

    What is given up is lost for good; the decision is kept.

    Damaged records (`millstream health` names them) are given up on a running broker, or with
    --data-dir on a stopped one; their bytes are kept in a file, and a sound batch is never given
    up. A command of the control log (`millstream inspect` names it) needs --data-dir. A directory
    that is encrypted needs its root key.
    """
    if place is not None and command_offset is not None:
        raise click.UsageError("Pass --skip or --skip-command, not both.")
    if place is not None:
        return skip_records(target, place, data_dir, key_reference, is_yes=is_yes)
    if command_offset is None:
        raise click.UsageError(
            "Nothing to repair was named: pass --skip TOPIC/PARTITION@OFFSET or "
            "--skip-command OFFSET."
        )
    if data_dir is None:
        raise click.UsageError("--skip-command needs --data-dir: the node must be stopped.")
    return skip_command(data_dir, command_offset, key_reference, is_yes=is_yes)


def skip_records(
    target: Target, place: Place, data_dir: Path | None, key_reference: str, *, is_yes: bool
) -> Answer:
    name = f"{place.topic}/{place.partition}@{place.offset}"
    confirm(f"Give up the damaged records at {name}?", is_yes=is_yes)
    if data_dir is not None:
        from millstream.cli.repair.offline import skip_offline

        gone = skip_offline(data_dir, *place, key_reference)
    else:
        with open_client(target) as client:
            gone = asdict(client.damage.skip(*place))
    return Answer(gone, card(gone))


def skip_command(path: Path, offset: int, key_reference: str, *, is_yes: bool) -> Answer:
    import time

    from millstream.cli import inspection
    from millstream.cli.repair.data_keys import open_data_keys
    from millstream.storage.files.directory import locked
    from millstream.storage.files.disk import DiskFiles
    from millstream.storage.files.skipped_commands import SkippedCommand, add_skipped

    if not inspection.is_data_directory(path):
        raise Refused(f"{path} is not a data directory: pass the data_dir of a node")
    files, keys = DiskFiles(path), open_data_keys(path, key_reference)
    with locked(files, str(path)):
        problems = {
            command.offset: command.problem for command in inspection.unusable_commands(path, keys)
        }
        if offset not in problems:
            named = ", ".join(map(str, sorted(problems)))
            advice = f"these cannot: {named}" if named else "every command can be applied"
            raise Refused(f"the command at offset {offset} is not skipped; {advice}")
        problem = problems[offset]
        click.echo(f"offset {offset} of the control log: {problem}", err=True)
        confirm("Leave this command out for good?", is_yes=is_yes)
        add_skipped(files, str(path), SkippedCommand(offset, problem, int(time.time() * 1000)))
    data = {"skipped_command": offset, "problem": problem, "path": str(path)}
    return Answer(data, f"the node of {path} will start without the command at offset {offset}")

"""`millstream repair`: take a stopped node past what it cannot read, by an operator's decision."""

from pathlib import Path

import click

from millstream.cli.render import Answer, Refused, answered, confirm, yes_option


@click.command()
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
@yes_option
@answered
def repair(command_offset: int | None, data_dir: Path | None, is_yes: bool) -> Answer:
    """Let the node of a data directory start without what it cannot read. Stop the node first.

    `millstream inspect` names what is wrong, with its offset. What is left out is lost for good;
    the decision is kept in the directory, and every start logs it.
    """
    if command_offset is None:
        raise click.UsageError("Nothing to repair was named: pass --skip-command OFFSET.")
    if data_dir is None:
        raise click.UsageError("--skip-command needs --data-dir: the node must be stopped.")
    return skip_command(data_dir, command_offset, is_yes=is_yes)


def skip_command(path: Path, offset: int, *, is_yes: bool) -> Answer:
    import time

    from millstream.cli import inspection
    from millstream.storage.directory import locked
    from millstream.storage.disk import DiskFiles
    from millstream.storage.skipped_commands import SkippedCommand, add_skipped

    if not inspection.is_data_directory(path):
        raise Refused(f"{path} is not a data directory: pass the data_dir of a node")
    files = DiskFiles(path)
    with locked(files, str(path)):
        problems = {one.offset: one.problem for one in inspection.unusable_commands(path)}
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

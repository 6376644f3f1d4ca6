"""`millstream pipeline`: the names and flags of its commands.

`pipeline.actions` carries them out. It is imported when a command runs: it needs Spark, which
`--help` does not.
"""

import sys
from typing import Any

import click

from millstream.cli.connection import connection_flags, explicit_target, target_in_use
from millstream.cli.options import pairs
from millstream.cli.render import CommandGroup

TEMPLATES = ("sql", "validate", "aggregate", "archive", "sdp")

_path = click.argument("path", default=".", metavar="[PATH]")
_connection = connection_flags("the bootstrap of the pipeline's file")
_master = click.option(
    "--master",
    metavar="URL",
    default="local[*,4]",
    show_default=True,
    help="Where Spark runs: local[*], spark://host:7077, ...",
)
_conf = click.option(
    "--conf", metavar="KEY=VALUE", multiple=True, help="A setting of Spark's. May be repeated."
)
_state = click.option(
    "--state-dir", metavar="DIR", help="Where checkpoints are.  [default: .millstream]"
)
_output = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Run pipelines on Spark: topics to topics and tables.

    PATH is a pipeline's file or the directory that it lies in: pipeline.yml, or spark-pipeline.yml
    of a Spark Declarative Pipelines project. Paths in it start where it lies.
    """


@pipeline.command()
@click.argument("name")
@click.option("--template", type=click.Choice(TEMPLATES), default="sql", show_default=True)
def init(**flags: Any) -> None:
    """Make a directory NAME with a pipeline to start from."""
    _act("init", flags)


@pipeline.command()
@_path
@_connection
@_master
@_conf
@_state
@click.option("--continuous", is_flag=True, help="Go on until Ctrl-C; else end when all is read.")
@click.option("--quiet", is_flag=True, help="Report no progress, only the summary.")
@_output
def run(**flags: Any) -> None:
    """Run a pipeline; progress goes to standard error, the summary to standard output."""
    _act("run", flags)


@pipeline.command("dry-run")
@_path
@_connection
@_master
@_conf
@_state
@_output
def dry_run(**flags: Any) -> None:
    """Check a pipeline, its topics and its SQL, and show its flows without running them."""
    _act("dry_run", flags)


@pipeline.command()
@_path
@_connection
@_state
@_output
def status(**flags: Any) -> None:
    """Show how far a pipeline is: its checkpoints, its consumer groups and their lag."""
    _act("status", flags)


@pipeline.command()
@_connection
@click.option("--once", is_flag=True, help="Print the table once, also on a terminal.")
@_output
def top(**flags: Any) -> None:
    """Show all pipelines that report here: state, rates, lag, dead letters. Live on a terminal."""
    _act("top", flags)


@pipeline.command()
@_path
@_connection
@_output
def stop(**flags: Any) -> None:
    """Ask a running pipeline to stop after its batch, wherever it runs."""
    _act("stop", flags)


@pipeline.command()
@_path
@_connection
@_output
def restart(**flags: Any) -> None:
    """Ask a running pipeline to read its file again and go on from its checkpoints."""
    _act("restart", flags)


@pipeline.command()
@_path
@_connection
@_master
@_conf
@_state
@click.option("--from", "from_time", metavar="TIME", required=True, help="First time, ISO 8601.")
@click.option("--to", "to_time", metavar="TIME", required=True, help="First time after the last.")
@click.option("--flow", metavar="NAME", help="Only this flow.")
@_output
def backfill(**flags: Any) -> None:
    """Run the flows once more over the records of a past time, beside the running pipeline.

    Run again for the same time, it writes nothing a second time.
    """
    _act("backfill", flags)


@pipeline.command()
@_path
@_master
@_conf
@_output
def test(**flags: Any) -> None:
    """Run the pipeline's own examples on Spark, without a broker."""
    _act("test", flags)


@pipeline.command()
@click.argument("checkpoint")
@click.option(
    "--into",
    metavar="DIR",
    help="Where the copy goes.  [default: CHECKPOINT with -millstream behind it]",
)
@_output
def adopt(**flags: Any) -> None:
    """Take a checkpoint of Spark's own Kafka connector over, offsets and state included.

    CHECKPOINT is the query's checkpointLocation, on a local disk or a mount; stop the query first.
    It stays as it is: a copy goes on with format("millstream").
    """
    _act("adopt", flags)


# Any: flags of all commands, of their own types.
def _act(name: str, flags: dict[str, Any]) -> None:
    from millstream.cli.pipeline.actions import perform

    if "client_settings" in flags:
        flags["target"] = explicit_target(flags.pop("bootstrap"), flags.pop("context_name"))
        flags["target_in_use"] = target_in_use()
        flags["client_settings"] = pairs(flags["client_settings"], "-X")

    sys.exit(perform(name, flags))

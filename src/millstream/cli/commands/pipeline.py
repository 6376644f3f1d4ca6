"""`millstream pipeline`: the names and flags of its commands.

`pipeline.actions` has what they do. It is imported when a command runs: it needs Spark, which
`--help` does not.
"""

import sys
from typing import Any

import click

from millstream.cli.render import CommandGroup

TEMPLATES = ("sql", "validate", "aggregate", "archive", "sdp")

_path = click.argument("path", default=".", metavar="[PATH]")
_bootstrap = click.option(
    "-b",
    "--bootstrap",
    envvar="MILLSTREAM_BOOTSTRAP",
    metavar="HOST:PORT",
    help="The brokers.  [env: MILLSTREAM_BOOTSTRAP; default: what the pipeline says]",
)
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
def init(**given: Any) -> None:
    """Make a directory NAME with a pipeline to start from."""
    _act("init", given)


@pipeline.command()
@_path
@_bootstrap
@_master
@_conf
@_state
@click.option("--continuous", is_flag=True, help="Go on until Ctrl-C; else end when all is read.")
@click.option("--quiet", is_flag=True, help="Report no progress, only the summary.")
@_output
def run(**given: Any) -> None:
    """Run a pipeline; progress goes to standard error, the summary to standard output."""
    _act("run", given)


@pipeline.command("dry-run")
@_path
@_bootstrap
@_master
@_conf
@_state
@_output
def dry_run(**given: Any) -> None:
    """Check a pipeline, its topics and its SQL, and say what would run."""
    _act("dry_run", given)


@pipeline.command()
@_path
@_bootstrap
@_state
@_output
def status(**given: Any) -> None:
    """Say where a pipeline stands: its checkpoints, its consumer groups and their lag."""
    _act("status", given)


@pipeline.command()
@_path
@_master
@_conf
@_output
def test(**given: Any) -> None:
    """Run the pipeline's own examples on Spark, without a broker."""
    _act("test", given)


# Flags of all commands, of their own types.
def _act(name: str, given: dict[str, Any]) -> None:
    from millstream.cli.pipeline.actions import perform

    sys.exit(perform(name, given))

"""The command `millstream`.

Owns the commands' names, flags and exit codes: 0 done, 1 refused or failed, 2 misuse. What a
command needs is imported when it runs, so that `--help` answers at once.
"""

import sys

import click

from millstream import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="millstream")
def commands() -> None:
    """Millstream: Kafka in a pip install, with Spark built in."""


@commands.command()
@click.option("--config", "path", metavar="FILE", help="TOML or JSON file with settings.")
@click.option("--data-dir", metavar="DIR", help="Where records are kept.  [default: data]")
@click.option("--node-id", type=int, metavar="N", help="This node's number.  [default: 1]")
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="Kafka and FlyMQ clients.  [default: 9092]")
@click.option("--flux-port", type=int, metavar="N", help="Flux text protocol.  [default: 4222]")
@click.option("--classic-port", type=int, metavar="N", help="Classic protocol.  [default: 9999]")
@click.option("--http-port", type=int, metavar="N", help="Metrics and REST.  [default: 9094]")
@click.option("--storage", metavar="KIND", help="disk or memory.  [default: disk]")
@click.option(
    "--durability",
    metavar="KIND",
    help="sync: acks=all waits for the disk; write: only for the operating system. [default: sync]",
)
@click.option("--verbose", is_flag=True, help="Log what happens in detail.")
def serve(path: str | None, verbose: bool, **flags: object) -> None:
    """Run a node until it is told to stop (Ctrl-C or SIGTERM).

    A port of 0 means any free one. Every setting can also stand in a file or in an environment
    variable, such as MILLSTREAM_DATA_DIR; flags win over variables, variables over the file.
    """
    from millstream.cli.serve import run

    sys.exit(run(path=path, flags=flags, verbose=verbose))


def main() -> None:
    commands()

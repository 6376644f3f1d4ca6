"""`millstream metrics` and `millstream top`: dashboards as files, and figures in the terminal."""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.render import Answer, CommandGroup, Refused, answered, output_option, to_json

if TYPE_CHECKING:
    from millstream.cli.monitoring.scrape import Scrape

URL = "http://localhost:9094"
PASSWORD_VARIABLE = "MILLSTREAM_HTTP_PASSWORD"
CLEAR = "\x1b[H\x1b[2J"


@click.group(cls=CommandGroup)
def metrics() -> None:
    """Work with the metrics of brokers."""


@metrics.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace files that differ.")
@answered
def dashboards(directory: Path, overwrite: bool) -> Answer:
    """Write dashboards for Grafana and alert rules for Prometheus into a directory."""
    from millstream.cli.monitoring.files import files

    made = dict(files())
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        path = directory / name
        if path.exists() and not overwrite and path.read_text(encoding="utf-8") != text:
            raise Refused(f"{path} is there and differs; --overwrite replaces it")
    for name, text in made.items():
        (directory / name).write_text(text, encoding="utf-8")
    paths = [str(directory / name) for name in made]
    return Answer({"files": paths}, "\n".join(paths))


@click.command()
@click.option("--url", default=URL, envvar="MILLSTREAM_HTTP_URL", show_default=True)
@click.option("--user", default="", help=f"The password is read from {PASSWORD_VARIABLE}.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--count", type=click.IntRange(1), help="Stop after so many looks.  [Ctrl-C]")
@output_option
def top(url: str, user: str, interval_s: float, count: int | None, output: str) -> None:
    """Show what a broker is doing: rates, times, the busiest topics, the groups furthest behind."""
    from millstream.cli.monitoring.scrape import fetch
    from millstream.cli.monitoring.summary import screen, summary

    def look() -> "Scrape":
        password = os.environ.get(PASSWORD_VARIABLE, "")
        return fetch(url, user=user, password=password, at_s=time.monotonic())

    before, shown = look(), 0
    while count is None or shown < count:
        time.sleep(interval_s)
        now = look()
        figures = summary(before, now)
        if output == "json":
            click.echo(to_json(figures))
        else:
            click.echo((CLEAR if sys.stdout.isatty() else "") + screen(url, figures))
        before, shown = now, shown + 1

"""`millstream demo`: everything at work in one command, and nothing left behind.

Owns the flags and the screen. `millstream.demo` runs it, `cli.demo.text` words its events. On a
terminal it goes on with live figures until Ctrl-C; anywhere else it ends after the tour.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.interrupts import interruptible
from millstream.cli.render import output_option, to_json

if TYPE_CHECKING:
    from millstream.demo import Event


@click.command()
@click.option("--once", "is_once", is_flag=True, help="End after the tour, as without a terminal.")
@click.option("--no-spark", "is_without_spark", is_flag=True, help="Only what needs no Java.")
@click.option(
    "--orders",
    "order_count",
    type=click.IntRange(1, 10_000_000),
    default=50_000,
    show_default=True,
    metavar="N",
    help="Written on the tour.",
)
@click.option(
    "--data-dir", metavar="DIR", help="Empty or new; kept.  [a temporary one, removed at the end]"
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="[any free one]"
)
@output_option
def demo(
    is_once: bool,
    is_without_spark: bool,
    order_count: int,
    data_dir: str | None,
    port: int,
    output: str,
) -> None:
    """See it at work: orders, Spark, kill -9, live figures.

    Starts a broker of its own, writes orders, reads them in a consumer group, checks and adds them
    up on Spark if Spark is installed, kills the broker and finds everything again. On a terminal,
    orders then keep coming until Ctrl-C. Needs no broker and no network, and leaves nothing behind.
    """
    from millstream.demo import Plan, run

    plan = Plan(
        order_count=order_count,
        directory=None if data_dir is None else Path(data_dir),
        port=port,
        is_once=is_once or not (sys.stdin.isatty() and sys.stdout.isatty()),
        wants_spark=not is_without_spark,
    )
    with (
        interruptible(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as is_enough,
        closing(run(plan, is_enough)) as events,
        _json() if output == "json" else _screen() as show,
    ):
        for event in events:
            show(event)


@contextmanager
def _json() -> "Iterator[Callable[[Event], None]]":
    """A line of JSON for each event."""
    from millstream.cli.demo.text import name_of

    def show(event: "Event") -> None:
        click.echo(to_json({"event": name_of(event), **asdict(event)}))
        sys.stdout.flush()

    yield show


@contextmanager
def _screen() -> "Iterator[Callable[[Event], None]]":
    """Lines, and figures that stay in their place."""
    from rich.console import Console
    from rich.live import Live

    from millstream.cli.demo.text import figures_table, text
    from millstream.demo.events import Figures

    console = Console(highlight=False, soft_wrap=True)
    live = Live(console=console, auto_refresh=False)

    def show(event: "Event") -> None:
        if isinstance(event, Figures):
            live.start()
            live.update(figures_table(event), refresh=True)
        else:
            live.stop()
            console.print(text(event), markup=False)

    try:
        yield show
    finally:
        live.stop()

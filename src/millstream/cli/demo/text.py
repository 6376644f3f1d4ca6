"""Formats each event of `millstream demo`."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.config import Config
from millstream.demo import events
from millstream.demo.orders import PUT_ASIDE

if TYPE_CHECKING:
    from rich.table import Table

CONSOLE = f"http://localhost:{Config().http_port}/"  # Of a broker with default settings.


def name_of(event: events.Event) -> str:
    """`broker_up` for `BrokerUp`, as programs read it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def text(event: events.Event) -> str:
    """Whole lines; figures have none, but a table."""
    return _TEXTS[type(event)](event)


def figures_table(figures: events.Figures) -> "Table":
    """Topics and groups side by side, for a terminal."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("TOPIC", "OFFSETS", "PER SECOND", "GROUP", "READS", "LAG"):
        is_number = name in {"OFFSETS", "PER SECOND", "LAG"}
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    topics = [
        (topic.topic, f"{topic.offsets:,}", f"{topic.per_second:,.0f}") for topic in figures.topics
    ]
    groups = [
        (group.group, group.topic, "-" if group.lag is None else f"{group.lag:,}")
        for group in figures.groups
    ]
    nothing = ("", "", "")
    for at in range(max(len(topics), len(groups))):
        left = topics[at] if at < len(topics) else nothing
        right = groups[at] if at < len(groups) else nothing
        table.add_row(*left, *right)
    return table


def _broker_up(event: events.BrokerUp) -> str:
    if event.is_again:
        return f"broker up again on {event.address} after {event.seconds:.2f} s"
    return f"broker up on {event.address} after {event.seconds:.2f} s, data in {event.directory}"


def _wrote(event: events.Wrote) -> str:
    rate = event.count / event.seconds
    how = "with acks=all, synced before each ack"
    # `millstream bench` and the benchmarks show what the broker can do: here, JSON is the work.
    rate_text = f"{rate:,.0f} per second (one Python client making JSON)"
    return f"wrote {event.count:,} orders {how}: {rate_text}"


def _group_read(event: events.GroupRead) -> str:
    rate = event.count / event.seconds
    return f"group {event.group} read {event.count:,} orders: {rate:,.0f} per second"


def _pipeline_ran(event: events.PipelineRan) -> str:
    from millstream.cli.render import table

    rows = [
        {
            "flow": flow,
            "rows_in": done["rows_in"],
            "rows_out": done["rows_out"],
            "quarantined": done["rows_quarantined"],
            "seconds": round(done["seconds"], 1),
            "lag": sum(done["lag"].values()),
        }
        for flow, done in event.flows.items()
    ]
    return f"pipeline orders is done after {event.seconds:.1f} s\n\n{table(rows)}"


def _results(event: events.Results) -> str:
    aside = ", ".join(f"{count:,} for {reason!r}" for reason, count in event.reasons.items())
    lines = [
        f"\n{PUT_ASIDE} has those that were put aside: {aside}",
        f"orders-by-minute has {event.window_count:,} windows:",
        *(
            f"  {item.item:<6} {item.orders:>7,} orders {item.kg:>12,.0f} kg"
            for item in event.items
        ),
    ]
    return "\n".join(lines)


def _found_again(event: events.FoundAgain) -> str:
    counts = ", ".join(f"{topic} {count:,}" for topic, count in event.records.items())
    return f"found {counts}; group {event.group} has lag {event.group_lag:,}"


def _secured(event: events.Secured) -> str:
    return (
        f"\na second broker with `serve --secure` took an order over TLS with a login, has it "
        f"encrypted on its disk\nand refused a wrong password: {event.seconds:.1f} s"
    )


def program() -> str:
    """The command that a person can type here: `.venv/bin/millstream` where no PATH leads to it."""
    installed = Path(sys.executable).parent / "millstream"
    if shutil.which("millstream") is not None or not installed.exists():
        return "millstream"
    relative = os.path.relpath(installed)
    return str(installed) if relative.startswith("..") else relative


def _goes_on(event: events.GoesOn) -> str:
    millstream = program()
    commands = {
        f"export MILLSTREAM_BOOTSTRAP={event.address}": "this broker, for all commands below",
        f"{millstream} topic list": "the topics",
        f"{millstream} subscribe orders --show-key": "orders as they come",
        f"{millstream} group lag billing": "how far a reader is, by partition",
    }
    if event.has_spark:
        commands |= {
            f"{millstream} subscribe orders-by-minute": "Spark's sums, half a minute from now",
            f"{millstream} consume {PUT_ASIDE} --count 3 --format '%v %h\\n'": "put aside, and why",
            f"{millstream} group lag orders.check": "how far Spark is behind",
        }
    width = max(map(len, commands))
    lines = [f"  {command.ljust(width)}  # {meaning}" for command, meaning in commands.items()]
    rate = f"{event.orders_per_second} orders a second come from here on, until Ctrl-C"
    console = f"  {event.console} shows it all in a browser"
    return "\n".join([f"\n{rate}. In another terminal:\n", *lines, "", console, ""])


def _ended(event: events.Ended) -> str:
    if event.kept_in:
        directory = Path(event.kept_in) / "broker"
        serve = f"{program()} serve --data-dir {directory}"
        return f"everything is in {event.kept_in}; look at it with `{serve}`, then {CONSOLE}"
    return f"nothing is left behind; `{program()} serve` runs a broker of your own, see {CONSOLE}"


# Each takes the event of its key, which the type of a table cannot say: hence Any.
_TEXTS: dict[type[events.Event], Callable[[Any], str]] = {
    events.BrokerUp: _broker_up,
    events.Wrote: _wrote,
    events.GroupRead: _group_read,
    events.NoSpark: lambda event: f"\nno pipeline this time: {event.why}",
    events.PipelineBegins: lambda event: f"\n$ {event.command}",
    events.PipelineSays: lambda event: str(event.line),
    events.PipelineRan: _pipeline_ran,
    events.Results: _results,
    events.Killed: lambda event: "\nkilling the broker with -9 ...",
    events.FoundAgain: _found_again,
    events.Secured: _secured,
    events.TourDone: lambda event: (
        f"every order is there, each exactly once; all of it took {event.seconds:.0f} s"
    ),
    events.GoesOn: _goes_on,
    events.Stopping: lambda event: "stopping ...",
    events.Ended: _ended,
}

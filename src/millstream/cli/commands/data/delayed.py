"""`millstream delayed`: records that are not due yet. List, describe, cancel."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.completing import complete_topic
from millstream.cli.connection import connected
from millstream.cli.records import CODINGS, decode
from millstream.cli.render import (
    Answer,
    CommandGroup,
    answered,
    card,
    confirm,
    instant,
    table,
    yes_option,
)

if TYPE_CHECKING:
    from millstream.client import Client, Delayed


@click.group(cls=CommandGroup)
def delayed() -> None:
    """Look at delayed records, which wait until they are due, and cancel them.

    Records are delayed by `millstream produce --delay` or --deliver-at, or by their headers. An ID
    is the topic and a number: orders~17.
    """


@delayed.command("list")
@click.argument("topic", required=False, shell_complete=complete_topic)
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, metavar="N")
@click.option("--after", metavar="ID", help="Only records that arrived after this one.")
@answered
@connected
def list_delayed(client: "Client", topic: str | None, limit: int, after: str | None) -> Answer:
    """List the delayed records of TOPIC, or of all topics.

    Those of a topic stand in the order of their arrival.
    """
    page = client.delayed.list(topic, limit=limit, after=after)
    data = {"delayed": [_data(record) for record in page.records], "next_after": page.next_after}
    if not page.records:
        where = "" if topic is None else f" of {topic}"
        return Answer(data, f"no delayed records{where}")
    text = table([_row(record) for record in page.records])
    if page.next_after is not None:
        text += f"\nmore are waiting; --after {page.next_after} shows them"
    return Answer(data, text)


@delayed.command()
@click.argument("name", metavar="ID")
@click.option("--decoder", type=click.Choice(CODINGS), default="string", show_default=True)
@answered
@connected
def describe(client: "Client", name: str, decoder: str) -> Answer:
    """Show one delayed record with its key, value and headers."""
    record = client.delayed.describe(name)
    shown: dict[str, object] = {
        "key": decode(record.key, "binary" if decoder == "binary" else "string"),
        "value": decode(record.value, decoder),
    }
    headers = [[header, decode(value, "string")] for header, value in record.headers]
    lines = [f"{header}={value}" for header, value in headers]
    return Answer(
        _data(record) | shown | {"headers": headers},
        card(_row(record) | shown | {"headers": lines}),
    )


@delayed.command()
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@yes_option
@answered
@connected
def cancel(client: "Client", names: tuple[str, ...], is_yes: bool) -> Answer:
    """Cancel the delivery of delayed records. Their message ids may be used again."""
    from millstream.client import NotFound

    # Looked for first: of a list with a wrong id nothing is cancelled.
    records = [client.delayed.describe(name) for name in dict.fromkeys(names)]
    listed = ", ".join(f"{record.id} (due {instant(record.due)})" for record in records)
    confirm(f"Cancel {listed}?", is_yes=is_yes)
    cancelled: list[str] = []
    late: list[str] = []
    for record in records:
        try:
            cancelled.append(client.delayed.cancel(record.id).id)
        except NotFound:
            late.append(record.id)
    done = [f"cancelled {', '.join(cancelled)}"] if cancelled else []
    missed = [f"too late for {', '.join(late)}"] if late else []
    return Answer(
        {"cancelled": cancelled, "too_late": late}, "; ".join(done + missed), is_fine=not late
    )


def _data(record: "Delayed") -> dict[str, object]:
    named = ("id", "topic", "partition", "due_ms")
    return {name: value for name, value in asdict(record).items() if name in named}


def _row(record: "Delayed") -> dict[str, object]:
    return {
        "id": record.id,
        "topic": record.topic,
        "partition": record.partition,
        "due": instant(record.due),
    }

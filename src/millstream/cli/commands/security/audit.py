"""`millstream audit`: the trail of logins, refusals and administrative acts."""

import csv
import io
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from millstream.cli.connection import connected
from millstream.cli.options import parse_place
from millstream.cli.render import Answer, CommandGroup, Refused, answered, instant, rows, to_json

if TYPE_CHECKING:
    from millstream.client import Client
    from millstream.client.models import AuditEvent, AuditFilter

_F = TypeVar("_F", bound=Callable[..., object])

# As FlyMQ's exports have them.
CSV_COLUMNS = (
    *("ID", "Timestamp", "Type", "User", "ClientIP", "Resource", "Action", "Result", "NodeID"),
    "Details",
)


def _moment(ctx: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        place = parse_place(text, now=datetime.now(UTC))
        if isinstance(place, datetime):
            return place
    except (ValueError, OverflowError):
        pass
    raise click.BadParameter(
        f"{text!r} is not a time such as 2026-05-01T12:00:00Z, or an age such as 15m."
    )


def _filters(command: _F) -> _F:
    for option in (
        click.option("--search", default="", metavar="TEXT", help="Part of an event."),
        click.option("--result", type=click.Choice(["success", "failure", "denied"])),
        click.option("--resource", default="", metavar="TEXT", help="Part of topic:orders."),
        click.option("--user", default="", metavar="NAME", help="User:ann, or ann."),
        click.option(
            "--type", "types", metavar="A,B", help="Events, such as access.denied or topic.*."
        ),
    ):
        command = option(command)
    return command


def _times(command: _F) -> _F:
    start = click.option("--start", callback=_moment, metavar="WHEN", help="A time, or an age.")
    end = click.option("--end", callback=_moment, metavar="WHEN", help="A time, or an age.")
    return start(end(command))


def _filter(
    types: str | None,
    user: str,
    resource: str,
    result: str | None,
    search: str,
    start: datetime | None = None,
    end: datetime | None = None,
) -> "AuditFilter":
    filters: AuditFilter = {
        "events": types.split(",") if types else (),
        "principal": user,
        "resource": resource,
        "result": result or "",
        "search": search,
    }
    if start is not None:
        filters["start"] = start
    if end is not None:
        filters["end"] = end
    return filters


@click.group(cls=CommandGroup)
def audit() -> None:
    """Ask the audit trail: who has logged in, was refused, has changed what."""


def _query(client: "Client", limit: int, **flags: Any) -> Answer:  # Those of `_filters`.
    events = client.audit.query(limit=limit, **_filter(**flags))
    listed = rows([_row(event) for event in events], nothing="no events")
    return Answer([_data(event) for event in events], listed.text)


@audit.command()
@_filters
@_times
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, metavar="N")
@answered
@connected
def query(client: "Client", limit: int, **flags: Any) -> Answer:
    """Show the newest events that match all flags, newest first."""
    return _query(client, limit, **flags)


@audit.command("list")
@_filters
@_times
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N")
@answered
@connected
def list_events(client: "Client", limit: int, **flags: Any) -> Answer:
    """The same as `query`, of the last twenty."""
    return _query(client, limit, **flags)


@audit.command()
@_filters
@_times
@click.option(
    "--format", "form", type=click.Choice(["json", "csv"]), default="json", show_default=True
)
@click.option(
    "--limit", type=click.IntRange(0), default=0, show_default="all", metavar="N", help="0: all."
)
@click.option("--file", metavar="FILE", help="Where to write to. Without, standard output.")
@connected
def export(client: "Client", form: str, limit: int, file: str | None, **flags: Any) -> None:
    """Write all events that match, newest first: a CloudEvent a line, or CSV."""
    events = client.audit.export(**_filter(**flags))
    if limit:
        from itertools import islice

        events = islice(events, limit)
    if file is None:
        _write(events, form, sys.stdout)
        return
    try:
        with Path(file).open("w", encoding="utf-8", newline="") as target:
            count = _write(events, form, target)
    except OSError as problem:
        raise Refused(f"cannot write {file}: {problem.strerror}") from None
    click.echo(f"wrote {count} events to {file}", err=True)


@audit.command()
@_filters
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many events.")
@connected
def tail(client: "Client", count: int | None, **flags: Any) -> None:
    """Show events as they are written, a CloudEvent a line, until Ctrl-C."""
    for event in client.audit.tail(**_filter(**flags)):
        click.echo(event.json)
        if count is not None:
            count -= 1
            if not count:
                return


@audit.command()
@click.option("--chain-key", metavar="FILE", help="The key of the setting audit.chain_key.")
@click.option(
    "--head",
    "heads",
    multiple=True,
    metavar="HEAD",
    help="A head that a node has logged, 1-48213:41…; it must be in the trail. May be repeated.",
)
@answered
@connected
def verify(client: "Client", chain_key: str | None, heads: tuple[str, ...]) -> Answer:
    """Follow the chain of hashes through the whole trail; names the first break."""
    key = b""
    if chain_key is not None:
        try:
            key = Path(chain_key).read_bytes().removesuffix(b"\n")
        except OSError as problem:
            raise Refused(f"cannot read {chain_key}: {problem.strerror}") from None
    verdict = client.audit.verify(key=key, heads=heads)
    data = {
        "events": verdict.event_count,
        "heads": list(verdict.heads.values()),
        "problems": list(verdict.problems),
    }
    if verdict.problems:
        return Answer(data, "\n".join(verdict.problems), is_fine=False)
    lines = [f"{verdict.event_count} events, the chain is whole"]
    lines += [f"head {head}" for head in verdict.heads.values()]
    return Answer(data, "\n".join(lines))


def _row(event: "AuditEvent") -> dict[str, object]:
    return {
        "time": instant(event.time),
        "event": event.event,
        "result": event.result,
        "principal": event.principal,
        "address": event.address,
        "resource": event.resource,
        "count": event.count,
    }


def _data(event: "AuditEvent") -> object:
    import json

    return json.loads(event.json)


def _write(events: "Iterable[AuditEvent]", form: str, target: IO[str]) -> int:
    count = 0
    if form == "csv":
        target.write(_csv(CSV_COLUMNS))
    for event in events:
        count += 1
        target.write(f"{event.json}\n" if form == "json" else _csv(_cells(event)))
    return count


def _cells(event: "AuditEvent") -> tuple[object, ...]:
    return (
        event.id,
        event.time.isoformat(),
        event.event,
        event.principal,
        event.address,
        event.resource,
        event.action,
        event.result,
        event.node,
        to_json(event.details),
    )


def _csv(cells: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()

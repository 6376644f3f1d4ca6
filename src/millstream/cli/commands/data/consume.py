"""`millstream consume` and `millstream subscribe`: records as text or as JSON lines.

Owns where reading begins and when it ends; `records` formats a record. `consume` shows the records
that are there and ends, `subscribe` waits for new ones. With a group, shown records are committed.
"""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import click

from millstream.cli.completing import complete_group, complete_topic
from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.interrupts import interruptible
from millstream.cli.options import OffsetRange, read_place, read_range
from millstream.cli.records import CODINGS, SIGNS, formatter, json_line
from millstream.cli.render import Refused, output_option

if TYPE_CHECKING:
    from millstream.client import Client, Consumer, Message, StartPoint, TopicPartition

POLL_S = 0.2
_VALUE, _KEY_AND_VALUE = "%v\\n", "%k: %v\\n"
_FORMAT_HELP = ", ".join(f"%{letter} {meaning}" for letter, meaning in SIGNS.items())

_F = TypeVar("_F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The flags of both commands: the records to show, the end, and the format of a record."""

    topics: tuple[str, ...]
    start: "StartPoint"  # A negative number counts back from the end of each partition.
    until: "StartPoint | None"  # The first offset or time that is not shown.
    partitions: tuple[int, ...]  # Empty: all of them.
    isolation: str | None
    group: str | None
    where: str | None
    has_stats: bool
    count: int | None
    idle_s: float | None
    is_endless: bool
    format_message: "Callable[[Message], str]"


_READING_OPTIONS = (
    click.argument(
        "topics",
        nargs=-1,
        required=True,
        metavar="TOPIC...",
        shell_complete=complete_topic,
    ),
    click.option(
        "-g",
        "--group",
        shell_complete=complete_group,
        help="Begin at the group's committed offsets, and commit what is shown.",
    ),
    click.option(
        "-p",
        "--partition",
        "partitions",
        type=click.IntRange(0),
        multiple=True,
        metavar="N",
        help="Only this partition; may be repeated.",
    ),
    click.option(
        "--filter",
        "where",
        metavar="FILTER",
        help="Only the records that match, such as \"value contains 'ERROR'\".",
    ),
    click.option(
        "--stats",
        "has_stats",
        is_flag=True,
        help="Say at the end how much of the log the filter took, on the standard error.",
    ),
    click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="End after N."),
    click.option(
        "--isolation",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        help="Hide or show records of open and aborted transactions.  [read_committed]",
    ),
    click.option(
        "--idle",
        "idle_s",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="End when no record came for that long.",
    ),
    click.option("--show-key", "has_key", is_flag=True, help="KEY: VALUE instead of VALUE."),
    click.option(
        "--decoder",
        "coding",
        type=click.Choice(CODINGS),
        default="string",
        show_default=True,
        help="What the bytes are; binary is shown as base64.",
    ),
    click.option("-f", "--format", "form", metavar="TEXT", help=f"{_FORMAT_HELP}; \\n, \\t."),
    output_option,
)


def reading_options(command: _F) -> _F:
    """The flags that both commands have."""
    for option in reversed(_READING_OPTIONS):
        command = option(command)
    return command


_FROM_HELP = (
    "earliest, latest, an offset, -N for the last N, a time (2026-05-01T12:00:00Z) or an age (15m)"
)


@click.command()
@reading_options
@click.option(
    "-o",
    "--from",
    "offsets",
    callback=read_range,
    metavar="PLACE",
    default="earliest",
    show_default=True,
    help=f"{_FROM_HELP}; 5:10 is --from 5 --until 10.",
)
@click.option(
    "--until",
    callback=read_place,
    metavar="PLACE",
    help="End before this offset, time or age, in each partition.",
)
@click.option("--follow", "is_endless", is_flag=True, help="Wait for more, until Ctrl-C.")
@connection_options
def consume(
    target: Target,
    offsets: OffsetRange,
    until: "StartPoint | None",
    is_endless: bool,
    group: str | None,
    **flags: Any,  # Checked by `_selection`.
) -> None:
    """Show the records that are there, and end.

    A TOPIC may be a pattern: orders.*.created, orders.>, sensors/+/temp, logs/#. A group that has
    committed goes on from there; --from applies to the other partitions.
    """
    if until is not None and offsets.until is not None:
        raise click.UsageError("Pass the end once: in --from, or as --until.")
    until = offsets.until if until is None else until
    if until is not None and (group is not None or is_endless):
        raise click.UsageError("--until ends by itself: leave --group and --follow away.")
    _read(
        target,
        _selection(start=offsets.start, until=until, is_endless=is_endless, group=group, **flags),
    )


@click.command()
@reading_options
@click.option(
    "-o",
    "--from",
    "offsets",
    callback=read_range,
    metavar="PLACE",
    default="latest",
    show_default=True,
    help=f"{_FROM_HELP}.",
)
@connection_options
def subscribe(target: Target, offsets: OffsetRange, **flags: Any) -> None:
    """Show records as they come, until Ctrl-C.

    A TOPIC may be a pattern: orders.*.created, orders.>, sensors/+/temp, logs/#. A group that has
    committed goes on from there; --from applies to the other partitions.
    """
    if offsets.until is not None:
        raise click.UsageError("subscribe has no end: `millstream consume` takes 5:10.")
    _read(
        target,
        _selection(start=offsets.start, until=None, is_endless=True, **flags),
    )


def _selection(
    *,
    group: str | None,
    start: "StartPoint",
    partitions: tuple[int, ...],
    has_key: bool,
    coding: str,
    form: str | None,
    output: str,
    **flags: Any,  # The fields that have the names of their flags.
) -> Selection:
    if output == "json" and form is not None:
        raise click.UsageError("--format is for text: leave --output json away.")
    if group is not None and partitions:
        raise click.UsageError("--partition and --group exclude each other: a group assigns.")
    if group is not None and isinstance(start, int) and start < 0:
        raise click.UsageError("--from -N and --group exclude each other.")
    if flags["has_stats"] and flags["where"] is None:
        raise click.UsageError("--stats tells of a filter: pass --filter as well.")
    return Selection(
        group=group,
        start=start,
        partitions=partitions,
        format_message=(lambda message: json_line(message, coding) + "\n")
        if output == "json"
        else formatter(form or (_KEY_AND_VALUE if has_key else _VALUE), coding),
        **flags,
    )


def _read(target: Target, selection: Selection) -> None:
    with open_client(target) as client:
        _check_topics(client, selection.topics)
        is_offset = isinstance(selection.start, int) and selection.group is None
        start = "latest" if is_offset else selection.start
        before = _figures(client, selection)
        isolation: dict[str, Any] = {}
        if selection.isolation is not None:
            isolation["isolation_level"] = selection.isolation
        with (
            client.consumer(
                selection.topics,
                group=selection.group,
                start=start,
                filter=selection.where,
                **isolation,
            ) as consumer,
            interruptible(signal.SIGINT) as is_enough,  # What was shown by then is committed.
        ):
            if selection.partitions:
                _pause_others(consumer, selection.partitions)
            if is_offset:
                _seek(client, consumer, selection.start)
            _show(client, consumer, selection, is_enough)
            if before is not None and (after := _figures(client, selection)) is not None:
                read, skipped = after[0] - before[0], after[1] - before[1]
                click.echo(f"{read} bytes of the log read, {skipped} skipped", err=True)


def _figures(client: "Client", selection: Selection) -> tuple[int, int] | None:
    """Bytes read and skipped so far, by all readers with this filter; None unless asked for."""
    if not selection.has_stats or selection.where is None:
        return None
    figures = [client.filter_figures(topic, selection.where) for topic in selection.topics]
    return sum(f.read_bytes for f in figures), sum(f.skipped_bytes for f in figures)


def _pause_others(consumer: "Consumer", partitions: tuple[int, ...]) -> None:
    assigned = {at.partition for at in consumer.assignment}
    if missing := sorted(set(partitions) - assigned):
        raise Refused(
            f"there is no partition {missing[0]}; the last one is {max(assigned, default=-1)}"
        )
    others = [at for at in consumer.assignment if at.partition not in partitions]
    if others:
        consumer.pause(*others)


def _check_topics(client: "Client", topics: tuple[str, ...]) -> None:
    from millstream.client.patterns import is_pattern, is_regex

    known = {topic_info.name for topic_info in client.admin.list_topics(with_internal=True)}
    for topic in topics:
        if topic not in known and not is_pattern(topic) and not is_regex(topic):
            raise Refused(
                f"there is no topic {topic!r}; `millstream topic list` shows what is there, "
                f"`millstream topic create {topic}` makes it"
            )


def _seek(client: "Client", consumer: "Consumer", start: "StartPoint") -> None:
    """Begin at an offset, or at the nearest that a partition has; below 0 counts from the end."""
    assert isinstance(start, int)
    begins = client.admin.offsets(consumer.assignment, "earliest")
    ends = client.admin.offsets(consumer.assignment, "latest")
    for at in consumer.assignment:
        offset = start if start >= 0 else ends[at] + start
        consumer.seek(at, min(max(offset, begins[at]), ends[at]))
    consumer.at_end.clear()  # A partition that was at its end before the seek may have records now.


def _show(
    client: "Client",
    consumer: "Consumer",
    selection: Selection,
    is_enough: Callable[[], bool],
) -> None:
    out = sys.stdout
    end = None if selection.is_endless else _end(client, consumer, selection)
    shown = 0
    heard_at = monotonic()
    while not is_enough() and not (end is not None and end.is_reached):
        message = consumer.poll(POLL_S)
        if message is not None:
            if end is None or end.admits(message):
                out.write(selection.format_message(message))
                shown += 1
            heard_at = monotonic()
            if shown == selection.count:
                break
        else:
            out.flush()
            if selection.idle_s is not None and monotonic() - heard_at > selection.idle_s:
                break
        if end is not None:
            end.advance(message, consumer.at_end)
    out.flush()


class _End:
    """Whether everything was shown that was there when reading began, or that `--until` allows."""

    def __init__(self, ends: "dict[TopicPartition, int]", *, is_strict: bool) -> None:
        self._ends = ends
        self._is_strict = is_strict
        self._unfinished = set(ends)

    @property
    def is_reached(self) -> bool:
        return not self._unfinished

    def admits(self, message: "Message") -> bool:
        """Without `--until`, a record that arrived meanwhile is shown as well."""
        return not self._is_strict or message.offset < self._ends.get(message.at, 0)

    def advance(self, message: "Message | None", at_end: "set[TopicPartition]") -> None:
        if message is None:
            # Only then: records that were fetched to the end may still wait to be handed out.
            self._unfinished -= at_end
        elif message.offset + 1 >= self._ends.get(message.at, 0):
            self._unfinished.discard(message.at)


def _end(client: "Client", consumer: "Consumer", selection: Selection) -> _End:
    places = set(consumer.assignment if selection.group is None else consumer.wait_assigned())
    if selection.partitions:
        places = {at for at in places if at.partition in selection.partitions}
    ends = client.admin.offsets(places, "latest")
    until = selection.until
    if until is None:
        return _End(ends, is_strict=False)
    if isinstance(until, int):
        limits = dict.fromkeys(places, until)
    else:
        limits = client.admin.offsets(places, until)
    ends = {at: min(end, limits[at]) for at, end in ends.items()}
    begins = client.admin.offsets(places, "earliest")
    return _End({at: end for at, end in ends.items() if end > begins[at]}, is_strict=True)

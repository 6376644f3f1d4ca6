"""`millstream consume` and `millstream subscribe`: records as text or as JSON lines.

Owns where reading begins and when it ends; how a record looks is `records`'. `consume` shows what
is there and ends, `subscribe` waits for what comes. With a group, what was shown is committed.
"""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.interrupts import interruptible
from millstream.cli.options import read_place
from millstream.cli.records import CODINGS, SIGNS, formatter, json_line
from millstream.cli.render import Refused, output_option

if TYPE_CHECKING:
    from millstream.client import Client, Consumer, Message, StartPoint

POLL_S = 0.2
_VALUE, _KEY_AND_VALUE = "%v\\n", "%k: %v\\n"
_FORMAT_HELP = ", ".join(f"%{letter} {meaning}" for letter, meaning in SIGNS.items())

_F = TypeVar("_F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the flags say."""

    topics: tuple[str, ...]
    start: "StartPoint"
    group: str | None
    where: str | None
    count: int | None
    idle_s: float | None
    is_endless: bool
    spell: "Callable[[Message], str]"


def reading_options(command: _F) -> _F:
    """The flags that both commands have."""
    for option in reversed(
        (
            click.argument("topics", nargs=-1, required=True, metavar="TOPIC..."),
            click.option("--group", help="Go on where the group is, and commit what was shown."),
            click.option(
                "--filter",
                "where",
                metavar="FILTER",
                help="Only the records that it takes, such as \"value contains 'ERROR'\".",
            ),
            click.option("--count", type=click.IntRange(1), metavar="N", help="End after N."),
            click.option(
                "--idle",
                "idle_s",
                type=click.FloatRange(min=0, min_open=True),
                metavar="SECONDS",
                help="End when nothing came for that long.",
            ),
            click.option(
                "--show-key", "has_key", is_flag=True, help="KEY: VALUE instead of VALUE."
            ),
            click.option(
                "--decoder",
                "coding",
                type=click.Choice(CODINGS),
                default="string",
                show_default=True,
                help="What the bytes are; binary is shown as base64.",
            ),
            click.option("--format", "form", metavar="TEXT", help=f"{_FORMAT_HELP}; \\n, \\t."),
            output_option,
        )
    ):
        command = option(command)
    return command


_FROM_HELP = "earliest, latest, an offset, a time (2026-05-01T12:00:00Z) or an age (15m)."


@click.command()
@reading_options
@click.option(
    "--from",
    "start",
    callback=read_place,
    metavar="PLACE",
    default="earliest",
    show_default=True,
    help=_FROM_HELP,
)
@click.option("--follow", "is_endless", is_flag=True, help="Wait for more, until Ctrl-C.")
@connection_options
def consume(target: Target, start: "StartPoint", is_endless: bool, **flags: object) -> None:
    """Show the records that are there, and end.

    A TOPIC may be a pattern: orders.*.created, orders.>, sensors/+/temp, logs/#. A group that has
    committed goes on from there; --from is for the rest.
    """
    _read(target, _wish(start=start, is_endless=is_endless, **flags))  # type: ignore[arg-type]


@click.command()
@reading_options
@click.option(
    "--from",
    "start",
    callback=read_place,
    metavar="PLACE",
    default="latest",
    show_default=True,
    help=_FROM_HELP,
)
@connection_options
def subscribe(target: Target, start: "StartPoint", **flags: object) -> None:
    """Show records as they come, until Ctrl-C.

    A TOPIC may be a pattern: orders.*.created, orders.>, sensors/+/temp, logs/#. A group that has
    committed goes on from there; --from is for the rest.
    """
    _read(target, _wish(start=start, is_endless=True, **flags))  # type: ignore[arg-type]


def _wish(
    *,
    topics: tuple[str, ...],
    start: "StartPoint",
    group: str | None,
    where: str | None,
    count: int | None,
    idle_s: float | None,
    is_endless: bool,
    has_key: bool,
    coding: str,
    form: str | None,
    output: str,
) -> Wish:
    if output == "json" and form is not None:
        raise click.UsageError("--format is for text: leave --output json away.")
    return Wish(
        topics=topics,
        start=start,
        group=group,
        where=where,
        count=count,
        idle_s=idle_s,
        is_endless=is_endless,
        spell=(lambda message: json_line(message, coding) + "\n")
        if output == "json"
        else formatter(form or (_KEY_AND_VALUE if has_key else _VALUE), coding),
    )


def _read(target: Target, wish: Wish) -> None:
    with open_client(target) as client:
        _check_topics(client, wish.topics)
        is_offset = isinstance(wish.start, int) and wish.group is None
        start = "latest" if is_offset else wish.start
        with (
            client.consumer(
                wish.topics, group=wish.group, from_=start, filter=wish.where
            ) as consumer,
            interruptible(signal.SIGINT) as is_enough,  # What was shown by then is committed.
        ):
            if is_offset:
                _seek(client, consumer, wish.start)
            _show(client, consumer, wish, is_enough)


def _check_topics(client: "Client", topics: tuple[str, ...]) -> None:
    from millstream.client.patterns import is_pattern, is_regex

    known = {one.name for one in client.admin.list_topics(with_internal=True)}
    for topic in topics:
        if topic not in known and not is_pattern(topic) and not is_regex(topic):
            raise Refused(
                f"there is no topic {topic!r}; `millstream topic list` shows what is there, "
                f"`millstream topic create {topic}` makes it"
            )


def _seek(client: "Client", consumer: "Consumer", start: "StartPoint") -> None:
    """Begin at an offset, or as near as a partition has one: they are of different lengths."""
    assert isinstance(start, int)
    begins = client.admin.offsets(consumer.assignment, "earliest")
    ends = client.admin.offsets(consumer.assignment, "latest")
    for at in consumer.assignment:
        consumer.seek(at, min(max(start, begins[at]), ends[at]))
    consumer.at_end.clear()  # What was at its end before the move need not be behind it.


def _show(
    client: "Client", consumer: "Consumer", wish: Wish, is_enough: Callable[[], bool]
) -> None:
    out = sys.stdout
    has_ended = _never if wish.is_endless else _end(client, consumer, wish)
    shown = 0
    heard_at = monotonic()
    while not is_enough():
        message = consumer.poll(POLL_S)
        if message is not None:
            out.write(wish.spell(message))
            shown += 1
            heard_at = monotonic()
            if shown == wish.count:
                break
        else:
            out.flush()
            if wish.idle_s is not None and monotonic() - heard_at > wish.idle_s:
                break
        if has_ended(message):
            break
    out.flush()


def _never(message: "Message | None") -> bool:
    return False


def _end(client: "Client", consumer: "Consumer", wish: Wish) -> "Callable[[Message | None], bool]":
    """Whether everything was shown that was there when reading began."""
    places = set(consumer.assignment if wish.group is None else consumer.wait_assigned())
    ends = client.admin.offsets(places, "latest")
    left = set(places)

    def has_ended(message: "Message | None") -> bool:
        if message is None:
            # Only then: what was fetched to the end may still wait to be handed out.
            left.difference_update(consumer.at_end)
        elif message.offset + 1 >= ends.get(message.at, 0):
            left.discard(message.at)
        return not left

    return has_ended

"""`millstream dlq`: dead letters. List, count, send back one or many, purge."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from millstream.cli.completing import complete_topic
from millstream.cli.connection import connected
from millstream.cli.interrupts import interruptible
from millstream.cli.records import CODINGS, decode
from millstream.cli.render import (
    Answer,
    CommandGroup,
    Refused,
    answered,
    brief,
    card,
    confirm,
    instant,
    progress,
    table,
    yes_option,
)
from millstream.names import DLQ_TOPIC_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client import Client, DeadLetter, DeadLetterStatistics


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Look at dead letters, the records that were given up; send them back or purge them.

    TOPIC is the one that the records were in, or the one with its dead letters: orders or
    orders.dlq. The offsets are those of the dead letters.
    """


_to = click.option("--to", metavar="TOPIC", help="Another topic than the one it came from.")


@dlq.command("list")
@click.argument("topic", shell_complete=complete_topic)
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, metavar="N")
@click.option("--decoder", type=click.Choice(CODINGS), default="string", show_default=True)
@answered
@connected
def list_letters(client: "Client", topic: str, limit: int, decoder: str) -> Answer:
    """List the dead letters that were not sent back yet, the oldest first."""
    _check_known(client, topic)
    letters = client.dead_letters.list(topic, limit=limit)
    nothing = f"no dead letters of {topic}"
    return Answer(
        [_data(letter, decoder) for letter in letters],
        table([_row(letter, decoder) for letter in letters]) if letters else nothing,
    )


@dlq.command()
@click.argument("topic", shell_complete=complete_topic)
@answered
@connected
def stats(client: "Client", topic: str) -> Answer:
    """Count the dead letters that were not sent back yet, by reason and by group."""
    _check_known(client, topic)
    statistics = client.dead_letters.stats(topic)
    return Answer(asdict(statistics), _statistics(statistics))


@dlq.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("partition", type=click.IntRange(0))
@click.argument("offset", type=click.IntRange(0))
@_to
@answered
@connected
def replay(client: "Client", topic: str, partition: int, offset: int, to: str | None) -> Answer:
    """Send one dead letter back, to be tried again."""
    goal, now_at = client.dead_letters.replay(topic, partition, offset, to=to)
    data = {"topic": goal.topic, "partition": goal.partition, "offset": now_at}
    return Answer(data, f"sent back: {goal.topic}/{goal.partition}@{now_at}")


@dlq.command()
@click.argument("topic", shell_complete=complete_topic)
@click.option("--filter", metavar="FILTER", help="Only those, such as \"value contains 'x'\".")
@click.option("--group", metavar="NAME", help="Only records that this group gave up.")
@_to
@click.option("--rate", type=float, metavar="N", help="Records a second.  [as fast as it goes]")
@click.option("--count", type=click.IntRange(1), metavar="N", help="No more than these.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Say how many it would be, send nothing.")
@answered
@connected
def redrive(
    client: "Client",
    topic: str,
    filter: str | None,  # noqa: A002 - the name of the flag
    group: str | None,
    to: str | None,
    rate: float | None,
    count: int | None,
    is_dry: bool,
) -> Answer:
    """Send all dead letters back, to be tried again.

    It can be interrupted at any time; the same command goes on with what still waits, and nothing
    is sent back twice. What fails again becomes a dead letter again, for the next redrive.
    """
    if rate is not None and rate <= 0:
        raise click.UsageError(f"--rate takes records a second, more than 0, not {rate:g}.")
    _check_known(client, topic)
    if to is not None:
        _check_there(to, _names(client))
    sent = 0
    with interruptible(signal.SIGINT) as is_enough, ExitStack() as shown:
        bar: list[Callable[[int], object]] = []

        def report(sent_now: int, goal: int) -> None:
            nonlocal sent
            if not bar:  # How many there are is known from the first word on.
                bar.append(shown.enter_context(progress(f"redrive {topic}", goal)))
            bar[0](sent_now - sent)
            sent = sent_now
            if is_enough():
                raise KeyboardInterrupt

        try:
            done = client.dead_letters.redrive(
                topic,
                filter=filter,
                group=group,
                to=to,
                rate=rate,
                count=count,
                dry_run=is_dry,
                progress=report,
            )
        except KeyboardInterrupt:
            raise Refused(
                f"interrupted when {sent} were sent back; the same command goes on"
            ) from None
    words = "would be sent back" if is_dry else "sent back"
    # Letters behind --count were not read.
    is_all = count is None or done.sent < count
    text = f"{done.sent} {words}" + (f", {done.skipped} left" if done.skipped and is_all else "")
    return Answer({**asdict(done), "dry_run": is_dry}, text)


@dlq.command()
@click.argument("topic", shell_complete=complete_topic)
@yes_option
@answered
@connected
def purge(client: "Client", topic: str, is_yes: bool) -> Answer:
    """Delete all dead letters of a topic, those that were sent back too."""
    _check_known(client, topic)
    statistics = client.dead_letters.stats(topic)
    more = "" if statistics.is_complete else "more than "
    confirm(f"Delete {statistics.topic} with {more}{statistics.waiting} that wait?", is_yes=is_yes)
    count = client.dead_letters.purge(topic)
    return Answer(
        {"topic": statistics.topic, "purged": count}, f"purged {count} of {statistics.topic}"
    )


def _check_known(client: "Client", topic: str) -> None:
    """A name that is mistyped has no dead letters either, and should not look fine."""
    known = _names(client)
    if topic + DLQ_TOPIC_SUFFIX not in known and topic.removesuffix(DLQ_TOPIC_SUFFIX) not in known:
        _check_there(topic, known)


def _check_there(topic: str, known: set[str]) -> None:
    if topic not in known:
        raise Refused(f"there is no topic {topic!r}; `millstream topic list` shows what is there")


def _names(client: "Client") -> set[str]:
    return {topic.name for topic in client.admin.list_topics()}


def _data(letter: "DeadLetter", decoder: str) -> dict[str, object]:
    return asdict(letter) | {
        "key": decode(letter.key, "binary" if decoder == "binary" else "string"),
        "value": decode(letter.value, decoder),
        "headers": [[name, decode(value, "string")] for name, value in letter.headers],
    }


def _row(letter: "DeadLetter", decoder: str) -> dict[str, object]:
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "time": instant(letter.timestamp),
        "from": f"{letter.origin_topic}/{letter.origin_partition}@{letter.origin_offset}",
        "group": letter.group,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "error": brief(letter.error),
        "value": brief(str(decode(letter.value, decoder)) if letter.value is not None else "null"),
    }


def _statistics(statistics: "DeadLetterStatistics") -> str:
    from millstream.client.models import moment

    head: dict[str, object] = {
        "topic": statistics.topic,
        "waiting": statistics.waiting
        if statistics.is_complete
        else f"more than {statistics.waiting}",
    }
    for name, time_ms in (("oldest", statistics.oldest_ms), ("newest", statistics.newest_ms)):
        if time_ms is not None:
            head[name] = instant(moment(time_ms))
    counts = (("reason", statistics.by_reason), ("group", statistics.by_group))
    parts = [table(_counts(name, each)) for name, each in counts if each]
    return "\n\n".join([card(head), *parts])


def _counts(name: str, counts: "Mapping[str, int]") -> list[dict[str, object]]:
    return [{name: value, "count": count} for value, count in counts.items()]

"""`millstream produce`: records from an argument, from lines on standard input, or from a file."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

import click

from millstream.cli.completing import complete_topic
from millstream.cli.connection import TIMEOUT_S, Target, connection_options, open_client
from millstream.cli.options import ordered_pairs, read_span, read_time
from millstream.cli.records import CODINGS, encode
from millstream.cli.render import Answer, Refused, answered, instant, progress

if TYPE_CHECKING:
    from millstream.client import Client, Producer, RecordMetadata
    from millstream.client.extensions.stalls import Stalls
    from millstream.client.producer import Delivery

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

FULL_BUFFER_S = 0.01  # Between two looks at what the broker has taken.

_ELSEWHERE = "a delayed record, or of one in another partition"


class Item(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    """The flags, which hold for every record."""

    topic: str
    key: str | None
    separator: str | None
    headers: list[tuple[str, bytes]]
    partition: int | None
    coding: str
    delay: timedelta | datetime | None = None
    ttl: timedelta | None = None
    message_id: str | None = None
    has_acks: bool = True

    def read(self, line: str) -> Item:
        """One line of input as a record."""
        key, value = self.key, line
        if self.separator is not None:
            head, separator, tail = line.partition(self.separator)
            if separator:
                key, value = head, tail
        return Item(None if key is None else encode(key, "string"), encode(value, self.coding))


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("value", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Each line is a record; with --encoder binary the whole file is one.",
)
@click.option("-k", "--key", help="Records of one key stay in order.")
@click.option("--key-separator", "separator", metavar="TEXT", help="Lines are KEY TEXT VALUE.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("-p", "--partition", type=click.IntRange(0), metavar="N", help="[default: by key]")
@click.option(
    "--encoder",
    "coding",
    type=click.Choice(CODINGS),
    default="string",
    show_default=True,
    help="json: checked before it is sent; binary: base64.",
)
@click.option("--tombstone", "is_tombstone", is_flag=True, help="No value: deletes the key.")
@click.option(
    "--delay", callback=read_span, metavar="SPAN", help="Deliver that much later: 5s, 1h."
)
@click.option(
    "--deliver-at",
    callback=read_time,
    metavar="TIME",
    help="Deliver at that time, such as 2026-05-01T12:00:00Z; without a zone it is local.",
)
@click.option("--ttl", callback=read_span, metavar="SPAN", help="Expire at that age: 30s, 7d.")
@click.option("--message-id", metavar="ID", help="Skip the record if the topic has this id.")
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@answered
@connection_options
def produce(
    target: Target,
    value: str | None,
    path: Path | None,
    is_tombstone: bool,
    compression: str,
    acks: str,
    delay: timedelta | None,
    deliver_at: datetime | None,
    headers: tuple[str, ...],
    **flags: object,
) -> Answer:
    """Send records to TOPIC: VALUE, or every line of --file or of standard input.

    With --delay or --deliver-at they wait until they are due; `millstream delayed list` shows them.
    """
    if sum((value is not None, path is not None, is_tombstone)) > 1:
        raise click.UsageError("Pass one of VALUE, --file and --tombstone.")
    if is_tombstone and flags["key"] is None:
        raise click.UsageError("--tombstone needs --key.")
    if delay is not None and deliver_at is not None:
        raise click.UsageError("Pass one of --delay and --deliver-at.")
    options = ProduceOptions(
        headers=[
            (name, encode(text, "string")) for name, text in ordered_pairs(headers, "--header")
        ],
        delay=deliver_at if delay is None else delay,
        has_acks=acks != "0",
        **flags,  # type: ignore[arg-type]
    )
    is_one = value is not None or is_tombstone or (path is not None and options.coding == "binary")
    if options.message_id is not None and not is_one:
        raise click.UsageError("--message-id names one record: pass it as VALUE.")
    if is_tombstone:
        items: Iterator[Item] = iter([options.read("")._replace(value=None)])
    elif value is not None:
        items = iter([options.read(value)])
    else:
        items = _items(options, path)
    if is_one and acks == "all" and compression == "none":
        item = next(items)
        tally = _send_one(target, options, item)
        if tally is not None:
            return tally.answer(options, {})
        items = iter([item])
    with (
        open_client(target) as client,
        client.producer(
            compression_type=compression, acks=acks, enable_idempotence=acks == "all"
        ) as producer,
    ):
        ends = {} if options.message_id is None else _ends(client, options.topic)
        tally = _send_all(client, producer, options, items)
    return tally.answer(options, ends)


@dataclass(slots=True)
class Tally:
    """Counts delivered records by partition. The producer's own thread calls it."""

    spans: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # Count, first, last.
    failure: BaseException | None = None

    def note(self, delivery: "Delivery") -> None:
        self.failure = self.failure or delivery.exception()
        if delivery.exception() is None:
            self._add(delivery.result())

    def _add(self, record: "RecordMetadata") -> None:
        count, first, last = self.spans.get(record.partition, (0, record.offset, record.offset))
        self.spans[record.partition] = (
            count + 1,
            min(first, record.offset),
            max(last, record.offset),
        )

    def answer(self, options: ProduceOptions, ends: Mapping[int, int]) -> Answer:
        """Derive the outcome from offsets: Kafka's response to a producer has no text for it."""
        total = sum(count for count, _, _ in self.spans.values())
        places = [
            {"partition": partition, "count": count, "first_offset": first, "last_offset": last}
            for partition, (count, first, last) in sorted(self.spans.items())
        ]
        is_delayed = options.delay is not None and all(
            last < 0 for _, _, last in self.spans.values()
        )
        is_duplicate = options.message_id is not None and any(
            # What has an offset that was there before, or none and is not delayed, is another one.
            first < ends.get(partition, 0) if first >= 0 else options.has_acks and not is_delayed
            for partition, (_, first, _) in self.spans.items()
        )
        shown = ", ".join(_span(options.topic, *at) for at in sorted(self.spans.items()))
        text = shown if total == 1 else f"{total} records: {shown}"
        if is_duplicate:
            text = f"duplicate of {shown if '@' in shown else _ELSEWHERE}"
        elif is_delayed:
            text += f", {_delay(options)}"
        data = {
            "topic": options.topic,
            "count": total,
            "partitions": places,
            "is_delayed": is_delayed and total > 0,
            "is_duplicate": is_duplicate,
        }
        return Answer(data, text if total else "nothing to send")


def _send_one(target: Target, options: ProduceOptions, item: Item) -> Tally | None:
    """Send the only record without librdkafka's start; None if that was certainly not done."""
    from millstream.client.extensions.single_record import NotSent, SingleRecord, send_once
    from millstream.names import OPTION_HEADERS

    asks = (options.delay, options.ttl, options.message_id)
    if any(option is not None for option in asks) or any(
        name in OPTION_HEADERS for name, _ in options.headers
    ):
        return None  # The broker is asked first whether it has queues.
    record = SingleRecord(
        topic=options.topic,
        key=item.key,
        value=item.value,
        headers=tuple(options.headers),
        partition=options.partition,
    )
    with StallWatch(target) as watch:
        try:
            place = send_once(
                record,
                target.bootstrap,
                dict(target.settings),
                timeout_s=TIMEOUT_S,
                waiting=watch.step,
            )
        except NotSent:
            return None
    return Tally({place.partition: (1, place.offset, place.offset)})


class StallWatch:
    """Refuses a record that the broker cannot take; opens a client when the first retry is due."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._resources = ExitStack()
        self._stalls: Stalls | None = None

    def __enter__(self) -> "StallWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def step(self) -> None:
        from millstream.client.extensions.stalls import Stalls

        if self._stalls is None:
            client = self._resources.enter_context(open_client(self._target))
            self._stalls = Stalls(client.explain_stall)
        if reason := self._stalls.step(1):
            raise Refused(reason)


def _send_all(
    client: "Client", producer: "Producer", options: ProduceOptions, items: Iterator[Item]
) -> Tally:
    from millstream.client.extensions.stalls import Stalls

    tally, stalls = Tally(), Stalls(client.explain_stall)
    for item in items:
        while (delivery := _try_send(producer, options, item)) is None:
            _refuse_stall(producer, stalls)
            sleep(FULL_BUFFER_S)
        delivery.add_done_callback(tally.note)  # type: ignore[arg-type]
        if tally.failure:
            break
    while producer.buffered_count and not tally.failure:
        _refuse_stall(producer, stalls)
        sleep(FULL_BUFFER_S)
    producer.flush()
    if tally.failure:
        raise tally.failure
    return tally


def _try_send(producer: "Producer", options: ProduceOptions, item: Item) -> "Delivery | None":
    return producer.try_send(
        options.topic,
        item.value,
        key=item.key,
        headers=list(options.headers),
        partition=options.partition,
        delay=options.delay,
        ttl=options.ttl,
        message_id=options.message_id,
    )


def _refuse_stall(producer: "Producer", stalls: "Stalls") -> None:
    """A person waits here: say why nothing moves, rather than wait for the end of all retries."""
    if reason := stalls.step(producer.buffered_count):
        producer.give_up()
        raise Refused(reason)


def _ends(client: "Client", topic: str) -> dict[int, int]:
    """The end offsets of all partitions, before anything is sent."""
    from millstream.client import NotFound

    try:
        offsets = client.admin.offsets(topic, "latest")
    except NotFound:
        return {}  # It may be created by being sent to.
    return {at.partition: offset for at, offset in offsets.items()}


def _items(options: ProduceOptions, path: Path | None) -> Iterator[Item]:
    """The records of a file or of standard input, read as they are sent."""
    if path is None:
        if sys.stdin.isatty():
            click.echo("One record per line; Ctrl-D ends.", err=True)
        for line in sys.stdin.buffer:
            yield options.read(_text(line))
        return
    if options.coding == "binary":
        yield options.read("")._replace(value=path.read_bytes())
        return
    with path.open("rb") as file, progress("sending", path.stat().st_size) as advance:
        yield from _lines(options, file, advance)


def _lines(
    options: ProduceOptions, file: "Iterator[bytes]", advance: Callable[[int], object]
) -> Iterator[Item]:
    for line in file:
        yield options.read(_text(line))
        advance(len(line))


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="surrogateescape")


def _span(topic: str, partition: int, span: tuple[int, int, int]) -> str:
    _, first, last = span
    if last < 0:
        return f"{topic}/{partition}"  # Without acks the offset is unknown.
    return f"{topic}/{partition}@{first}" + (f"-{last}" if last > first else "")


def _delay(options: ProduceOptions) -> str:
    when = options.delay
    assert when is not None
    if isinstance(when, datetime):
        text = f"delayed until {instant(when.astimezone(UTC))}"
    else:
        text = f"delayed by {when.total_seconds():g} s"
    # The answer to a record that was there already, delayed as well, is the same.
    return text if options.message_id is None else f"{text} unless the id was known"

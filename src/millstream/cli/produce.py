"""`millstream produce`: records from an argument, from lines on standard input, or from a file."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from millstream.cli.connection import Target, connection_options, open_client
from millstream.cli.options import ordered_pairs
from millstream.cli.records import CODINGS, encode
from millstream.cli.render import Answer, answered, progress

if TYPE_CHECKING:
    from millstream.client import Producer, RecordMetadata
    from millstream.client.producer import Delivery

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class Item(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the flags say of every record."""

    topic: str
    key: str | None
    separator: str | None
    headers: list[tuple[str, str]]
    partition: int | None
    coding: str

    def read(self, line: str) -> Item:
        """One line of input as a record."""
        key, value = self.key, line
        if self.separator is not None:
            head, found, tail = line.partition(self.separator)
            if found:
                key, value = head, tail
        return Item(key.encode() if key is not None else None, encode(value, self.coding))


@click.command()
@click.argument("topic")
@click.argument("value", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Each line is a record; with --encoder binary the whole file is one.",
)
@click.option("--key", help="Records of one key stay in order.")
@click.option("--key-separator", "separator", metavar="TEXT", help="Lines are KEY TEXT VALUE.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Repeatable.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="[default: by key]")
@click.option(
    "--encoder",
    "coding",
    type=click.Choice(CODINGS),
    default="string",
    show_default=True,
    help="json: checked before it is sent; binary: base64.",
)
@click.option("--tombstone", "is_tombstone", is_flag=True, help="No value: deletes the key.")
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@answered
@connection_options
def produce(
    target: Target,
    topic: str,
    value: str | None,
    path: Path | None,
    key: str | None,
    separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    coding: str,
    is_tombstone: bool,
    compression: str,
    acks: str,
) -> Answer:
    """Send records to TOPIC: VALUE, or every line of --file or of standard input."""
    if sum((value is not None, path is not None, is_tombstone)) > 1:
        raise click.UsageError("Pass one of VALUE, --file and --tombstone.")
    if is_tombstone and key is None:
        raise click.UsageError("--tombstone needs --key.")
    wish = Wish(
        topic=topic,
        key=key,
        separator=separator,
        headers=ordered_pairs(headers, "--header"),
        partition=partition,
        coding=coding,
    )
    if is_tombstone:
        items: Iterator[Item] = iter([wish.read("")._replace(value=None)])
    elif value is not None:
        items = iter([wish.read(value)])
    else:
        items = _items(wish, path)
    is_safe = acks == "all"
    with (
        open_client(target) as client,
        client.producer(
            compression_type=compression, acks=acks, enable_idempotence=is_safe
        ) as producer,
    ):
        tally = _send_all(producer, wish, items)
    return tally.answer(topic)


@dataclass(slots=True)
class Tally:
    """What arrived, partition by partition. Told by the producer's own thread."""

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

    def answer(self, topic: str) -> Answer:
        total = sum(count for count, _, _ in self.spans.values())
        places = [
            {"partition": partition, "count": count, "first_offset": first, "last_offset": last}
            for partition, (count, first, last) in sorted(self.spans.items())
        ]
        shown = ", ".join(_span(topic, *at) for at in sorted(self.spans.items()))
        text = shown if total == 1 else f"{total} records: {shown}"
        data = {"topic": topic, "count": total, "partitions": places}
        return Answer(data, text if total else "nothing to send")


def _send_all(producer: "Producer", wish: Wish, items: Iterator[Item]) -> Tally:
    tally = Tally()
    for item in items:
        delivery = producer.send(
            wish.topic,
            item.value,
            key=item.key,
            headers=list(wish.headers),
            partition=wish.partition,
        )
        delivery.add_done_callback(tally.note)  # type: ignore[arg-type]
        if tally.failure:
            break
    producer.flush()
    if tally.failure:
        raise tally.failure
    return tally


def _items(wish: Wish, path: Path | None) -> Iterator[Item]:
    """The records of a file or of standard input, read as they are sent."""
    if path is None:
        if sys.stdin.isatty():
            click.echo("One record per line; Ctrl-D ends.", err=True)
        for line in sys.stdin.buffer:
            yield wish.read(_text(line))
        return
    if wish.coding == "binary":
        yield wish.read("")._replace(value=path.read_bytes())
        return
    with path.open("rb") as file, progress("sending", path.stat().st_size) as told:
        yield from _lines(wish, file, told)


def _lines(wish: Wish, file: "Iterator[bytes]", told: Callable[[int], object]) -> Iterator[Item]:
    for line in file:
        yield wish.read(_text(line))
        told(len(line))


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="surrogateescape")


def _span(topic: str, partition: int, span: tuple[int, int, int]) -> str:
    _, first, last = span
    if last < 0:
        return f"{topic}/{partition}"  # Without acks nobody knows the offset.
    return f"{topic}/{partition}@{first}" + (f"-{last}" if last > first else "")

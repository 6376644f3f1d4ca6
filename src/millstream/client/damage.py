"""`client.damage`: records that the disk changed: which there are, and to give some of them up."""

import struct
from dataclasses import dataclass

from millstream.client.answers import Reader, text, understanding
from millstream.client.own import OwnRequests

LIST, SKIP = 10_011, 10_012


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """Offsets from `base_offset` to before `end_offset` that are not what was written."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    file: str
    position: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRange(DamagedRange):
    """The same, given up by an operator; `kept_in` is the file that has the bytes."""

    time_ms: int
    kept_in: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLog:
    topic: str
    partition: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbing:
    """How far the search for damage is; times are -1 where nothing happened yet."""

    bytes_per_second: int  # 0: it is turned off.
    started_ms: int
    last_full_pass_ms: int
    pass_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageReport:
    damaged: tuple[DamagedRange, ...]
    skipped: tuple[SkippedRange, ...]
    closed: tuple[ClosedLog, ...]
    scrubbing: Scrubbing


class Damage:
    def __init__(self, requests: OwnRequests) -> None:
        self._requests = requests

    def list(self) -> DamageReport:
        """What the broker knows to be damaged, what was given up, and how far it has looked."""
        doing = "list damaged records"
        answer = self._requests.ask(LIST, b"", what="damaged records", doing=doing)
        with understanding(doing):
            damaged = tuple(answer.array(lambda: _damaged(answer)))
            skipped = tuple(answer.array(lambda: _skipped(answer)))
            closed = tuple(answer.array(lambda: _closed(answer)))
            rate, started, last, size = answer.numbers(">qqqq")
        scrubbing = Scrubbing(
            bytes_per_second=rate, started_ms=started, last_full_pass_ms=last, pass_bytes=size
        )
        return DamageReport(damaged=damaged, skipped=skipped, closed=closed, scrubbing=scrubbing)

    def skip(self, topic: str, partition: int, offset: int) -> SkippedRange:
        """Give up the damaged records at `offset`, so that readers go on behind them."""
        doing = f"repair {topic}/{partition} at offset {offset}"
        body = text(topic) + struct.pack(">iq", partition, offset)
        answer = self._requests.ask(SKIP, body, what="repairs", doing=doing)
        with understanding(doing):
            return _skipped(answer, topic, partition)


def _damaged(answer: Reader) -> DamagedRange:
    topic, partition = answer.text(), answer.number(">i")
    base_offset, end_offset = answer.numbers(">qq")
    file = answer.text()
    position, size = answer.numbers(">qq")
    return DamagedRange(
        topic=topic,
        partition=partition,
        base_offset=base_offset,
        end_offset=end_offset,
        file=file,
        position=position,
        size=size,
        reason=answer.text(),
    )


def _skipped(answer: Reader, topic: str | None = None, partition: int = 0) -> SkippedRange:
    if topic is None:
        topic, partition = answer.text(), answer.number(">i")
    base_offset, end_offset = answer.numbers(">qq")
    file = answer.text()
    position, size = answer.numbers(">qq")
    reason = answer.text()
    return SkippedRange(
        topic=topic,
        partition=partition,
        base_offset=base_offset,
        end_offset=end_offset,
        file=file,
        position=position,
        size=size,
        reason=reason,
        time_ms=answer.number(">q"),
        kept_in=answer.text(),
    )


def _closed(answer: Reader) -> ClosedLog:
    topic, partition = answer.text(), answer.number(">i")
    return ClosedLog(topic=topic, partition=partition, problem=answer.text())

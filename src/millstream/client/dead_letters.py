"""`client.dead_letters`: look at records that were given up, send them back, purge them.

Owns the requests to the broker, which keeps what waits; nothing is kept here. The one thing to
know: a redrive goes in steps, each of which the broker has written down before it answers, so one
that was interrupted, however hard, goes on when it is asked for again, and sends nothing twice.
"""

import struct
from collections.abc import Callable
from time import monotonic, sleep

from millstream.client.answers import Reader, text, understanding
from millstream.client.errors import Refused
from millstream.client.models import (
    DeadLetter,
    DeadLetterStatistics,
    Redriven,
    TopicPartition,
)
from millstream.client.own import OwnRequests

LIST, DESCRIBE, REPLAY, REDRIVE, PURGE = range(10_002, 10_007)
TELL_S = 0.2  # How often, while nothing happens.
STEP_RECORDS_MAX = 1_000  # What the broker sends back for one request.
COUNT_MAX = 2**31 - 1


class DeadLetters:
    """Topics may be named by themselves or by their dead letters: `orders` or `orders.dlq`."""

    def __init__(self, requests: OwnRequests) -> None:
        self._requests = requests

    def list(self, topic: str, *, limit: int = 100) -> "list[DeadLetter]":
        """Those that wait, oldest first in each partition.

        At most 1,000, and of large ones no more than 16 MiB; `stats` says how many there are.
        """
        doing = f"list the dead letters of {topic!r}"
        answer = self._ask(LIST, text(topic) + _int32(limit), doing)
        with understanding(doing):
            name = answer.text()
            return answer.array(lambda: _letter(answer, name))

    def stats(self, topic: str) -> DeadLetterStatistics:
        """How many wait, by reason and by group, and since when."""
        doing = f"count the dead letters of {topic!r}"
        answer = self._ask(DESCRIBE, text(topic), doing)
        with understanding(doing):
            return DeadLetterStatistics(
                topic=answer.text(),
                waiting=answer.number(">q"),
                by_reason=_counts(answer),
                by_group=_counts(answer),
                oldest_ms=_time(answer),
                newest_ms=_time(answer),
                is_complete=answer.truth(),
            )

    def replay(
        self, topic: str, partition: int, offset: int, *, to: str | None = None
    ) -> tuple[TopicPartition, int]:
        """Send one back, once; return the partition and the offset that it has now.

        `partition` and `offset` are its own, among the dead letters. With `to` it goes to another
        topic than the one that it came from.
        """
        doing = f"send back {topic}-{partition}@{offset}"
        body = text(topic) + _int32(partition) + _int64(offset) + text(to)
        answer = self._ask(REPLAY, body, doing)
        with understanding(doing):
            return TopicPartition(answer.text(), answer.number(">i")), answer.number(">q")

    def redrive(
        self,
        topic: str,
        *,
        filter: str | None = None,  # noqa: A002 - the word that consumers have for it
        group: str | None = None,
        to: str | None = None,
        rate: float | None = None,
        count: int | None = None,
        dry_run: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> Redriven:
        """Send back all that wait at this moment, or those that a filter takes or a group gave up.

        No more than `count`, and `rate` a second. `progress` is told how many were sent back, and
        of how many, before the first step, after each, and while the rate makes it wait. What fails
        again waits for the next redrive.
        """
        doing = f"send back the dead letters of {topic!r}"
        if rate is not None and rate <= 0:
            raise Refused(f"cannot {doing}: {rate:g} records a second send nothing")
        if count is not None and count < 1:
            raise Refused(f"cannot {doing}: a count of {count}; at least 1")
        plan = text(topic) + text(filter) + text(group) + text(to)
        # Counted first: what fails again while this runs must not be sent back again and again.
        goal = self._step(plan, COUNT_MAX if count is None else count, doing, dry_run=True)
        if dry_run:
            return goal
        step_max = STEP_RECORDS_MAX if rate is None else max(1, min(STEP_RECORDS_MAX, int(rate)))
        tell = progress or (lambda sent, goal: None)
        sent = 0
        tell(sent, goal.sent)
        while sent < goal.sent:
            started = monotonic()
            done = self._step(plan, min(step_max, goal.sent - sent), doing, dry_run=False)
            if not done.sent:
                break  # Somebody else sent them back, or purged them.
            sent += done.sent
            tell(sent, goal.sent)
            if rate is None or sent >= goal.sent:
                continue
            until = started + done.sent / rate
            while (left_s := until - monotonic()) > 0:
                sleep(min(left_s, TELL_S))
                tell(sent, goal.sent)
        return Redriven(sent=sent, skipped=goal.skipped)

    def purge(self, topic: str) -> int:
        """Delete all of them, those that were sent back too; return how many records went."""
        doing = f"purge the dead letters of {topic!r}"
        answer = self._ask(PURGE, text(topic), doing)
        with understanding(doing):
            return answer.number(">q")

    # -- private parts -------------------------------------------------------------------------

    def _step(self, plan: bytes, count_max: int, doing: str, *, dry_run: bool) -> Redriven:
        answer = self._ask(REDRIVE, plan + _int32(count_max) + struct.pack(">?", dry_run), doing)
        with understanding(doing):
            return Redriven(sent=answer.number(">q"), skipped=answer.number(">q"))

    def _ask(self, api_key: int, body: bytes, doing: str) -> Reader:
        return self._requests.ask(api_key, body, what="dead letters", doing=doing)


def _int32(number: int) -> bytes:
    return struct.pack(">i", max(-1, min(number, COUNT_MAX)))


def _int64(number: int) -> bytes:
    return struct.pack(">q", max(-1, min(number, 2**63 - 1)))


def _letter(answer: Reader, topic: str) -> DeadLetter:
    partition, offset, timestamp_ms = answer.numbers(">iqq")
    return DeadLetter(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=answer.maybe_bytes(),
        value=answer.maybe_bytes(),
        headers=tuple(answer.array(lambda: (answer.text(), answer.maybe_bytes()))),
        origin_topic=answer.text(),
        origin_partition=answer.number(">i"),
        origin_offset=answer.number(">q"),
        group=answer.text(),
        attempts=answer.number(">i"),
        reason=answer.text(),
        error=answer.text(),
    )


def _counts(answer: Reader) -> dict[str, int]:
    return dict(answer.array(lambda: (answer.text(), answer.number(">q"))))


def _time(answer: Reader) -> int | None:
    time_ms = answer.number(">q")
    return None if time_ms < 0 else time_ms

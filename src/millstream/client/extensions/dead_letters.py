"""`client.dead_letters`: lists records that were given up, sends them back, purges them.

The broker keeps the waiting letters; nothing is kept here. A redrive goes in steps, and the broker
has written each step down before it answers: an interrupted redrive goes on when it is asked for
again, and sends nothing twice.
"""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from millstream.client.errors import Refused
from millstream.client.extensions.requests import BrokerRequests
from millstream.client.models import (
    DeadLetter,
    DeadLetterStatistics,
    Redriven,
    TopicPartition,
)

# Here and below imported late: the tables take a while, and few programs need them.
if TYPE_CHECKING:
    from millstream.kafka_wire.apis import millstream as own
    from millstream.kafka_wire.schema import Message

    _Response = TypeVar("_Response", bound=own.OwnResponse)

TELL_S = 0.2  # How often progress is reported while nothing happens.
STEP_RECORDS_MAX = 1_000  # Sent back by the broker for one request.
COUNT_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1


class DeadLetters:
    """Topics may be named by themselves or by their dead letters: `orders` or `orders.dlq`."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    def list(self, topic: str, *, limit: int = 100) -> "list[DeadLetter]":
        """Those that wait, oldest first in each partition.

        At most 1,000, and of large ones no more than 16 MiB; `stats` says how many there are.
        """
        from millstream.kafka_wire.apis import millstream as own

        doing = f"list the dead letters of {topic!r}"
        request = own.ListDeadLettersRequest(topic=topic, count_max=_within(limit, COUNT_MAX))
        answer = self._call(request, own.ListDeadLettersResponse, doing)
        return [_letter(letter, answer.topic) for letter in answer.letters]

    def stats(self, topic: str) -> DeadLetterStatistics:
        """The number of waiting letters, by reason and by group, and their times."""
        from millstream.kafka_wire.apis import millstream as own

        request = own.DescribeDeadLettersRequest(topic=topic)
        doing = f"count the dead letters of {topic!r}"
        answer = self._call(request, own.DescribeDeadLettersResponse, doing)
        return DeadLetterStatistics(
            topic=answer.topic,
            waiting=answer.waiting,
            by_reason={counted.name: counted.count for counted in answer.by_reason},
            by_group={counted.name: counted.count for counted in answer.by_group},
            oldest_ms=None if answer.oldest_ms < 0 else answer.oldest_ms,
            newest_ms=None if answer.newest_ms < 0 else answer.newest_ms,
            is_complete=answer.is_complete,
        )

    def replay(
        self, topic: str, partition: int, offset: int, *, to: str | None = None
    ) -> tuple[TopicPartition, int]:
        """Send one back, once; return the partition and the offset that it has now.

        `partition` and `offset` are its own, among the dead letters. With `to` it goes to another
        topic than the one that it came from.
        """
        from millstream.kafka_wire.apis import millstream as own

        request = own.ReplayDeadLetterRequest(
            topic=topic,
            partition=_within(partition, COUNT_MAX),
            offset=_within(offset, OFFSET_MAX),
            to=to,
        )
        doing = f"send back {topic}-{partition}@{offset}"
        answer = self._call(request, own.ReplayDeadLetterResponse, doing)
        return TopicPartition(answer.topic, answer.partition), answer.offset

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

        No more than `count`, and `rate` a second. `progress` is called with the number sent back
        and the number to send, before the first step, after each, and while the rate makes it wait.
        Records that fail again wait for the next redrive.
        """
        doing = f"send back the dead letters of {topic!r}"
        if rate is not None and rate <= 0:
            raise Refused(f"cannot {doing}: {rate:g} records a second send nothing")
        if count is not None and count < 1:
            raise Refused(f"cannot {doing}: a count of {count}; at least 1")
        plan = _Plan(topic, filter, group, to)
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
                break  # Another client sent them back, or purged them.
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
        from millstream.kafka_wire.apis import millstream as own

        request = own.PurgeDeadLettersRequest(topic=topic)
        doing = f"purge the dead letters of {topic!r}"
        return self._call(request, own.PurgeDeadLettersResponse, doing).count

    # -- private parts -------------------------------------------------------------------------

    def _step(self, plan: "_Plan", count_max: int, doing: str, *, dry_run: bool) -> Redriven:
        from millstream.kafka_wire.apis import millstream as own

        request = own.RedriveDeadLettersRequest(
            topic=plan.topic,
            filter=plan.filter,
            group=plan.group,
            to=plan.to,
            count_max=_within(count_max, COUNT_MAX),
            is_dry_run=dry_run,
        )
        answer = self._call(request, own.RedriveDeadLettersResponse, doing)
        return Redriven(sent=answer.sent, skipped=answer.skipped)

    def _call(self, request: "Message", answer: "type[_Response]", doing: str) -> "_Response":
        return self._requests.call(request, answer, feature="dead letters", doing=doing)


class _Plan(NamedTuple):
    """Which dead letters to send back, and where to."""

    topic: str
    filter: str | None
    group: str | None
    to: str | None


def _within(number: int, highest: int) -> int:
    """A number that fits its field; the broker refuses -1 and the highest with a reason."""
    return max(-1, min(number, highest))


def _letter(letter: "own.ListDeadLettersResponse.Letter", topic: str) -> DeadLetter:
    return DeadLetter(
        topic=topic,
        partition=letter.partition,
        offset=letter.offset,
        timestamp_ms=letter.timestamp_ms,
        key=letter.key,
        value=letter.value,
        headers=tuple((header.name, header.value) for header in letter.headers),
        origin_topic=letter.origin_topic,
        origin_partition=letter.origin_partition,
        origin_offset=letter.origin_offset,
        group=letter.group,
        attempts=letter.attempts,
        reason=letter.reason,
        error=letter.error,
    )

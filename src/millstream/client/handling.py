"""`client.handle`: calls a function with every record, retries it, and writes dead letters.

Owns the attempts, and the dead letter of a record that is given up: it goes to `<topic>.dlq`, with
headers that say where it came from and why.

Invariant: a record is done when the function has returned or when its dead letter has arrived;
until then it is not committed. All partitions of the consumer wait meanwhile, so their order is
kept.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from time import monotonic

from millstream.base_error import MillstreamError
from millstream.client._librdkafka.fetched import place_of
from millstream.client.admin import Admin
from millstream.client.consumer import Consumer
from millstream.client.errors import AlreadyExists, BadData, ClientError, Denied, NotFound, Refused
from millstream.client.models import Message, TopicPartition
from millstream.client.producer import Producer
from millstream.client.records import RESERVED, HeaderList, header_list
from millstream.names import (
    DLQ_HEADER_PREFIX,
    DLQ_SUBJECT_PREFIX,
    DLQ_TOPIC_SUFFIX,
    MESSAGE_ID_HEADER,
    SUBJECT_HEADER,
)

VIEW_OF = "view.of"
# Why a record was given up, in the words of the broker's own subscriptions and of Spark's reader.
REJECTED, RETRIES_EXHAUSTED, UNREADABLE = "rejected", "max_retries_exceeded", "schema"
ERROR_LENGTH_MAX = 1_000
MAX_MESSAGE_BYTES = "max.message.bytes"
LETTER_BYTES_MAX = 2**16  # By which a dead letter may be larger than its record.
# For a producer of dead letters: the broker alone limits the size of a record.
LETTER_SETTINGS = {"message.max.bytes": 1_000_000_000, "linger.ms": 0}
MESSAGE_ID_BYTES_MAX = 256
WAIT_STEP_S = 0.2
MULTIPLIER_MAX = 100
GROWTHS_MAX = 64  # Of a wait; the power of both is still a number.


class Reject(MillstreamError):
    """Raised by a handler: this record will never work, so it is given up at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a record is tried again, and after which waits: longer and longer ones."""

    max_retries: int = 3
    delay_s: float = 1.0
    multiplier: float = 2.0
    delay_s_max: float = 60.0
    jitter: float = 0.1  # Each wait is up to this part longer or shorter.

    def __post_init__(self) -> None:
        if self.max_retries < 0:
            raise Refused(f"max_retries is {self.max_retries}; at least 0")
        if not 0 <= self.delay_s <= self.delay_s_max:
            raise Refused(f"delay_s is {self.delay_s:g}; 0 to delay_s_max ({self.delay_s_max:g})")
        if not 1 <= self.multiplier <= MULTIPLIER_MAX:
            raise Refused(f"multiplier is {self.multiplier:g}; 1 to {MULTIPLIER_MAX}")
        if not 0 <= self.jitter <= 1:
            raise Refused(f"jitter is {self.jitter:g}; 0 to 1")

    def wait_s(self, retry: int, luck: float) -> float:
        """The wait before a retry, counted from 1; `luck` is from 0 to 1."""
        growth = self.multiplier ** min(retry - 1, GROWTHS_MAX)
        longer = min(self.delay_s_max, self.delay_s * growth)
        return longer * (1 + self.jitter * (2 * luck - 1))


class Outcome(Enum):
    DONE = "done"
    GIVEN_UP = "given up"
    LOST = "lost"  # It is read again: the partition is another member's, or the consumer stopped.


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    done: int
    given_up: int  # They are dead letters.


def handle(
    consumer: Consumer,
    function: Callable[[Message], object],
    retry: RetryPolicy,
    dead_letters: "DeadLetterWriter",
) -> Handled:
    """Call `function` with each record until the consumer ends; give up those that keep failing."""
    check_handled(consumer)
    outcomes: Counter[Outcome] = Counter()
    while True:
        with _undone_if_raised(consumer):
            try:
                message = next(consumer)
            except StopIteration:
                break
            except BadData as problem:
                outcome = dead_letters.write(
                    consumer, attempts=1, reason=UNREADABLE, problem=problem
                )
            else:
                outcome = _attempt(consumer, message, function, retry, dead_letters)
        outcomes[outcome] += 1
    return Handled(done=outcomes[Outcome.DONE], given_up=outcomes[Outcome.GIVEN_UP])


def check_handled(consumer: Consumer) -> None:
    if consumer.group is None or not consumer.is_auto_commit:
        raise Refused("only a consumer with a group= and with auto_commit=True can be handled")


def _attempt(
    consumer: Consumer,
    message: Message,
    function: Callable[[Message], object],
    retry: RetryPolicy,
    dead_letters: "DeadLetterWriter",
) -> Outcome:
    attempt = 1
    while True:
        try:
            function(message)
            return Outcome.DONE
        except Reject as problem:
            return dead_letters.write(consumer, attempts=attempt, reason=REJECTED, problem=problem)
        except Exception as problem:
            if attempt > retry.max_retries:
                return dead_letters.write(
                    consumer, attempts=attempt, reason=RETRIES_EXHAUSTED, problem=problem
                )
        _wait(consumer, retry.wait_s(attempt, random.random()))
        if consumer.is_stopped:
            consumer.drop_in_hand()
        if consumer.in_hand is None:
            return Outcome.LOST
        attempt += 1


def _wait(consumer: Consumer, span_s: float) -> None:
    """Wait, and stay a member of the group: rebalances are served meanwhile."""
    deadline = monotonic() + span_s
    try:
        while (left_s := deadline - monotonic()) > 0 and not consumer.is_stopped:
            wait_step(consumer, left_s)
    finally:
        consumer.resume()


def wait_step(consumer: Consumer, left_s: float) -> None:
    """Wait a little without taking in records; rebalances are served."""
    consumer.pause()  # Also newly assigned partitions: records must not pile up here.
    consumer.fetch(min(WAIT_STEP_S, left_s))


@contextmanager
def _undone_if_raised(consumer: Consumer) -> Iterator[None]:
    """An error in the block leaves the record in hand undone, and it is read again next."""
    try:
        yield
    except BaseException:
        held = consumer.in_hand
        consumer.drop_in_hand()
        if held is not None:
            with suppress(ClientError):  # Then another member reads it again.
                consumer.seek(place_of(held), held.offset() or 0)
        raise


class DeadLetterWriter:
    """Writes the dead letters of one consumer, and creates their topics where they are missing."""

    def __init__(self, admin: Admin, open_producer: Callable[[], Producer]) -> None:
        self._admin = admin
        self._open_producer = open_producer
        self._producer: Producer | None = None
        self._origins: dict[str, str] = {}
        self._partition_counts: dict[str, int] = {}

    def write(
        self, consumer: Consumer, *, attempts: int, reason: str, problem: Exception
    ) -> Outcome:
        """Write the record in hand to the dead letters; raises if it did not arrive there."""
        raw = consumer.in_hand
        if raw is None:
            return Outcome.LOST
        at, offset = place_of(raw), raw.offset() or 0
        if at.topic.endswith(DLQ_TOPIC_SUFFIX):
            raise Refused(f"{at}@{offset} failed, and is a dead letter already") from problem
        origin = self._origin(at.topic)
        origin_facts = {
            "topic": origin,
            "partition": str(at.partition),
            "offset": str(offset),
            "group": consumer.group or "",
            "attempts": str(attempts),
            "reason": reason,
            "error": error_text(problem),
        }
        headers = letter_headers(header_list(raw.headers()), origin_facts)
        if self._has_ids():
            headers.append((MESSAGE_ID_HEADER, message_id(consumer.group or "", at, offset)))
        if self._producer is None:
            self._producer = self._open_producer()
        sent = self._producer.send(
            origin + DLQ_TOPIC_SUFFIX,
            raw.value(),
            key=raw.key(),
            headers=list(headers),
            partition=at.partition % self._partition_counts[origin],
        )
        sent.result()
        return Outcome.GIVEN_UP

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    def _origin(self, topic: str) -> str:
        """The topic itself, or the one that a view shows: records are sent back there."""
        if topic not in self._origins:
            origin = self._setting(topic, VIEW_OF) or topic
            self._partition_counts[origin] = self._prepare(origin)
            self._origins[topic] = origin
        return self._origins[topic]

    # Some clusters let a user read and write a topic, but not its settings; they have no views.
    def _setting(self, topic: str, name: str) -> str | None:
        with suppress(Denied):
            return {s.name: s.value for s in self._admin.topic_settings(topic)}.get(name)
        return None

    def _has_ids(self) -> bool:
        with suppress(Denied):
            return self._admin.has_queues()
        return False

    def _prepare(self, origin: str) -> int:
        """Create the topic for dead letters if it is missing; return its number of partitions."""
        name = origin + DLQ_TOPIC_SUFFIX
        try:
            return len(self._admin.offsets(name, "latest"))
        except NotFound:
            size = self._setting(origin, MAX_MESSAGE_BYTES)
            # Every record that the topic takes must fit as a dead letter too.
            settings = {MAX_MESSAGE_BYTES: int(size) + LETTER_BYTES_MAX} if size else None
            with suppress(AlreadyExists):
                self._admin.create_topic(name, partitions=1, settings=settings)
            return len(self._admin.offsets(name, "latest"))


def letter_headers(own: HeaderList, facts: dict[str, str]) -> HeaderList:
    """The record's own headers and the facts about it, as dead letters of the broker have them.

    Headers with options are left out: the broker would act on them again.
    """
    kept = [
        (name, value)
        for name, value in own
        if name not in RESERVED and not name.startswith(DLQ_HEADER_PREFIX)
    ]
    subjects = [value for name, value in kept if name == SUBJECT_HEADER and value]
    headers = [(name, value) for name, value in kept if name != SUBJECT_HEADER]
    # Subscribers to a subject do not get its dead letters with it.
    subject = subjects[0] if subjects else facts["topic"].encode()
    headers.append((SUBJECT_HEADER, DLQ_SUBJECT_PREFIX.encode() + subject))
    headers += [
        (f"{DLQ_HEADER_PREFIX}{name}", value.encode(errors="replace"))
        for name, value in facts.items()
    ]
    return [*headers, *((f"{DLQ_HEADER_PREFIX}subject", value) for value in subjects[:1])]


def message_id(group: str, at: TopicPartition, offset: int) -> bytes:
    """One for each record and group, so that a dead letter that is sent twice is taken once."""
    name = f"{group}/{at.topic}/{at.partition}/{offset}".encode()
    # A digest of a name that is too long is as good as the name.
    return name if len(name) <= MESSAGE_ID_BYTES_MAX else hashlib.sha256(name).hexdigest().encode()


def error_text(problem: Exception) -> str:
    """The error as an operator reads it: its type and its text."""
    kind = "" if isinstance(problem, Reject) else type(problem).__name__
    return ": ".join(filter(None, (kind, str(problem))))[:ERROR_LENGTH_MAX]

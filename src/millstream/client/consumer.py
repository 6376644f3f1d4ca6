"""Reading records: one after the other, from a place of your choice, with commits.

Owns a librdkafka consumer, the records fetched ahead, and the record in hand. A record counts as
done when the next one is taken, or when the consumer is closed without an exception; only records
that are done are committed, so a crash repeats records and never loses one. One thread at a time.

librdkafka is polled between two records, also while there are records that were fetched ahead, so
`max.poll.interval.ms` is the time that one record, or one `take`, may need. Nothing polls while a
record is handled: a program that hangs loses its membership, and rebalances happen between records.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millstream.client._librdkafka import offsets, shapes
from millstream.client._librdkafka.closing import Closing
from millstream.client._librdkafka.fetched import Fetched, place_of
from millstream.client._librdkafka.link import Link, Settings, log
from millstream.client._librdkafka.offsets import to_kafka
from millstream.client._librdkafka.progress import Progress
from millstream.client._librdkafka.topics import Wanted, check_start
from millstream.client.admin import Admin
from millstream.client.errors import BadData, ClientError, Closed, Refused, TimedOut, Unreachable
from millstream.client.models import Message, StartPoint, TopicPartition
from millstream.client.serde import Serdes

if TYPE_CHECKING:
    from confluent_kafka import Consumer as Handle
    from confluent_kafka import Message as Raw
    from confluent_kafka import TopicPartition as KafkaPartition

    from millstream.client.handling import Handled, RetryPolicy

    Handler = Callable[["Consumer", Callable[[Message], object], RetryPolicy | None], Handled]

FETCH_RECORDS_MAX = 500
POLL_S = 0.2
# Of librdkafka, with its default: how long a member may be silent.
POLL_INTERVAL, POLL_INTERVAL_MS = "max.poll.interval.ms", 300_000
# While records are at hand, librdkafka is polled no more often than this.
STAY_S = 0.1
# How soon a new topic or partition is noticed.
REFRESH_S = 5.0
REFRESH_LIMIT_S = 1.0
# librdkafka goes on by itself after these; a reader waits.
_PASSING = {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT"}
# A topic that is not there, or not any more. Members of a group wait for it, as Java's do.
_ABSENT = {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}


class Consumer(Closing, Iterator[Message]):
    """`client.consumer()`. An iterator that waits for records; use it with `with`, or close it."""

    def __init__(
        self,
        link: Link,
        admin: Admin,
        serdes: Serdes,
        topics: str | Iterable[str],
        settings: Settings,
        *,
        group: str | None,
        start: StartPoint,
        auto_commit: bool,
        idle_s: float | None,
        handler: "Handler | None" = None,
    ) -> None:
        from confluent_kafka import Consumer as KafkaConsumer

        self._subscribed = Wanted.parse(topics)
        check_start(start)
        if group == "":
            raise Refused("a group needs a name; without a group, leave it out")
        self.group = group
        self.is_auto_commit = auto_commit and group is not None
        self._link = link
        self._admin = admin
        self._serdes = serdes
        self._start = start
        self.idle_s = idle_s
        self._is_closed = False
        self.is_stopped = False
        self._handler = handler
        self._fetched = Fetched()
        self._problems: deque[ClientError] = deque()  # Raised after the fetched records.
        self.at_end: set[TopicPartition] = set()  # Fetched to their end at least once.
        self._progress = Progress()
        self._handed_out: Raw | None = None
        self._batch: list[Message] = []  # Collected by `take` so far.
        self._absent: set[str] = set()  # Topics that the group waits for.
        self._polled_at = monotonic()
        self._refresh_at = monotonic() + REFRESH_S
        config = link.config(self._defaults(), settings)
        self.poll_interval_s = float(config.get(POLL_INTERVAL, POLL_INTERVAL_MS)) / 1000
        self._is_incremental = "cooperative" in str(config.get("partition.assignment.strategy"))
        self._is_incremental |= config.get("group.protocol") == "consumer"
        self._handle: Handle = link.open(KafkaConsumer, config)
        try:
            self._begin()
        except BaseException:
            self._handle.close()
            raise

    # -- reading -------------------------------------------------------------------------------

    def __next__(self) -> Message:
        if not self.is_stopped:
            self.stay()
            message = self._next_at_hand()
            if message is not None:
                return message
        deadline = None if self.idle_s is None else monotonic() + self.idle_s
        while not self.is_stopped and (deadline is None or monotonic() < deadline):
            left_s = POLL_S if deadline is None else max(0.0, deadline - monotonic())
            message = self.poll(min(POLL_S, left_s))
            if message is not None:
                return message
        raise StopIteration

    def stop(self) -> None:
        """End the iteration, and `handle`, after the record in hand. Any thread may say so."""
        self.is_stopped = True

    def handle(
        self, function: "Callable[[Message], object]", *, retry: "RetryPolicy | None" = None
    ) -> "Handled":
        """Call `function` with every record, see `Client.handle`."""
        if self._handler is None:
            raise Refused("this consumer has no client that would write its dead letters")
        return self._handler(self, function, retry)

    def poll(self, timeout_s: float = 0.0) -> Message | None:
        """The next record, or None if none came in time."""
        deadline = monotonic() + timeout_s
        while True:
            self.stay()
            message = self._next_at_hand()
            if message is not None:
                return message
            self.fetch(max(0.0, min(POLL_S, deadline - monotonic())))
            if self._fetched.is_empty and monotonic() >= deadline:
                return None

    def pop(self, *, is_done_later: bool = False) -> Message | None:
        """A record that was fetched ahead, if there is one; the one before it is done.

        With `is_done_later` the caller says by `mark` when it is done.
        """
        self.finish()
        raw = self._fetched.pop()
        if raw is None:
            return None
        at = place_of(raw)
        self._hand_out(raw, at)
        try:
            return self._decode(raw, at)
        finally:
            if is_done_later:
                self._progress.let_go()

    def take(self, count: int, *, timeout_s: float | None = None) -> list[Message]:
        """Up to `count` records: fewer when the time is over.

        All of them are in hand until the next record is asked for. One that cannot be decoded ends
        the batch before it, and raises `BadData` when its turn comes; so does any other problem.
        """
        deadline = monotonic() + (self._link.timeout_s if timeout_s is None else timeout_s)
        self._batch = []
        self.stay()
        while len(self._batch) < count and (left_s := deadline - monotonic()) > 0:
            raw = self._fetched.pop()
            if raw is None:
                try:
                    self.fetch(min(POLL_S, left_s))
                except ClientError as problem:
                    if not self._batch:
                        raise
                    self._problems.appendleft(problem)
                    break
                continue
            at = place_of(raw)
            try:
                self._batch.append(self._decode(raw, at))
            except BadData:
                if self._batch:
                    self._fetched.put_back(raw)
                    break
                self._hand_out(raw, at)
                raise
            self._hand_out(raw, at)
        taken, self._batch = self._batch, []
        return taken

    @property
    def is_stay_due(self) -> bool:
        """Whether records are at hand, and the group has not heard of this member for a while."""
        if self.group is None or self._fetched.is_empty:
            return False
        return monotonic() - self._polled_at >= STAY_S

    def stay(self) -> None:
        """Count what is in hand as done, and stay a member of the group if that is due.

        Rebalances happen in here: records of partitions that went to another member are dropped.
        At most one record is fetched, where one is about to be handed out: the buffer is bounded.
        """
        self.finish()
        if self.is_stay_due and not self._is_closed:
            raw = self._poll(0)
            self._take_in([] if raw is None else [raw])

    def fetch(self, timeout_s: float) -> None:
        """Fetch ahead, without handing out. Rebalances happen in here."""
        if self._is_closed:
            raise Closed("the consumer is closed")
        self._raise_problem()
        self._refresh()
        first = self._poll(timeout_s)
        if first is None:
            return
        # Before more is fetched: a rebalance in there drops records of revoked partitions.
        self._take_in([first])
        # A poll waits for the first record; the others are there already.
        self._take_in(self._handle.consume(FETCH_RECORDS_MAX - 1, 0))

    # -- committing ----------------------------------------------------------------------------

    def commit(self, message: Message | None = None) -> None:
        """Commit all that was handed out, or up to and including `message` in its partition."""
        if self.group is None:
            raise Refused("a consumer without a group has nowhere to commit; give it a group=")
        if message is None:
            self.finish()
            goals = self._progress.done
        else:
            goals = {message.at: message.offset + 1}
        if goals:
            self._commit(goals)

    def finish(self) -> None:
        """Count the record in hand as done."""
        for at, offset in self._progress.let_go().items():
            self.mark(at, offset)

    @property
    def in_hand(self) -> "Raw | None":
        """The record in hand as it came; None once it is done, or the partition another's."""
        return self._handed_out if self._progress.is_in_hand else None

    def drop_in_hand(self) -> None:
        """Put the record in hand down undone: it will be read again."""
        self._progress.let_go()

    def mark(self, at: TopicPartition, offset: int) -> None:
        self._progress.mark(at, offset)
        if not self.is_auto_commit or self._is_closed:
            return
        from confluent_kafka import KafkaException

        try:
            self._handle.store_offsets(offsets=to_kafka({at: offset + 1}))
        except KafkaException:
            # The partition went to another member meanwhile; it will read the record again.
            self._progress.forget([at])

    # librdkafka's metadata of a group is an opaque object.
    def progress(self) -> "tuple[list[KafkaPartition], Any]":
        """For a transaction: the offsets to commit, and the member's identity in its group."""
        if self.group is None:
            raise Refused("a consumer without a group has no offsets to commit; give it a group=")
        self.finish()
        return to_kafka(self._progress.done), self._handle.consumer_group_metadata()

    def settle(self) -> None:
        """Note that the records in hand were committed elsewhere: in a transaction."""
        self._progress = Progress()

    def rewind(self) -> None:
        """Go back to the first record that was handed out and not committed, everywhere."""
        assigned = self.assignment
        goals = {at: n for at, n in self._progress.origins.items() if at in assigned}
        self.settle()
        for at, offset in goals.items():
            self.seek(at, offset)

    # -- moving about --------------------------------------------------------------------------

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this consumer reads at the moment."""
        return tuple(sorted(shapes.place(target) for target in self._handle.assignment()))

    @property
    def has_fetched(self) -> bool:
        """Whether a record is at hand."""
        return not self._fetched.is_empty

    def wait_assigned(self, timeout_s: float | None = None) -> tuple[TopicPartition, ...]:
        """Wait until the group gave this member partitions."""
        deadline = monotonic() + (self._link.timeout_s if timeout_s is None else timeout_s)
        while not self.assignment:
            if monotonic() > deadline:
                absent = f" There is no topic {min(self._absent)!r} yet." if self._absent else ""
                raise TimedOut(f"no partition of {self._subscribed} was assigned in time.{absent}")
            self.fetch(POLL_S)
        return self.assignment

    def seek(self, at: TopicPartition, to: StartPoint) -> None:
        """Read partition `at` from there on: an end of it, a time, or an offset."""
        check_start(to)
        offset = to if isinstance(to, int) else self._admin.offsets([at], to)[at]
        self._drop([at])
        self._seek({at: offset})

    def seek_all(self, to: StartPoint) -> None:
        """Read every assigned partition from there on; waits for the assignment."""
        places = self.wait_assigned()
        goals = self._admin.offsets(places, to)
        self._drop(places)
        self._seek(goals)

    def pause(self, *places: TopicPartition) -> None:
        """Hand out nothing of these partitions, or of all. The member stays in its group."""
        chosen = places or self.assignment
        self._fetched.pause(chosen)
        self._handle.pause(to_kafka(dict.fromkeys(chosen, 0)))

    def resume(self, *places: TopicPartition) -> None:
        chosen = places or self.assignment
        self._fetched.resume(chosen)
        self._handle.resume(to_kafka(dict.fromkeys(chosen, 0)))

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Count the record in hand as done, commit if that is automatic, and leave the group."""
        if self._is_closed:
            return
        self.finish()
        self._leave()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is not None:
            self.drop_in_hand()
        super().__exit__(kind, problem, trace)

    # -- private parts -------------------------------------------------------------------------

    def _defaults(self) -> Settings:
        return {
            # librdkafka wants a name; a consumer that is assigned by hand never joins it.
            "group.id": "millstream-no-group" if self.group is None else self.group,
            "auto.offset.reset": self._start if isinstance(self._start, str) else "earliest",
            "enable.auto.commit": self.is_auto_commit,
            "enable.auto.offset.store": False,
            "check.crcs": True,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 100,  # A consumer that closes waits for its last fetch.
            "topic.metadata.refresh.interval.ms": int(REFRESH_S * 1000),
        }

    def _begin(self) -> None:
        if self.group is None:
            self._assign(self._subscribed.find(self._admin), self._start)
            return
        self._handle.subscribe(
            self._subscribed.subscriptions,
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def _assign(self, places: list[TopicPartition], start: StartPoint) -> None:
        # "latest" is looked up at once, so that nothing written from this moment on is missed.
        goals = self._admin.offsets(places, start)
        if goals:
            self._handle.incremental_assign(to_kafka(goals))

    def _assigned(self, handle: "Handle", partitions: "list[KafkaPartition]") -> None:
        self._absent -= {target.topic for target in partitions}
        if isinstance(self._start, str):
            return  # librdkafka begins by itself where the group is, or at that end.
        committed = handle.committed(partitions, self._link.timeout_s)
        fresh = [shapes.place(at) for at in committed if at.offset < 0]
        begins = self._admin.offsets(fresh, self._start)
        for at in committed:
            at.offset = begins.get(shapes.place(at), at.offset)
        (handle.incremental_assign if self._is_incremental else handle.assign)(committed)

    def _revoked(self, handle: "Handle", partitions: "list[KafkaPartition]") -> None:
        places = [shapes.place(target) for target in partitions]
        self._drop(places)
        self._fetched.resume(places)  # A pause ends with the assignment, as in librdkafka.

    def _refresh(self) -> None:
        """Look for new topics and partitions: without a group, no coordinator announces them."""
        if self.group is not None or monotonic() < self._refresh_at:
            return
        self._refresh_at = monotonic() + REFRESH_S
        known = set(self.assignment)
        try:
            targets = self._subscribed.find(self._admin, timeout_s=REFRESH_LIMIT_S)
        except (TimedOut, Unreachable):
            return
        # They are younger than this reader, which is to see all of them.
        self._assign([at for at in targets if at not in known], "earliest")

    def _poll(self, timeout_s: float) -> "Raw | None":
        from confluent_kafka import KafkaException

        try:
            return self._handle.poll(timeout_s)
        except KafkaException as problem:  # Of a rebalance, such as the look-up of where to begin.
            raise self._link.failure(problem, f"read {self._subscribed}") from problem
        finally:
            self._polled_at = monotonic()

    def _take_in(self, fetched: "Iterable[Raw]") -> None:
        """Sort librdkafka's messages; a problem waits for the records before it."""
        for raw in fetched:
            error = raw.error()
            if error is None:
                self._fetched.add(raw)
            elif error.name() == "_PARTITION_EOF":
                self.at_end.add(place_of(raw))
            elif error.name() in _ABSENT and self.group is not None:
                self._wait_for(raw.topic() or str(self._subscribed))
            elif error.name() not in _PASSING and (error.fatal() or not error.retriable()):
                if error.name() == "_MAX_POLL_EXCEEDED":
                    # The membership is lost; librdkafka says so before it revokes the partitions.
                    self._drop(self.assignment)
                self._problems.append(self._link.error(error, f"read {self._subscribed}"))
        self._raise_problem()

    def _raise_problem(self) -> None:
        """Raise the oldest problem, once all records that came before it are handed out."""
        if self._problems and self._fetched.is_empty:
            raise self._problems.popleft()

    def _wait_for(self, topic: str) -> None:
        if topic not in self._absent:
            self._absent.add(topic)
            log.warning("there is no such topic, waiting for it topic=%s", topic)

    def _next_at_hand(self) -> Message | None:
        raw = self._fetched.pop()
        if raw is None:
            return None
        at = place_of(raw)
        self._hand_out(raw, at)
        return self._decode(raw, at)

    def _hand_out(self, raw: "Raw", at: TopicPartition) -> None:
        self._progress.hand_out(at, raw.offset() or 0)
        self._handed_out = raw

    def _decode(self, raw: "Raw", at: TopicPartition) -> Message:
        try:
            key, value = self._serdes.decode(at.topic, raw.key(), raw.value())
        except BadData as problem:
            raise BadData(f"{at} at offset {raw.offset()}: {problem}") from problem
        return shapes.message(raw, key, value)

    def _commit(self, goals: dict[TopicPartition, int]) -> None:
        offsets.commit(self._handle, self._link, goals, group=self.group)
        self._progress.committed(goals)

    def _seek(self, goals: dict[TopicPartition, int]) -> None:
        offsets.seek(
            self._handle,
            self._link,
            goals,
            assigned=lambda: self.assignment,
            is_stored=self.is_auto_commit,
        )

    def _drop(self, places: Iterable[TopicPartition]) -> None:
        chosen = list(places)
        self._fetched.drop(chosen)
        self._progress.forget(chosen)
        self._batch = [message for message in self._batch if message.at not in chosen]

    def _leave(self) -> None:
        self._is_closed = True
        self._fetched = Fetched()
        try:
            self._handle.close()
        except Exception as problem:
            raise self._link.failure(problem, "close the consumer") from problem

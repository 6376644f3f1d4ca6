"""Publishes single messages, for protocols whose clients know messages instead of batches.

Owns how messages become batches: the partition of each, which of them share a batch, and the wait
for a topic that does not exist yet. Checks, durability and all else about a batch are in
`partitions.service`.

Invariant: the order of messages is fixed before a call returns, also for messages that wait until
their topic is created: later ones wait behind them.
"""

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from millstream.codec.batch import HEADER_BYTES, Header
from millstream.codec.encoding import (
    Message,
    TemplatedMessages,
    encode_batch,
    encode_many,
    encode_one,
    message_sizes_max,
    select_messages,
)
from millstream.codec.records import Record
from millstream.config import Config
from millstream.control.catalog import Catalog, Topic
from millstream.engine.gate import Gate, Operation, topic_resource
from millstream.engine.partitions.service import Partitions
from millstream.engine.publish.missing_topics import MissingTopics
from millstream.engine.publish.partitioner import Partitioner
from millstream.engine.publish.receipts import Part, Receipt, ReceiptFuture, Receipts, receipt_of
from millstream.engine.topic_defaults import TopicDefaults
from millstream.engine.topics import Topics
from millstream.errors import Overloaded, RequestError, UnknownTopic
from millstream.model import Acks, Appended, Session, TopicPartition
from millstream.ports import Clock

# Small enough that many calls of one loop turn do not add up to a stall.
BATCH_BYTES_MAX = 512 * 2**10

Headers = tuple[tuple[str, bytes | None], ...]


class Publication(NamedTuple):
    """One message. Without a partition its key decides, as with Kafka's clients; without a key
    the partitions take turns, a batch each."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None  # None: the broker's time.


class Publisher:
    def __init__(
        self,
        gate: Gate,
        catalog: Catalog,
        topics: Topics,
        partitions: Partitions,
        missing: MissingTopics,
        *,
        config: Config,
        defaults: TopicDefaults,
        clock: Clock,
    ) -> None:
        self._gate = gate
        self._catalog = catalog
        self._topics = topics
        self._partitions = partitions
        self._config = config
        self._defaults = defaults
        self._clock = clock
        self._partitioner = Partitioner()
        self._missing = missing

    def publish(
        self, session: Session, publications: Sequence[Publication], acks: Acks = Acks.ALL
    ) -> "list[asyncio.Future[Receipt]]":
        """Write messages of any topics; each has a future of its own, with a receipt or an error.

        Those for one partition share a batch and keep their order, as long as either all of a
        topic's name their partition or none does.
        """
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Receipt]] = [loop.create_future() for _ in publications]
        groups: dict[tuple[str, int | None], list[int]] = {}
        for index, publication in enumerate(publications):
            groups.setdefault((publication.topic, publication.partition), []).append(index)
        for (topic, partition), indexes in groups.items():
            chosen = [publications[index] for index in indexes]
            times = [publication.timestamp_ms for publication in chosen]
            messages = [(p.key, p.value, p.headers) for p in chosen]
            sending = self._sending(session, topic, partition, messages, acks)
            if any(time is not None for time in times):
                sending.times = [sending.now_ms if time is None else time for time in times]
            mine = [futures[index] for index in indexes]
            sending.done.add_done_callback(partial(_hand_out, mine))
            self._send(sending)
        return futures

    def publish_many(
        self,
        session: Session,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int | None = None,
        acks: Acks = Acks.ALL,
    ) -> "asyncio.Future[Receipts]":
        """Write messages of one topic, with one future for all; they have the broker's time.

        The future has no error of its own: `Receipts` holds the errors. It costs little where
        neighbours share the same key and headers objects, and least for `TemplatedMessages`.
        """
        sending = self._sending(session, topic, partition, messages, acks)
        self._send(sending)
        return sending.done

    def publish_one(
        self,
        session: Session,
        topic: str,
        message: Message,
        *,
        partition: int | None = None,
        acks: Acks = Acks.ALL,
    ) -> "ReceiptFuture[Receipts] | ReceiptFuture[Appended]":
        """Write one message, with the broker's time, for a third less than as one of many.

        Raises at once, with nothing written, or when it is awaited.
        """
        try:
            known_topic = None if topic in self._missing else self._catalog.find(topic)
        except UnknownTopic:
            known_topic = None
        if known_topic is None:
            many = self.publish_many(session, topic, [message], partition=partition, acks=acks)
            return ReceiptFuture(many, itemgetter(0))
        if partition is None:
            partition = self._place(known_topic, message[0])
        target, now_ms = TopicPartition(topic, partition), self._clock.now_ms()
        header, batch = encode_one(message, now_ms)
        appending = self._partitions.append(session, target, batch, acks, header=header)
        return ReceiptFuture(appending, partial(receipt_of, target, now_ms))

    def _sending(
        self,
        session: Session,
        topic: str,
        partition: int | None,
        messages: Sequence[Message],
        acks: Acks,
    ) -> "_Sending":
        now_ms = self._clock.now_ms()
        return _Sending(session, topic, partition, messages, acks, now_ms, self._send)

    # -- topics that are not there yet -----------------------------------------------------------

    def _send(self, sending: "_Sending") -> None:
        assert sending.messages
        if sending.topic in self._missing:
            self._missing.wait(sending.topic, sending)
            return
        try:
            topic = self._catalog.find(sending.topic)
        except UnknownTopic as unknown:
            self._send_later(sending, unknown)
            return
        self._write(sending, topic)

    def _send_later(self, sending: "_Sending", unknown: UnknownTopic) -> None:
        try:
            self._gate.admit(sending.session, Operation.APPEND, topic_resource(sending.topic))
            if not self._config.auto_create_topics:
                raise unknown
            self._topics.check_create(sending.session, sending.topic)
        except RequestError as problem:
            sending.refuse(problem)
            return
        self._missing.wait(sending.topic, sending)

    # -- into the log ----------------------------------------------------------------------------

    def _write(self, sending: "_Sending", topic: Topic) -> None:
        """Append all of it now; an error is the outcome of its part only."""
        settings = defaults = self._defaults.settings
        if topic.overrides:
            settings = topic.settings(defaults)
        bytes_max = settings.max_message_bytes
        bytes_max = min(bytes_max, BATCH_BYTES_MAX) - HEADER_BYTES
        batches: list[tuple[Part, Sequence[Message]]] = []
        for partition, indexes in self._spread(sending, topic):
            target = TopicPartition(topic.name, partition)
            messages = select_messages(sending.messages, indexes)
            batches += [
                (Part(target, indexes[some]), messages[some]) for some in _cut(messages, bytes_max)
            ]
        sending.expect([part for part, _ in batches])
        for part, messages in batches:
            header, batch = sending.spell(messages, part.indexes)
            try:
                appending = self._partitions.append(
                    sending.session, part.target, batch, sending.acks, header=header
                )
            except RequestError as problem:
                sending.set_outcome(part, problem)
            else:
                if appending.done():  # Then the outcome need not wait for a turn of the loop.
                    _appended(sending, part, appending)
                else:
                    appending.add_done_callback(partial(_appended, sending, part))

    def _place(self, topic: Topic, key: bytes | None) -> int:
        """The partition of a message that comes alone."""
        count = topic.partition_count
        if count == 1:
            return 0
        if key is None:
            return self._partitioner.turn(topic.topic_id, count)
        return self._partitioner.of_key(key, count)

    def _spread(self, sending: "_Sending", topic: Topic) -> "list[tuple[int, Sequence[int]]]":
        """Which messages go to which partition, by their indexes, in their order."""
        messages = sending.messages
        if sending.partition is not None:
            return [(sending.partition, range(len(messages)))]
        count = topic.partition_count
        if count == 1:
            return [(0, range(len(messages)))]
        turn = self._partitioner.turn(topic.topic_id, count)

        def place(key: bytes | None) -> int:
            return turn if key is None else self._partitioner.of_key(key, count)

        if isinstance(messages, TemplatedMessages):
            templates = messages.templates
            known = {template: place(template.key) for template in set(templates)}
            places = list(map(known.__getitem__, templates))
        else:
            places = [place(key) for key, _, _ in messages]
        indexes: defaultdict[int, list[int]] = defaultdict(list)
        for index, partition in enumerate(places):
            indexes[partition].append(index)
        return list(indexes.items())


class _Sending:
    """One call's messages for one topic, on their way."""

    __slots__ = (
        "_left",
        "_parts",
        "_send",
        "acks",
        "done",
        "messages",
        "now_ms",
        "partition",
        "session",
        "times",
        "topic",
    )

    def __init__(
        self,
        session: Session,
        topic: str,
        partition: int | None,
        messages: Sequence[Message],
        acks: Acks,
        now_ms: int,
        send: "Callable[[_Sending], None]",
    ) -> None:
        self.session = session
        self.topic = topic
        self.partition = partition
        self.messages = messages
        self.acks = acks
        self.now_ms = now_ms
        self.times: list[int] | None = None  # None: all have `now_ms`.
        self.done: asyncio.Future[Receipts] = asyncio.get_running_loop().create_future()
        self._parts: list[Part] = []
        self._left = 0
        self._send = send

    @property
    def count(self) -> int:
        return len(self.messages)

    def go_on(self) -> None:
        """After the topic was created; were it deleted meanwhile, this would wait again."""
        self._send(self)

    def spell(
        self, messages: Sequence[Message], indexes: Sequence[int]
    ) -> tuple[Header | None, bytes]:
        """Spell some of them, which are those of these indexes; with the header, if at hand."""
        times = self.times
        if times is None:
            return encode_many(messages, self.now_ms)
        stamped = zip(indexes, messages, strict=True)
        records = [Record(at, times[i], *message) for at, (i, message) in enumerate(stamped)]
        return None, encode_batch(records)

    def expect(self, parts: list[Part]) -> None:
        self._parts = parts
        self._left = len(parts)

    def set_outcome(self, part: Part, outcome: Appended | RequestError) -> None:
        part.outcome = outcome
        self._left -= 1
        if self._left == 0 and not self.done.done():
            self.done.set_result(Receipts(self._parts, len(self.messages), self.now_ms))

    def refuse(self, problem: RequestError) -> None:
        """Give all messages this error: none was written."""
        part = Part(TopicPartition(self.topic, self.partition or 0), range(len(self.messages)))
        self.expect([part])
        self.set_outcome(part, problem)


def _appended(sending: _Sending, part: Part, appending: "asyncio.Future[Appended]") -> None:
    if appending.cancelled():
        sending.set_outcome(part, Overloaded("the append was given up"))
        return
    problem = appending.exception()
    if problem is None:
        sending.set_outcome(part, appending.result())
    elif isinstance(problem, RequestError):
        sending.set_outcome(part, problem)
    else:
        raise problem


def _hand_out(
    futures: "Sequence[asyncio.Future[Receipt]]", done: "asyncio.Future[Receipts]"
) -> None:
    if done.cancelled():
        return
    for future, outcome in zip(futures, done.result().outcomes(), strict=True):
        if future.done():
            continue  # The caller was cancelled; the record is written.
        if isinstance(outcome, RequestError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _cut(messages: Sequence[Message], bytes_max: int) -> list[slice]:
    """Runs of messages that fit into a batch; one that fits nowhere stands alone, to be refused."""
    if sum(message_sizes_max(messages)) <= bytes_max:
        return [slice(0, len(messages))]
    ends = list(accumulate(message_sizes_max(messages)))
    runs = []
    first = size = 0
    while first < len(ends):
        stop = max(first + 1, bisect_right(ends, size + bytes_max, first))
        runs.append(slice(first, stop))
        first, size = stop, ends[stop - 1]
    return runs

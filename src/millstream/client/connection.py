"""`connect()` and `Client`: one cluster, one set of serdes, everything closed at the end.

Owns the lifetime of producers, consumers and transactions. Threads may share a client; a consumer
belongs to one thread.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime
from functools import cached_property
from os import environ
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4
from weakref import WeakSet

from millstream.client import records
from millstream.client._librdkafka.closing import Closing
from millstream.client._librdkafka.link import DELIVERY_TIMEOUT_S, TIMEOUT_S, Link
from millstream.client._librdkafka.topics import start_point
from millstream.client.admin import Admin
from millstream.client.errors import ClientError, Closed, Unreachable
from millstream.client.extensions.checkpoints import Checkpoints
from millstream.client.extensions.cluster import ClusterAdmin
from millstream.client.extensions.damage import Damage
from millstream.client.extensions.encryption import EncryptionAdmin
from millstream.client.extensions.log_levels import LogLevels
from millstream.client.extensions.requests import BrokerRequests
from millstream.client.models import (
    FilterFigures,
    Headers,
    Message,
    RecordMetadata,
    StartPoint,
    StorageProblem,
    TopicHealth,
)
from millstream.client.producer import BUFFER_BYTES_MAX, BUFFER_RECORDS_MAX, Producer
from millstream.client.serde import Serde, Serdes, SerdeSpec

# Imported by the methods that need them: a command that lists topics starts sooner.
if TYPE_CHECKING:
    from millstream.client.consumer import Consumer
    from millstream.client.extensions.audit import AuditTrail
    from millstream.client.extensions.dead_letters import DeadLetters
    from millstream.client.extensions.delayed import DelayedRecords
    from millstream.client.extensions.quotas import Quotas
    from millstream.client.extensions.rights import Acls, Roles
    from millstream.client.extensions.users import Users
    from millstream.client.handling import DeadLetterWriter, Handled, RetryPolicy
    from millstream.client.subscribers import Run, Subscriber
    from millstream.client.transactions import OpenTransaction, TransactionalProducer
    from millstream.client.views import Views

BOOTSTRAP_VARIABLE, DEFAULT_ADDRESS = "MILLSTREAM_BOOTSTRAP", "localhost:9092"
WAIT_STEP_S = 0.2
# One transaction at a time per id: more ids than this at once is a leak, not a program.
TRANSACTIONAL_IDS_MAX = 100

# A decorated function keeps its type; its result is ignored.
_Function = TypeVar("_Function", bound=Callable[[Message], Any])


# Any: settings are librdkafka's, text, numbers, truths and callbacks.
def connect(
    address: str | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
    wait_s: float = 0.0,
    **settings: Any,
) -> "Client":
    """Reach a cluster, and raise `Unreachable` if no broker is there.

    Without an address it is the one in the variable MILLSTREAM_BOOTSTRAP, or `localhost:9092`.
    `timeout_s` is how long a request waits for its answer, `delivery_timeout_s` how long a record
    that was sent may take, restarts of the broker included; `wait_s` is how long to wait for a
    broker that is about to start. `settings` are librdkafka's, with `_` for `.`, for all handles.
    """
    link = Link(
        address or environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_ADDRESS,
        settings,
        timeout_s=timeout_s,
        delivery_timeout_s=delivery_timeout_s,
    )
    client = Client(link)
    deadline = monotonic() + wait_s
    while True:
        try:
            client.admin.check()
            return client
        except Unreachable:
            if monotonic() > deadline:
                client.close()
                raise
            client.forget_failure()
            sleep(WAIT_STEP_S)
        except BaseException:
            client.close()
            raise


class Client(Closing):
    """A connection to a cluster. Use it with `with`, or close it."""

    def __init__(self, link: Link) -> None:
        self.admin = Admin(link)
        self._requests = BrokerRequests(link, lambda: self.admin.describe_cluster().nodes)
        self.damage = Damage(self._requests)
        self.checkpoints = Checkpoints(self._requests)
        self.cluster = ClusterAdmin(self._requests)
        self.log_levels = LogLevels(self._requests)
        self.encryption = EncryptionAdmin(self._requests)
        link.has_queues = self.admin.has_queues
        link.explain_stall = self.explain_stall
        self._link = link
        self._serdes = Serdes()
        self._lock = threading.Lock()
        self._is_closed = False
        self._single: Producer | None = None
        self._own_id = f"millstream-{uuid4()}"
        self._transactional: dict[str, TransactionalProducer] = {}
        self.subscribers: list[Subscriber] = []  # Those that `run` calls.
        self._running: Run | None = None
        # Weak: an object that the program dropped needs no closing by us.
        self._opened: WeakSet[Producer | Consumer] = WeakSet()

    @property
    def address(self) -> str:
        return self._link.address

    @cached_property
    def views(self) -> "Views":
        from millstream.client.views import Views

        return Views(self.admin)

    @cached_property
    def dead_letters(self) -> "DeadLetters":
        from millstream.client.extensions.dead_letters import DeadLetters

        return DeadLetters(self._requests)

    @cached_property
    def delayed(self) -> "DelayedRecords":
        from millstream.client.extensions.delayed import DelayedRecords

        return DelayedRecords(self._requests)

    @cached_property
    def users(self) -> "Users":
        from millstream.client.extensions.users import Users

        return Users(self._requests)

    @cached_property
    def acls(self) -> "Acls":
        from millstream.client.extensions.rights import Acls

        return Acls(self._requests)

    @cached_property
    def roles(self) -> "Roles":
        from millstream.client.extensions.rights import Roles

        return Roles(self._requests)

    @cached_property
    def quotas(self) -> "Quotas":
        from millstream.client.extensions.quotas import Quotas

        return Quotas(self._requests)

    @cached_property
    def audit(self) -> "AuditTrail":
        from millstream.client.extensions.audit import AuditTrail

        return AuditTrail(self._requests)

    def health(self, topic: str) -> TopicHealth:
        """Watermarks, segments, bytes and index of each partition, and the lag of each group."""
        from millstream.client.extensions.health import topic_health

        return topic_health(self._requests, self.admin, topic)

    def filter_figures(self, topic: str, filter: str) -> FilterFigures:  # noqa: A002
        """How much of the log reads of `topic` through this filter have taken so far."""
        from millstream.client.extensions.health import filter_figures

        return filter_figures(self._requests, topic, filter)

    def storage_problems(self) -> tuple[StorageProblem, ...]:
        """The partitions whose disk is full or failed: none, if all is well."""
        from millstream.client.extensions.health import storage_problems

        return storage_problems(self._requests)

    def explain_stall(self) -> str:
        """Why the broker takes no records, in one sentence; empty if it does, or does not say."""
        from millstream.client.extensions.stalls import sentence

        try:
            return sentence(self.address, self.storage_problems())
        except ClientError:
            return ""  # Another broker than ours, or none at all: other calls report that.

    # -- serdes --------------------------------------------------------------------------------

    def set_serde(
        self,
        value: SerdeSpec | None = None,
        *,
        key: SerdeSpec | None = None,
        topic: str | None = None,
    ) -> None:
        """How keys and values become bytes: `"json"`, `"string"`, `"int"`, `"bytes"`, a model type
        or a serde; for one topic or for all. Producers and consumers made from here on have it.
        """
        self._serdes.set(value, key=key, topic=topic)

    def register_serde(self, name: str, serde: Serde) -> None:
        """Let `set_serde(name)` find a serde of your own."""
        self._serdes.register(name, serde)

    # -- producing -----------------------------------------------------------------------------

    # Any: keys and values are of the serde's type.
    def produce(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        delay: records.Span | datetime | None = None,
        ttl: records.Span | None = None,
        message_id: str | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is on stable storage. For many, use `producer()`.

        With `delay`, seconds or a time, it appears in the topic then; after `ttl` no reader gets it
        any more; a record whose `message_id` the topic has just seen is a duplicate, and left out.
        """
        producer = self.single_producer()
        return producer.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            delay=delay,
            ttl=ttl,
            message_id=message_id,
        ).result()

    def producer(
        self,
        *,
        buffer_records_max: int = BUFFER_RECORDS_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        value_serde: SerdeSpec | None = None,
        key_serde: SerdeSpec | None = None,
        **settings: Any,
    ) -> Producer:
        """A producer for many records: batches, futures, and a buffer that makes `send` wait."""
        self._check_open()
        producer = Producer(
            self._link,
            self._serdes.with_choice(value_serde, key_serde),
            settings,
            buffer_records_max=buffer_records_max,
            buffer_bytes_max=buffer_bytes_max,
        )
        self._opened.add(producer)
        return producer

    def single_producer(self) -> Producer:
        """The producer behind `produce`: it does not wait for company."""
        with self._lock:
            self._check_open()
            if self._single is None or self._single.is_broken:
                self._single = Producer(self._link, self._serdes, {"linger.ms": 0})
            return self._single

    # -- consuming -----------------------------------------------------------------------------

    def consumer(
        self,
        topics: str | Iterable[str],
        *,
        group: str | None = None,
        start: StartPoint | None = None,
        from_: StartPoint | None = None,
        auto_commit: bool = True,
        filter: str | None = None,  # noqa: A002 - the word that users of other brokers know
        idle_s: float | None = None,
        value_serde: SerdeSpec | None = None,
        key_serde: SerdeSpec | None = None,
        **settings: Any,
    ) -> "Consumer":
        """Read topics, by name or by pattern. With a group, members share the partitions.

        `start` ("earliest") is where to begin: always without a group, and where the group has
        committed nothing with one; `from_` is its former name, deprecated. With `idle_s`, iterating
        ends when no record came for that long. A `filter` is carried out by the broker, which
        creates nothing for it, see `Views.filtered`.
        """
        from millstream.client.consumer import Consumer

        self._check_open()
        serdes = self._serdes.with_choice(value_serde, key_serde)
        if filter is not None:
            filtered = self.views.filtered(topics, filter)
            serdes.share(filtered)
            topics = list(filtered.values())
        consumer = Consumer(
            self._link,
            self.admin,
            serdes,
            topics,
            settings,
            group=group,
            start=start_point(start, from_),
            auto_commit=auto_commit,
            idle_s=idle_s,
            handler=lambda consumer, function, retry: self.handle(consumer, function, retry=retry),
        )
        self._opened.add(consumer)
        return consumer

    def handle(
        self,
        consumer: "Consumer",
        function: Callable[[Message], object],
        *,
        retry: "RetryPolicy | None" = None,
    ) -> "Handled":
        """Call `function` with every record of a consumer, until it ends (see `idle_s`).

        A record is done when the function returns. One for which it raises is tried again, as
        `retry` says (`RetryPolicy()`); after the last attempt, or at once if it raises `Reject`, it
        goes to the dead letters, `<topic>.dlq`. So does a value that the serde cannot decode.
        """
        from millstream.client.handling import RetryPolicy, handle

        with closing(self.dead_letter_writer()) as dead_letters:
            return handle(consumer, function, retry or RetryPolicy(), dead_letters)

    def dead_letter_writer(self) -> "DeadLetterWriter":
        """For `handle`: the writer of dead letters."""
        from millstream.client.handling import LETTER_SETTINGS, DeadLetterWriter

        self._check_open()
        return DeadLetterWriter(
            self.admin,
            lambda: self.producer(value_serde="bytes", key_serde="bytes", **LETTER_SETTINGS),
        )

    def subscriber(
        self,
        topics: str | Iterable[str],
        *,
        group: str,
        retry: "RetryPolicy | None" = None,
        **options: Any,
    ) -> Callable[[_Function], _Function]:
        """Have `run` call the decorated function with every record, as `handle` does.

        `options` are those of `consumer`. The function stays as it is, and may be called as such.
        """

        from millstream.client.handling import RetryPolicy
        from millstream.client.subscribers import subscriber

        policy = retry or RetryPolicy()

        def register(function: _Function) -> _Function:
            self.subscribers.append(
                subscriber(function, topics, group=group, retry=policy, options=options)
            )
            return function

        return register

    def run(self) -> "Handled":
        """Run all subscribers, each in a thread, until `stop`, Ctrl-C, or until all have ended.

        Subscribers end by themselves with `idle_s`. If one fails, all stop, and it is raised.
        """
        from millstream.client.subscribers import Run, check_count

        check_count(self.subscribers)
        opened: list[tuple[Subscriber, Consumer]] = []
        try:
            for subscribed in self.subscribers:
                consumer = self.consumer(subscribed.topics, **subscribed.options)
                opened.append((subscribed, consumer))
        except BaseException:
            for _, consumer in opened:
                consumer.close()
            raise
        running = self._running = Run(
            lambda consumer, subscribed: self.handle(
                consumer, subscribed.function, retry=subscribed.retry
            )
        )
        return running.run(opened)

    def stop(self) -> None:
        """End `run` after the records in hand. Any thread may say so."""
        if self._running is not None:
            self._running.stop()

    # -- transactions --------------------------------------------------------------------------

    def transaction(
        self, transactional_id: str | None = None, **settings: Any
    ) -> "OpenTransaction":
        """A transaction for one `with` block. The id fences an older process of the same id;
        without one, this client has its own, and one transaction at a time.
        """
        from millstream.client.transactions import OpenTransaction, TransactionalProducer

        name = self._own_id if transactional_id is None else transactional_id
        with self._lock:
            self._check_open()
            producer = self._transactional.get(name)
            if producer is None or not producer.is_usable:
                if len(self._transactional) >= TRANSACTIONAL_IDS_MAX:
                    self._drop_idle()
                producer = TransactionalProducer(self._link, self._serdes, name, settings)
                self._transactional[name] = producer
            return OpenTransaction(producer)

    # -- the end -------------------------------------------------------------------------------

    def forget_failure(self) -> None:
        """Forget the last attempt and its errors, so that the next one starts anew."""
        self.admin.close()
        self._link.reached()

    def close(self) -> None:
        """Close everything that this client opened; the first failure is raised at the end."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        failures: list[ClientError] = []
        single = [] if self._single is None else [self._single]
        for resource in [*self._opened, *single, *self._transactional.values()]:
            try:
                resource.close()
            except ClientError as problem:
                failures.append(problem)
        self.admin.close()
        for first in failures:
            raise first

    def _drop_idle(self) -> None:
        for name, producer in list(self._transactional.items()):
            if not producer.is_open:
                producer.close()
                del self._transactional[name]

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the client is closed")

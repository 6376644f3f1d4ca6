"""The client for asyncio: the same surface, awaited, and a loop that never waits for the network.

Owns the bridge. A consumer has a thread of its own that fetches a batch at a time, so there is a
hop between threads per batch, not per record; a record's report comes back by a callback. What
may wait runs in the client's few threads, so they bound the calls under way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from millstream.client._librdkafka.closing import AsyncClosing
from millstream.client._librdkafka.link import DELIVERY_TIMEOUT_S, TIMEOUT_S
from millstream.client._librdkafka.threads import Opening, P, T, Threads
from millstream.client.aio import admin as aio_admin
from millstream.client.aio.admin import AsyncAdmin, AsyncDeadLetters, AsyncDelayed, AsyncViews
from millstream.client.aio.handling import Function, handle
from millstream.client.aio.rights import AsyncRights
from millstream.client.connection import Client, connect
from millstream.client.consumer import POLL_S, Consumer
from millstream.client.errors import ClientError, Refused
from millstream.client.handling import Handled, RetryPolicy
from millstream.client.models import (
    FilterFigures,
    Headers,
    Message,
    RecordMetadata,
    StartPoint,
    StorageProblem,
    TopicHealth,
    TopicPartition,
)
from millstream.client.producer import BUFFER_BYTES_MAX, BUFFER_RECORDS_MAX, Delivery, Producer
from millstream.client.records import Span
from millstream.client.serde import Serde, SerdeSpec
from millstream.client.subscribers import Subscriber, check_count, total
from millstream.client.transactions import OpenTransaction

THREADS_MAX = 8

_RETRIES = RetryPolicy()
# A decorated function keeps its type; an awaitable result is awaited.
_Function = TypeVar("_Function", bound=Function)


class _Handler(Protocol):
    async def __call__(
        self, consumer: "AsyncConsumer", function: Function, *, retry: RetryPolicy
    ) -> Handled: ...


class AsyncDelivery(asyncio.Future[RecordMetadata]):
    """The result of one record, for the loop. Awaiting it counts as having looked."""

    def __init__(self, delivery: Delivery) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._delivery = delivery
        delivery.add_done_callback(self._arrived)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        self._delivery.is_seen = True
        return super().__await__()

    def result(self) -> RecordMetadata:
        self._delivery.is_seen = True
        return super().result()

    def exception(self) -> BaseException | None:
        self._delivery.is_seen = True
        return super().exception()

    def _arrived(self, delivery: Future[RecordMetadata]) -> None:
        """Called in librdkafka's thread. A loop that is gone needs no news."""
        with suppress(RuntimeError):
            self.get_loop().call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if self.done():
            return
        if self._delivery.cancelled():
            self.cancel()
            return
        problem = Future.exception(self._delivery)  # Not ours: that would count as looking.
        if problem is None:
            self.set_result(Future.result(self._delivery))
        else:
            self.set_exception(problem)


# Any: settings, keys and values, for the reasons in `connection`.
class aconnect:  # noqa: N801 - reads as a function: `async with aconnect(...) as client`
    """Reach a cluster: `async with aconnect(...) as client`, or `client = await aconnect(...)`.

    Arguments are those of `connect`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        wait_s: float = 0.0,
        **settings: Any,
    ) -> None:
        self._open = lambda: connect(
            address,
            timeout_s=timeout_s,
            delivery_timeout_s=delivery_timeout_s,
            wait_s=wait_s,
            **settings,
        )
        self._client: AsyncClient | None = None

    # Any: PEP 492 leaves the yield type to the loop.
    def __await__(self) -> Generator[Any, None, "AsyncClient"]:
        return self._connect().__await__()

    async def __aenter__(self) -> "AsyncClient":
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._client is not None
        await self._client.__aexit__(kind, problem, trace)

    async def _connect(self) -> "AsyncClient":
        threads = Threads(THREADS_MAX, "millstream-client")
        try:
            return AsyncClient(await threads.run(self._open), threads)
        except BaseException:
            threads.close()
            raise


class AsyncClient(AsyncClosing, AsyncRights):
    """As `Client`. Its parts belong to the loop that made them."""

    def __init__(self, client: Client, threads: Threads) -> None:
        self._client = client
        self._threads = threads
        self.admin = AsyncAdmin(client.admin, threads)

    @property
    def address(self) -> str:
        return self._client.address

    @cached_property
    def views(self) -> AsyncViews:
        return AsyncViews(self._client.views, self._threads)

    @cached_property
    def dead_letters(self) -> AsyncDeadLetters:
        return AsyncDeadLetters(self._client.dead_letters, self._threads)

    @cached_property
    def delayed(self) -> AsyncDelayed:
        return AsyncDelayed(self._client.delayed, self._threads)

    @cached_property
    def users(self) -> aio_admin.AsyncUsers:
        return aio_admin.AsyncUsers(self._client.users, self._threads)

    def set_serde(
        self,
        value: SerdeSpec | None = None,
        *,
        key: SerdeSpec | None = None,
        topic: str | None = None,
    ) -> None:
        self._client.set_serde(value, key=key, topic=topic)

    def register_serde(self, name: str, serde: Serde) -> None:
        self._client.register_serde(name, serde)

    async def produce(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        delay: Span | datetime | None = None,
        ttl: Span | None = None,
        message_id: str | None = None,
    ) -> RecordMetadata:
        """Send one record and wait until it is on stable storage, see `Client.produce`."""
        producer = await self._threads.run(self._client.single_producer)
        return await AsyncProducer(producer, self._threads).produce(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            delay=delay,
            ttl=ttl,
            message_id=message_id,
        )

    def producer(
        self,
        *,
        buffer_records_max: int = BUFFER_RECORDS_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        value_serde: SerdeSpec | None = None,
        key_serde: SerdeSpec | None = None,
        **settings: Any,
    ) -> "AsyncProducer":
        producer = self._client.producer(
            buffer_records_max=buffer_records_max,
            buffer_bytes_max=buffer_bytes_max,
            value_serde=value_serde,
            key_serde=key_serde,
            **settings,
        )
        return AsyncProducer(producer, self._threads)

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
    ) -> "Opening[AsyncConsumer]":
        """`async with client.consumer(...) as consumer: async for message in consumer:`"""

        async def opened() -> AsyncConsumer:
            consumer = await self._threads.run(
                self._client.consumer,
                topics,
                group=group,
                start=start,
                from_=from_,
                auto_commit=auto_commit,
                filter=filter,
                idle_s=idle_s,
                value_serde=value_serde,
                key_serde=key_serde,
                **settings,
            )
            return AsyncConsumer(consumer, self.handle)

        return Opening(opened)

    async def handle(
        self, consumer: "AsyncConsumer", function: Function, *, retry: RetryPolicy = _RETRIES
    ) -> Handled:
        """As `Client.handle`; the function may be a coroutine function, or a plain one."""
        dead_letters = self._client.dead_letter_writer()
        try:
            return await handle(consumer, function, retry, dead_letters)
        finally:
            await self._threads.run(dead_letters.close)

    def subscriber(
        self,
        topics: str | Iterable[str],
        *,
        group: str,
        retry: RetryPolicy = _RETRIES,
        **options: Any,
    ) -> Callable[[_Function], _Function]:
        """Have `run` call the decorated function with every record, see `Client.subscriber`."""
        return self._client.subscriber(topics, group=group, retry=retry, **options)

    async def run(self) -> Handled:
        """Run all subscribers, each in a task, until cancelled, or until all have ended.

        If one fails, all stop, and it is raised.
        """
        subscribers = self._client.subscribers
        check_count(subscribers)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._handled(subscribed)) for subscribed in subscribers]
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None
        return total(task.result() for task in tasks)

    async def _handled(self, subscribed: Subscriber) -> Handled:
        async with self.consumer(subscribed.topics, **subscribed.options) as consumer:
            return await self.handle(consumer, subscribed.function, retry=subscribed.retry)

    def transaction(
        self, transactional_id: str | None = None, **settings: Any
    ) -> "Opening[AsyncTransaction]":
        """`async with client.transaction() as transaction:`, see `Client.transaction`."""

        async def opened() -> AsyncTransaction:
            transaction = await self._threads.run(
                self._client.transaction, transactional_id, **settings
            )
            return AsyncTransaction(transaction, self._threads)

        return Opening(opened)

    async def health(self, topic: str) -> TopicHealth:
        """Watermarks, segments, bytes and index of each partition, and the lag of each group."""
        return await self._threads.run(self._client.health, topic)

    async def filter_figures(self, topic: str, filter: str) -> FilterFigures:  # noqa: A002
        """How much of the log reads of `topic` through this filter have taken so far."""
        return await self._threads.run(lambda: self._client.filter_figures(topic, filter))

    async def storage_problems(self) -> tuple[StorageProblem, ...]:
        """The partitions whose disk is full or failed: none, if all is well."""
        return await self._threads.run(self._client.storage_problems)

    async def close(self) -> None:
        try:
            await self._threads.run(self._client.close)
        finally:
            self._threads.close()


class AsyncProducer(AsyncClosing):
    """As `Producer`: `send` waits for room only, `produce` for the broker."""

    def __init__(self, producer: Producer, threads: Threads) -> None:
        self._producer = producer
        self._threads = threads

    async def send(self, topic: str, value: Any = None, **record: Any) -> AsyncDelivery:
        """Put a record in the buffer; the future that comes back knows when it arrived."""
        delivery = self._producer.try_send(topic, value, **record)
        if delivery is None:  # No room: the waiting is for a thread, not for the loop.
            delivery = await self._threads.run(self._producer.send, topic, value, **record)
        return AsyncDelivery(delivery)

    async def produce(self, topic: str, value: Any = None, **record: Any) -> RecordMetadata:
        return await (await self.send(topic, value, **record))

    async def flush(self, timeout_s: float | None = None) -> None:
        await self._threads.run(self._producer.flush, timeout_s)

    async def close(self) -> None:
        await self._threads.run(self._producer.close)


class AsyncConsumer(AsyncClosing, AsyncIterator[Message]):
    """As `Consumer`, for one task at a time.

    Its calls go to a thread one after the other. A task that is cancelled while one runs leaves it
    running; the next call waits for it, so no record is lost between the two.
    """

    def __init__(self, consumer: Consumer, handler: _Handler | None = None) -> None:
        self._consumer = consumer
        self._handler = handler
        self._thread = Threads(1, "millstream-consumer")
        self._running: asyncio.Future[Any] | None = None

    async def __anext__(self) -> Message:
        loop = asyncio.get_running_loop()
        idle_s = self._consumer.idle_s
        deadline = None if idle_s is None else loop.time() + idle_s
        while not self._consumer.is_stopped and (deadline is None or loop.time() < deadline):
            message = await self.poll(POLL_S)
            if message is not None:
                return message
        raise StopAsyncIteration

    async def poll(self, timeout_s: float = 0.0) -> Message | None:
        """The next record, or None if none came in time. A record at hand needs no thread."""
        await self.quiet()
        if self._consumer.is_stay_due:  # Rebalances may wait for the cluster: not in the loop.
            await self.call(self._consumer.stay)
        message = self._consumer.pop()
        if message is None:
            await self.call(self._consumer.fetch, timeout_s)
            message = self._consumer.pop()
        return message

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this consumer reads at the moment."""
        return self._consumer.assignment

    def stop(self) -> None:
        """End the iteration, and `handle`, after the record in hand."""
        self._consumer.stop()

    async def handle(self, function: Function, *, retry: RetryPolicy = _RETRIES) -> Handled:
        """Call `function` with every record, see `AsyncClient.handle`."""
        if self._handler is None:
            raise Refused("this consumer has no client that would write its dead letters")
        return await self._handler(self, function, retry=retry)

    async def take(self, count: int, *, timeout_s: float | None = None) -> list[Message]:
        return await self.call(self._consumer.take, count, timeout_s=timeout_s)

    async def commit(self, message: Message | None = None) -> None:
        await self.call(self._consumer.commit, message)

    async def wait_assigned(self, timeout_s: float | None = None) -> tuple[TopicPartition, ...]:
        return await self.call(self._consumer.wait_assigned, timeout_s)

    async def seek(self, at: TopicPartition, to: StartPoint) -> None:
        await self.call(self._consumer.seek, at, to)

    async def seek_all(self, to: StartPoint) -> None:
        await self.call(self._consumer.seek_all, to)

    async def pause(self, *places: TopicPartition) -> None:
        await self.call(self._consumer.pause, *places)

    async def resume(self, *places: TopicPartition) -> None:
        await self.call(self._consumer.resume, *places)

    async def close(self) -> None:
        with suppress(ClientError):  # It was for a task that is gone.
            await self.quiet()
        try:
            await self.call(self._consumer.close)
        finally:
            self._thread.close()

    async def quiet(self) -> Consumer:
        """Wait until nothing runs in the thread; raise an unseen failure of the last call."""
        running = self._running
        if running is not None:
            await asyncio.wait([running])
            self._running = None
            running.result()
        return self._consumer

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is not None:
            self._consumer.drop_in_hand()
        await super().__aexit__(kind, problem, trace)

    async def call(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call to the consumer in its thread, behind the one that runs."""
        await self.quiet()
        running = asyncio.ensure_future(self._thread.run(call, *args, **kwargs))
        self._running = running
        try:
            return await asyncio.shield(running)
        finally:
            if running.done():
                self._running = None


class AsyncTransaction:
    """`async with client.transaction() as transaction:`"""

    def __init__(self, transaction: OpenTransaction, threads: Threads) -> None:
        self._transaction = transaction
        self._threads = threads
        self._readers: list[AsyncConsumer] = []

    async def send(self, topic: str, value: Any = None, **record: Any) -> AsyncDelivery:
        delivery = await self._threads.run(self._transaction.send, topic, value, **record)
        return AsyncDelivery(delivery)

    async def commit_offsets(self, consumer: AsyncConsumer) -> None:
        self._readers.append(consumer)
        await self._threads.run(self._transaction.commit_offsets, await consumer.quiet())

    async def __aenter__(self) -> Self:
        await self._threads.run(self._transaction.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for consumer in self._readers:
            await consumer.quiet()
        await self._threads.run(self._transaction.__exit__, kind, problem, trace)

"""The client for asyncio: the same surface, awaited, and a loop that never waits for the network.

Owns the bridge. A consumer has a thread of its own that fetches a batch at a time, so there is a
hop between threads per batch, not per record; a record's report comes back by a callback. What
may wait runs in the client's few threads, so what is under way is bounded by them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from millstream.client.admin import Admin
from millstream.client.closing import AsyncClosing
from millstream.client.connection import Client, connect
from millstream.client.consumer import POLL_S, Consumer
from millstream.client.dead_letters import DeadLetters
from millstream.client.delayed import DelayedRecords
from millstream.client.errors import ClientError
from millstream.client.link import DELIVERY_TIMEOUT_S, TIMEOUT_S
from millstream.client.models import Headers, Message, RecordMetadata, StartPoint, TopicPartition
from millstream.client.producer import BUFFER_BYTES_MAX, BUFFER_RECORDS_MAX, Delivery, Producer
from millstream.client.serde import Serde, SerdeSpec
from millstream.client.transactions import OpenTransaction

THREADS_MAX = 8

P = ParamSpec("P")
T = TypeVar("T")


class _Threads:
    """Where blocking calls go."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))

    def close(self) -> None:
        self._pool.shutdown(wait=False)


class AsyncDelivery(asyncio.Future[RecordMetadata]):
    """The fate of one record, for the loop. Awaiting it counts as having looked."""

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


# Settings, keys and values are of any type here for the reasons given in `connection`.
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

    def __await__(self) -> Any:
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
        threads = _Threads(THREADS_MAX, "millstream-client")
        try:
            return AsyncClient(await threads.run(self._open), threads)
        except BaseException:
            threads.close()
            raise


class AsyncClient(AsyncClosing):
    """As `Client`. Its parts belong to the loop that made them."""

    def __init__(self, client: Client, threads: _Threads) -> None:
        self._client = client
        self._threads = threads
        self.admin = AsyncAdmin(client.admin, threads)
        self.dead_letters = AsyncAdmin(client.dead_letters, threads)
        self.delayed = AsyncAdmin(client.delayed, threads)

    @property
    def address(self) -> str:
        return self._client.address

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
        **unserved: Any,
    ) -> RecordMetadata:
        producer = await self._threads.run(self._client.single_producer)
        return await AsyncProducer(producer, self._threads).produce(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            **unserved,
        )

    def producer(
        self,
        *,
        buffer_records_max: int = BUFFER_RECORDS_MAX,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
        **settings: Any,
    ) -> "AsyncProducer":
        made = self._client.producer(
            buffer_records_max=buffer_records_max, buffer_bytes_max=buffer_bytes_max, **settings
        )
        return AsyncProducer(made, self._threads)

    async def consumer(
        self,
        topics: str | Iterable[str],
        *,
        group: str | None = None,
        from_: StartPoint = "earliest",
        auto_commit: bool = True,
        **settings: Any,
    ) -> "AsyncConsumer":
        """`async with await client.consumer(...) as consumer: async for message in consumer:`"""
        made = await self._threads.run(
            self._client.consumer,
            topics,
            group=group,
            from_=from_,
            auto_commit=auto_commit,
            **settings,
        )
        return AsyncConsumer(made)

    async def transaction(
        self, transactional_id: str | None = None, **settings: Any
    ) -> "AsyncTransaction":
        opened = await self._threads.run(self._client.transaction, transactional_id, **settings)
        return AsyncTransaction(opened, self._threads)

    async def close(self) -> None:
        try:
            await self._threads.run(self._client.close)
        finally:
            self._threads.close()


class AsyncAdmin:
    """`await client.admin.list_topics()`: every call of `Admin` and its like, awaited."""

    def __init__(self, admin: Admin | DeadLetters | DelayedRecords, threads: _Threads) -> None:
        self._admin = admin
        self._threads = threads

    # Which type comes back depends on the call; the class that has it says it.
    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._admin, name)
        return lambda *args, **kwargs: self._threads.run(call, *args, **kwargs)


class AsyncProducer(AsyncClosing):
    """As `Producer`: `send` waits for room only, `produce` for the broker."""

    def __init__(self, producer: Producer, threads: _Threads) -> None:
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
    running; whoever comes next waits for it, so no record is lost between the two.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._thread = _Threads(1, "millstream-consumer")
        self._running: asyncio.Future[Any] | None = None

    async def __anext__(self) -> Message:
        loop = asyncio.get_running_loop()
        idle_s = self._consumer.idle_s
        deadline = None if idle_s is None else loop.time() + idle_s
        while deadline is None or loop.time() < deadline:
            message = await self.poll(POLL_S)
            if message is not None:
                return message
        raise StopAsyncIteration

    async def poll(self, timeout_s: float = 0.0) -> Message | None:
        """The next record, or None if none came in time. A record at hand needs no thread."""
        await self.quiet()
        if self._consumer.is_stay_due:  # Rebalances may wait for the cluster: not in the loop.
            await self._call(self._consumer.stay)
        message = self._consumer.pop()
        if message is None:
            await self._call(self._consumer.fetch, timeout_s)
            message = self._consumer.pop()
        return message

    async def take(self, count: int, *, timeout_s: float | None = None) -> list[Message]:
        return await self._call(self._consumer.take, count, timeout_s=timeout_s)

    async def commit(self, message: Message | None = None) -> None:
        await self._call(self._consumer.commit, message)

    async def wait_assigned(self, timeout_s: float | None = None) -> tuple[TopicPartition, ...]:
        return await self._call(self._consumer.wait_assigned, timeout_s)

    async def seek(self, at: TopicPartition, to: StartPoint) -> None:
        await self._call(self._consumer.seek, at, to)

    async def seek_all(self, to: StartPoint) -> None:
        await self._call(self._consumer.seek_all, to)

    async def pause(self, *places: TopicPartition) -> None:
        await self._call(self._consumer.pause, *places)

    async def resume(self, *places: TopicPartition) -> None:
        await self._call(self._consumer.resume, *places)

    async def close(self) -> None:
        with suppress(ClientError):  # It was for a task that is gone.
            await self.quiet()
        try:
            await self._call(self._consumer.close)
        finally:
            self._thread.close()

    async def quiet(self) -> Consumer:
        """Wait until nothing runs in the thread; what failed unseen there is raised here."""
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

    async def _call(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await self.quiet()
        running = asyncio.ensure_future(self._thread.run(call, *args, **kwargs))
        self._running = running
        try:
            return await asyncio.shield(running)
        finally:
            if running.done():
                self._running = None


class AsyncTransaction:
    """`async with await client.transaction() as transaction:`"""

    def __init__(self, transaction: OpenTransaction, threads: _Threads) -> None:
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

"""JetStream's client: nats-py, in an environment of its own.

A stream stands for a topic with one partition, kept in files. JetStream acknowledges every record
and knows no `acks`. nats-py is Python throughout and bounds these figures, not the server: they
say what a Python program gets, and are no verdict on nats-server.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import RetentionPolicy, StorageType

from benchmarks.kafka.job import (
    RUN_SECONDS_MAX,
    Action,
    Arrivals,
    Broken,
    Go,
    Job,
    Stopwatch,
    Values,
    deadline,
    ticks,
    work,
)

IN_FLIGHT_MAX = 4_000


async def produce(job: Job, go: Go) -> dict[str, object]:
    client, stream = await _connected(job)
    values = Values(job.size)
    go()
    watch = Stopwatch()
    futures = [
        await stream.publish_async(job.topic, values.value(number)) for number in range(job.count)
    ]
    await asyncio.gather(*futures)
    result = watch.stop()
    await client.close()
    return result


async def consume(job: Job, go: Go) -> dict[str, object]:
    client, stream = await _connected(job)
    go()
    watch = Stopwatch()
    values: list[bytes] = []
    is_done = asyncio.Event()

    async def take(message: Msg) -> None:
        values.append(message.data)
        if len(values) >= job.count:
            is_done.set()

    await stream.subscribe(job.topic, cb=take, ordered_consumer=True)
    await is_done.wait()
    result = watch.stop()
    arrivals = Arrivals(job.count)
    for value in values:
        arrivals.add(value)
    arrivals.check()
    kept = (await stream.stream_info(job.topic)).state.messages
    if kept != job.count:
        raise Broken(f"the stream holds {kept} records, {job.count} were written")
    await client.close()
    return result


async def send(job: Job, go: Go) -> dict[str, object]:
    client, stream = await _connected(job)
    values = Values(job.size)
    latencies_us: list[int] = []
    acked = 0

    async def publish(number: int, due_ns: int) -> asyncio.Future[object]:
        future = await stream.publish_async(job.topic, values.value(number, due_ns))

        def on_ack(_: object) -> None:
            nonlocal acked
            acked += 1
            if number >= job.warm_count:
                latencies_us.append((time.monotonic_ns() - due_ns) // 1000)

        future.add_done_callback(on_ack)
        return future

    futures: list[asyncio.Future[object]] = []
    go()
    for due_ns, numbers in ticks(job, time.monotonic_ns()):
        early_ns = due_ns - time.monotonic_ns()
        await asyncio.sleep(max(0.0, early_ns / 1e9))
        futures += [await publish(number, due_ns) for number in numbers]
    await asyncio.gather(*futures)
    await client.close()
    return {"latencies_us": latencies_us}


async def receive(job: Job, go: Go) -> dict[str, object]:
    client, stream = await _connected(job)
    arrivals = Arrivals(job.count)
    latencies_us: list[int] = []
    left = job.count
    is_done = asyncio.Event()

    async def take(message: Msg) -> None:
        nonlocal left
        now_ns = time.monotonic_ns()
        number, due_ns = arrivals.add(message.data)
        if number >= job.warm_count:
            latencies_us.append((now_ns - due_ns) // 1000)
        left -= 1
        if left <= 0:
            is_done.set()

    await stream.subscribe(job.topic, cb=take, ordered_consumer=True)
    go()
    await is_done.wait()
    arrivals.check()
    await client.close()
    return {"latencies_us": latencies_us}


async def first_ack(job: Job, go: Go) -> dict[str, object]:
    go()
    until = deadline()
    while True:
        try:
            client, stream = await _connected(job)
            await stream.publish(job.topic, Values(job.size).value(0))
            break
        except Exception as problem:  # Whatever a server says that is not ready yet.
            if time.monotonic() > until:
                raise Broken("no ack") from problem
            await asyncio.sleep(0.005)
    acked_ns = time.monotonic_ns()
    await client.close()
    return {"acked_ns": acked_ns}


async def _connected(job: Job) -> tuple[Client, JetStreamContext]:
    client = await nats.connect(
        f"nats://{job.address}",
        allow_reconnect=False,
        reconnect_time_wait=0.005,  # It waits that long after a first refusal, too.
        error_cb=_ignore,
    )
    stream = client.jetstream(publish_async_max_pending=IN_FLIGHT_MAX)
    await stream.add_stream(
        name=job.topic,
        subjects=[job.topic],
        storage=StorageType.FILE,
        retention=RetentionPolicy.LIMITS,
    )
    return client, stream


async def _ignore(_: Exception) -> None:
    """Raised to the caller as well; nats-py would print it a second time."""


def _bounded(action: Callable[[Job, Go], Awaitable[dict[str, object]]]) -> Action:
    async def within_time(job: Job, go: Go) -> dict[str, object]:
        async with asyncio.timeout(RUN_SECONDS_MAX):
            return await action(job, go)

    return lambda job, go: asyncio.run(within_time(job, go))


if __name__ == "__main__":
    actions = (produce, consume, send, receive, first_ack)
    work({action.__name__: _bounded(action) for action in actions})

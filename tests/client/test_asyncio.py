"""The client for asyncio: the same surface, and a loop that keeps turning."""

import asyncio

import pytest

from millstream.client import (
    AsyncClient,
    Handled,
    Message,
    NotFound,
    Refused,
    Reject,
    RetryPolicy,
    TopicPartition,
    Undelivered,
    Unreachable,
    aconnect,
)
from tests.client.conftest import MEMBER, TIMEOUT_S
from tests.support.broker_process import BrokerProcess


async def ticks(beats: list[float]) -> None:
    """Writes down when the loop turned."""
    while True:
        beats.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)


def opened(broker: BrokerProcess) -> aconnect:
    return aconnect(broker.address, timeout_s=TIMEOUT_S)


def test_records_are_produced_and_read(broker: BrokerProcess, topic: str, group: str) -> None:
    async def run(client: AsyncClient) -> list[object]:
        client.set_serde("json")
        sent = await client.produce(topic, {"n": 0}, key="k", partition=1)
        assert (sent.partition, sent.offset) == (1, 0)
        async with client.producer() as producer:
            for n in range(1, 1_000):
                await producer.send(topic, {"n": n}, partition=1)
        collected = []
        async with await client.consumer(topic, group=group, **MEMBER) as consumer:
            async for message in consumer:
                collected.append(message.value["n"])
                if len(collected) == 1_000:
                    break
        assert await client.admin.committed(group) == {TopicPartition(topic, 1): 1_000}
        return collected

    async def main() -> list[object]:
        async with opened(broker) as client:
            return await run(client)

    assert asyncio.run(main()) == list(range(1_000))


def test_the_loop_turns_while_a_consumer_waits(broker: BrokerProcess, topic: str) -> None:
    async def main() -> list[float]:
        beats: list[float] = []
        async with (
            opened(broker) as client,
            await client.consumer(topic) as consumer,
            asyncio.TaskGroup() as tasks,
        ):
            ticking = tasks.create_task(ticks(beats))
            waiting = tasks.create_task(consumer.__anext__())
            while len(beats) < 20:
                await asyncio.sleep(0)
            assert not waiting.done()
            await client.produce(topic, b"x")
            assert (await waiting).value == b"x"
            ticking.cancel()
        return beats

    assert len(asyncio.run(main())) >= 20


def test_many_tasks_produce_at_once(broker: BrokerProcess, topic: str) -> None:
    async def main() -> list[int]:
        async with opened(broker) as client:
            sent = await asyncio.gather(
                *(client.produce(topic, b"%d" % n, partition=0) for n in range(200))
            )
        return [sample.offset for sample in sent]

    assert sorted(asyncio.run(main())) == list(range(200))


def test_a_full_buffer_makes_the_task_wait_and_not_the_loop(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> list[int]:
        async with opened(broker) as client, client.producer(buffer_records_max=5) as producer:
            sent = [await producer.send(topic, b"x", partition=0) for _ in range(100)]
            await producer.flush()
            return [(await sample).offset for sample in sent]

    assert asyncio.run(main()) == list(range(100))


def test_a_failed_record_without_an_await_is_reported_at_the_end(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> None:
        async with opened(broker) as client:
            await client.admin.alter_topic(topic, {"max.message.bytes": 1_000})
            async with client.producer() as producer:
                delivery = await producer.send(topic, b"x" * 5_000)
                with pytest.raises(Undelivered):
                    await producer.flush()
                assert delivery.exception() is not None

    asyncio.run(main())


def test_manual_commits_seeks_and_pauses_are_awaited(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async def main() -> None:
        async with opened(broker) as client:
            for n in range(5):
                await client.produce(topic, b"%d" % n, partition=0)
            at = TopicPartition(topic, 0)
            async with await client.consumer(
                topic, group=group, auto_commit=False, **MEMBER
            ) as consumer:
                taken = await consumer.take(3)
                await consumer.commit(taken[1])
                assert await client.admin.committed(group) == {at: 2}
                await consumer.seek(at, 4)
                assert [m.value for m in await consumer.take(1)] == [b"4"]
                await consumer.pause()
                await consumer.seek_all("earliest")
                assert await consumer.poll(0.3) is None
                await consumer.resume()
                assert [m.value for m in await consumer.take(1)] == [b"0"]

    asyncio.run(main())


def test_transactions_are_awaited(broker: BrokerProcess, topic: str) -> None:
    async def main() -> list[bytes]:
        async with opened(broker) as client:
            with pytest.raises(KeyError):
                async with await client.transaction() as transaction:
                    raise KeyError(await (await transaction.send(topic, b"lost")))
            async with await client.transaction() as transaction:
                await transaction.send(topic, b"kept")
            async with await client.consumer(topic, idle_s=1.0) as consumer:
                return [message.value async for message in consumer]

    assert asyncio.run(main()) == [b"kept"]


def test_a_consumer_that_is_cancelled_closes_in_order(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async def read(client: AsyncClient) -> None:
        async with await client.consumer(topic, group=group, **MEMBER) as consumer:
            await consumer.wait_assigned()
            async for _ in consumer:
                pass

    async def main() -> None:
        async with opened(broker) as client:
            reading = asyncio.ensure_future(read(client))
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    states = {g.group_id: g.state for g in await client.admin.list_groups()}
                    if states.get(group) == "stable":
                        break
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert (await client.admin.describe_group(group)).members == ()

    asyncio.run(main())


def test_a_wait_that_was_given_up_loses_no_record(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async def main() -> list[bytes]:
        async with opened(broker) as client:
            collected: list[bytes] = []
            async with await client.consumer(topic, group=group, **MEMBER) as consumer:
                await consumer.wait_assigned()
                for n in range(20):
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0):
                            await anext(consumer)
                    await client.produce(topic, b"%d" % n, partition=0)
                    collected.append((await anext(consumer)).value)
            return collected

    assert asyncio.run(main()) == [b"%d" % n for n in range(20)]


def test_errors_are_the_same(broker: BrokerProcess, topic: str) -> None:
    async def main() -> None:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
            await aconnect("127.0.0.1:1")
        async with opened(broker) as client:
            with pytest.raises(NotFound):
                await client.admin.describe_topic("missing")
            with pytest.raises(NotFound):
                await client.consumer("missing")
            with pytest.raises(Refused):
                await client.produce(topic, b"", delay=-1.0)

    asyncio.run(main())


def test_a_delivery_that_was_waited_for_too_briefly_ends_nothing_else(
    broker: BrokerProcess, topic: str
) -> None:
    async def main() -> list[int]:
        async with opened(broker) as client, client.producer(linger_ms=300) as producer:
            hasty = await producer.send(topic, b"a", partition=0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(hasty, 0.01)
            plain = producer._producer.send(topic, b"b", partition=0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(plain), 0.01)
            later = await producer.produce(topic, b"c", partition=0)
            return [later.offset]

    assert asyncio.run(main()) == [2]


def test_consumers_and_transactions_open_with_and_without_await(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async def main() -> list[bytes]:
        async with opened(broker) as client:
            async with client.transaction() as transaction:
                await transaction.send(topic, b"a", partition=0)
            async with await client.transaction() as transaction:
                await transaction.send(topic, b"b", partition=0)
            async with client.consumer(topic, group=group, start=0, **MEMBER) as consumer:
                first = await consumer.take(1)
            async with await client.consumer(topic, group=group, **MEMBER) as consumer:
                second = await consumer.take(1)
            plain = await client.consumer(topic, start="earliest", idle_s=1.0)
            third = [message async for message in plain]
            await plain.close()
            return [m.value for m in [*first, *second, *third]]

    assert asyncio.run(main()) == [b"a", b"b", b"a", b"b"]


def test_functions_are_awaited_tried_again_and_given_up(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    seen: list[bytes] = []

    async def function(message: Message[bytes, bytes]) -> None:
        await asyncio.sleep(0)
        seen.append(message.value)
        if message.value == b"bad":
            raise ValueError("no")
        if message.value == b"worse":
            raise Reject("never")

    async def main() -> Handled:
        async with opened(broker) as client:
            for value in (b"good", b"bad", b"worse", b"last"):
                await client.produce(topic, value, partition=0)
            retry = RetryPolicy(max_retries=1, delay_s=0.1)
            async with client.consumer(topic, group=group, idle_s=3.0, **MEMBER) as consumer:
                handled = await consumer.handle(function, retry=retry)
            assert (await client.dead_letters.stats(topic)).waiting == 2
            assert await client.views.list() is not None
            assert (await client.health(topic)).lags
            return handled

    assert asyncio.run(main()) == Handled(done=2, given_up=2)
    assert seen == [b"good", b"bad", b"bad", b"worse", b"last"]


def test_a_task_that_is_cancelled_leaves_its_record_undone(
    broker: BrokerProcess, topic: str, group: str
) -> None:
    async def main() -> list[Message]:
        async with opened(broker) as client:
            await client.produce(topic, b"a", partition=0)
            begun = asyncio.Event()

            async def hang(message: Message) -> None:
                begun.set()
                await asyncio.sleep(1_000)

            client.subscriber(topic, group=group, **MEMBER)(hang)
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(client.run())
                await begun.wait()
                running.cancel()
            async with client.consumer(topic, group=group, **MEMBER) as consumer:
                return await consumer.take(1)

    assert [m.value for m in asyncio.run(main())] == [b"a"]

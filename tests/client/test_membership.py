"""Members of a group: kept while they work, lost when they hang, and patient with topics."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest

from millstream.client import (
    AsyncClient,
    Client,
    Consumer,
    Fenced,
    Message,
    TopicPartition,
    aconnect,
    connect,
    observe,
)
from tests.client.conftest import TIMEOUT_S
from tests.support.broker_process import BrokerProcess

INTERVAL_S = 2.0
RECORDS, RECORD_S = 12, 0.2  # Each is quick, all of them together are not.
MEMBER: dict[str, Any] = {
    "session_timeout_ms": 1_000,
    "heartbeat_interval_ms": 100,
    "max_poll_interval_ms": int(INTERVAL_S * 1000),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100,
        TIMING__GROUP_SESSION_TIMEOUT_MS_MIN=500,
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    with client.producer() as producer:
        for n in range(RECORDS):
            producer.send(topic, b"%d" % n, partition=0)
    return topic


def by_iterating(client: Client, consumer: Consumer, work: Callable[[Message], None]) -> None:
    for message in consumer:
        work(message)


def by_polling(client: Client, consumer: Consumer, work: Callable[[Message], None]) -> None:
    while (message := consumer.poll(3)) is not None:
        work(message)


def by_handling(client: Client, consumer: Consumer, work: Callable[[Message], None]) -> None:
    client.handle(consumer, work)


def by_taking(client: Client, consumer: Consumer, work: Callable[[Message], None]) -> None:
    while batch := consumer.take(3, timeout_s=3):
        for message in batch:
            work(message)


@pytest.mark.slow  # Four waits of seconds; the same rule for asyncio is in the fast tier.
@pytest.mark.parametrize("read", [by_iterating, by_polling, by_handling, by_taking])
def test_the_poll_interval_is_the_time_of_one_record(
    client: Client,
    filled: str,
    group: str,
    read: Callable[[Client, Consumer, Callable[[Message], None]], None],
) -> None:
    seen: list[bytes] = []

    def work(message: Message) -> None:
        time.sleep(RECORD_S)
        seen.append(message.value)

    with client.consumer(filled, group=group, idle_s=3, **MEMBER) as consumer:
        read(client, consumer, work)

    assert seen == [b"%d" % n for n in range(RECORDS)]
    assert client.admin.committed(group) == {TopicPartition(filled, 0): RECORDS}


def test_the_poll_interval_is_the_time_of_one_record_for_asyncio_too(
    broker: BrokerProcess, filled: str, group: str
) -> None:
    async def main(client: AsyncClient) -> list[bytes]:
        seen = []
        async with await client.consumer(filled, group=group, **MEMBER) as consumer:
            async for message in consumer:
                await asyncio.sleep(RECORD_S)
                seen.append(message.value)
                if len(seen) == RECORDS:
                    break
        assert await client.admin.committed(group) == {TopicPartition(filled, 0): RECORDS}
        return seen

    async def run() -> list[bytes]:
        async with aconnect(broker.address, timeout_s=TIMEOUT_S) as client:
            return await main(client)

    assert asyncio.run(run()) == [b"%d" % n for n in range(RECORDS)]


def test_a_program_that_hangs_on_one_record_loses_its_membership(
    client: Client, filled: str, group: str
) -> None:
    with (
        client.consumer(filled, group=group, **MEMBER) as hanging,
        client.consumer(filled, group=group, **MEMBER) as heir,
    ):
        assert next(hanging).value == b"0"
        taken = heir.take(RECORDS)  # While the other one hangs.

        assert [m.value for m in taken] == [b"%d" % n for n in range(RECORDS)]
        with suppress(Fenced):  # If it knows by itself; else the broker knew first.
            assert hanging.poll(0) is None
        assert hanging.poll(0) is None  # What it had fetched ahead is the other's.


@pytest.mark.slow  # Waits for the poll interval; a plain consumer does in the fast tier.
def test_an_observer_that_hangs_on_one_record_loses_its_membership(
    client: Client, filled: str, group: str
) -> None:
    release = threading.Event()
    problems: list[Exception] = []
    has_ended = threading.Event()

    def fail(problem: Exception) -> None:
        problems.append(problem)
        has_ended.set()

    stream = observe(lambda: client.consumer(filled, group=group, **MEMBER))
    subscription = stream.subscribe(on_next=lambda message: release.wait(TIMEOUT_S), on_error=fail)  # type: ignore[arg-type]
    deadline = time.monotonic() + TIMEOUT_S
    while group not in {group.group_id for group in client.admin.list_groups()}:
        assert time.monotonic() < deadline
    while client.admin.describe_group(group).members:
        assert time.monotonic() < deadline, "a member that hangs keeps its partitions"
        time.sleep(0.1)
    release.set()

    assert has_ended.wait(TIMEOUT_S)
    subscription.dispose()
    assert isinstance(problems[0], Fenced)


def test_a_rebalance_between_records_neither_loses_nor_repeats_one(
    broker: BrokerProcess, client: Client, topic: str, group: str
) -> None:
    count = 30
    with client.producer() as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=n % 3)
    seen: dict[str, list[bytes]] = {"first": [], "second": []}

    def run(name: str) -> None:
        with (
            connect(broker.address, timeout_s=TIMEOUT_S) as own,
            own.consumer(topic, group=group, **MEMBER) as consumer,
        ):
            while sum(map(len, seen.values())) < count:
                if (message := consumer.poll(0.2)) is not None:
                    time.sleep(0.1)
                    seen[name].append(message.value)

    first = threading.Thread(target=run, args=("first",))
    first.start()
    while len(seen["first"]) < 3:
        time.sleep(0.01)
    second = threading.Thread(target=run, args=("second",))
    second.start()
    first.join()
    second.join()

    assert sorted(seen["first"] + seen["second"]) == sorted(b"%d" % n for n in range(count))
    assert seen["second"]
    assert sum(client.admin.committed(group).values()) == count


def test_a_batch_is_not_committed_before_it_is_done(
    client: Client, filled: str, group: str
) -> None:
    def fail_in_the_second_batch(consumer: Consumer) -> None:
        with consumer:
            consumer.take(4)
            consumer.take(4)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail_in_the_second_batch(client.consumer(filled, group=group, **MEMBER))

    assert client.admin.committed(group) == {TopicPartition(filled, 0): 4}


@pytest.mark.parametrize("kind", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
def test_a_group_waits_for_a_topic_that_is_created_later(
    client: Client, group: str, kind: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    name = f"later-{uuid4()}"
    member = {} if kind else MEMBER
    with (
        caplog.at_level(logging.WARNING, "millstream.client"),
        client.consumer(name, group=group, **member, **kind) as consumer,  # type: ignore[arg-type]
    ):
        assert consumer.poll(1.0) is None
        assert consumer.poll(0.5) is None
        client.admin.create_topic(name, partitions=1)
        client.produce(name, b"hello")

        assert [m.value for m in consumer.take(1, timeout_s=15)] == [b"hello"]
    if not kind:  # The broker assigns in the other protocol, and says nothing of what is missing.
        assert caplog.text.count(f"waiting for it topic={name}") == 1

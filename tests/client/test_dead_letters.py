"""Dead letters through the client, over a broker that is killed in the middle."""

import asyncio
import threading
from contextlib import suppress

import pytest

from millstream.client import (
    Busy,
    Client,
    NotFound,
    Redriven,
    Refused,
    TopicPartition,
    Unreachable,
    aconnect,
)
from millstream.client.extensions import dead_letters as module
from tests.client.conftest import PARTITIONS, TIMEOUT_S
from tests.support.broker_process import BrokerProcess

LETTERS = 120


@pytest.fixture
def failed(client: Client, topic: str) -> str:
    """A topic with dead letters, as any program may write them."""
    with client.producer() as producer:
        for n in range(LETTERS):
            origin = {"topic": topic, "partition": str(n % PARTITIONS), "offset": str(n)}
            headers = {f"ms-dlq-{name}": value for name, value in origin.items()}
            producer.send(f"{topic}.dlq", str(n), headers=headers | {"own": "x"})
    return topic


def numbers(client: Client, topic: str) -> list[int]:
    """What is in the topic, in any order."""
    total = sum(client.admin.offsets(topic, "latest").values())
    with client.consumer(topic) as consumer:
        return sorted(int(message.value) for message in consumer.take(total))


def test_what_is_sent_back_goes_to_its_partition_with_its_own_headers(
    client: Client, failed: str
) -> None:
    letter = client.dead_letters.list(failed, limit=5)[4]
    goal, offset = client.dead_letters.replay(failed, letter.partition, letter.offset)

    assert goal == TopicPartition(failed, letter.origin_partition)
    with client.consumer(failed) as consumer:
        message = next(consumer)
    assert (message.at, message.offset, message.value) == (goal, offset, letter.value)
    assert message.headers == (("own", b"x"),)
    with pytest.raises(NotFound, match="no dead letter"):
        client.dead_letters.replay(failed, letter.partition, letter.offset)
    with pytest.raises(NotFound):
        client.dead_letters.replay(failed, 2**40, 2**70)


def test_a_redrive_over_a_killed_broker_goes_on_and_sends_everything_once(
    client: Client, broker: BrokerProcess, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_RECORDS_MAX", 20)

    def kill(sent: int, goal: int) -> None:
        assert goal == LETTERS
        if sent == 60:
            broker.kill()

    with pytest.raises(Unreachable):
        client.dead_letters.redrive(failed, progress=kill)
    broker.start()

    assert client.dead_letters.stats(failed).waiting == LETTERS - 60
    assert client.dead_letters.redrive(failed) == Redriven(sent=LETTERS - 60, skipped=0)
    assert numbers(client, failed) == list(range(LETTERS))
    assert client.dead_letters.list(failed) == []


def test_a_broker_that_is_killed_under_a_step_sends_nothing_twice(
    client: Client, broker: BrokerProcess, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_RECORDS_MAX", 10)
    killer = threading.Thread(target=broker.kill)

    with suppress(Unreachable):  # It may be faster than the signal.
        client.dead_letters.redrive(failed, progress=lambda sent, _: sent == 50 and killer.start())  # type: ignore[func-returns-value]
    killer.join()
    broker.start()
    client.dead_letters.redrive(failed)

    assert numbers(client, failed) == list(range(LETTERS))


def test_two_who_send_back_at_once_send_nothing_twice(client: Client, failed: str) -> None:
    def redrive() -> None:
        while client.dead_letters.stats(failed).waiting:
            with suppress(Busy):
                client.dead_letters.redrive(failed)

    threads = [threading.Thread(target=redrive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert numbers(client, failed) == list(range(LETTERS))


def test_a_filter_that_cannot_be_read_is_refused_with_its_place(
    client: Client, failed: str
) -> None:
    with pytest.raises(Refused, match="at character 1"):
        client.dead_letters.redrive(failed, filter="colour")


def test_asyncio_has_the_same_calls(broker: BrokerProcess, failed: str) -> None:
    async def main() -> tuple[int, int]:
        async with aconnect(broker.address, timeout_s=TIMEOUT_S) as client:
            done = await client.dead_letters.redrive(failed, count=2)
            return done.sent, (await client.dead_letters.stats(failed)).waiting

    assert asyncio.run(main()) == (2, LETTERS - 2)


def test_the_health_of_a_topic_is_that_of_its_logs(client: Client, topic: str, group: str) -> None:
    for n in range(4):
        client.produce(topic, str(n), partition=0)
    client.admin.delete_records({TopicPartition(topic, 0): 1})
    with client.consumer(topic, group=group) as consumer:
        consumer.take(2)

    health = client.health(topic)

    assert [partition.partition for partition in health.partitions] == list(range(PARTITIONS))
    first = health.partitions[0]
    assert (first.low_watermark, first.high_watermark, first.end_offset) == (1, 4, 4)
    assert [(lag.group_id, lag.records) for lag in health.lags if lag.partition == 0] == [
        (group, 1)
    ]
    with client.transaction() as transaction:
        transaction.send(topic, "open", partition=0).result()
        held = client.health(topic).partitions[0]
        assert (held.last_stable_offset, held.high_watermark) == (4, 5)
    with pytest.raises(NotFound):
        client.health("nowhere")

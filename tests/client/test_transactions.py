"""Transactions: all or nothing, offsets included, and what becomes of their errors."""

import pytest

from millstream.client import (
    Client,
    Consumer,
    Fenced,
    Message,
    Refused,
    TopicPartition,
    TransactionAborted,
    connect,
)
from tests.client.conftest import MEMBER, TIMEOUT_S
from tests.support.broker_process import BrokerProcess


def committed(client: Client, topic: str, count: int) -> list[bytes]:
    """What a reader sees: so many, and no more."""
    with client.consumer(topic, idle_s=1.0) as consumer:
        collected = [m.value for m in consumer.take(count)]
        return sorted([*collected, *(m.value for m in consumer)])


def fail_halfway(client: Client, consumer: Consumer, output: str, taken: list[Message]) -> None:
    with client.transaction() as transaction:
        transaction.send(output, taken[0].value)
        transaction.commit_offsets(consumer)
        _ = 1 / 0


def send_all(client: Client, topic: str, *values: bytes) -> None:
    with client.transaction() as transaction:
        for at, value in enumerate(values):
            transaction.send(topic, value, partition=at)


def lose_to_an_heir(client: Client, address: str, topic: str) -> None:
    with client.transaction(topic) as zombie:
        zombie.send(topic, b"zombie").result()
        with (
            connect(address, timeout_s=TIMEOUT_S) as heir,
            heir.transaction(topic) as transaction,
        ):
            transaction.send(topic, b"heir")


def test_a_block_that_ends_well_is_committed_and_one_that_does_not_is_aborted(
    client: Client, topic: str
) -> None:
    with client.transaction() as transaction:
        transaction.send(topic, b"a", partition=0)
        transaction.send(topic, b"b", partition=1)
    with pytest.raises(ZeroDivisionError), client.transaction() as transaction:
        transaction.send(topic, b"%d" % (1 // 0))
    with pytest.raises(KeyError), client.transaction() as transaction:
        raise KeyError(transaction.send(topic, b"lost").result())
    with client.transaction() as transaction:
        transaction.send(topic, b"c")

    assert committed(client, topic, 3) == [b"a", b"b", b"c"]


def test_offsets_are_committed_with_the_records_and_an_abort_reads_them_again(
    client: Client, topic: str, group: str
) -> None:
    output = f"{topic}-out"
    client.admin.create_topic(output, partitions=1)
    for n in range(4):
        client.produce(topic, b"%d" % n, partition=0)
    at = TopicPartition(topic, 0)

    with client.consumer(topic, group=group, auto_commit=False, **MEMBER) as consumer:
        with client.transaction() as transaction:
            for message in consumer.take(2):
                transaction.send(output, message.value)
            transaction.commit_offsets(consumer)
        first = client.admin.committed(group)
        taken = consumer.take(2)
        with pytest.raises(ZeroDivisionError):
            fail_halfway(client, consumer, output, taken)
        aborted = client.admin.committed(group)
        with client.transaction() as transaction:
            for message in consumer.take(2):
                transaction.send(output, message.value)
            transaction.commit_offsets(consumer)

    assert [m.value for m in taken] == [b"2", b"3"]
    assert first == {at: 2}
    assert aborted == {at: 2}
    assert client.admin.committed(group) == {at: 4}
    assert committed(client, output, 4) == [b"0", b"1", b"2", b"3"]


def test_a_record_that_is_refused_aborts_the_whole(client: Client, topic: str) -> None:
    client.admin.alter_topic(topic, {"max.message.bytes": 1_000})

    with pytest.raises(TransactionAborted) as aborted:
        send_all(client, topic, b"fits", b"x" * 5_000)
    send_all(client, topic, b"next")

    assert aborted.value.retriable
    assert committed(client, topic, 1) == [b"next"]


def test_an_heir_of_the_same_id_fences_the_older(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    with pytest.raises(Fenced):
        lose_to_an_heir(client, broker.address, topic)

    with client.transaction(topic) as transaction:
        transaction.send(topic, b"again")
    assert committed(client, topic, 2) == [b"again", b"heir"]


def test_a_transaction_survives_a_broker_that_is_killed_under_it(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    with client.transaction() as transaction:
        transaction.send(topic, b"before").result()
        broker.kill()
        broker.start()
        transaction.send(topic, b"after")

    assert committed(client, topic, 2) == [b"after", b"before"]


def test_a_transaction_is_used_inside_its_block_and_one_at_a_time(
    client: Client, topic: str, group: str
) -> None:
    transaction = client.transaction()
    with pytest.raises(Refused, match="not open"):
        transaction.send(topic, b"")

    with transaction:
        with pytest.raises(Refused, match="one transaction at a time"):
            client.transaction().__enter__()
        with client.transaction("another") as another:
            another.send(topic, b"another")
        with (
            client.consumer(topic, group=group, **MEMBER) as consumer,
            pytest.raises(Refused, match="auto_commit=False"),
        ):
            transaction.commit_offsets(consumer)
        transaction.send(topic, b"outer")

    with pytest.raises(Refused, match="not open"):
        transaction.send(topic, b"")
    assert committed(client, topic, 2) == [b"another", b"outer"]

"""Both client libraries of FlyMQ, as far as they meet a broker, against a real process."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.interop.flymq.clients import (
    ConnectionLost,
    GoClient,
    PythonClient,
    PythonConsumer,
    ServerError,
)
from tests.support.broker_process import BrokerProcess

SECONDS_MAX = 30


@pytest.fixture(params=[PythonClient, GoClient], ids=["python", "go"])
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Any]:
    with request.param(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def python(broker: BrokerProcess) -> Iterator[PythonClient]:
    with PythonClient(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def go(broker: BrokerProcess) -> Iterator[GoClient]:
    with GoClient(broker.host, broker.port) as connected:
        yield connected


def eventually(condition: Any) -> bool:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_records_are_produced_and_read(client: Any, topic: str) -> None:
    assert client.create_topic(topic, 1)
    answers = [client.produce(topic, b"v%d" % at, b"k" if at else b"") for at in range(3)]

    assert [answer[:3] for answer in answers] == [(topic, 0, 0), (topic, 0, 1), (topic, 0, 2)]
    assert [answer[4:] for answer in answers] == [(-1, 2), (1, 2), (1, 2)]
    assert client.consume(topic, 0, 1) == (b"k", b"v1")
    assert client.fetch(topic, 0, 0, 10) == (
        [(0, b"", b"v0"), (1, b"k", b"v1"), (2, b"k", b"v2")],
        3,
    )
    assert client.fetch(topic, 0, 1, 10, "V2") == ([(2, b"k", b"v2")], 3)
    assert client.fetch(topic, 0, 3, 10) == ([], 3)
    assert topic in client.list_topics()


def test_an_error_is_read_whole_in_the_words_that_the_tool_looks_for(
    client: Any, topic: str
) -> None:
    with pytest.raises(ServerError, match=f"^topic not found: {topic}$"):
        client.consume(topic, 0, 0)
    client.create_topic(topic, 1)
    with pytest.raises(ServerError, match=f"^partition 1 not found in topic {topic}$"):
        client.consume(topic, 1, 0)
    with pytest.raises(ServerError, match=f"^EOF: {topic}-0 ends at offset 0$"):
        client.consume(topic, 0, 0)


def test_partitions_are_found_by_metadata_and_by_trying(
    client: Any, topic: str, broker: BrokerProcess
) -> None:
    client.create_topic(topic, 3)

    assert client.partitions_of(topic) == [(at, "1", broker.address) for at in range(3)]
    for partition in range(3):
        assert client.subscribe(topic, "g", partition, "earliest") == 0
    with pytest.raises(ServerError):
        client.subscribe(topic, "g", 3, "earliest")


def test_a_group_goes_on_where_it_was_also_after_a_restart_and_for_kafka(
    client: Any, topic: str, group: str, broker: BrokerProcess
) -> None:
    client.create_topic(topic, 1)
    for at in range(5):
        client.produce(topic, b"%d" % at)
    assert client.subscribe(topic, group, 0, "commit") == 0
    assert client.commit(topic, group, 0, 3)
    assert client.get_lag(topic, group, 0) == (3, 3, 5, 2)
    assert (topic, group, 1, [(0, 3)]) in client.list_groups()

    broker.kill()
    broker.start()

    with type(client)(broker.host, broker.port) as later:
        assert later.subscribe(topic, group, 0, "commit") == 3
        assert (topic, group, 1, [(0, 3)]) in later.list_groups()
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    consumer.subscribe([topic])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    assert (message.offset(), message.value()) == (3, b"3")
    consumer.close()


def test_what_kafka_produced_is_read(client: Any, topic: str, broker: BrokerProcess) -> None:
    client.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.address, "compression.type": "lz4"})
    for at in range(100):
        producer.produce(topic, b"%d" % at, b"key")
    producer.flush()

    rows, next_offset = client.fetch(topic, 0, 90, 100)

    assert rows == [(at, b"key", b"%d" % at) for at in range(90, 100)]
    assert next_offset == 100


def test_transactions_end_both_ways_and_what_is_committed_is_there_at_once(
    client: Any, topic: str
) -> None:
    client.create_topic(topic, 1)
    for commits in (True, False, True):
        name = client.begin()
        answer = client.produce_in(name, topic, b"kept" if commits else b"dropped")
        client.end(name, commits=commits)
        if commits:
            assert client.consume(topic, 0, answer.offset) == (b"", b"kept")

    values = [value for _, _, value in client.fetch(topic, 0, 0, 10)[0]]
    assert values == [b"kept", b"kept"]
    with pytest.raises(ServerError, match=f"^transaction not found: {name}$"):
        client.end(name, commits=True)


def test_delayed_records_come_and_brief_ones_go(client: Any, topic: str) -> None:
    client.create_topic(topic, 1)
    brief = client.produce_with_ttl(topic, b"brief", 1)
    delayed = client.produce_delayed(topic, b"delayed", 300)

    assert (brief.partition, brief.offset) == (0, 0)
    assert (delayed.partition, delayed.offset, delayed.value_bytes) == (0, 0, 7)
    assert eventually(
        lambda: [value for _, _, value in client.fetch(topic, 0, 0, 10)[0]] == [b"delayed"]
    )


def test_logging_in_and_asking_who_one_is(client: Any) -> None:
    assert client.log_in("ann", "secret") == (True, "ann", ["admin"], "")
    assert client.who_am_i()[:3] == (False, "", [])


def test_a_schema_is_asked_for_in_either_order(client: Any, topic: str) -> None:
    with pytest.raises(ServerError, match=r"^Subject 'order' not found\.$"):
        client.produce_with_schema(topic, b'{"id": 1}', "order")


def test_the_tool_describes_and_deletes_a_group_without_a_topic(
    go: GoClient, topic: str, group: str
) -> None:
    go.create_topic(topic, 1)
    go.commit(topic, group, 0, 0)

    assert go.describe_group(group) == (topic, group, 0, [(0, 0)])
    go.delete_group(group)
    with pytest.raises(ServerError, match=f"^consumer group not found: {group}$"):
        go.describe_group(group)


def test_the_tool_subscribes_where_it_committed(go: GoClient, topic: str, group: str) -> None:
    go.produce(topic, b"x")

    assert go.subscribe(topic, group, 0, "committed") == 0


def test_a_compressed_request_is_unpacked(go: GoClient, topic: str) -> None:
    go.create_topic(topic, 1)
    go.produce_compressed(topic, b"x" * 100_000)

    assert go.consume(topic, 0, 0) == (b"", b"x" * 100_000)


def test_a_consumer_goes_on_behind_what_its_filter_lets_pass(
    python: PythonClient, topic: str, group: str
) -> None:
    python.create_topic(topic, 1)
    for at in range(10):
        python.produce(topic, b"%s %d" % (b"an error" if at % 4 == 0 else b"quiet", at))
    consumer = PythonConsumer(python, topic, group, "earliest", where="error")

    assert consumer.poll(2) == [b"an error 0", b"an error 4"]
    consumer.commit()
    assert consumer.poll(2) == [b"an error 8"]
    assert consumer.poll(2) == []
    assert python.subscribe(topic, group, 0, "commit") == 5
    python.produce(topic, b"an error 10")
    assert consumer.poll(2) == [b"an error 10"]


def test_a_group_that_was_deleted_is_gone_for_who_subscribed_in_it(
    python: PythonClient, topic: str, group: str
) -> None:
    python.create_topic(topic, 1)
    PythonConsumer(python, topic, group, "earliest").commit()

    python.delete_group(topic, group)

    assert group not in [name for _, name, _, _ in python.list_groups()]
    with pytest.raises(ServerError, match=f"^consumer group not found: {topic}:{group}$"):
        python.get_offset(topic, group, 0)


def test_after_kill_nine_one_call_is_lost_and_the_next_one_served(
    python: PythonClient, topic: str, group: str, broker: BrokerProcess
) -> None:
    python.create_topic(topic, 1)
    consumer = PythonConsumer(python, topic, group, "earliest")
    for at in range(3):
        python.produce(topic, b"%d" % at)
    assert consumer.poll(2) == [b"0", b"1"]
    consumer.commit()

    broker.kill()
    broker.start()

    with pytest.raises(ConnectionLost):
        consumer.poll(1)
    # What is still being loaded is waited for: the library does not ask again.
    assert python.get_offset(topic, group, 0) == 2
    assert consumer.poll(2) == [b"2"]


def test_no_dead_letters_are_an_empty_list(client: Any, topic: str) -> None:
    client.create_topic(topic, 1)

    assert client.fetch_dead_letters(topic, 10) == []


def test_what_was_answered_is_there_after_kill_nine(
    client: Any, topic: str, broker: BrokerProcess
) -> None:
    client.create_topic(topic, 1)
    sent = [b"%d" % at for at in range(50)]
    for value in sent:
        client.produce(topic, value)
    name = client.begin()
    client.produce_in(name, topic, b"never committed")

    broker.kill()
    broker.start()

    with type(client)(broker.host, broker.port) as later:
        with pytest.raises(ServerError, match=f"^transaction not found: {name}$"):
            later.end(name, commits=True)
        again = later.begin()
        later.produce_in(again, topic, b"committed")
        later.end(again, commits=True)

        def values() -> list[bytes]:
            return [value for _, _, value in later.fetch(topic, 0, 0, 100)[0]]

        assert values()[:50] == sent
        # What was left open ends when its id is lent again, or when its time is up.
        assert eventually(lambda: lend_again(later) and values() == [*sent, b"committed"])


def lend_again(client: Any) -> bool:
    """So many at once that the id is among them, whichever it was."""
    for name in [client.begin() for _ in range(4)]:
        client.end(name, commits=False)
    return True

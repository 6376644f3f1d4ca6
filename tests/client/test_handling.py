"""Records that fail: tried again, given up, and never lost between the two."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from millstream.client import (
    Client,
    ClientError,
    DeadLetter,
    Denied,
    Handled,
    Message,
    Refused,
    Reject,
    RetryPolicy,
    TopicPartition,
)
from millstream.client.consumer import Consumer
from millstream.client.handling import DeadLetterWriter
from tests.client.conftest import MEMBER
from tests.support.broker_process import BrokerProcess

AT_ONCE = RetryPolicy(max_retries=2, delay_s=0, jitter=0)
IDLE_S = 1.5  # Records are read in milliseconds: long enough for a busy machine.

# Handles records as a program would, and dies when a dead letter was written, before a commit.
CRASHING = """
import os, sys
from millstream.client import Reject, connect
from millstream.client.handling import DeadLetterWriter

write = DeadLetterWriter.write

def write_and_die(*args, **kwargs):
    write(*args, **kwargs)
    os._exit(9)

def refuse(message):
    raise Reject("no such customer")

DeadLetterWriter.write = write_and_die
address, topic, group = sys.argv[1:]
with connect(address) as client, client.consumer(
    topic, group=group, idle_s=60, session_timeout_ms=6_000, heartbeat_interval_ms=200
) as consumer:
    client.handle(consumer, refuse)
"""


def joined(client: Client, topic: str, group: str, **settings: Any) -> Consumer:
    """A member that has its partitions: joining takes longer than any record does."""
    consumer = client.consumer(topic, group=group, idle_s=IDLE_S, **settings, **MEMBER)
    consumer.wait_assigned()
    return consumer


@pytest.fixture
def reader(client: Client, topic: str, group: str) -> Consumer:
    return joined(client, topic, group)


def fill(client: Client, topic: str, *values: str) -> None:
    for value in values:
        client.produce(topic, value, key="k", partition=1, headers={"a": b"\xff"})


def failing(*bad: bytes, problem: Exception) -> "Callable[[Message], None]":
    def function(message: Message) -> None:
        if message.value in bad:
            raise problem

    return function


def waiting(client: Client, topic: str) -> list[DeadLetter]:
    return client.dead_letters.list(topic)


def committed(client: Client, group: str, topic: str) -> int | None:
    return client.admin.committed(group).get(TopicPartition(topic, 1))


def test_what_works_is_done_and_committed(
    client: Client, topic: str, group: str, reader: Consumer
) -> None:
    fill(client, topic, "a", "b")
    seen: list[Message] = []
    with reader:
        assert client.handle(reader, seen.append) == Handled(done=2, given_up=0)

    assert [message.value for message in seen] == [b"a", b"b"]
    assert committed(client, group, topic) == 2
    assert waiting(client, topic) == []


def test_what_fails_is_tried_again_in_its_order(
    client: Client, topic: str, reader: Consumer
) -> None:
    fill(client, topic, "a", "b", "c")
    seen: list[bytes] = []

    def flaky(message: Message) -> None:
        seen.append(message.value)
        if message.value == b"b" and seen.count(b"b") < 3:
            raise ConnectionError("not yet")

    policy = RetryPolicy(max_retries=2, delay_s=0.2)
    with reader:
        assert client.handle(reader, flaky, retry=policy) == Handled(done=3, given_up=0)

    assert seen == [b"a", b"b", b"b", b"b", b"c"]


def test_what_keeps_failing_becomes_a_dead_letter_with_all_its_bytes(
    client: Client, topic: str, group: str, reader: Consumer
) -> None:
    client.set_serde("json")  # Dead letters are bytes whatever else is set.
    fill(client, topic, "good", "bad")
    with reader:
        function = failing(b'"bad"', problem=ValueError("boom"))
        assert client.handle(reader, function, retry=AT_ONCE) == Handled(done=1, given_up=1)

    (letter,) = waiting(client, topic)
    assert (letter.key, letter.value) == (b"k", b'"bad"')
    assert ("a", b"\xff") in letter.headers
    assert (letter.origin_topic, letter.origin_partition, letter.origin_offset) == (topic, 1, 1)
    assert (letter.group, letter.attempts) == (group, 3)
    assert (letter.reason, letter.error) == ("max_retries_exceeded", "ValueError: boom")
    assert committed(client, group, topic) == 2


def test_what_is_rejected_or_cannot_be_decoded_is_given_up_at_once(
    client: Client, topic: str, group: str
) -> None:
    fill(client, topic, "1", "{", "2")
    patient = RetryPolicy(delay_s=60)
    with client.consumer(topic, group=group, idle_s=IDLE_S, value_serde="json", **MEMBER) as reader:

        def reject(message: Message) -> None:
            if message.value == 2:
                raise Reject("odd")

        assert client.handle(reader, reject, retry=patient) == Handled(done=1, given_up=2)

    unreadable, rejected = waiting(client, topic)
    assert (unreadable.value, unreadable.reason, unreadable.attempts) == (b"{", "schema", 1)
    assert (rejected.value, rejected.reason, rejected.error) == (b"2", "rejected", "odd")
    assert committed(client, group, topic) == 3


def test_the_largest_record_that_a_topic_takes_can_be_given_up(
    client: Client, topic: str, reader: Consumer
) -> None:
    value = b"x" * 1_048_400
    with client.producer(value_serde="bytes", message_max_bytes=10_000_000) as producer:
        producer.send(topic, value, partition=1).result()

    done = client.handle(reader, failing(value, problem=Reject("no")))

    assert done == Handled(done=0, given_up=1)
    assert [letter.value for letter in waiting(client, topic)] == [value]


def test_a_dead_letter_that_does_not_arrive_leaves_the_record_uncommitted(
    client: Client,
    topic: str,
    group: str,
    reader: Consumer,
) -> None:
    # One that takes no record of this size.
    client.admin.create_topic(f"{topic}.dlq", settings={"max.message.bytes": 100})
    fill(client, topic, "good", "bad", "good")
    function = failing(b"bad", problem=Reject("no"))
    with pytest.raises(ClientError, match="too large"):
        client.handle(reader, function)

    # The same consumer goes on with the same record, and so does the next member.
    client.admin.alter_topic(f"{topic}.dlq", unset=["max.message.bytes"])
    assert client.handle(reader, function) == Handled(done=1, given_up=1)
    reader.close()

    assert [letter.value for letter in waiting(client, topic)] == [b"bad"]
    assert committed(client, group, topic) == 3


def test_a_record_is_not_done_when_its_handler_was_interrupted(
    client: Client, topic: str, group: str, reader: Consumer
) -> None:
    fill(client, topic, "a", "b")

    def interrupted(message: Message) -> None:
        if message.value == b"b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.handle(reader, interrupted)
    reader.close()  # Without a block, so that closing would count a record in hand as done.

    assert committed(client, group, topic) == 1


@pytest.mark.slow  # The next member waits for the session of the dead one to end.
def test_a_crash_between_the_dead_letter_and_the_commit_does_not_double_it(
    client: Client, broker: BrokerProcess, topic: str, group: str, reader: Consumer
) -> None:
    fill(client, topic, "bad")
    reader.close()
    command = [sys.executable, "-c", CRASHING, broker.address, topic, group]
    assert subprocess.run(command, check=False, timeout=120).returncode == 9
    assert len(waiting(client, topic)) == 1
    assert committed(client, group, topic) is None

    function = failing(b"bad", problem=Reject("again"))
    with joined(client, topic, group) as second:
        assert client.handle(second, function) == Handled(done=0, given_up=1)

    (letter,) = waiting(client, topic)
    assert letter.error == "no such customer"
    assert committed(client, group, topic) == 1


def test_a_cluster_without_message_ids_gets_dead_letters_without_them(
    client: Client, topic: str, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.admin, "_has_queues", False)
    fill(client, topic, "bad")
    with reader:
        client.handle(reader, failing(b"bad", problem=Reject("no")))

    (letter,) = waiting(client, topic)
    assert "ms-message-id" not in dict(letter.headers)


def test_who_may_not_look_at_settings_can_still_give_up_a_record(
    client: Client, topic: str, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise Denied("no")

    monkeypatch.setattr(client.admin, "_settings", denied)
    fill(client, topic, "bad")
    with reader:
        client.handle(reader, failing(b"bad", problem=Reject("no")))

    assert [letter.value for letter in waiting(client, topic)] == [b"bad"]


def test_records_read_through_a_filter_go_to_the_dead_letters_of_their_topic(
    client: Client, topic: str, group: str
) -> None:
    fill(client, topic, "good", "bad")
    with joined(client, topic, group, filter="value == 'bad'") as reader:
        assert client.handle(reader, failing(b"bad", problem=Reject("no"))).given_up == 1

    (letter,) = waiting(client, topic)
    assert (letter.topic, letter.origin_topic) == (f"{topic}.dlq", topic)


def test_what_is_sent_back_is_handled_again(
    client: Client, topic: str, group: str, reader: Consumer
) -> None:
    fill(client, topic, "bad")
    seen: list[bytes] = []
    with reader:
        client.handle(reader, failing(b"bad", problem=Reject("no")))
        assert client.dead_letters.redrive(topic).sent == 1
        client.handle(reader, lambda message: seen.append(message.value))

    assert seen == [b"bad"]
    assert waiting(client, topic) == []


def test_a_dead_letter_that_fails_stays_where_it_is(client: Client, group: str) -> None:
    topic = f"orders-{uuid4()}.dlq"
    client.produce(topic, "bad")
    with (
        joined(client, topic, group) as reader,
        pytest.raises(Refused, match="dead letter already"),
    ):
        client.handle(reader, failing(b"bad", problem=ValueError("boom")), retry=AT_ONCE)

    assert list(client.admin.committed(group).values()) == [0]


def test_only_a_consumer_that_commits_can_be_handled(
    client: Client, topic: str, group: str
) -> None:
    for settings in ({"group": None}, {"group": group, "auto_commit": False}):
        with (
            client.consumer(topic, **settings) as reader,
            pytest.raises(Refused, match="group"),
        ):
            client.handle(reader, print)


def test_a_record_whose_partition_was_lost_meanwhile_is_left_to_its_new_reader(
    client: Client, topic: str, reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, "bad")
    written: list[object] = []
    monkeypatch.setattr(DeadLetterWriter, "write", lambda *args, **kwargs: written.append(args))

    def lose_it(message: Message) -> None:
        reader._drop([message.at])  # As a rebalance does.
        raise ValueError("boom")

    with reader:
        assert client.handle(reader, lose_it) == Handled(done=0, given_up=0)

    assert written == []


def test_a_consumer_handles_its_records_itself(client: Client, reader: Consumer) -> None:
    fill(client, reader.wait_assigned()[0].topic, "a", "b")
    seen: list[bytes] = []

    assert reader.handle(lambda m: seen.append(m.value)) == Handled(done=2, given_up=0)
    assert seen == [b"a", b"b"]


def test_subscribers_run_until_they_end(client: Client, topic: str, group: str) -> None:
    other = f"{topic}-other"
    client.admin.create_topic(other, partitions=2)
    fill(client, topic, "a", "bad", "b")
    fill(client, other, "c")
    seen: list[bytes] = []

    @client.subscriber(topic, group=group, retry=AT_ONCE, idle_s=IDLE_S, **MEMBER)
    def on_order(message: Message) -> None:
        if message.value == b"bad":
            raise ValueError(message)
        seen.append(message.value)

    @client.subscriber([other], group=group + "-2", idle_s=IDLE_S, **MEMBER)
    def on_other(message: Message) -> None:
        seen.append(message.value)

    assert client.run() == Handled(done=3, given_up=1)
    assert sorted(seen) == [b"a", b"b", b"c"]


def test_subscribers_stop_after_the_record_in_hand(client: Client, topic: str, group: str) -> None:
    fill(client, topic, "a", "b")

    @client.subscriber(topic, group=group, **MEMBER)
    def on_order(message: Message) -> None:
        client.stop()

    assert client.run() == Handled(done=1, given_up=0)
    assert client.admin.committed(group)[TopicPartition(topic, 1)] == 1


def test_a_stop_does_not_wait_for_retries_and_leaves_the_record(
    client: Client, topic: str, group: str
) -> None:
    fill(client, topic, "a")

    @client.subscriber(topic, group=group, retry=RetryPolicy(delay_s=60.0), **MEMBER)
    def on_order(message: Message) -> None:
        client.stop()
        raise ValueError("not now")

    assert client.run() == Handled(done=0, given_up=0)
    assert client.admin.committed(group) == {}


def test_a_client_without_subscribers_says_what_is_missing(client: Client) -> None:
    with pytest.raises(Refused, match="subscriber"):
        client.run()
    with pytest.raises(Refused, match="auto_commit"):
        client.subscriber("orders", group="g", auto_commit=False)(print)

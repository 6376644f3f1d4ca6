"""Reading records: places to begin, commits, patterns, pauses and serdes."""

import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from millstream.client import (
    BadData,
    Client,
    Closed,
    Message,
    NotFound,
    Refused,
    TimedOut,
    TopicPartition,
)
from millstream.client import consumer as consumer_module
from millstream.client.consumer import Consumer
from tests.client.conftest import MEMBER, TIMEOUT_S

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def fill(client: Client, topic: str, count: int, partition: int = 0) -> None:
    with client.producer() as producer:
        for n in range(count):
            when = NOON + timedelta(minutes=n)
            producer.send(topic, str(n), key=f"k{n}", partition=partition, timestamp=when)


def values(messages: list[Message]) -> list[int]:
    return [int(message.value) for message in messages]


def test_a_message_has_all_that_was_sent(client: Client, topic: str) -> None:
    sent = client.produce(
        topic, "v", key="k", headers=[("a", "1"), ("a", "2"), ("b", None)], timestamp=NOON
    )

    with client.consumer(topic) as consumer:
        message = next(consumer)

    assert (message.topic, message.partition, message.offset) == (topic, sent.partition, 0)
    assert (message.key, message.value, message.timestamp) == (b"k", b"v", NOON)
    assert message.headers == (("a", b"1"), ("a", b"2"), ("b", None))
    assert message.header("a") == b"2"
    assert message.header("c") is None


def test_without_a_group_everything_is_read_and_no_group_is_left(
    client: Client, topic: str
) -> None:
    for partition in range(3):
        fill(client, topic, 10, partition)
    before = client.admin.list_groups()

    with client.consumer(topic) as consumer:
        taken = consumer.take(30)
        with pytest.raises(Refused, match="nowhere to commit"):
            consumer.commit()

    assert sorted(values(taken)) == sorted([*range(10)] * 3)
    assert client.admin.list_groups() == before


def test_latest_begins_where_the_log_ended_when_the_consumer_was_made(
    client: Client, topic: str
) -> None:
    fill(client, topic, 5)

    with client.consumer(topic, from_="latest") as consumer:
        client.produce(topic, "99", partition=0)
        assert values(consumer.take(1)) == [99]


@pytest.mark.parametrize("grouped", [False, True])
def test_reading_begins_at_a_time_or_an_offset(
    client: Client, topic: str, group: str, grouped: bool
) -> None:
    fill(client, topic, 10)
    with client.consumer(
        topic, group=group if grouped else None, from_=NOON + timedelta(minutes=6, seconds=1)
    ) as consumer:
        by_time = consumer.take(3)
    with client.consumer(topic, group=f"{group}-2" if grouped else None, from_=4) as consumer:
        by_offset = consumer.take(1)

    assert values(by_time) == [7, 8, 9]
    assert values(by_offset) == [4]


@pytest.mark.parametrize(
    "kind",
    [{"group_protocol": "consumer"}, {"partition_assignment_strategy": "cooperative-sticky"}],
    ids=["consumer", "cooperative"],
)
def test_groups_of_every_kind_begin_at_a_time_and_go_on_where_they_were(
    client: Client, topic: str, group: str, kind: dict[str, str]
) -> None:
    fill(client, topic, 10)
    start = NOON + timedelta(minutes=6)
    with client.consumer(f"^{topic}$", group=group, from_=start, **kind) as consumer:  # type: ignore[arg-type]
        first = consumer.take(2)
    with client.consumer(topic, group=group, from_=start, **kind) as consumer:  # type: ignore[arg-type]
        second = consumer.take(2)

    assert values(first) == [6, 7]
    assert values(second) == [8, 9]


def test_iterating_ends_when_nothing_came_for_a_while(client: Client, topic: str) -> None:
    fill(client, topic, 10)

    with client.consumer(topic, idle_s=2.0) as consumer:
        assert values(list(consumer)) == list(range(10))


def test_a_group_goes_on_after_the_last_record_that_was_done(
    client: Client, topic: str, group: str
) -> None:
    fill(client, topic, 10)
    with client.consumer(topic, group=group, **MEMBER) as consumer:
        for message in consumer:
            if int(message.value) == 3:
                break

    with client.consumer(topic, group=group, **MEMBER) as consumer:
        assert values(consumer.take(1)) == [4]
    assert client.admin.committed(group) == {TopicPartition(topic, 0): 5}


def test_a_record_whose_handling_failed_is_read_again(
    client: Client, topic: str, group: str
) -> None:
    fill(client, topic, 10)
    with (
        pytest.raises(ZeroDivisionError),
        client.consumer(topic, group=group, **MEMBER) as consumer,
    ):
        _ = [1 / (int(message.value) - 3) for message in consumer]

    with client.consumer(topic, group=group, **MEMBER) as consumer:
        assert values(consumer.take(1)) == [3]


def test_without_automatic_commits_only_commits_count(
    client: Client, topic: str, group: str
) -> None:
    fill(client, topic, 10)
    at = TopicPartition(topic, 0)
    with client.consumer(topic, group=group, auto_commit=False, **MEMBER) as consumer:
        taken = consumer.take(6)
        consumer.commit(taken[1])
        one_by_one = client.admin.committed(group)
        consumer.take(1)
        consumer.commit()
        all_so_far = client.admin.committed(group)
        consumer.take(1)

    assert one_by_one == {at: 2}
    assert all_so_far == {at: 7}
    assert client.admin.committed(group) == {at: 7}


def test_seeking_goes_back_and_forth(client: Client, topic: str, group: str) -> None:
    fill(client, topic, 10)
    at = TopicPartition(topic, 0)
    with client.consumer(topic, group=group, **MEMBER) as consumer:
        seen = [values(consumer.take(2))]
        for goal in (7, "earliest", NOON + timedelta(minutes=5)):
            consumer.seek(at, goal)
            seen.append(values(consumer.take(2)))
        consumer.seek_all("latest")
        client.produce(topic, "99", partition=0)
        seen.append(values(consumer.take(1)))
        with pytest.raises(Refused, match="not assigned"):
            consumer.seek(TopicPartition(topic, 99), 0)

    assert seen == [[0, 1], [7, 8], [0, 1], [5, 6], [99]]


def test_going_back_is_what_gets_committed(client: Client, topic: str, group: str) -> None:
    fill(client, topic, 10)
    with client.consumer(topic, group=group, **MEMBER) as consumer:
        consumer.take(9)
        consumer.poll(0)
        consumer.seek(TopicPartition(topic, 0), 2)

    assert client.admin.committed(group) == {TopicPartition(topic, 0): 2}


def test_a_paused_partition_is_silent_and_loses_nothing(client: Client, topic: str) -> None:
    fill(client, topic, 50, 0)
    fill(client, topic, 50, 1)
    quiet = TopicPartition(topic, 0)
    with client.consumer(topic) as consumer:
        before = consumer.take(5)
        consumer.pause(quiet)
        others = [m for m in consumer.take(100, timeout_s=1.5) if m.at == quiet]
        consumer.resume(quiet)
        after = consumer.take(50 - len([m for m in before if m.at == quiet]))

    assert others == []
    assert values([m for m in [*before, *after] if m.at == quiet]) == list(range(50))


@pytest.mark.parametrize("grouped", [False, True])
def test_a_pattern_reads_the_topics_it_matches_and_new_ones_join(
    client: Client, group: str, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "REFRESH_S", 0.5)
    root = f"t{uuid4().hex}"
    for name in ("eu.created", "us.created", "eu.deleted"):
        client.admin.create_topic(f"{root}.{name}", partitions=1)
        client.produce(f"{root}.{name}", name)

    with client.consumer(
        f"{root}.*.created", group=group if grouped else None, **MEMBER
    ) as consumer:
        first = {m.value for m in consumer.take(2)}
        client.admin.create_topic(f"{root}.asia.created", partitions=1)
        client.produce(f"{root}.asia.created", "asia.created")
        joined = {m.value for m in consumer.take(1)}

    assert first == {b"eu.created", b"us.created"}
    assert joined == {b"asia.created"}


def test_members_of_a_group_share_the_partitions(client: Client, topic: str, group: str) -> None:
    def is_shared(first: Consumer, other: Consumer) -> bool:
        return bool(first.assignment) and len(first.assignment) + len(other.assignment) == 3

    with (
        client.consumer(topic, group=group, **MEMBER) as first,
        client.consumer(topic, group=group, **MEMBER) as other,
    ):
        first.wait_assigned()
        deadline = time.monotonic() + TIMEOUT_S
        while not (is_shared(first, other) and is_shared(other, first)):
            assert time.monotonic() < deadline
            first.fetch(0.1)
            other.fetch(0.1)
        described = client.admin.describe_group(group)

        assert not set(first.assignment) & set(other.assignment)
        assert len(described.members) == 2


def test_values_are_decoded_and_a_bad_one_can_be_passed_over(
    client: Client, topic: str, group: str
) -> None:
    client.set_serde("json", key="string")
    client.produce(topic, {"kg": 5}, key="k", partition=0)
    with client.producer(value_serde="bytes") as raw:
        raw.send(topic, b"{", partition=0)
    client.produce(topic, None, key="gone", partition=0)

    with client.consumer(topic, group=group, **MEMBER) as consumer:
        first = next(consumer)
        with pytest.raises(BadData, match=f"{topic}-0 at offset 1"):
            next(consumer)
        third = next(consumer)

    assert (first.key, first.value) == ("k", {"kg": 5})
    assert (third.key, third.value) == ("gone", None)


def test_a_topic_that_is_not_there_is_told_and_not_made(client: Client, group: str) -> None:
    missing = f"missing-{uuid4()}"

    with pytest.raises(NotFound, match=f"create_topic\\('{missing}'\\)"):
        client.consumer(missing)
    with client.consumer(missing, group=group, **MEMBER) as consumer:
        assert consumer.poll(0.5) is None  # A group waits for it.
        with pytest.raises(TimedOut, match=f"no topic '{missing}' yet"):
            consumer.wait_assigned(2.0)

    assert missing not in {topic.name for topic in client.admin.list_topics()}


def test_a_bad_value_ends_the_batch_before_it(client: Client, topic: str) -> None:
    with client.producer() as producer:
        for value in (b"1", b"2", b"{", b"4"):
            producer.send(topic, value, partition=0)

    with client.consumer(topic, value_serde="json") as consumer:
        assert [m.value for m in consumer.take(4)] == [1, 2]
        with pytest.raises(BadData, match="offset 2"):
            consumer.take(4)
        assert [m.value for m in consumer.take(1)] == [4]


def test_what_cannot_be_is_refused_before_anything_is_opened(client: Client, topic: str) -> None:
    with pytest.raises(Refused, match="at character 1"):
        client.consumer(topic, filter="kg > 5")
    with pytest.raises(Refused, match="is a pattern"):
        client.consumer("orders.*", filter="key")
    with pytest.raises(Refused, match="not known"):
        client.consumer(topic, from_="beginning")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="start= only"):
        client.consumer(topic, from_="latest", start="earliest")
    with pytest.raises(Refused, match="at least one topic"):
        client.consumer([])
    with pytest.raises(Refused, match="needs a name"):
        client.consumer(topic, group="")
    with pytest.raises(Refused, match="regular expression"):
        client.consumer("^orders(")


def test_a_closed_consumer_says_so(client: Client, topic: str) -> None:
    consumer = client.consumer(topic)
    consumer.close()
    consumer.close()

    with pytest.raises(Closed):
        next(consumer)

"""The Java client's consumer groups: sharing, committing, and a broker that comes back."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.java.clients import SECONDS_MAX, Java
from tests.interop.java.driver import JavaError
from tests.interop.java.members import Member, share_while_a_member_joins_and_leaves, until
from tests.interop.ownership import Ownership
from tests.interop.samples import samples
from tests.support.broker_process import BrokerProcess

ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
LEAVES = pytest.mark.parametrize(
    "leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"]
)


def assignor(name: str) -> str:
    return f"org.apache.kafka.clients.consumer.{ASSIGNORS[name]}"


@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_a_group_shares_partitions_while_a_member_joins_and_leaves(
    java: Java, broker: BrokerProcess, topic: str, group: str, strategy: str
) -> None:
    share_while_a_member_joins_and_leaves(
        java,
        broker.address,
        topic,
        group_id=group,
        partition_assignment_strategy=assignor(strategy),
    )


def test_a_member_that_vanishes_is_missed_and_its_partitions_go_on(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    """It stops polling: its client leaves the group for it after `max.poll.interval.ms`."""
    java.write(broker.address, topic, samples())
    ownership = Ownership()
    settings: dict[str, Any] = {"group_id": group, "max_poll_interval_ms": 3_000}
    with (
        java.consumer(broker.address, **settings) as first,
        java.consumer(broker.address, **settings) as other,
    ):
        lazy, busy = Member(first, topic, ownership), Member(other, topic, ownership)
        names = [lazy.name, busy.name]
        until(lambda: ownership.is_shared_by(names, PARTITIONS), lazy, busy)
        ownership.give_up(lazy.name, ownership.of(lazy.name))
        until(lambda: ownership.is_shared_by([busy.name], PARTITIONS), busy)

        with pytest.raises(JavaError) as refused:
            first.ask("commit", partition=f"{topic},0", offset=1)

    assert refused.value.errors[0] == "CommitFailedException"
    assert ownership.clashes == []


def test_a_pattern_finds_the_topics_it_names(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    for name in (f"wanted.{topic}.a", f"wanted.{topic}.b", f"other.{topic}"):
        java.write(broker.address, name, samples()[:1])

    with java.consumer(broker.address, group_id=group) as consumer:
        consumer.ask("subscribe", pattern=rf"wanted\.{topic}\..*")
        taken = consumer.take(2)

    assert {record.topic for record in taken} == {f"wanted.{topic}.a", f"wanted.{topic}.b"}


@LEAVES
def test_committed_offsets_and_acknowledged_records_outlive_the_broker(
    java: Java,
    broker: BrokerProcess,
    topic: str,
    group: str,
    leave: Callable[[BrokerProcess], None],
) -> None:
    sent = samples()
    java.write(broker.address, topic, sent, acks="all")
    with java.consumer(broker.address, group_id=group) as consumer:
        consumer.ask("subscribe", topic=topic)
        consumer.take(1)
        consumer.ask("commit", partition=f"{topic},0", offset=3, metadata="half way")

    leave(broker)
    broker.start()

    with java.consumer(broker.address, group_id=group) as consumer:
        assert consumer.committed(topic) == [3, "half way"]
        consumer.ask("subscribe", topic=topic)
        remaining = consumer.take(len(sent) - 3)
    assert [record.sample for record in remaining] == sent[3:]


@LEAVES
def test_clients_that_stay_go_on_when_the_broker_is_back(
    java: Java,
    broker: BrokerProcess,
    topic: str,
    group: str,
    leave: Callable[[BrokerProcess], None],
) -> None:
    sent = samples()
    with (
        java.producer(broker.address) as producer,
        java.consumer(broker.address, group_id=group) as consumer,
    ):
        producer.send(topic, sent)
        consumer.ask("subscribe", topic=topic)
        consumer.take(len(sent))
        consumer.ask("commit")

        leave(broker)
        broker.start()
        producer.send(topic, sent)
        after = consumer.take(len(sent))
        consumer.ask("commit")
        committed = consumer.committed(topic)

    assert [record.offset for record in after] == list(range(len(sent), 2 * len(sent)))
    assert committed == [2 * len(sent), ""]


def test_a_static_member_that_returns_keeps_its_partitions_without_a_rebalance(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    ownership = Ownership()
    with java.consumer(broker.address, group_id=group, group_instance_id="other") as other:
        stays = Member(other, topic, ownership)
        with java.consumer(broker.address, group_id=group, group_instance_id="one") as consumer:
            leaves = Member(consumer, topic, ownership)
            names = [stays.name, leaves.name]
            until(lambda: ownership.is_shared_by(names, PARTITIONS), stays, leaves)
            owned = ownership.of(leaves.name)
            leaves.leave()
        with java.consumer(broker.address, group_id=group, group_instance_id="one") as again:
            returns = Member(again, topic, ownership)
            until(lambda: ownership.of(returns.name) == owned, returns)
            stays.poll()

    assert ownership.clashes == []
    assert ownership.of(stays.name) | owned == set(range(PARTITIONS))


def test_a_static_member_whose_name_is_taken_over_is_fenced(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    settings: dict[str, Any] = {"group_id": group, "group_instance_id": "the-one"}
    with java.consumer(broker.address, **settings) as old:
        old.ask("subscribe", topic=topic)
        old.take(1)
        with java.consumer(broker.address, **settings) as new:
            new.ask("subscribe", topic=topic)
            new.take(1)
            with pytest.raises(JavaError) as fenced:
                old.poll(1_000_000, SECONDS_MAX * 1_000)

    assert fenced.value.errors[0] == "FencedInstanceIdException"


def test_a_static_member_is_removed_from_outside(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    with java.consumer(broker.address, group_id=group, group_instance_id="gone") as consumer:
        consumer.ask("subscribe", topic=topic)
        consumer.take(1)

    with java.admin(broker.address) as admin:
        before = admin.ask("describe_group", group=group)
        admin.ask("remove_member", group=group, instance="gone")
        after = admin.ask("describe_group", group=group)

    assert [member["instance"] for member in before["members"]] == ["gone"]
    assert (after["state"], after["members"]) == ("Empty", [])


def test_a_member_that_speaks_another_protocol_is_refused(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    with java.consumer(
        broker.address, group_id=group, partition_assignment_strategy=assignor("range")
    ) as consumer:
        consumer.ask("subscribe", topic=topic)
        consumer.take(1)
        other = assignor("cooperative-sticky")
        with java.consumer(
            broker.address, group_id=group, partition_assignment_strategy=other
        ) as stranger:
            stranger.ask("subscribe", topic=topic)
            with pytest.raises(JavaError) as refused:
                stranger.take(1)

    assert refused.value.errors[0] == "InconsistentGroupProtocolException"


def test_a_session_timeout_below_what_the_broker_allows_is_refused(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())

    with java.consumer(broker.address, group_id=group, session_timeout_ms=1_000) as consumer:
        consumer.ask("subscribe", topic=topic)
        with pytest.raises(JavaError) as refused:
            consumer.take(1)

    assert refused.value.errors[0] == "InvalidSessionTimeoutException"


def test_a_commit_may_not_say_too_much(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())

    with java.consumer(broker.address, group_id=group) as consumer:
        consumer.assign(topic)
        with pytest.raises(JavaError) as refused:
            consumer.ask("commit", partition=f"{topic},0", offset=1, metadata="x" * 5_000)

    assert refused.value.errors[-1] == "OffsetMetadataTooLarge"

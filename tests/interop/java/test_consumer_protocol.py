"""The Java client in groups whose broker does the sharing (`group.protocol=consumer`)."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.java.clients import Java
from tests.interop.java.driver import JavaError
from tests.interop.java.members import Member, share_while_a_member_joins_and_leaves, until
from tests.interop.java.releases import RELEASES
from tests.interop.ownership import Ownership
from tests.interop.samples import samples
from tests.support.broker_process import BrokerProcess

NEWEST = RELEASES[-1]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_group_shares_partitions_while_a_member_joins_and_leaves(
    java: Java, broker: BrokerProcess, topic: str, group: str, assignor: str
) -> None:
    share_while_a_member_joins_and_leaves(
        java,
        broker.address,
        topic,
        group_id=group,
        group_protocol="consumer",
        group_remote_assignor=assignor,
    )


@pytest.mark.parametrize("leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"])
def test_a_member_that_stays_goes_on_when_the_broker_is_back(
    java: Java,
    broker: BrokerProcess,
    topic: str,
    group: str,
    leave: Callable[[BrokerProcess], None],
) -> None:
    sent = samples()
    settings: dict[str, Any] = {"group_id": group, "group_protocol": "consumer"}
    with (
        java.producer(broker.address) as producer,
        java.consumer(broker.address, **settings) as consumer,
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


def test_a_static_member_that_returns_keeps_its_partitions(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    ownership = Ownership()
    settings: dict[str, Any] = {"group_id": group, "group_protocol": "consumer"}
    with java.consumer(broker.address, group_instance_id="other", **settings) as other:
        stays = Member(other, topic, ownership)
        with java.consumer(broker.address, group_instance_id="one", **settings) as consumer:
            leaves = Member(consumer, topic, ownership)
            names = [stays.name, leaves.name]
            until(lambda: ownership.is_shared_by(names, PARTITIONS), stays, leaves)
            owned = ownership.of(leaves.name)
            leaves.leave()
        with java.consumer(broker.address, group_instance_id="one", **settings) as again:
            returns = Member(again, topic, ownership)
            until(lambda: ownership.of(returns.name) == owned, returns, stays)

    assert ownership.clashes == []


def test_a_static_member_whose_name_is_in_use_is_refused(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    settings: dict[str, Any] = {
        "group_id": group,
        "group_protocol": "consumer",
        "group_instance_id": "the-one",
    }
    with java.consumer(broker.address, **settings) as first:
        first.ask("subscribe", topic=topic)
        first.take(1)
        with java.consumer(broker.address, **settings) as second:
            second.ask("subscribe", topic=topic)
            with pytest.raises(JavaError) as refused:
                second.take(1)

    assert "UnreleasedInstanceIdException" in refused.value.errors


def test_the_group_is_described_and_deleted_as_what_it_is(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    settings: dict[str, Any] = {
        "group_id": group,
        "group_protocol": "consumer",
        "client_id": "reader",
    }
    with java.admin(broker.address) as admin:
        with java.consumer(broker.address, **settings) as consumer:
            consumer.ask("subscribe", topic=topic)
            consumer.take(len(samples()))
            consumer.ask("commit")
            described = admin.ask("describe_group", group=group)
            with pytest.raises(JavaError) as refused:
                admin.ask("delete_group", group=group)
        emptied = admin.ask("list_groups")[group]
        offsets = admin.ask("group_offsets", group=group)
        admin.ask("delete_group", group=group)
        left = admin.ask("list_groups")

    assert (described["state"], described["type"]) == ("Stable", "Consumer")
    assert [item["client_id"] for item in described["members"]] == ["reader"]
    assert described["members"][0]["partitions"] == list(range(PARTITIONS))
    assert "GroupNotEmptyException" in refused.value.errors
    assert emptied == ["Empty", "Consumer"]
    assert offsets[f"{topic}-0"] == len(samples())
    assert group not in left


def test_an_assignor_that_the_broker_does_not_have_is_refused(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    java.write(broker.address, topic, samples())
    settings: dict[str, Any] = {
        "group_id": group,
        "group_protocol": "consumer",
        "group_remote_assignor": "fair",
    }
    with java.consumer(broker.address, **settings) as consumer:
        consumer.ask("subscribe", topic=topic)
        with pytest.raises(JavaError) as refused:
            consumer.take(1)

    assert "UnsupportedAssignorException" in refused.value.errors


def test_a_pattern_finds_the_topics_it_names(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    for name in (f"wanted.{topic}.a", f"wanted.{topic}.b", f"other.{topic}"):
        java.write(broker.address, name, samples()[:1])

    with java.consumer(broker.address, group_id=group, group_protocol="consumer") as consumer:
        consumer.ask("subscribe", pattern=rf"wanted\.{topic}\..*")
        taken = consumer.take(2)

    assert {record.topic for record in taken} == {f"wanted.{topic}.a", f"wanted.{topic}.b"}


@pytest.mark.parametrize("release", [NEWEST], ids=[NEWEST.line], indirect=True)
def test_a_pattern_is_matched_by_the_broker(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    """Also for a topic that comes later. Clients before 4.0 have no way to ask for it."""
    java.write(broker.address, f"wanted.{topic}.a", samples()[:1])
    java.write(broker.address, f"other.{topic}", samples()[:1])

    with java.consumer(broker.address, group_id=group, group_protocol="consumer") as consumer:
        consumer.ask("subscribe", broker_pattern=rf"wanted\.{topic}\..*")
        first = consumer.take(1)
        java.write(broker.address, f"wanted.{topic}.b", samples()[:1])
        later = consumer.take(1)

    assert [record.topic for record in first + later] == [f"wanted.{topic}.a", f"wanted.{topic}.b"]


def test_a_group_is_taken_over_from_the_classic_protocol_once_it_is_empty(
    java: Java, broker: BrokerProcess, topic: str, group: str
) -> None:
    sent = samples()
    java.write(broker.address, topic, sent)
    with java.consumer(broker.address, group_id=group, max_poll_records=2) as consumer:
        consumer.ask("subscribe", topic=topic)
        consumer.take(2)
        consumer.ask("commit")

    with java.consumer(broker.address, group_id=group, group_protocol="consumer") as consumer:
        consumer.ask("subscribe", topic=topic)
        remaining = consumer.take(len(sent) - 2)

    assert [record.sample for record in remaining] == sent[2:]


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        ("classic", "consumer", "GroupIdNotFoundException"),
        ("consumer", "classic", "InconsistentGroupProtocolException"),
    ],
)
def test_a_group_that_has_members_speaks_one_protocol(
    java: Java, broker: BrokerProcess, topic: str, group: str, first: str, second: str, error: str
) -> None:
    java.write(broker.address, topic, samples())
    with (
        java.consumer(broker.address, group_id=group, group_protocol=first) as member,
        java.consumer(broker.address, group_id=group, group_protocol=second) as stranger,
    ):
        member.ask("subscribe", topic=topic)
        member.take(1)
        stranger.ask("subscribe", topic=topic)
        with pytest.raises(JavaError) as refused:
            stranger.take(1)

    assert error in refused.value.errors

"""Views and filters through the SDK: both are read like topics, and a filter creates none."""

from typing import Any
from uuid import uuid4

import pytest

from millstream.client import Client, NotFound, Refused
from millstream.view_names import view_name
from tests.client.conftest import MEMBER, PARTITIONS

HEAVY = "$.kg > 5"


@pytest.fixture
def loads(client: Client, topic: str) -> str:
    client.set_serde("json", topic=topic)
    with client.producer() as producer:
        for kg in range(10):
            producer.send(topic, {"kg": kg}, key=str(kg).encode())
    return topic


def test_a_consumer_with_a_filter_gets_what_the_broker_let_through(
    client: Client, loads: str
) -> None:
    with client.consumer(loads, filter=HEAVY) as consumer:
        taken = consumer.take(4)

    assert sorted(message.value["kg"] for message in taken) == [6, 7, 8, 9]


def test_reading_through_a_filter_creates_nothing_and_blocks_no_deletion(
    client: Client, loads: str, group: str
) -> None:
    before = client.admin.list_topics()
    with client.consumer(loads, filter=HEAVY) as consumer:
        consumer.take(4)
        with client.consumer(loads, filter=HEAVY, group=group, **MEMBER) as member:
            assert len(member.take(4)) == 4
        assert client.admin.list_topics() == before

    assert client.views.list() == ()
    client.admin.delete_topic(loads)


def test_a_filtered_name_is_read_like_a_topic(client: Client, loads: str, group: str) -> None:
    """So any Kafka client can filter in the broker."""
    name = f"{loads} where {HEAVY}"

    with client.consumer(name, value_serde="json") as consumer:
        assert len(consumer.take(4)) == 4
    with client.consumer(name, group=group, value_serde="json", **MEMBER) as consumer:
        assert len(consumer.take(4)) == 4
    topic_view = client.admin.describe_topic(name)

    assert len(topic_view.partitions) == PARTITIONS
    assert {"view.of": loads, "view.where": HEAVY}.items() <= {
        setting.name: setting.value for setting in topic_view.settings
    }.items()
    with pytest.raises(NotFound):
        client.admin.delete_topic(name)
    with pytest.raises(NotFound):
        client.admin.alter_topic(name, {"view.where": "key"})


def test_automatic_views_of_older_clients_go_with_their_topic(client: Client, loads: str) -> None:
    client.views.create(view_name(loads, HEAVY), of=loads, where=HEAVY)

    client.admin.delete_topic(loads)

    assert loads not in {topic.name for topic in client.admin.list_topics()}
    assert client.views.list() == ()


def test_a_filter_that_librdkafka_could_not_name_is_refused_with_the_way_out(
    client: Client, loads: str
) -> None:
    with pytest.raises(Refused, match="millstream view create"):
        client.consumer(loads, filter=f"value contains '{'x' * 512}'")


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_filter_is_refused(client: Client, loads: str, empty: str) -> None:
    with pytest.raises(Refused, match="empty"):
        client.consumer(loads, filter=empty)


def test_members_of_a_group_share_what_passes(client: Client, loads: str, group: str) -> None:
    with client.consumer(loads, filter=HEAVY, group=group, **MEMBER) as consumer:
        first = consumer.take(4)
    client.produce(loads, {"kg": 100})
    with client.consumer(loads, filter=HEAVY, group=group, **MEMBER) as consumer:
        second = consumer.take(1)

    assert sorted(message.value["kg"] for message in first) == [6, 7, 8, 9]
    assert [message.value["kg"] for message in second] == [100]


def test_a_view_is_made_described_read_and_deleted(client: Client, loads: str) -> None:
    name = f"heavy-{uuid4()}"

    client.views.create(name, of=loads, where=HEAVY)

    assert client.views.describe(name).where == HEAVY
    with client.consumer(name, value_serde="json") as consumer:
        assert len(consumer.take(4)) == 4
    client.views.delete(name)
    with pytest.raises(NotFound):
        client.views.describe(name)


def test_a_topic_is_no_view_and_is_not_deleted_as_one(client: Client, loads: str) -> None:
    with pytest.raises(NotFound, match="no view"):
        client.views.delete(loads)

    assert client.admin.describe_topic(loads).name == loads


def test_a_filter_needs_names_and_a_topic_that_is_there(client: Client, loads: str) -> None:
    with pytest.raises(Refused, match="is a pattern"):
        client.consumer("orders.>", filter=HEAVY)
    with pytest.raises(NotFound):
        client.consumer(f"nothing-{uuid4()}", filter=HEAVY)
    with pytest.raises(Refused, match="at character 6"):
        client.consumer(loads, filter="$.kg ? 5")


def test_nothing_is_sent_to_a_view(client: Client, loads: str) -> None:
    name = f"all-{uuid4()}"
    client.views.create(name, of=loads, where=HEAVY)

    with pytest.raises(Refused):
        client.produce(name, b"x")
    with pytest.raises(Refused):
        client.produce(f"{loads} where {HEAVY}", b"x")
    client.views.delete(name)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_either_protocol_goes_on_through_a_filter(
    client: Client, loads: str, group: str, protocol: str
) -> None:
    member = MEMBER if protocol == "classic" else {}
    settings: dict[str, Any] = {**member, "group.protocol": protocol}
    with client.consumer(loads, filter=HEAVY, group=group, **settings) as consumer:
        assert len(consumer.take(4)) == 4
    client.produce(loads, {"kg": 100})

    with client.consumer(loads, filter=HEAVY, group=group, **settings) as consumer:
        assert [message.value["kg"] for message in consumer.take(1)] == [100]

"""Views and filters through the SDK: made on demand, shared, and read like topics."""

from uuid import uuid4

import pytest

from millstream.client import Client, NotFound, Refused, View
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
        found = consumer.take(4)

    assert sorted(message.value["kg"] for message in found) == [6, 7, 8, 9]


def test_who_asks_with_the_same_filter_reads_the_same_view(client: Client, loads: str) -> None:
    before = client.views.list()
    for _ in range(2):
        client.consumer(loads, filter=HEAVY).close()

    (made,) = [one for one in client.views.list() if one not in before]

    assert made == View(
        name=client.views.ensure(loads, HEAVY)[loads],
        topic=loads,
        where=HEAVY,
        partition_count=PARTITIONS,
    )


def test_a_view_that_was_altered_is_not_taken_for_what_was_asked_for(
    client: Client, loads: str
) -> None:
    (name,) = client.views.ensure(loads, HEAVY).values()
    client.admin.alter_topic(name, {"view.where": "$.kg > 7"})

    with pytest.raises(Refused, match="was altered"):
        client.consumer(loads, filter=HEAVY)

    client.views.delete(name)
    client.consumer(loads, filter=HEAVY).close()


def test_a_topic_in_the_place_of_a_view_is_not_read_for_it(client: Client, loads: str) -> None:
    other = "$.kg > 8"
    client.admin.create_topic(view_name(loads, other))

    with pytest.raises(NotFound, match="is no view"):
        client.consumer(loads, filter=other)


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
    with pytest.raises(Refused, match="not a topic"):
        client.consumer(f"nothing-{uuid4()}", filter=HEAVY)
    with pytest.raises(Refused, match="at character 6"):
        client.consumer(loads, filter="$.kg ? 5")


def test_nothing_is_sent_to_a_view(client: Client, loads: str) -> None:
    name = client.views.ensure(loads, HEAVY)[loads]

    with pytest.raises(Refused):
        client.produce(name, b"x")

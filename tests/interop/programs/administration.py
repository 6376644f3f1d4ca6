"""Administration: topics, settings, offsets and groups, and refusals by their Kafka names.

A folder's test module subclasses `Administration` and adds the calls that only its client has.
"""

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.programs.process import Program, Refused, from_wire, plain
from tests.support.broker_process import BrokerProcess


class Administration:
    def test_the_cluster_is_one_node_at_the_dialled_address(
        self, broker: BrokerProcess, client: Program
    ) -> None:
        cluster = client.call("cluster")

        assert cluster["nodes"] == [[1, broker.host, broker.port]]
        assert cluster["controller"] == 1
        assert cluster["cluster_id"]

    def test_a_topic_is_created_grown_and_deleted(self, client: Program, topic: str) -> None:
        client.call("create_topic", topic=topic, partitions=2)
        created = client.call("partition_count", topic=topic)
        with pytest.raises(Refused) as there:
            client.call("create_topic", topic=topic, partitions=2)
        client.call("grow_topic", topic=topic, partitions=4)
        grown = client.call("partition_count", topic=topic)
        with pytest.raises(Refused) as shrunk:
            client.call("grow_topic", topic=topic, partitions=3)
        client.call("delete_topic", topic=topic)
        with pytest.raises(Refused) as gone:
            client.call("delete_topic", topic=topic)

        assert (created, grown) == (2, 4)
        assert there.value.name == "TOPIC_ALREADY_EXISTS"
        assert shrunk.value.name == "INVALID_PARTITIONS"
        assert gone.value.name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert topic not in client.call("topics")

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"topic": "no/slash", "partitions": 1}, "INVALID_TOPIC_EXCEPTION"),
            ({"topic": "too-few", "partitions": 0}, "INVALID_PARTITIONS"),
            (
                {"topic": "too-many", "partitions": 1, "replicas": 3},
                "INVALID_REPLICATION_FACTOR",
            ),
            (
                {"topic": "bad", "partitions": 1, "settings": {"retention.ms": "x"}},
                "INVALID_CONFIG",
            ),
        ],
    )
    def test_a_topic_that_cannot_be_is_refused(
        self, client: Program, arguments: dict[str, object], error: str
    ) -> None:
        with pytest.raises(Refused) as refused:
            client.call("create_topic", **arguments)

        assert refused.value.name == error

    def test_settings_of_a_topic_are_described_and_altered(
        self, client: Program, topic: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1, settings={"retention.ms": "5000"})
        before = client.call("settings", topic=topic)
        client.call("alter", topic=topic, settings={"retention.ms": "6000"})
        after = client.call("settings", topic=topic)
        with pytest.raises(Refused) as refused:
            client.call("alter", topic=topic, settings={"retention.ms": "soon"})

        assert (before["retention.ms"], after["retention.ms"]) == ("5000", "6000")
        assert before["cleanup.policy"] == "delete"
        assert refused.value.name == "INVALID_CONFIG"

    def test_deleted_records_are_gone(self, client: Program, topic: str) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        client.call("produce", topic=topic, records=plain("abcdef"))

        client.call("delete_records", topic=topic, offset=4)
        answer = client.call("read", topic=topic, offset=4, count=2)
        with pytest.raises(Refused) as refused:
            client.call("delete_records", topic=topic, offset=99)

        assert client.call("offsets", topic=topic) == [4, 6]
        assert [record.value for record in from_wire(answer)] == [b"e", b"f"]
        assert refused.value.name == "OFFSET_OUT_OF_RANGE"

    def test_a_group_is_listed_and_described_then_emptied_and_deleted(
        self, client: Program, topic: str, group: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=PARTITIONS)
        client.call("member_start", member="one", group=group, topic=topic)
        owners = client.ownership
        client.wait(lambda: owners.is_shared_by(["one"], PARTITIONS), "it owns all")
        described = client.call("group", group=group)
        with pytest.raises(Refused) as refused:
            client.call("delete_group", group=group)
        client.call("member_stop", member="one")
        listed = client.call("groups")
        emptied = client.call("group", group=group)
        client.call("delete_group", group=group)
        with pytest.raises(Refused) as gone:
            client.call("delete_group", group=group)

        assert described == {
            "state": "Stable",
            "members": 1,
            "partitions": list(range(PARTITIONS)),
        }
        assert refused.value.name == "NON_EMPTY_GROUP"
        assert group in listed
        assert (emptied["state"], emptied["members"]) == ("Empty", 0)
        assert group not in client.call("groups")
        assert gone.value.name == "GROUP_ID_NOT_FOUND"

"""franz-go's kadm asks about the cluster and changes it."""

import pytest

from tests.interop.programs.administration import Administration
from tests.interop.programs.process import Program, Refused, plain, to_wire
from tests.interop.samples import samples

pytestmark = pytest.mark.interop


class TestAdministration(Administration):
    def test_the_record_with_the_newest_time_is_found(self, client: Program, topic: str) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        sent = samples()
        client.call("produce", topic=topic, records=to_wire(sent))

        answer = client.call("max_timestamp", topic=topic)

        assert answer == [len(sent) - 1, sent[-1].timestamp_ms]

    def test_the_lag_of_a_group_is_what_it_has_not_committed(
        self, client: Program, topic: str, group: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        client.call("produce", topic=topic, records=plain("abcdef"))
        client.call("commit", group=group, topic=topic, offset=2)

        assert client.call("lag", group=group, topic=topic) == 4

    def test_offsets_of_a_group_are_deleted(self, client: Program, topic: str, group: str) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        client.call("commit", group=group, topic=topic, offset=2)

        client.call("delete_group_offsets", group=group, topic=topic)

        assert client.call("committed", group=group, topic=topic) == []

    def test_the_log_of_a_topic_has_a_size(self, client: Program, topic: str) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        client.call("produce", topic=topic, records=plain(["x" * 10_000]))

        assert client.call("log_bytes", topic=topic) > 10_000

    def test_an_election_where_the_preferred_replica_leads_is_not_needed(
        self, client: Program, topic: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1)

        with pytest.raises(Refused) as refused:
            client.call("elect_leaders", topic=topic)

        assert refused.value.name == "ELECTION_NOT_NEEDED"

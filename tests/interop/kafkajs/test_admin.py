"""kafkajs asks about the cluster and changes it."""

import pytest

from tests.interop.programs.administration import Administration
from tests.interop.programs.process import Program, plain

pytestmark = pytest.mark.interop


class TestAdministration(Administration):
    def test_a_group_is_reset_to_the_start(self, client: Program, topic: str, group: str) -> None:
        """kafkajs commits the offset -2 for it, and goes by it when it reads it back."""
        client.call("create_topic", topic=topic, partitions=1)
        client.call("produce", topic=topic, records=plain("abcdef"))
        client.call("commit", group=group, topic=topic, offset=2)

        client.call("reset", group=group, topic=topic, earliest=True)
        client.call("member_start", member="reader", group=group, topic=topic)
        client.wait(lambda: len(client.records) == 6, "all is read")

        assert client.values_of("reader") == list("abcdef")

    def test_no_partition_is_being_moved(self, client: Program, topic: str) -> None:
        client.call("create_topic", topic=topic, partitions=1)

        assert client.call("reassignments", topic=topic) == []

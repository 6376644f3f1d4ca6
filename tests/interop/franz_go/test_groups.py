"""franz-go in groups, balanced by its members and by the broker."""

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.programs.groups import Groups
from tests.interop.programs.process import Program
from tests.interop.samples import needs

pytestmark = pytest.mark.interop
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
STRATEGIES = ["range", "cooperative-sticky"]


class TestGroups(Groups):
    @pytest.fixture(params=STRATEGIES)
    def strategy(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def test_a_commit_carries_its_metadata(self, client: Program, topic: str, group: str) -> None:
        client.call("create_topic", topic=topic, partitions=1)

        client.call("commit", group=group, topic=topic, offset=2, metadata="half way")

        assert client.call("committed", group=group, topic=topic) == [[0, 2, "half way"]]

    def test_a_member_that_speaks_another_protocol_is_refused(
        self, client: Program, topic: str, group: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=PARTITIONS)
        options = {"group": group, "topic": topic}
        client.call("member_start", member="first", strategy="range", **options)
        client.wait(lambda: client.ownership.is_shared_by(["first"], PARTITIONS), "it owns all")

        client.call("member_start", member="other", strategy="cooperative-sticky", **options)
        client.wait(lambda: bool(client.errors), "the other is refused")

        assert client.errors[0] == "INCONSISTENT_GROUP_PROTOCOL"


@needs(CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE)
class TestGroupsBalancedByTheBroker(Groups):
    """The consumer protocol of KIP-848."""

    @pytest.fixture
    def strategy(self) -> str:
        return "server"

    def test_the_group_is_described_as_the_broker_balances_it(
        self, client: Program, topic: str, group: str, strategy: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=PARTITIONS)
        client.call("member_start", member="one", group=group, topic=topic, strategy=strategy)
        client.wait(lambda: client.ownership.is_shared_by(["one"], PARTITIONS), "it owns all")

        described = client.call("describe_server_group", group=group, topic=topic)

        assert described["members"] == 1
        assert described["partitions"] == list(range(PARTITIONS))
        assert described["state"] == "Stable"

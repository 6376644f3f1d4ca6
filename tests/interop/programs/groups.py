"""Groups: members come and go, no partition has two owners, and nothing is lost.

A folder's test module subclasses `Groups` and makes the client's strategies its parameters.
"""

from collections.abc import Callable

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.programs.fixtures import Start
from tests.interop.programs.process import Program, Refused, plain
from tests.support.broker_process import BrokerProcess

LEAVES = pytest.mark.parametrize(
    "leave", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill -9"]
)
ALL = range(PARTITIONS)


def write_to_all(client: Program, topic: str, first: int, count: int = 60) -> set[str]:
    values = [f"{number}" for number in range(first, first + count)]
    records = [plain([value], at % PARTITIONS)[0] for at, value in enumerate(values)]
    client.call("produce", topic=topic, records=records)
    return set(values)


class Groups:
    # A client that commits before each revocation: no record is read again.
    reads_once = True

    @pytest.fixture
    def strategy(self) -> str | None:
        """None is what the client does by itself."""
        return None

    def test_a_group_shares_partitions_while_a_member_joins_and_leaves(
        self, client: Program, topic: str, group: str, strategy: str | None
    ) -> None:
        client.call("create_topic", topic=topic, partitions=PARTITIONS)
        settings = {"group": group, "topic": topic, "strategy": strategy}
        owners = client.ownership
        written = write_to_all(client, topic, 0)

        client.call("member_start", member="first", **settings)
        client.wait(lambda: owners.is_shared_by(["first"], PARTITIONS), "one owns all")
        client.call("member_start", member="second", **settings)
        client.wait(lambda: owners.is_shared_by(["first", "second"], PARTITIONS), "both own some")
        written |= write_to_all(client, topic, 60)
        client.wait(lambda: written <= set(client.values_of("first", "second")), "both read")
        shared = len(client.values_of("second"))
        client.call("member_stop", member="second")
        written |= write_to_all(client, topic, 120)
        client.wait(lambda: owners.is_shared_by(["first"], PARTITIONS), "one owns all again")
        client.wait(lambda: written <= set(client.values_of("first", "second")), "all is read")

        read = client.values_of("first", "second")
        assert owners.clashes == []
        assert shared > 0
        assert set(read) == written
        assert len(read) == len(written) or not self.reads_once

    def test_what_a_killed_member_owned_goes_to_the_one_that_lives(
        self, start: Start, topic: str, group: str, strategy: str | None
    ) -> None:
        client, doomed = start(), start()
        client.call("create_topic", topic=topic, partitions=PARTITIONS)
        settings = {"group": group, "topic": topic, "strategy": strategy}
        doomed.call("member_start", member="doomed", **settings)
        doomed.wait(lambda: doomed.ownership.is_shared_by(["doomed"], PARTITIONS), "it owns all")
        client.call("member_start", member="heir", **settings)
        doomed.wait(lambda: len(doomed.ownership.of("doomed")) < PARTITIONS, "it shares")

        doomed.kill()
        written = write_to_all(client, topic, 0)
        client.wait(lambda: written <= set(client.values_of("heir")), "the heir reads all")

        assert client.ownership.of("heir") == set(ALL)

    @LEAVES
    def test_committed_offsets_and_acknowledged_records_outlive_the_broker(
        self,
        broker: BrokerProcess,
        client: Program,
        topic: str,
        group: str,
        leave: Callable[[BrokerProcess], None],
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        client.call("produce", topic=topic, records=plain("abcdef"))
        client.call("commit", group=group, topic=topic, offset=3)

        leave(broker)
        broker.start()

        assert [row[:2] for row in client.call("committed", group=group, topic=topic)] == [[0, 3]]
        client.call("member_start", member="reader", group=group, topic=topic)
        client.wait(lambda: len(client.records) == 3, "the rest is read")
        assert client.values_of("reader") == list("def")

    @LEAVES
    def test_members_that_stay_go_on_when_the_broker_is_back(
        self,
        broker: BrokerProcess,
        client: Program,
        topic: str,
        group: str,
        strategy: str | None,
        leave: Callable[[BrokerProcess], None],
    ) -> None:
        client.call("create_topic", topic=topic, partitions=PARTITIONS)
        written = write_to_all(client, topic, 0)
        client.call("member_start", member="stays", group=group, topic=topic, strategy=strategy)
        client.wait(lambda: written <= set(client.values_of("stays")), "all is read before")

        leave(broker)
        broker.start()

        written |= write_to_all(client, topic, 60)
        client.wait(lambda: written <= set(client.values_of("stays")), "all is read after")
        assert client.ownership.clashes == []

    def test_a_session_timeout_below_what_the_broker_allows_is_refused(
        self, client: Program, topic: str, group: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1)

        try:
            client.call("member_start", member="hasty", group=group, topic=topic, session_ms=1_000)
            client.wait(lambda: bool(client.errors), "it is refused")
        except Refused as refused:
            client.errors.append(refused.name)

        assert client.errors[0] == "INVALID_SESSION_TIMEOUT"

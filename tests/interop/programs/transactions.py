"""Transactions: seen whole or not at all, fenced by the next producer, and with their offsets.

A folder's test module subclasses `Transactions`. Readers use read_committed, unless
a test says otherwise.
"""

import pytest

from tests.interop.programs.process import Program, Refused, from_wire, plain
from tests.support.broker_process import BrokerProcess

# Which of the two depends on the versions that the client speaks.
FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


def values(client: Program, topic: str, count: int, *, committed: bool = True) -> list[str]:
    answer = client.call("read", topic=topic, count=count, committed=committed)
    return [(record.value or b"").decode() for record in from_wire(answer)]


class Transactions:
    @pytest.fixture
    def source(self, client: Program, topic: str) -> str:
        client.call("create_topic", topic=topic, partitions=2)
        return topic

    @pytest.fixture
    def producer(self, client: Program, source: str) -> str:
        """A transactional producer; its name is its transactional id."""
        client.call("transaction_open", member=source, transactional_id=source)
        return source

    def write(self, client: Program, producer: str, words: str, partition: int = 0) -> None:
        records = plain(words.split(), partition)
        client.call("transaction_send", member=producer, topic=producer, records=records)

    def test_an_open_transaction_holds_readers_back_until_it_commits(
        self, client: Program, source: str, group: str, producer: str
    ) -> None:
        client.call("transaction_begin", member=producer)
        self.write(client, producer, "a b")
        client.call("produce", topic=source, records=plain(["behind"]))
        client.call("member_start", member="reader", group=group, topic=source, committed=True)
        client.call("produce", topic=source, records=plain(["elsewhere"], 1))
        client.wait(lambda: len(client.records) > 0, "the other partition is read")
        before = client.values_of("reader")

        client.call("transaction_commit", member=producer)
        client.wait(lambda: len(client.records) == 4, "all is read")

        assert before == ["elsewhere"]
        assert client.values_of("reader") == ["elsewhere", "a", "b", "behind"]

    def test_what_was_aborted_is_read_by_those_who_do_not_mind_only(
        self, client: Program, source: str, producer: str
    ) -> None:
        for words, end in (("gone never", "abort"), ("kept", "commit"), ("gone", "abort")):
            client.call("transaction_begin", member=producer)
            self.write(client, producer, words)
            client.call(f"transaction_{end}", member=producer)
        client.call("produce", topic=source, records=plain(["last"]))

        assert values(client, source, 2) == ["kept", "last"]
        assert values(client, source, 5, committed=False) == [
            "gone",
            "never",
            "kept",
            "gone",
            "last",
        ]

    def test_one_transaction_covers_several_partitions(
        self, client: Program, source: str, group: str, producer: str
    ) -> None:
        client.call("transaction_begin", member=producer)
        self.write(client, producer, "left", 0)
        self.write(client, producer, "right", 1)
        client.call("transaction_commit", member=producer)

        client.call("member_start", member="reader", group=group, topic=source, committed=True)
        client.wait(lambda: len(client.records) == 2, "both are read")
        assert set(client.values_of("reader")) == {"left", "right"}

    def test_a_producer_is_fenced_by_the_next_one_of_its_name(
        self, client: Program, source: str, producer: str
    ) -> None:
        client.call("transaction_begin", member=producer)
        self.write(client, producer, "stale")
        client.call("transaction_open", member="next", transactional_id=producer)

        with pytest.raises(Refused) as refused:
            client.call("transaction_commit", member=producer)
        client.call("transaction_begin", member="next")
        client.call("transaction_send", member="next", topic=source, records=plain(["fresh"]))
        client.call("transaction_commit", member="next")

        assert refused.value.name in FENCED
        assert values(client, source, 1) == ["fresh"]

    @pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "abort"])
    def test_offsets_in_a_transaction_share_its_fate(
        self, client: Program, source: str, group: str, is_committed: bool
    ) -> None:
        target = f"{source}-target"
        client.call("create_topic", topic=target, partitions=1)
        client.call("produce", topic=source, records=plain(["a", "b", "c"]))
        settings = {"group": group, "topic": source, "target": target, "count": 3}

        client.call("relay", transactional_id=f"relay-{source}", committed=is_committed, **settings)
        first = client.call("committed", group=group, topic=source)
        client.call("produce", topic=target, records=plain(["end"]))

        offsets = {partition: offset for partition, offset, _ in first}
        if is_committed:
            assert offsets[0] == 3
            assert values(client, target, 4) == ["a", "b", "c", "end"]
        else:
            assert offsets.get(0, -1) == -1
            assert values(client, target, 1) == ["end"]

    def test_an_aborted_relay_is_done_again_from_the_same_place(
        self, client: Program, source: str, group: str
    ) -> None:
        target = f"{source}-target"
        client.call("create_topic", topic=target, partitions=1)
        client.call("produce", topic=source, records=plain(["a", "b"]))
        settings = {"group": group, "topic": source, "target": target, "count": 2}

        for is_committed in (False, True):
            client.call(
                "relay", transactional_id=f"relay-{source}", committed=is_committed, **settings
            )

        assert values(client, target, 2) == ["a", "b"]

    def test_a_committed_transaction_outlives_a_killed_broker_and_an_open_one_can_be_ended(
        self, broker: BrokerProcess, client: Program, source: str, producer: str
    ) -> None:
        client.call("transaction_begin", member=producer)
        self.write(client, producer, "kept")
        client.call("transaction_commit", member=producer)
        client.call("transaction_begin", member=producer)
        self.write(client, producer, "open")

        broker.kill()
        broker.start()

        client.call("transaction_commit", member=producer)
        assert values(client, source, 2) == ["kept", "open"]

    def test_what_a_lost_producer_left_open_is_aborted_when_its_time_is_over(
        self, client: Program, source: str
    ) -> None:
        client.call(
            "transaction_open", member="lost", transactional_id=f"lost-{source}", timeout_ms=1_000
        )
        client.call("transaction_begin", member="lost")
        client.call("transaction_send", member="lost", topic=source, records=plain(["gone"]))
        client.call("produce", topic=source, records=plain(["after"]))

        assert values(client, source, 1) == ["after"]

    def test_a_timeout_beyond_what_the_broker_allows_is_refused(
        self, client: Program, topic: str
    ) -> None:
        with pytest.raises(Refused) as refused:
            client.call(
                "transaction_open", member="slow", transactional_id=topic, timeout_ms=3_600_000
            )

        assert refused.value.name == "INVALID_TRANSACTION_TIMEOUT"

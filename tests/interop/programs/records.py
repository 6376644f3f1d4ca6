"""Records: what a client writes comes back as it was, in every codec and for every acks.

A folder's test module subclasses `Records`, which makes pytest collect it there.
"""

from pathlib import Path

import pytest

from tests.interop.conftest import PARTITIONS
from tests.interop.programs.lost_answers import losing_the_first_answer
from tests.interop.programs.process import Program, Refused, from_wire, plain, to_wire
from tests.interop.samples import CODECS, samples


class Records:
    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    @pytest.mark.parametrize("codec", CODECS)
    def test_records_come_back_as_they_were_sent(
        self, client: Program, topic: str, codec: str, acks: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        sent = samples()

        client.call("produce", topic=topic, codec=codec, acks=acks, records=to_wire(sent))
        answer = client.call("read", topic=topic, count=len(sent))

        assert from_wire(answer) == sent
        assert [row["offset"] for row in answer] == list(range(len(sent)))

    def test_a_topic_is_made_by_the_first_record(self, client: Program, topic: str) -> None:
        client.call("produce", topic=topic, records=plain(["first"]), create=True)

        assert client.call("partition_count", topic=topic) == PARTITIONS

    def test_reports_tell_where_each_record_lies(self, client: Program, topic: str) -> None:
        client.call("create_topic", topic=topic, partitions=2)

        first = client.call("produce", topic=topic, records=plain(["a"], partition=1))
        second = client.call("produce", topic=topic, records=plain(["b"], partition=1))

        assert first + second == [[1, 0], [1, 1]]

    def test_equal_keys_land_in_one_partition_and_stay_in_order(
        self, client: Program, topic: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=PARTITIONS)
        keyed = [
            sample | {"partition": None, "key": plain([f"key-{at % 10}"])[0]["value"]}
            for at, sample in enumerate(plain(f"{at}" for at in range(100)))
        ]

        client.call("produce", topic=topic, records=keyed)
        homes: dict[str, list[int]] = {}
        for partition in range(PARTITIONS):
            _, end = client.call("offsets", topic=topic, partition=partition)
            answer = client.call("read", topic=topic, partition=partition, count=end)
            for row, sample in zip(answer, from_wire(answer), strict=True):
                assert sample.value is not None
                homes.setdefault(f"{row['key']}-{partition}", []).append(int(sample.value))

        assert len(homes) == 10
        assert sum(len(numbers) for numbers in homes.values()) == 100
        assert all(numbers == sorted(numbers) for numbers in homes.values())

    def test_a_reader_finds_the_first_record_at_or_after_a_time(
        self, client: Program, topic: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        sent = samples()
        client.call("produce", topic=topic, records=to_wire(sent))
        second_ms = sent[2].timestamp_ms

        answer = client.call("read", topic=topic, time_ms=second_ms, count=len(sent) - 2)
        between = client.call("offset_at", topic=topic, time_ms=second_ms + 1)

        assert from_wire(answer) == sent[2:]
        assert between == 3

    def test_an_idempotent_producer_writes_each_record_once(
        self, client: Program, topic: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1)
        values = [f"{at}" for at in range(500)]

        client.call("produce", topic=topic, acks="all", idempotent=True, records=plain(values))
        records = from_wire(client.call("read", topic=topic, count=len(values)))

        assert [item.value for item in records] == [value.encode() for value in values]
        assert client.call("offsets", topic=topic) == [0, len(values)]

    def test_a_batch_whose_answer_was_lost_is_written_once(
        self, command: list[str | Path], tmp_path: Path, topic: str
    ) -> None:
        with losing_the_first_answer(tmp_path) as forwarder:
            address = f"127.0.0.1:{forwarder.port}"
            client = Program(command, address, tmp_path / "client.log")
            try:
                client.call("create_topic", topic=topic, partitions=1)
                settings = {"topic": topic, "acks": "all", "idempotent": True}
                first = client.call("produce", records=plain("ab"), **settings)
                end = client.call("offsets", topic=topic)
            finally:
                client.kill()

        assert forwarder.lost_count == 1
        assert first[0] == [0, 0]
        assert end == [0, 2]

    def test_a_record_too_large_for_the_topic_is_refused_and_the_next_one_taken(
        self, client: Program, topic: str
    ) -> None:
        client.call("create_topic", topic=topic, partitions=1)

        with pytest.raises(Refused) as refused:
            client.call("produce", topic=topic, records=plain(["x" * 2_000_000]))
        taken = client.call("produce", topic=topic, records=plain(["small"]))

        assert refused.value.name == "MESSAGE_TOO_LARGE"
        assert taken == [[0, 0]]

    def test_a_record_without_a_key_is_refused_by_a_compacted_topic(
        self, client: Program, topic: str
    ) -> None:
        client.call(
            "create_topic", topic=topic, partitions=1, settings={"cleanup.policy": "compact"}
        )

        with pytest.raises(Refused) as refused:
            client.call("produce", topic=topic, records=plain(["no key"]))

        assert refused.value.name == "INVALID_RECORD"

    def test_a_writer_that_makes_no_topics_is_told_of_an_unknown_one(
        self, client: Program, topic: str
    ) -> None:
        with pytest.raises(Refused) as refused:
            client.call("produce", topic=topic, records=plain(["x"]), create=False)

        assert refused.value.name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert topic not in client.call("topics")

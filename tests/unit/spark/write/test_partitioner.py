"""Rows go where Kafka's own producers send them, in their order."""

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as kafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import TopicPartition
from millstream.spark.errors import UnwritableRow
from millstream.spark.write.partitioner import Columns, Router, murmur2

COUNTS = {"a": 3, "b": 2}


def columns(
    values: list[bytes],
    *,
    keys: list[bytes | None] | None = None,
    topics: list[str | None] | None = None,
    partitions: list[int | None] | None = None,
) -> Columns:
    return Columns(
        pa.array(values, pa.binary()),
        None if keys is None else pa.array(keys, pa.binary()),
        None,
        None if topics is None else pa.array(topics, pa.string()),
        None if partitions is None else pa.array(partitions, pa.int32()),
    )


def routed(router: Router, rows: Columns) -> dict[TopicPartition, list[bytes]]:
    taken, shares = router.route(rows)
    values = taken.values.to_pylist()
    collected = {}
    for share in shares:
        collected[share.target], values = values[: share.count], values[share.count :]
    assert values == []
    return collected


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=50), st.integers(0, 5))
def test_the_hash_of_a_key_is_kafkas(keys: list[bytes], start: int) -> None:
    part = pa.array(keys, pa.binary()).slice(start)

    expected = [np.uint32(kafka_murmur2(key) & 0xFFFFFFFF) for key in keys[start:]]

    assert murmur2(part).view(np.uint32).tolist() == expected


def test_a_key_goes_where_kafka_sends_it() -> None:
    keys: list[bytes | None] = [b"key-%d" % at for at in range(200)]

    partitions = routed(
        Router("a", COUNTS.__getitem__), columns([k or b"" for k in keys], keys=keys)
    )

    for target, values in partitions.items():
        for value in values:
            assert (kafka_murmur2(value) & 0x7FFFFFFF) % 3 == target.partition


def test_rows_of_a_partition_keep_their_order() -> None:
    values = [b"%03d" % at for at in range(300)]
    keys: list[bytes | None] = [b"%d" % (at % 7) for at in range(300)]

    for routed_rows in routed(Router("a", COUNTS.__getitem__), columns(values, keys=keys)).values():
        assert routed_rows == sorted(routed_rows)


def test_rows_without_a_key_stay_together_and_take_turns() -> None:
    router = Router("a", COUNTS.__getitem__, turn=1)

    targets = [list(routed(router, columns([b"x", b"y"]))) for _ in range(4)]

    assert targets == [[TopicPartition("a", at)] for at in (1, 2, 0, 1)]


def test_the_partition_column_goes_before_the_key() -> None:
    rows = columns(
        [b"1", b"2", b"3"], keys=[b"k", b"k", None], partitions=[2, None, 0], topics=["a"] * 3
    )

    routed_rows = routed(Router(None, COUNTS.__getitem__), rows)

    by_key = (kafka_murmur2(b"k") & 0x7FFFFFFF) % 3
    assert b"1" in routed_rows[TopicPartition("a", 2)]
    assert b"2" in routed_rows[TopicPartition("a", by_key)]
    assert b"3" in routed_rows[TopicPartition("a", 0)]


@pytest.mark.parametrize("partition", [-1, 3, 2**31 - 1])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    rows = columns([b"1", b"2"], partitions=[0, partition])

    with pytest.raises(UnwritableRow, match=f"partition {partition} of a topic with 3"):
        Router("a", COUNTS.__getitem__).route(rows)


def test_the_topic_column_chooses_among_topics() -> None:
    rows = columns([b"1", b"2", b"3"], topics=["a", "b", "a"], partitions=[1, 1, 1])

    assert routed(Router(None, COUNTS.__getitem__), rows) == {
        TopicPartition("a", 1): [b"1", b"3"],
        TopicPartition("b", 1): [b"2"],
    }


def test_the_topic_option_goes_before_the_column() -> None:
    rows = columns([b"1"], topics=["b"], partitions=[0])

    assert list(routed(Router("a", COUNTS.__getitem__), rows)) == [TopicPartition("a", 0)]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(UnwritableRow, match="null topic present"):
        Router(None, COUNTS.__getitem__).route(columns([b"1", b"2"], topics=["a", None]))

"""Responses of a broker that a task cannot use: each fails it with the offsets and a way out."""

from collections.abc import Callable
from typing import cast

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from millstream.codec.batch import HEADER_BYTES, read_header, seal
from millstream.kafka_client.answers import Fetched
from millstream.kafka_client.cluster import Cluster
from millstream.model import TopicPartition
from millstream.spark.errors import DamagedRecords
from millstream.spark.read.offset_ranges import OffsetRange
from millstream.spark.read.range_reader import RangeReader
from tests.unit.spark.read.test_fetched import batch


class Response:
    """A cluster that answers every fetch with the same bytes."""

    def __init__(self, records: bytes) -> None:
        self._records = records

    def begin_fetch(self, _target: TopicPartition, _offset: int) -> Callable[[], Fetched]:
        return lambda: Fetched(memoryview(self._records), [])


def read(records: bytes) -> None:
    reader = RangeReader(
        cast(Cluster, Response(records)),
        StructType([StructField("value", BinaryType())]),
        poll_ms_max=1_000,
        fails_on_data_loss=False,
    )
    for _ in reader.read(OffsetRange("orders", 3, 2, 100)):
        pass


def test_bytes_that_fail_their_checksum_fail_the_task() -> None:
    damaged = bytearray(batch(0, 5))
    damaged[-1] ^= 1

    with pytest.raises(DamagedRecords, match=r"partition 3 of topic orders from offset 2 on"):
        read(bytes(damaged))


def test_records_that_cannot_be_decoded_are_named_by_their_batch() -> None:
    raw = batch(5, 5)
    payload = bytearray(raw[HEADER_BYTES:])
    payload[0] ^= 2  # The length of the first record; the checksum is made right again.
    header, prefix = seal(read_header(raw), bytes(payload))
    assert header.size == len(raw)

    with pytest.raises(DamagedRecords, match=r"partition 3 .* within offsets 5 to 9") as refusal:
        read(batch(0, 5) + prefix + bytes(payload))

    assert 'startingOffsets {"orders": {"3": 10}}' in str(refusal.value)

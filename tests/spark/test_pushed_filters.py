"""Why `WHERE` is not handed to the source, and what reads less in its place.

The first test is of Spark and not of ours: when it fails, Spark plans each scan by itself, and
`versions.PUSHED_FILTERS` can be reconsidered.
"""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructType

from millstream.client import connect
from millstream.kafka_client.cluster import Cluster
from millstream.spark.datasource import MillstreamSource
from millstream.spark.versions import PUSHED_FILTERS
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_clients import until

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
RECORDS = 4_000  # In each of two partitions.
T0_MS = 1_700_000_000_000
COLUMNS = StructType().add("value", BinaryType()).add("offset", LongType())


@pytest.mark.slow
def test_spark_gives_all_scans_of_a_frame_the_filters_of_the_first_that_pushed_some(
    spark: SparkSession,
) -> None:
    spark.dataSource.register(_numbers())
    spark.conf.set(PUSHDOWN, "true")
    try:
        frame = spark.read.format("pushed_numbers").load()
        alone = spark.read.format("pushed_numbers").load().where("n < 3").count()
        before, narrowed, after = frame.count(), frame.where("n < 3").count(), frame.count()
        view = spark.read.format("pushed_numbers").load()
        both = view.where("n < 3").union(view.where("n >= 3 and n < 5")).count()
    finally:
        spark.conf.unset(PUSHDOWN)

    assert alone == 3
    results = {"before": before, "narrowed": narrowed, "after": after, "union": both}
    assert results != {"before": 10, "narrowed": 3, "after": 10, "union": 5}, (
        "Spark counts right by now: see versions.PUSHED_FILTERS"
    )
    assert PUSHED_FILTERS.since is None


def _numbers() -> type:
    """Ten numbers. Filters are taken by the reader, which leaves out what does not match."""
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        GreaterThanOrEqual,
        InputPartition,
        LessThan,
    )

    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.first, self.end = 0, 10

        def pushFilters(self, filters: Any) -> Iterator[Any]:
            for pushed in filters:
                if isinstance(pushed, LessThan):
                    self.end = min(self.end, pushed.value)
                elif isinstance(pushed, GreaterThanOrEqual):
                    self.first = max(self.first, pushed.value)
                else:
                    yield pushed

        def partitions(self) -> list[InputPartition]:
            return [InputPartition((self.first, self.end))]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            return iter([(n,) for n in range(*partition.value)])

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushed_numbers"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    return Numbers


@pytest.mark.slow
def test_options_that_narrow_a_read_fetch_a_fraction_of_the_bytes(
    broker: BrokerProcess, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(topic, partitions=2, retention_ms=-1)
    for partition in (0, 1):
        for tenth in range(10):
            topics.send(
                topic,
                [json.dumps({"kg": tenth, "text": "x" * 100})] * (RECORDS // 10),
                partition=partition,
                key=b"k%d" % tenth,
                timestamp=T0_MS + tenth * 1_000,
                headers={"region": f"r{tenth}"},
            )

    def fetched(**options: str) -> tuple[int, int]:
        """Rows and bytes of a read, in this process in place of Spark's tasks."""
        sizes: list[int] = []
        original = Cluster._fetched

        def counted(self: Cluster, *arguments: Any) -> Any:
            answer = original(self, *arguments)
            sizes.append(len(answer.records))
            return answer

        servers = {"kafka.bootstrap.servers": broker.address}
        # Small fetches: a fetch may bring more than the range that is read.
        source = MillstreamSource(
            {**servers, "kafka.max.partition.fetch.bytes": "20000", **options}
        )
        with monkeypatch.context() as patch:
            patch.setattr(Cluster, "_fetched", counted)
            reader = source.reader(COLUMNS)
            batches: list[pa.RecordBatch] = [
                batch for part in reader.partitions() for batch in reader.read(part)
            ]
        return sum(batch.num_rows for batch in batches), sum(sizes)

    rows, whole = fetched(subscribe=topic)
    assert rows == 2 * RECORDS
    shares = {
        name: (read[0], read[1] / whole)
        for name, read in {
            "partition": fetched(assign=f'{{"{topic}": [1]}}'),
            "offset": fetched(
                subscribe=topic,
                startingOffsets=f'{{"{topic}": {{"0": 3600, "1": 3600}}}}',
            ),
            "timestamp": fetched(subscribe=topic, startingTimestamp=str(T0_MS + 9_000)),
            "key": fetched(subscribe=topic, brokerFilter="key == 'k3'"),
            "header": fetched(subscribe=topic, brokerFilter="header.region == 'r3'"),
            "json": fetched(subscribe=topic, brokerFilter="$.kg >= 9"),
        }.items()
    }

    print({name: (count, f"{share:.1%}") for name, (count, share) in shares.items()})
    tenth = 2 * RECORDS // 10
    assert {name: count for name, (count, _) in shares.items()} == {
        "partition": RECORDS,
        **dict.fromkeys(("offset", "timestamp", "key", "header", "json"), tenth),
    }
    assert shares["partition"][1] == pytest.approx(0.5, abs=0.05)
    for name in ("offset", "timestamp", "key", "header", "json"):
        assert shares[name][1] < 0.15, name


@pytest.mark.slow
def test_a_filter_of_an_indexed_key_has_the_broker_read_a_fraction_of_the_log(
    broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, retention_ms=-1, index_key="true")
    for tenth in range(10):
        topics.send(topic, ["x" * 100] * (RECORDS // 10), key=b"k%d" % tenth)
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
    where = "key == 'k3'"

    def rows() -> int:
        reader = MillstreamSource({**options, "brokerFilter": where}).reader(COLUMNS)
        parts = reader.partitions()
        return sum(batch.num_rows for part in parts for batch in reader.read(part))

    with connect(broker.address) as client:

        def is_spared() -> bool:
            """Whether the index spared most of the log in one more read."""
            before = client.filter_figures(topic, where)
            assert rows() == RECORDS // 10
            after = client.filter_figures(topic, where)
            read_bytes = after.read_bytes - before.read_bytes
            skipped_bytes = after.skipped_bytes - before.skipped_bytes
            return 0 < 3 * read_bytes < skipped_bytes

        until(is_spared, "the index of the key")

"""The two ways between Spark and the broker, told apart by a word and a few options.

Nothing that is measured knows more about them: both get the same session, broker, topics and rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

MILLSTREAM, CONNECTOR, PARQUET = "Millstream", "Kafka connector", "Parquet"
AT_LEAST_ONCE = "Millstream, at least once"
OURS_ALIKE_NAME, THEIRS_ALIKE_NAME = "Millstream, equal settings", "Kafka connector, equal settings"
MASTER = "local[2,4]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """A name in tables, Spark's name of it, and what source and sink get besides the topic."""

    name: str
    form: str
    source_options: Mapping[str, str] = field(default_factory=dict)
    stream_options: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)

    def read(self, spark: SparkSession, address: str, topic: str) -> DataFrame:
        return self._opened(spark.read, address, topic).load()

    def read_stream(
        self, spark: SparkSession, address: str, topic: str, **options: str
    ) -> DataFrame:
        reader = self._opened(spark.readStream, address, topic)
        chosen = {**self.stream_options, **options}
        return reader.option("startingOffsets", "earliest").options(**chosen).load()

    def sink(self, writer: Any, address: str, topic: str) -> Any:  # Batch and stream writers.
        opened = writer.format(self.form).option("kafka.bootstrap.servers", address)
        return opened.option("topic", topic).options(**self.sink_options)

    def _opened(self, reader: Any, address: str, topic: str) -> Any:  # Batch and stream readers.
        opened = reader.format(self.form).option("kafka.bootstrap.servers", address)
        return opened.option("subscribe", topic).options(**self.source_options)


OURS = Connector(name=MILLSTREAM, form="millstream")
OURS_AT_LEAST_ONCE = Connector(
    name=AT_LEAST_ONCE, form="millstream", sink_options={"deliveryGuarantee": "at_least_once"}
)
THEIRS = Connector(name=CONNECTOR, form="kafka")

# The same promise and the same sizes: committed records in fetches of 4 MiB, batches of 512 KiB
# that are durable and not doubled by retries, a task for each partition.
_FETCH_BYTES, _BATCH_BYTES = str(4 * 2**20), str(512 * 2**10)
_EQUAL_SOURCE = {
    "kafka.isolation.level": "read_committed",
    "kafka.max.partition.fetch.bytes": _FETCH_BYTES,
}
_EQUAL_SINK = {"kafka.batch.size": _BATCH_BYTES}
OURS_ALIKE = Connector(
    name=OURS_ALIKE_NAME,
    form="millstream",
    source_options=_EQUAL_SOURCE,
    stream_options={"minRecordsPerPartition": "1"},
    sink_options={**_EQUAL_SINK, "deliveryGuarantee": "at_least_once"},
)
THEIRS_ALIKE = Connector(
    name=THEIRS_ALIKE_NAME,
    form="kafka",
    source_options={**_EQUAL_SOURCE, "kafka.fetch.max.bytes": str(50 * 2**20)},
    # A request must hold one batch of each partition, and a batch must have time to fill.
    sink_options={
        **_EQUAL_SINK,
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": "5",
        "kafka.max.request.size": str(8 * 2**20),
    },
)


def session_settings(jars: list[Path], directory: Path) -> dict[str, str]:
    """What the session is told besides its defaults, which are those of every user."""
    settings = {
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    return settings | ({"spark.jars": ",".join(map(str, jars))} if jars else {})

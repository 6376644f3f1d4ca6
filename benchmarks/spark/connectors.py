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
MASTER = "local[2,4]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """A name in tables, Spark's name of it, and what its sink is told besides the topic."""

    name: str
    form: str
    sink_options: Mapping[str, str] = field(default_factory=dict)

    def read(self, spark: SparkSession, address: str, topic: str) -> DataFrame:
        return self._opened(spark.read, address, topic).load()

    def read_stream(
        self, spark: SparkSession, address: str, topic: str, **options: str
    ) -> DataFrame:
        reader = self._opened(spark.readStream, address, topic)
        return reader.option("startingOffsets", "earliest").options(**options).load()

    def sink(self, writer: Any, address: str, topic: str) -> Any:  # Batch and stream writers.
        opened = writer.format(self.form).option("kafka.bootstrap.servers", address)
        return opened.option("topic", topic).options(**self.sink_options)

    def _opened(self, reader: Any, address: str, topic: str) -> Any:  # Batch and stream readers.
        opened = reader.format(self.form).option("kafka.bootstrap.servers", address)
        return opened.option("subscribe", topic)


OURS = Connector(name=MILLSTREAM, form="millstream")
OURS_AT_LEAST_ONCE = Connector(
    name=AT_LEAST_ONCE, form="millstream", sink_options={"deliveryGuarantee": "at_least_once"}
)
THEIRS = Connector(name=CONNECTOR, form="kafka")


def session_settings(jars: list[Path], directory: Path) -> dict[str, str]:
    """What the session is told besides its defaults, which are those of every user."""
    settings = {
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    return settings | ({"spark.jars": ",".join(map(str, jars))} if jars else {})

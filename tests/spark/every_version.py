"""The queries that are run in every version of Spark, as a program of one environment.

Run as `python -m tests.spark.every_version ADDRESS FOLDER`; prints one line of JSON: the version,
and what came of each query, its result or the last sentence of its error. Needs no test library, so
that an environment has what users have.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from millstream.spark import session
from millstream.spark.source_environment import NAMES
from millstream.spark.versions import DECLARATIVE, parse

ROWS = 40
WAIT_SECONDS = 120


class Queries:
    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.broker = {"kafka.bootstrap.servers": address}
        self._producer = Producer({"bootstrap.servers": address})

    def fill(self, topic: str, count: int = ROWS) -> None:
        for number in range(count):
            value = json.dumps({"id": number}) if number % 10 else "bad"
            self._producer.produce(
                topic, value, key=str(number % 3), headers={"odd": str(number % 2)}
            )
        assert self._producer.flush(WAIT_SECONDS) == 0

    def count(self, topic: str, **options: str) -> int:
        reader = self.spark.read.format("millstream").options(**self.broker, subscribe=topic)
        return reader.options(**options).load().count()

    def copy(self, source: str, target: str, **options: str) -> StreamingQuery:
        query = (
            self.spark.readStream.format("millstream")
            .options(**self.broker, subscribe=source, startingOffsets="earliest")
            .options(**options)
            .load()
            .select("key", "value")
            .writeStream.format("millstream")
            .options(**self.broker, topic=target)
            .option("checkpointLocation", str(self.folder / f"to-{target}"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_SECONDS)
        return query

    # -- what every version does -------------------------------------------------------------------

    def batch(self) -> object:
        self.fill("batch")
        frame = self.spark.range(ROWS).selectExpr("cast(id as string) value")
        writer = frame.write.format("millstream").options(**self.broker, topic="written")
        writer.mode("append").save()
        return [self.count("batch"), self.count("written")]

    def stream(self) -> object:
        self.fill("stream")
        self.copy("stream", "streamed")
        self.fill("stream")
        self.copy("stream", "streamed")
        return self.count("streamed")

    def values(self) -> object:
        self.fill("values")
        typed = {"valueFormat": "json", "valueSchema": "id bigint", "onError": "dlq"}
        good = self.count("values", **typed)
        filtered = self.count("values", brokerFilter="header.odd == '1'")
        return [good, self.count("values.dlq"), filtered]

    def sql(self) -> object:
        self.fill("sql")
        server = self.broker["kafka.bootstrap.servers"]
        options = f"OPTIONS (`kafka.bootstrap.servers` '{server}', subscribe 'sql')"
        self.spark.sql(f"CREATE TABLE of_sql USING millstream {options}")
        (row,) = self.spark.sql("SELECT count(*), count(key) FROM of_sql").collect()
        stream = self.spark.readStream.option("startingOffsets", "earliest").table("of_sql")
        query = (
            stream.select("value")
            .writeStream.format("millstream")
            .options(**self.broker, topic="from-table")
            .option("checkpointLocation", str(self.folder / "from-table"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_SECONDS)
        return [*row, self.count("from-table")]

    # -- what some versions do ---------------------------------------------------------------------

    def insert(self) -> object:
        self.spark.sql("INSERT INTO of_sql (key, value) VALUES (binary('k'), binary('v'))")
        self.spark.sql("INSERT INTO of_sql (value) SELECT value FROM of_sql LIMIT 1")
        (row,) = self.spark.sql("SELECT count(*) FROM of_sql").collect()
        return list(row)

    def sql_stream(self) -> object:
        return self.spark.sql("SELECT value FROM STREAM of_sql").isStreaming

    def limits(self) -> object:
        self.fill("limits")
        query = self.copy("limits", "limited", maxOffsetsPerTrigger="10")
        progress = [json.loads(report.json) for report in query.recentProgress]
        return {
            "batches": sum(report["numInputRows"] > 0 for report in progress),
            "latest": progress[0]["sources"][0]["latestOffset"] is not None,
            "rows": self.count("limited"),
        }

    def real_time(self) -> object:
        frame = self.spark.readStream.format("millstream").options(**self.broker, subscribe="batch")
        writer = frame.load().writeStream.format("millstream").options(**self.broker, topic="x")
        writer = writer.option("checkpointLocation", str(self.folder / "real-time"))
        query = writer.trigger(continuous="1 second").start()
        query.awaitTermination(WAIT_SECONDS)
        return "ran"

    def declarative(self) -> object:
        import pyspark.pipelines  # noqa: F401  # Only whether there is one.

        return True


def outcome(query: Callable[[], object]) -> object:
    try:
        return query()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


def main() -> None:
    address, folder = sys.argv[1:]
    conf = {
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    spark = session("every version", master="local[2,4]", conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    environment = sources.lookupDataSource("millstream").dataSourceCls().envVars()
    known = {*environment.keySet(), *NAMES}
    queries = Queries(spark, address, Path(folder))
    everywhere = ("batch", "stream", "values", "sql")
    somewhere = ("insert", "sql_stream", "limits", "real_time", "declarative")
    outcomes: dict[str, Any] = {
        name: outcome(getattr(queries, name)) for name in (*everywhere, *somewhere)
    }
    # A name that only queries add would be added by two of them at the same time.
    assert set(environment.keySet()) <= known
    spark.stop()
    version = parse(pyspark.__version__)
    assert DECLARATIVE.works_in(version) == (outcomes["declarative"] is True)
    print(json.dumps({"spark": pyspark.__version__, "outcomes": outcomes}))


if __name__ == "__main__":
    main()

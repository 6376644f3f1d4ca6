"""Sessionization: clicks of a user that are less than ten minutes apart are one session.

Run it as a program, or cell by cell in a notebook: python sessions.py
"""

# %%
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millstream.client import connect
from millstream.spark import session

# User, and minutes after the start. The last click moves the watermark behind all sessions.
CLICKS = (("ann", 0), ("ann", 5), ("bob", 6), ("ann", 30), ("bob", 14), ("eve", 120))


# %%
def run(spark: SparkSession, bootstrap: str, folder: Path) -> list[tuple[str, int]]:
    """The sessions that have ended: user and number of clicks."""
    start = datetime.now(UTC) - timedelta(hours=3)
    with connect(bootstrap) as client:
        for user, minutes in CLICKS:
            at = start + timedelta(minutes=minutes)
            client.produce("clicks", "click", key=user, partition=0, timestamp=at)
    to_broker = {"kafka.bootstrap.servers": bootstrap}
    clicks = (
        spark.readStream.format("millstream")
        .options(**to_broker, subscribe="clicks", startingOffsets="earliest")
        .load()
        .withWatermark("timestamp", "1 minute")
    )
    gap = F.session_window("timestamp", "10 minutes").alias("session")
    sessions = clicks.groupBy(F.col("key").cast("string").alias("user"), gap).count()
    query = (
        sessions.select(
            F.col("user").alias("key"),
            F.to_json(F.struct("user", "session", "count")).alias("value"),
        )
        .writeStream.format("millstream")
        .options(**to_broker, topic="sessions")
        .option("checkpointLocation", str(folder / "sessions"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = (
        spark.read.format("millstream")
        .options(**to_broker, subscribe="sessions")
        .options(valueFormat="json", valueSchema="user string, count bigint")
        .load()
    )
    return sorted((row.user, row["count"]) for row in written.select("value.*").collect())


# %%
if __name__ == "__main__":
    broker = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
    with tempfile.TemporaryDirectory() as directory:
        print(run(session(), broker, Path(directory)))

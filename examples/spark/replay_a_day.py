"""Replay of a day: the records of one day, and no others, go through a query again.

Run it as a program, or cell by cell in a notebook: python replay_a_day.py
"""

# %% [markdown]
# The broker finds the first record at or after a time, so a batch from midnight to midnight reads
# one day. It is written to a topic of its own, with the time that each record had.

# %%
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.client import connect
from millstream.spark import session

DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)


# %%
def run(spark: SparkSession, bootstrap: str, folder: Path) -> list[tuple[str, datetime]]:
    """The records of the day, with their times."""
    with connect(bootstrap) as client:
        for hours in (-1, 0, 11, 23, 24):
            at = DAY + timedelta(hours=hours)
            client.produce("readings", f"{hours}h", partition=0, timestamp=at)
    to_broker = {"kafka.bootstrap.servers": bootstrap}
    midnight, next_midnight = (
        str(int(at.timestamp() * 1000)) for at in (DAY, DAY + timedelta(days=1))
    )
    day = (
        spark.read.format("millstream")
        .options(**to_broker, subscribe="readings")
        .options(startingTimestamp=midnight, endingTimestamp=next_midnight)
        .option("startingOffsetsByTimestampStrategy", "latest")
        .load()
    )
    again = day.select("key", "value", "timestamp")
    again.write.format("millstream").options(**to_broker, topic="replay").mode("append").save()
    written = spark.read.format("millstream").options(**to_broker, subscribe="replay").load()
    rows = written.selectExpr("cast(value as string) v", "timestamp").orderBy("timestamp")
    return [(row.v, row.timestamp.astimezone(UTC)) for row in rows.collect()]


# %%
if __name__ == "__main__":
    broker = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
    with tempfile.TemporaryDirectory() as directory:
        print(run(session(), broker, Path(directory)))

"""Join of two topics: orders and their payments, within an hour of each other.

Run it as a program, or cell by cell in a notebook: python join_two_topics.py
"""

# %% [markdown]
# Watermarks say how late a record may come. Spark keeps rows of both sides until no partner can
# come any more, and writes each pair once.

# %%
import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.client import connect
from millstream.spark import session


# %%
def rows_of(spark: SparkSession, bootstrap: str, topic: str, schema: str) -> DataFrame:
    return (
        spark.readStream.format("millstream")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        .options(startingOffsets="earliest", valueFormat="json", valueSchema=schema)
        .load()
        .select("value.*", F.col("timestamp"))
        .withWatermark("timestamp", "10 minutes")
    )


# %%
def run(spark: SparkSession, bootstrap: str, folder: Path) -> list[tuple[int, float, str]]:
    """Orders that were paid: id, kg, how."""
    with connect(bootstrap) as client:
        client.set_serde("json")
        now = datetime.now(UTC)
        for number in range(4):
            client.produce("orders", {"id": number, "kg": number / 2}, timestamp=now)
        for number, how, minutes in ((1, "card", 5), (3, "cash", 30), (9, "card", 1)):
            paid = now + timedelta(minutes=minutes)
            client.produce("payments", {"order": number, "how": how}, timestamp=paid)
    orders = rows_of(spark, bootstrap, "orders", "id bigint, kg double").alias("o")
    payments = rows_of(spark, bootstrap, "payments", "order bigint, how string").alias("p")
    paid = orders.join(
        payments,
        F.expr("""
            o.id = p.order
            AND p.timestamp BETWEEN o.timestamp AND o.timestamp + INTERVAL 1 HOUR
        """),
    )
    query = (
        paid.select(F.to_json(F.struct("id", "kg", "how")).alias("value"))
        .writeStream.format("millstream")
        .options(**{"kafka.bootstrap.servers": bootstrap, "topic": "paid-orders"})
        .option("checkpointLocation", str(folder / "join"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = (
        spark.read.format("millstream")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": "paid-orders"})
        .options(valueFormat="json", valueSchema="id bigint, kg double, how string")
        .load()
    )
    return sorted((row.id, row.kg, row.how) for row in written.select("value.*").collect())


# %%
if __name__ == "__main__":
    broker = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
    with tempfile.TemporaryDirectory() as directory:
        print(run(session(), broker, Path(directory)))

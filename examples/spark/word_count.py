"""Word count: a stream of lines in, a count for each word out, as an upsert by key.

Run it as a program, or cell by cell in a notebook: python word_count.py
"""

# %% [markdown]
# `outputMode("update")` writes the words whose count has changed. With `cleanup.policy=compact` the
# topic keeps the last count of each word. Each batch is written once, whatever is killed.

# %%
import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millstream.client import connect
from millstream.spark import session

LINES = ("the mill grinds", "the stream turns the mill")


# %%
def run(spark: SparkSession, bootstrap: str, folder: Path) -> dict[str, int]:
    """The count of each word, as readers of the topic see it."""
    with connect(bootstrap) as client:
        for line in LINES:
            client.produce("lines", line)
    to_broker = {"kafka.bootstrap.servers": bootstrap}
    lines = (
        spark.readStream.format("millstream")
        .options(**to_broker, subscribe="lines", startingOffsets="earliest")
        .load()
    )
    word = F.explode(F.split(F.col("value").cast("string"), " ")).alias("key")
    counts = lines.select(word).groupBy("key").count()
    query = (
        counts.select("key", F.col("count").cast("string").alias("value"))
        .writeStream.format("millstream")
        .options(**to_broker, topic="counts")
        .option("checkpointLocation", str(folder / "word-count"))
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    table = spark.read.format("millstream").options(**to_broker, subscribe="counts").load()
    rows = table.selectExpr("cast(key as string) word", "cast(value as string) count", "offset")
    return {row.word: int(row["count"]) for row in rows.orderBy("offset").collect()}


# %%
if __name__ == "__main__":
    broker = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
    with tempfile.TemporaryDirectory() as directory:
        print(run(session(), broker, Path(directory)))

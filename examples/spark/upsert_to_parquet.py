"""Upsert to Parquet and back: the last record of each key as a table, and the table as a topic.

Run it as a program, or cell by cell in a notebook: python upsert_to_parquet.py
"""

# %% [markdown]
# Parquet files can't be changed, so each batch writes the whole table anew, into a directory with
# the batch's number. A batch that is run again writes the same directory again: nothing is doubled.

# %%
import os
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from millstream.client import connect
from millstream.spark import session

COLUMNS = "user string, email string, at bigint"


# %%
def upsert(batch: DataFrame, batch_id: int, table: Path) -> None:
    """Write the table of this batch: the rows of the last one, and over them those of `batch`."""
    spark = batch.sparkSession
    before = table / f"batch={batch_id - 1}"
    rows = batch.select("user", "email", "at")
    if before.exists():
        rows = rows.unionByName(spark.read.parquet(str(before)))
    newest = Window.partitionBy("user").orderBy(F.desc("at"))
    last = rows.withColumn("n", F.row_number().over(newest)).where("n = 1").drop("n")
    last.write.mode("overwrite").parquet(str(table / f"batch={batch_id}"))


# %%
def run(spark: SparkSession, bootstrap: str, folder: Path) -> dict[str, str]:
    """The email of each user, from the topic that the table was written to."""
    to_broker = {"kafka.bootstrap.servers": bootstrap}
    table = folder / "users"
    for email in ("old", "new"):  # Two runs: the second one changes what the first one wrote.
        with connect(bootstrap) as client:
            client.set_serde("json")
            for user in ("ann", "bob") if email == "old" else ("ann",):
                client.produce("emails", {"user": user, "email": f"{email}@{user}"}, key=user)
        changes = (
            spark.readStream.format("millstream")
            .options(**to_broker, subscribe="emails", startingOffsets="earliest")
            .options(valueFormat="json", valueSchema="user string, email string")
            .load()
            .select("value.*", F.col("offset").alias("at"))
        )
        query = (
            changes.writeStream.foreachBatch(lambda batch, number: upsert(batch, number, table))
            .option("checkpointLocation", str(folder / "upsert"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    newest = max(table.iterdir(), key=lambda path: int(path.name.partition("=")[2]))
    users = spark.read.parquet(str(newest))
    rows = users.select(F.col("user").alias("key"), F.to_json(F.struct("*")).alias("value"))
    rows.write.format("millstream").options(**to_broker, topic="users").mode("append").save()
    written = (
        spark.read.format("millstream")
        .options(**to_broker, subscribe="users", valueFormat="json", valueSchema=COLUMNS)
        .load()
    )
    return {row.user: row.email for row in written.select("value.*").collect()}


# %%
if __name__ == "__main__":
    broker = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
    with tempfile.TemporaryDirectory() as directory:
        print(run(session(), broker, Path(directory)))

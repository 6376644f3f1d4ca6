"""Orders: a table of all, figures of each item, and a topic of the heavy ones."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

ORDER = "id bigint, item string, kg double, at timestamp"

spark = SparkSession.active()
bootstrap = str(spark.conf.get("spark.millstream.bootstrap"))


@dp.table
def orders() -> DataFrame:
    """All orders, typed, each with its partition and offset."""
    rows = (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), ORDER)
    return rows.select(order.alias("order"), "partition", "offset").select(
        "order.*", F.col("partition").alias("_partition"), F.col("offset").alias("_offset")
    )


@dp.materialized_view
def items() -> DataFrame:
    """Figures of each item."""
    return spark.read.table("orders").groupBy("item").agg(F.count("*").alias("orders"), F.sum("kg"))


dp.create_sink(
    "heavy_orders",
    "millstream",
    {"kafka.bootstrap.servers": bootstrap, "topic": "orders-heavy"},
)


@dp.append_flow(target="heavy_orders")
def heavy() -> DataFrame:
    """Orders of more than 40 kg, to a topic."""
    heavy_orders = spark.readStream.table("orders").where("kg > 40")
    return heavy_orders.select(
        F.col("id").cast("string").alias("key"),
        F.to_json(F.struct("id", "item", "kg")).alias("value"),
    )

"""A streaming job: orders in, grams out, each row written exactly once.

pip install '.[spark,java]' in the checkout, then: python job.py CHECKPOINT [BOOTSTRAP]
"""

import os
import sys

from pyspark.sql import functions

from millstream.spark import session

checkpoint = sys.argv[1]
default = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
bootstrap = sys.argv[2] if len(sys.argv) > 2 else default

spark = session()
orders = (
    spark.readStream.format("millstream")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .options(valueFormat="json", valueSchema="id long, item string, kg double")
    .load()
)
heavy = orders.where("value.kg > 0").select(
    functions.col("value.item").alias("key"),
    functions.to_json(
        functions.struct("value.id", (functions.col("value.kg") * 1000).alias("grams"))
    ).alias("value"),
)
query = (
    heavy.writeStream.format("millstream")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("topic", "orders-grams")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()

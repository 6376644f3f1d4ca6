"""A driver on a cluster whose tasks are run a second time when they are slow.

Run as `python -m tests.spark.speculation_driver MASTER ADDRESS TOPIC FOLDER`. The first attempt at
the last task writes most of its rows and then waits until another attempt has seen all of them.
Every attempt at it leaves a file in `FOLDER`.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from millstream.spark import session

ROWS = 3_000
TASKS = 2
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
}


def slow(spark: SparkSession, folder: str) -> DataFrame:
    """Rows of 3 kB, so that a task has sent some before its last row."""

    def pass_on(text: str) -> str:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        if int(text) == ROWS - 1:
            context = TaskContext.get()
            assert context is not None
            Path(folder, f"attempt-{context.attemptNumber()}").touch()
            deadline = time.monotonic() + 240
            while context.attemptNumber() == 0 and time.monotonic() < deadline:
                if Path(folder, "attempt-1").exists():
                    break
                time.sleep(0.05)
        return text.zfill(3_000)

    rows = spark.range(0, ROWS, 1, TASKS).selectExpr("cast(id as string) as value")
    return rows.select(udf(pass_on, "string", useArrow=False)("value").alias("value"))


def main() -> None:
    master, address, topic, folder = sys.argv[1:]
    spark = session("speculation driver", master=master, conf=SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    writer = slow(spark, folder).write.format("millstream").mode("append")
    writer.option("kafka.bootstrap.servers", address).option("topic", topic).save()
    spark.stop()


if __name__ == "__main__":
    main()

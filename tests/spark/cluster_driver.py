"""A driver on a cluster of two executors, one of which is killed while it writes.

Run as `python -m tests.spark.cluster_driver ADDRESS TOPIC FOLDER`. A task kills its own executor,
with all that runs in it, after a part of its rows. Every attempt at it leaves a file in `FOLDER`.
Spark never runs a task twice at the same time on one host; for that there is `speculation_driver`.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from millstream.spark import session

ROWS = 6_000
TASKS = 4
SETTINGS = {
    # A JVM that lives short profits neither from the second compiler nor from archived classes.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
}


def deadly(spark: SparkSession, folder: str) -> DataFrame:
    """Rows of 3 kB, so that a task has sent some before its last row kills it."""

    def pass_on(text: str) -> str:
        import os
        import signal
        from pathlib import Path

        from pyspark import TaskContext

        if int(text) == ROWS - 1:
            context = TaskContext.get()
            assert context is not None
            Path(folder, str(context.taskAttemptId())).touch()
            if context.attemptNumber() == 0:
                # A worker is the child of a daemon, and that of the executor.
                stat = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
                os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        return text.zfill(3_000)

    rows = spark.range(0, ROWS, 1, TASKS).selectExpr("cast(id as string) as value")
    return rows.select(udf(pass_on, "string", useArrow=False)("value").alias("value"))


def main() -> None:
    address, topic, folder = sys.argv[1:]
    spark = session("cluster driver", master="local-cluster[2,1,1024]", conf=SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    writer = deadly(spark, folder).write.format("millstream").mode("append")
    writer.option("kafka.bootstrap.servers", address).option("topic", topic).save()
    spark.stop()


if __name__ == "__main__":
    main()

"""A Spark driver as a process of its own: writes a stream to a topic, and may die on the way.

Run as `python -m tests.spark.sink_driver ADDRESS TOPIC CHECKPOINT DEATH`. `DEATH` is where one of
the batches kills the whole driver: `before` the commit is asked for, once it is `sent`, when the
broker has `done` it but Spark's log has not, or `never`. It kills from within the worker that
commits, and that worker with it.
"""

import os
import signal
import sys
from pathlib import Path

from millstream.spark import session

DEADLY_BATCH = 2
ROWS_PER_BATCH = 40
# A JVM that lives short profits neither from the second compiler nor from an archive of classes.
SETTINGS = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
DEATHS = ("before", "sent", "done")

# Spark starts its Python workers by itself, so what happens in them is told by a module that
# Python imports at their start.
_SITE = f"""
import os, signal
from millstream.kafka_client import connection
from millstream.spark.write import transactions
from millstream.spark.write.transactions import EndBatchRequest

death, driver = os.environ["SINK_DEATH"], int(os.environ["SINK_DRIVER"])
end_batch, send = transactions.end_batch, connection.Connection.send

def die():
    os.killpg(driver, signal.SIGKILL)
    os._exit(1)

def deadly_end(*arguments, **keywords):
    is_deadly = keywords["commits"] and keywords["batch_id"] == {DEADLY_BATCH}
    if is_deadly and death == "before":
        die()
    end_batch(*arguments, **keywords)
    if is_deadly and death == "done":
        die()

def deadly_send(sender, request):
    send(sender, request)
    is_deadly = isinstance(request, EndBatchRequest) and request.batch_id == {DEADLY_BATCH}
    if is_deadly and request.committed and death == "sent":
        die()

transactions.end_batch, connection.Connection.send = deadly_end, deadly_send
"""


def main() -> None:
    address, topic, checkpoint, death = sys.argv[1:]
    if death in DEATHS:
        folder = Path(f"{checkpoint}-site")
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        os.environ |= {"SINK_DEATH": death, "SINK_DRIVER": str(os.getpid())}
    spark = session("sink driver", master="local[2,4]", conf=SETTINGS)
    spark.sparkContext.setLogLevel("OFF")
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", 2)
        .load()
        .selectExpr("cast(value as string) as value")
    )
    query = (
        rows.writeStream.format("millstream")
        .option("kafka.bootstrap.servers", address)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    signal.signal(signal.SIGTERM, lambda *_: query.stop())
    query.awaitTermination()


if __name__ == "__main__":
    main()

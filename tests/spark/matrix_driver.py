"""A Spark driver that is killed at every step of a batch, in one output mode.

Run as `python -m tests.spark.matrix_driver ADDRESS TOPIC CHECKPOINT MODE SITE MASTER`. `SITE`
is a directory with a `sitecustomize.py`, which Python imports in the workers that Spark starts, and
with a file for each step that was taken. Each run goes on with the steps that are left.
"""

import os
import signal
import sys
from pathlib import Path

from millstream.spark import session, write_once

ROWS_PER_BATCH = 40
MODES = ("append", "update", "foreachBatch")
# Who is killed when: a batch was begun, rows were sent, the commit is about to be sent, was sent,
# and was answered.
MOMENTS = ("begun", "writing", "before", "sent", "done")
STEPS = (
    *(f"driver-{moment}" for moment in MOMENTS),
    "worker-writing",
    *(f"broker-{moment}" for moment in MOMENTS),
)
# On a cluster an executor is killed in place of a worker, and a task runs twice at the same time:
# its first attempt waits until Spark speculates, or until it is killed for having lost.
CLUSTER_STEPS = (
    *(f"driver-{moment}" for moment in MOMENTS),
    "executor-writing",
    "twin-writing",
    *(f"broker-{moment}" for moment in MOMENTS),
)
LOCAL = "local[2,4]"
SETTINGS = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
CLUSTER_SETTINGS = {
    **SETTINGS,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    # Executors are killed on purpose, and more often than Spark allows.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}


def steps_on(master: str) -> tuple[str, ...]:
    return STEPS if master == LOCAL else CLUSTER_STEPS


SITE = """
import os, signal, time
from pathlib import Path
from millstream.kafka_client import connection
from millstream.spark.write import producing, transactions
from millstream.spark.write.transactions import EndBatchRequest

site, steps = Path(os.environ["MATRIX_SITE"]), os.environ["MATRIX_STEPS"].split(",")
begin_batch, end_batch = transactions.begin_batch, transactions.end_batch
send, write = connection.Connection.send, producing.Pipeline.send

def step(moment):
    left = [name for name in steps if not (site / name).exists()]
    if not left or not left[0].endswith("-" + moment):
        return
    try:
        (site / left[0]).touch(exist_ok=False)
    except FileExistsError:
        return
    who = left[0].partition("-")[0]
    if who == "broker":
        os.kill(int((site / "broker-pid").read_text()), signal.SIGKILL)
        return
    if who == "twin":
        time.sleep(30)
        return
    if who == "driver":
        os.killpg(int(os.environ["MATRIX_DRIVER"]), signal.SIGKILL)
    if who == "executor":
        # A worker is the child of a daemon, and that of the executor.
        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    os._exit(1)

def begin(*arguments, **keywords):
    opened = begin_batch(*arguments, **keywords)
    step("begun")
    return opened

def end(*arguments, **keywords):
    step("before")
    end_batch(*arguments, **keywords)
    step("done")

def sent(sender, request):
    send(sender, request)
    if isinstance(request, EndBatchRequest):
        step("sent")

def written(pipeline, *arguments):
    write(pipeline, *arguments)
    step("writing")

transactions.begin_batch, transactions.end_batch = begin, end
connection.Connection.send, producing.Pipeline.send = sent, written
"""


def main() -> None:
    address, topic, checkpoint, mode, site, master = sys.argv[1:]
    Path(site, "sitecustomize.py").write_text(SITE, encoding="utf-8")
    paths = [site, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        "PYTHONPATH": os.pathsep.join(paths),
        "MATRIX_SITE": site,
        "MATRIX_STEPS": ",".join(steps_on(master)),
        "MATRIX_DRIVER": str(os.getpid()),
    }
    os.environ |= environment
    settings = dict(SETTINGS)
    if master != LOCAL:
        executors = {f"spark.executorEnv.{name}": text for name, text in environment.items()}
        settings = CLUSTER_SETTINGS | executors
    spark = session("kill matrix", master=master, conf=settings)
    spark.sparkContext.setLogLevel("OFF")
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", 2)
        .load()
        .selectExpr("cast(value as string) as value")
    )
    options = {"kafka.bootstrap.servers": address, "topic": topic}
    if mode == "update":
        # Every number comes once, so a count that is written twice was written by two batches.
        counts = rows.groupBy("value").count().selectExpr("value as key", "value")
        writer = counts.writeStream.outputMode("update").format("millstream").options(**options)
    elif mode == "foreachBatch":
        writer = rows.writeStream.foreachBatch(
            lambda batch, batch_id: write_once(batch, batch_id, options=options)
        )
    else:
        writer = rows.writeStream.format("millstream").options(**options)
    query = writer.option("checkpointLocation", checkpoint).start()
    signal.signal(signal.SIGTERM, lambda *_: query.stop())
    query.awaitTermination()


if __name__ == "__main__":
    main()

"""Lets several queries over the source start at the same time.

Spark keeps one map of environment variables for the source, which all sessions of a JVM share and
no lock guards. The thread of each streaming query puts the same names into it at its start. Two
threads that add a name at once leave the map with a wrong size. From then on Spark can't serialize
a task that reads or writes: "Task not serializable", below it "Illegal size 4 of collection,
expected 5". To replace a value is harmless, so the names are added before the first query starts.
"""

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "millstream"
# Those of `PythonStreamingSourceRunner.init`. Every process that Spark starts gets values of its
# own for them: each runner puts them before it starts a worker.
NAMES = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)

_adding = threading.Lock()


def add_names(spark: "SparkSession") -> None:
    """Add the names that queries set; call it before a query is started. Costs nothing again."""
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    if not sources.dataSourceExists(FORMAT):
        return  # Spark says so itself, to a query that asks for it.
    environment = sources.lookupDataSource(FORMAT).dataSourceCls().envVars()
    with _adding:
        for name in NAMES:
            if not environment.containsKey(name):
                environment.put(name, "")

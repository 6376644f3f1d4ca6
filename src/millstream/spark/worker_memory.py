"""Keeps Python's garbage collector away from the modules of a worker process.

Spark's daemon runs a full collection after each call of a worker that it uses again. Modules of
Spark, Arrow and numpy are 60,000 objects that never go away, and a collection looks at all of them:
28 ms of CPU, six times for each trigger of a query with our source and sink.
"""

import gc
import os
from functools import cache


@cache
def exempt_modules() -> None:
    """Exempt all objects that exist now from collections, once, in a worker that is used again.

    Called when Spark first asks for work, after the imports.
    """
    if os.environ.get("SPARK_REUSE_WORKER"):  # Set by Spark, and read by its daemon.
        gc.freeze()

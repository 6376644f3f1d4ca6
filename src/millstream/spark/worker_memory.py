"""Keeps Python's garbage collector away from the modules of a worker process.

Spark's daemon runs a full collection after each call of a worker that it uses again. Modules of
Spark, Arrow and numpy are 60,000 objects that never go away, and a collection looks at all of them:
28 ms of CPU, six times for each trigger of a query with our source and sink.
"""

import gc
import os
import sys

_counts = {"modules": 0}  # At the last exemption.


def exempt_modules() -> None:
    """Exempt all objects that exist now from collections, in a worker that is used again.

    Called whenever Spark asks for work. Does so again only after further imports: Spark imports
    some modules behind this call, and a worker that has read may have to write next.
    """
    if not os.environ.get("SPARK_REUSE_WORKER"):  # Set by Spark, and read by its daemon.
        return
    count = len(sys.modules)
    if count != _counts["modules"]:
        _counts["modules"] = count
        gc.freeze()

"""Lets Spark find `format("millstream")` by itself.

Spark imports every module whose name begins with `pyspark_` and registers its `DefaultSource`. It
does so in every worker, so nothing is imported here that a worker would not need anyway.
"""

from millstream.spark.datasource import MillstreamSource as DefaultSource

__all__ = ["DefaultSource"]

"""Spark without jars: `format("millstream")` for Spark, and a session that suits a laptop.

Stands outside of the broker and sees only the wire, so it works against Apache Kafka as well.
Importing this package imports neither Spark nor Arrow: `session` does when it is called.
"""

from millstream.spark.catalog import register
from millstream.spark.session import session
from millstream.spark.workers import check_workers
from millstream.spark.write.once import enable_update_mode, write_once

__all__ = ["check_workers", "enable_update_mode", "register", "session", "write_once"]

"""Spark without jars: `format("millstream")` for Spark, and a session that suits a laptop.

Stands outside of the broker and sees only the wire, so it works against Apache Kafka as well.
Importing this package imports neither Spark nor Arrow: `session` does when it is called.
"""

from millstream.spark.session import session

__all__ = ["session"]

"""Spark's own Kafka connector, fetched once into the user's cache; it is no dependency.

Only the jars that Spark does not have itself. The versions are the newest that can be had together:
Maven Central has the connector up to 4.2.0, none for Spark 4.3, and the module of its delegation
tokens, which nothing here uses, up to 4.0.0. They link and run in Spark 4.3; whatever is measured
with them says so.
"""

from pathlib import Path

from benchmarks.kafka.install import maven_jars

CONNECTOR_VERSION = "4.2.0"
TOKENS_VERSION = "4.0.0"
CLIENTS_VERSION = "3.9.2"  # What this connector was built with, as is the next.
POOL_VERSION = "2.13.1"

_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", TOKENS_VERSION),
    ("org.apache.kafka", "kafka-clients", CLIENTS_VERSION),
    ("org.apache.commons", "commons-pool2", POOL_VERSION),
)


def connector_jars() -> list[Path]:
    """The jars that make `format("kafka")` work; raises `Unavailable`."""
    name = f"spark-kafka-{CONNECTOR_VERSION}-{TOKENS_VERSION}"
    title = f"Spark's Kafka connector {CONNECTOR_VERSION}"
    return sorted(maven_jars(title, name, _pom()).glob("*.jar"))


def _pom() -> str:
    # Without what they need in turn: Spark brings it, in the versions that it was built with.
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    dependencies = "\n".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{alone}</exclusions></dependency>"
        for group, artifact, version in _JARS
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>connector</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""

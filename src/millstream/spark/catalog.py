"""Makes a table of each topic, in a database of the session's catalog.

Spark loads catalogs from Java classes only, so `spark.sql.catalog.NAME` can't name one that is
written in Python. Tables in a database read alike: `SELECT ... FROM mill.orders`. They are made
again at each call, which is how new topics appear.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from millstream.spark.errors import InvalidOption
from millstream.spark.options.kafka import PREFIX, client_settings
from millstream.spark.options.tables import check_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DATABASE = "mill"
TOPICS_MAX = 10_000
_SERVERS = "kafka.bootstrap.servers"
_INTERNAL = "__"


def register(
    spark: "SparkSession",
    bootstrap: str | None = None,
    *,
    database: str = DATABASE,
    topics: Iterable[str] | None = None,
    schemas: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    schema_registry: str | None = None,
) -> dict[str, str]:
    """Make the tables; returns the topic of each table, by the table's name.

    `schemas` has the columns of JSON values by topic, such as `{"orders": "id bigint, kg double"}`;
    other formats are options of a `CREATE TABLE` of one's own. `schema_registry` is the address of
    a registry: topics with a subject `<topic>-value` of Avro or JSON Schema get its columns.
    `options` are those of the source, for all tables. Topics are all that there are but internal
    ones, unless they are named. Raises `InvalidOption` for two topics that would have one name.
    """
    chosen = {name.lower(): str(text) for name, text in (options or {}).items()}
    chosen.setdefault(_SERVERS, bootstrap or os.environ.get("MILLSTREAM_BOOTSTRAP", ""))
    check_secrets(chosen)
    names = table_names(_topics(chosen) if topics is None else topics)
    unknown = sorted(set(schemas or {}) - set(names.values()))
    if unknown:
        raise InvalidOption(f"schemas names {unknown[0]}, which is no topic of this catalog")
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{_checked(database)}`")
    for row in spark.sql(f"SHOW TABLES IN `{database}`").collect():
        # Temporary views of the session are listed in every database.
        if row.tableName not in names and not row.isTemporary:
            spark.sql(f"DROP TABLE `{database}`.`{row.tableName}`")  # Its topic is gone.
    for name, topic in names.items():
        spark.sql(f"DROP TABLE IF EXISTS `{database}`.`{name}`")
        kept = chosen | {"subscribe": topic}
        if schemas and topic in schemas:
            kept |= {"valueformat": "json", "valueschema": schemas[topic]}
        elif schema_registry is not None:
            kept |= _registered(schema_registry, topic)
        _create(spark, f"{database}.{name}", kept)
    return names


def table_names(topics: Iterable[str]) -> dict[str, str]:
    """The name of a table for each topic: what Spark's names can't have becomes `_`."""
    names: dict[str, str] = {}
    for topic in sorted(topics):
        name = re.sub(r"\W", "_", topic, flags=re.ASCII).lower()
        if name in names:
            raise InvalidOption(
                f"topics {names[name]} and {topic} would both be table {name}: name the ones to "
                "have in `topics`, and make a table of the other with CREATE TABLE"
            )
        names[name] = topic
    return names


def _registered(url: str, topic: str) -> dict[str, str]:
    """The options that give a table the columns of the topic's registered schema, if it has one.

    A schema that is no columns leaves the value as bytes, with a warning: one topic of many must
    not keep the others from being tables.
    """
    from millstream.spark.options.values import ValueFormat, value_options
    from millstream.spark.registry import registry_for

    options = {"schemaregistryurl": url, "subscribe": topic}
    asked = value_options({**options, "valueformat": ValueFormat.AVRO.value})
    assert asked is not None
    assert asked.registry is not None
    form = registry_for(asked.registry).format()
    if form is None or form is ValueFormat.PROTOBUF:
        return {}
    typed = {"valueformat": form.value, "schemaregistryurl": url}
    from millstream.spark.datasource import MillstreamSource

    try:
        MillstreamSource({**typed, "subscribe": topic}).schema()
    except InvalidOption as problem:
        log.warning("topic=%s stays bytes: %s", topic, problem)
        return {}
    return typed


def _create(spark: "SparkSession", name: str, kept: Mapping[str, str]) -> None:
    from pyspark.sql.types import StructType

    from millstream.spark.datasource import MillstreamSource

    schema = MillstreamSource({f"option.{option}": text for option, text in kept.items()}).schema()
    columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(columns, StructType)
    spark.catalog.createTable(name, source=MillstreamSource.name(), schema=columns)


def _topics(options: Mapping[str, str]) -> list[str]:
    from millstream.kafka_client.cluster import cluster_for  # Workers import this package, too.

    settings = {name: text for name, text in options.items() if name.startswith(PREFIX)}
    cluster = cluster_for(client_settings(settings, client_id="millstream-catalog"))
    topics = [name for name in cluster.topics() if not name.startswith(_INTERNAL)]
    if len(topics) > TOPICS_MAX:
        raise InvalidOption(
            f"there are {len(topics)} topics, at most {TOPICS_MAX} become tables: name the ones to "
            "have in `topics`"
        )
    return topics


def _checked(database: str) -> str:
    if not re.fullmatch(r"\w+", database, flags=re.ASCII):
        raise InvalidOption(f"database is {database!r}, expected letters, digits and _")
    return database

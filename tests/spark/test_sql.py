"""Topics as tables: options that are kept, catalogs, typed columns."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millstream.spark import check_workers, register
from tests.spark.topics import Topics
from tests.support.broker_process import BrokerProcess


def test_a_catalog_has_a_typed_table_for_each_topic(
    spark: SparkSession, broker: BrokerProcess, topics: Topics
) -> None:
    topics.create("sql.orders", partitions=2)
    topics.create("sql-bills", partitions=1)
    topics.send("sql.orders", [b'{"item": "rye", "kg": 2.5}', b'{"item": "rye", "kg": 0.5}'])
    topics.send("sql-bills", [b"x"], key=b"k")

    names = register(
        spark,
        broker.address,
        topics=["sql.orders", "sql-bills"],
        schemas={"sql.orders": "item string, kg double"},
    )

    assert names == {"sql_bills": "sql-bills", "sql_orders": "sql.orders"}
    query = "SELECT value.item, sum(value.kg) kg FROM mill.sql_orders GROUP BY 1"
    assert [tuple(row) for row in spark.sql(query).collect()] == [("rye", 3.0)]
    spark.sql(
        "INSERT INTO mill.sql_bills (value) "
        "SELECT cast(to_json(value) AS binary) FROM mill.sql_orders"
    )
    joined = "SELECT count(*) n FROM mill.sql_bills b JOIN mill.sql_bills c ON b.offset = c.offset"
    assert spark.sql(joined).collect()[0].n == 3


def test_a_catalog_that_is_made_again_follows_the_topics(
    spark: SparkSession, broker: BrokerProcess, topics: Topics
) -> None:
    topics.create("sql-first")
    register(spark, broker.address, database="again")
    topics.create("sql-second")
    topics.delete("sql-first")
    register(spark, broker.address, database="again")

    names = {row.tableName for row in spark.sql("SHOW TABLES IN again").collect()}
    assert "sql_second" in names
    assert "sql_first" not in names


def test_a_table_reads_less_where_the_query_says_so(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str
) -> None:
    topics.create(topic, partitions=2)
    topics.send(topic, [b'{"kg": %d}' % kg for kg in range(10)], partition=1)
    options = f"`kafka.bootstrap.servers` '{broker.address}', subscribe '{topic}'"
    spark.sql(f"CREATE TABLE narrow USING millstream OPTIONS ({options})")

    filtered = "SELECT count(*) n FROM narrow WITH (brokerFilter = '$.kg >= 7')"
    assert spark.sql(filtered).collect()[0].n == 3
    assert spark.sql("SELECT count(*) n FROM narrow").collect()[0].n == 10


def test_a_table_keeps_no_secret(spark: SparkSession, broker: BrokerProcess) -> None:
    options = f"`kafka.bootstrap.servers` '{broker.address}', `kafka.sasl.password` 'x'"
    with pytest.raises(PySparkException, match=r"a table can't keep kafka\.sasl\.password"):
        spark.sql(f"CREATE TABLE secret USING millstream OPTIONS ({options}, subscribe 'x')")


def test_workers_of_this_machine_have_the_package(spark: SparkSession) -> None:
    (report,) = check_workers(spark)

    assert report["package"]

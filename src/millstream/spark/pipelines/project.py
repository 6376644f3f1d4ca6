"""New pipelines from templates, each of which runs as it is.

Owns the templates' text. The one thing to know: every template reads the topic `orders`, whose
values are JSON such as {"id": 1, "item": "flour", "kg": 2.5, "at": "2026-01-01T12:00:00Z"}.
"""

from pathlib import Path

from millstream.spark.pipelines.failures import InvalidPipeline

_ORDER = "id bigint, item string, kg double, at timestamp"

_SQL = """\
# millstream pipeline run: reads the topic orders, writes orders-grams.
name: NAME
bootstrap: localhost:9092

flows:
  - name: grams
    source:
      topic: orders
      schema: ORDER
      malformed: skip
    sql: |
      SELECT id, item, CAST(kg * 1000 AS BIGINT) AS grams
      FROM source
      WHERE kg > 0
    sink:
      topic: orders-grams
      key: id

tests:
  - name: kilograms become grams, and nothing weighs nothing
    flow: grams
    input:
      orders:
        - value: {id: 1, item: flour, kg: 2.5}
        - value: {id: 2, item: air, kg: 0}
        - value: not an order
    expected:
      - {id: 1, item: flour, grams: 2500}
"""

_VALIDATE = """\
# millstream pipeline run: good orders go to orders.valid, the others to orders.dlq with the reason.
name: NAME
bootstrap: localhost:9092

flows:
  - name: check
    use: validate
    with:
      topic: orders
      to: orders.valid
      schema: ORDER
      expectations:
        - {name: has an id, kind: not_null, field: id}
        - {name: weighs something, kind: range, field: kg, min: 0.001, max: 1000}

tests:
  - name: an order without an id is quarantined
    flow: check
    input:
      orders:
        - value: {id: 1, item: flour, kg: 2.5}
        - value: {item: flour, kg: 2.5}
    expected:
      - {topic: orders.valid, value: {id: 1, item: flour, kg: 2.5}}
      - {topic: orders.dlq, value: {item: flour, kg: 2.5}}
"""

_AGGREGATE = """\
# millstream pipeline run: kilograms of each item in each minute, to the topic orders-by-minute.
name: NAME
bootstrap: localhost:9092

flows:
  - name: minutes
    use: aggregate
    with:
      topic: orders
      to: orders-by-minute
      schema: ORDER
      time: at
      watermark: 10 minutes
      window: {kind: tumbling, size: 1 minute}
      group_by: [item]
      aggregates: {orders: count(*), kg: sum(kg)}
"""

_ARCHIVE = """\
# millstream pipeline run: keeps the topic orders as Parquet files below archive/.
name: NAME
bootstrap: localhost:9092

flows:
  - name: keep
    use: archive
    with:
      topic: orders
      path: archive
"""

_DECLARATIVE = """\
# millstream pipeline run, or Spark's own: spark-pipelines run
name: NAME
storage: file://DIRECTORY/state
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.millstream.bootstrap: localhost:9092
"""

_TRANSFORMATIONS = '''\
"""Orders: a table of all, figures of each item, and a topic of the heavy ones."""

from pyspark import pipelines as dp
from pyspark.sql import functions as F
from pyspark.sql import SparkSession

spark = SparkSession.active()
bootstrap = spark.conf.get("spark.millstream.bootstrap")


@dp.table
def orders():
    """All orders, typed, with where each comes from."""
    rows = (
        spark.readStream.format("millstream")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), "ORDER")
    return rows.select(order.alias("order"), "partition", "offset").select(
        "order.*", F.col("partition").alias("_partition"), F.col("offset").alias("_offset")
    )


@dp.materialized_view
def items():
    """Figures of each item."""
    return spark.read.table("orders").groupBy("item").agg(F.count("*").alias("orders"), F.sum("kg"))


dp.create_sink(
    "heavy_orders",
    "millstream",
    {"kafka.bootstrap.servers": bootstrap, "topic": "orders-heavy"},
)


@dp.append_flow(target="heavy_orders")
def heavy():
    """Orders of more than 40 kg, to a topic."""
    found = spark.readStream.table("orders").where("kg > 40")
    return found.select(
        F.col("id").cast("string").alias("key"),
        F.to_json(F.struct("id", "item", "kg")).alias("value"),
    )
'''

# What stands for what in the templates: NAME, DIRECTORY and ORDER.
TEMPLATES: dict[str, dict[str, str]] = {
    "sql": {"pipeline.yml": _SQL},
    "validate": {"pipeline.yml": _VALIDATE},
    "aggregate": {"pipeline.yml": _AGGREGATE},
    "archive": {"pipeline.yml": _ARCHIVE},
    "sdp": {"spark-pipeline.yml": _DECLARATIVE, "transformations/orders.py": _TRANSFORMATIONS},
}


def create(directory: Path, template: str) -> list[Path]:
    """Write a template's files into a directory that is not there yet."""
    if directory.exists():
        raise InvalidPipeline(f"{directory} is there already")
    written = []
    for name, text in TEMPLATES[template].items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace("NAME", directory.name).replace("ORDER", _ORDER)
        text = text.replace("DIRECTORY", str(directory.resolve()))
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written

"""SQL over topics: all topics of a broker are tables; two of them are joined.

Run it as a program, or cell by cell in a notebook: python sql_over_topics.py
"""

# %%
import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.client import connect
from millstream.spark import register, session


# %%
def run(spark: SparkSession, bootstrap: str, folder: Path) -> list[tuple[str, float]]:
    """Kilograms by customer."""
    with connect(bootstrap) as client:
        client.set_serde("json")
        client.produce("customers", {"id": 1, "name": "ann"})
        client.produce("customers", {"id": 2, "name": "bob"})
        for number in range(6):
            client.produce("sales", {"customer": 1 + number % 2, "kg": float(number)})
    register(
        spark,
        bootstrap,
        topics=["customers", "sales"],
        schemas={"customers": "id bigint, name string", "sales": "customer bigint, kg double"},
    )
    rows = spark.sql("""
        SELECT c.value.name, sum(s.value.kg) AS kg
        FROM mill.sales s JOIN mill.customers c ON s.value.customer = c.value.id
        GROUP BY c.value.name ORDER BY c.value.name
    """)
    return [(row.name, row.kg) for row in rows.collect()]


# %%
if __name__ == "__main__":
    broker = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
    with tempfile.TemporaryDirectory() as directory:
        print(run(session(), broker, Path(directory)))

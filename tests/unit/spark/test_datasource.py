"""What Spark learns of the source before it reads anything."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from millstream.spark.datasource import COLUMNS, MillstreamSource
from millstream.spark.errors import InvalidOption

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}


def test_headers_are_a_column_if_asked_for() -> None:
    plain = str(MillstreamSource(OPTIONS).schema())
    full = MillstreamSource(OPTIONS | {"includeHeaders": "true"}).schema()

    assert plain.startswith("key binary, value binary, topic string")
    assert "headers" not in plain
    assert full == f"{plain}, headers {COLUMNS['headers']}"


@pytest.mark.parametrize(
    "schema",
    ["id bigint, at string", StructType().add("id", LongType()).add("at", StringType()).json()],
)
def test_values_with_a_schema_are_structs(schema: str) -> None:
    source = MillstreamSource(OPTIONS | {"valueFormat": "json", "valueSchema": schema})

    assert (
        str(source.schema())
        .replace(":", " ")
        .startswith(
            (
                "key binary, value struct<id bigint, at string>",
                "key binary, value struct<id bigint,at",
            )
        )
    )


def test_a_schema_may_lie_in_a_file_that_only_the_driver_has(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    field = '{"name": "id", "type": "long"}'
    file.write_text(f'{{"type": "record", "name": "Order", "fields": [{field}]}}', "utf-8")
    source = MillstreamSource(OPTIONS | {"valueFormat": "avro", "valueSchema": str(file)})

    schema = str(source.schema())
    reader = pickle.dumps(source.reader(StructType().add("offset", LongType())))

    assert schema.startswith("key binary, value struct<`id`:bigint>, topic string")
    assert b'"name": "Order"' in reader


def test_a_schema_that_is_none_is_refused() -> None:
    source = MillstreamSource(OPTIONS | {"valueFormat": "json", "valueSchema": '{"fields": 5}'})

    with pytest.raises(InvalidOption, match="valueSchema is no JSON of a Spark schema"):
        source.schema()


def test_a_users_schema_may_only_leave_columns_out() -> None:
    source = MillstreamSource(OPTIONS)

    source.reader(StructType().add("offset", LongType()))
    with pytest.raises(InvalidOption, match="there is no column id; there are key, value"):
        source.reader(StructType().add("id", LongType()))
    with pytest.raises(InvalidOption, match="column offset is bigint, it can't be string"):
        source.streamReader(StructType().add("offset", StringType())).initialOffset()


def test_looking_for_data_sources_loads_neither_arrow_nor_the_wire() -> None:
    """Spark imports the module in every worker, also in those that never read a topic."""
    code = (
        "import sys, pyspark_millstream as m; "
        "heavy = {'numpy', 'pyarrow', 'msgspec', 'millstream.kafka_client.cluster'}; "
        "before = set(sys.modules); print(m.DefaultSource.name(), sorted(heavy & before))"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout == "millstream []\n"

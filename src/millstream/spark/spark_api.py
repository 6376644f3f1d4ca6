"""The classes of Spark's data source API, under the same names in every supported version.

A version that lacks one gets a stand-in with the fields that the source reads. `VERSION` is the
Spark that is installed here. Importing this module in a Spark without Python data sources raises
`UnsupportedSpark`; a Spark that is too new is refused when the source is used, because Spark
imports it to look for other sources, too.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream.spark.errors import UnsupportedSpark
from millstream.spark.versions import ADMISSION_CONTROL, SPARK_MIN, STREAM_ARROW_WRITER, parse

VERSION_TEXT: str = pyspark.__version__
VERSION = parse(VERSION_TEXT)
if VERSION < SPARK_MIN:
    raise UnsupportedSpark(VERSION_TEXT)

from pyspark.sql.datasource import DataSource  # noqa: E402  # Spark 3 has no such module.

if TYPE_CHECKING or ADMISSION_CONTROL.works_in(VERSION):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    @dataclass
    class ReadLimit: ...

    @dataclass
    class ReadAllAvailable(ReadLimit): ...

    @dataclass
    class ReadMaxRows(ReadLimit):
        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        max_bytes: int

    @dataclass
    class ReadMinRows(ReadLimit):
        min_rows: int

    class SupportsTriggerAvailableNow: ...


if TYPE_CHECKING or STREAM_ARROW_WRITER.works_in(VERSION):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceArrowWriter, DataSourceStreamWriter):
        """Spark 4.0 hands Arrow batches to every writer that is a `DataSourceArrowWriter`."""


_TIMES: dict[str, Any] = (
    {"timezone": "UTC"} if VERSION >= (4, 2) else {}
)  # Earlier versions know no other zone.


def arrow_schema(schema: StructType) -> Any:  # Arrow ships no types.
    """The Arrow schema that Spark expects of rows, with times in UTC."""
    return to_arrow_schema(schema, **_TIMES)


__all__ = [
    "VERSION",
    "arrow_schema",
    "VERSION_TEXT",
    "DataSource",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
]

"""Registers `format("millstream")`: the schema of the rows, and the readers and writers for Spark.

Every worker that looks for data sources imports this module, so it imports the modules of readers
and writers only when Spark asks for one.
"""

import json
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from millstream.spark.errors import InvalidOption
from millstream.spark.options.source import (
    SourceOptions,
    includes_headers,
    source_options,
    value_format,
)
from millstream.spark.options.values import ValueFormat, ValueOptions

if TYPE_CHECKING:
    from millstream.spark.read.batch import BatchReader
    from millstream.spark.read.stream import StreamReader
    from millstream.spark.write.spark_writers import BatchWriter, StreamWriter

# The rows of Spark's Kafka connector, in Spark's names of types.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}


class MillstreamSource(DataSource):
    """Topics of a Millstream or Kafka cluster as rows."""

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> str:
        columns = dict(COLUMNS)
        values = value_format(self.options)
        if values is not None:
            columns["value"] = _struct(_loaded(values))
        if not includes_headers(self.options):
            del columns["headers"]
        return ", ".join(f"{name} {kind}" for name, kind in columns.items())

    def reader(self, schema: StructType) -> "BatchReader":
        from millstream.spark.read.batch import BatchReader

        self._check(schema)
        return BatchReader(self._source_options(is_streaming=False), schema)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802  # Spark's name.
        from millstream.spark.read.stream import StreamReader

        self._check(schema)
        return StreamReader(self._source_options(is_streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        from millstream.spark.options.sink import sink_options
        from millstream.spark.write.spark_writers import BatchWriter

        if overwrite:
            raise InvalidOption("save mode overwrite is not allowed: a topic is appended to")
        return BatchWriter(sink_options(self.options, is_streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802
        """Of output mode complete, `overwrite`, every batch is appended, as Kafka's sink does."""
        from millstream.spark.options.sink import sink_options
        from millstream.spark.write.spark_writers import StreamWriter

        return StreamWriter(sink_options(self.options, is_streaming=True), schema)

    def _source_options(self, *, is_streaming: bool) -> SourceOptions:
        options = source_options(self.options, is_streaming=is_streaming)
        return (
            options if options.values is None else replace(options, values=_loaded(options.values))
        )

    def _check(self, schema: StructType) -> None:
        """A schema that the user gave may leave columns out, and change nothing else."""
        has_structs = value_format(self.options) is not None
        for field in schema:
            if field.name not in COLUMNS:
                raise InvalidOption(
                    f"there is no column {field.name}; there are {', '.join(COLUMNS)}"
                )
            kind = field.dataType.simpleString()
            is_struct = field.name == "value" and has_structs
            if is_struct and not kind.startswith("struct<"):
                raise InvalidOption(f"with valueFormat, column value is a struct, not {kind}")
            if not is_struct and kind != COLUMNS[field.name]:
                raise InvalidOption(
                    f"column {field.name} is {COLUMNS[field.name]}, it can't be {kind}"
                )


def _loaded(values: ValueOptions) -> ValueOptions:
    """With a schema that lies in a file read from it: tasks may run where the file is not."""
    if values.form is ValueFormat.JSON or values.schema.startswith(("{", "[", '"')):
        return values
    try:
        schema_bytes = Path(values.schema).read_bytes()
    except (OSError, ValueError):
        return values  # It is the schema itself, or nothing; the format says which.
    is_binary = values.form is ValueFormat.PROTOBUF
    return replace(values, schema=(b64encode(schema_bytes) if is_binary else schema_bytes).decode())


def _struct(values: ValueOptions) -> str:
    """The type of the column `value`."""
    match values.form:
        case ValueFormat.JSON:
            return _json_struct(values.schema)
        case ValueFormat.AVRO:
            from millstream.spark.values.avro import avro_type

            return avro_type(values.schema)
        case ValueFormat.PROTOBUF:
            from millstream.spark.values.protobuf import protobuf_type

            assert values.message is not None
            return protobuf_type(values.schema, values.message)
        case other:
            assert_never(other)


def _json_struct(fields: str) -> str:
    """A type of the fields, given as DDL or as the JSON of a Spark schema."""
    if not fields.startswith("{"):
        return f"struct<{fields}>"
    try:
        return StructType.fromJson(json.loads(fields)).simpleString()
    except (KeyError, TypeError, ValueError) as problem:
        raise InvalidOption(f"valueSchema is no JSON of a Spark schema: {problem!r}") from None

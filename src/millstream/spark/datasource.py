"""Registers `format("millstream")`: the schema of the rows, and the readers and writers for Spark.

Every worker that looks for data sources imports this module, so it imports the modules of readers
and writers only when Spark asks for one.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from millstream.spark import versions
from millstream.spark.errors import InvalidOption
from millstream.spark.options.source import (
    SourceOptions,
    includes_headers,
    source_options,
    value_format,
)
from millstream.spark.options.tables import (
    CARRIER,
    comment,
    comment_in_ddl,
    for_reading,
    for_writing,
    kept_options,
    table_options,
)
from millstream.spark.options.values import ValueFormat, ValueOptions
from millstream.spark.sentences import with_sentences
from millstream.spark.spark_api import VERSION, VERSION_TEXT, DataSource

if TYPE_CHECKING:
    from millstream.spark.read.batch import BatchReader
    from millstream.spark.read.stream import RefusedStreamReader, StreamReader
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


_SERVERS = "kafka.bootstrap.servers"
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
}


@with_sentences
class MillstreamSource(DataSource):
    """Topics of a Millstream or Kafka cluster as rows."""

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        versions.check(VERSION_TEXT)
        super().__init__(options)

    def schema(self) -> str | StructType:
        kept = table_options(self.options)
        options = self.options if kept is None else kept
        columns = dict(COLUMNS)
        values = value_format(options)
        if values is not None:
            columns["value"] = _struct(_loaded(values))
        if not includes_headers(options):
            del columns["headers"]
        if kept is not None and values is None:
            return _writable_table(columns, kept)
        if kept is not None:
            columns[CARRIER] += " " + comment_in_ddl(kept)
        return ", ".join(f"{name} {kind}" for name, kind in columns.items())

    def reader(self, schema: StructType) -> "BatchReader":
        from millstream.spark.read.batch import BatchReader

        self.options = {**for_reading(_kept(schema)), **self.options}
        self._check(schema)
        return BatchReader(self._source_options(is_streaming=False), schema)

    def streamReader(  # noqa: N802  # Spark's name.
        self, schema: StructType
    ) -> "StreamReader | RefusedStreamReader":
        from millstream.spark.read.stream import RefusedStreamReader

        try:
            return self._stream_reader(schema)
        except InvalidOption as problem:
            return RefusedStreamReader(problem)

    def _stream_reader(self, schema: StructType) -> "StreamReader":
        from millstream.spark.read.stream import StreamReader, UnlimitedStreamReader

        self.options = {**for_reading(_kept(schema)), **self.options}
        self._check(schema)
        options = self._source_options(is_streaming=True)
        if versions.ADMISSION_CONTROL.works_in(VERSION):
            return StreamReader(options, schema)
        _refuse_limits(options)
        return UnlimitedStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        from millstream.spark.options.sink import sink_options
        from millstream.spark.write.spark_writers import BatchWriter

        self.options = {**for_writing(_kept(schema)), **self.options}
        if not any(name.lower() == _SERVERS for name in self.options):
            raise InvalidOption(
                f"option {_SERVERS} must be specified: host:port,... In SQL, Spark hands the "
                "options of a table over if INSERT names the columns and leaves some out: INSERT "
                "INTO table (key, value) SELECT ..."
            )
        if overwrite:
            raise InvalidOption("save mode overwrite is not allowed: a topic is appended to")
        return BatchWriter(sink_options(self.options, is_streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802
        """Of output mode complete, `overwrite`, every batch is appended, as Kafka's sink does."""
        from millstream.spark.options.sink import sink_options
        from millstream.spark.write.spark_writers import StreamWriter

        if not any(name.lower() == _SERVERS for name in self.options):
            raise InvalidOption(
                f"option {_SERVERS} must be specified: host:port,... Spark keeps the options of a "
                "table to itself in toTable(): give them to writeStream again"
            )
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


def _kept(schema: StructType) -> dict[str, str]:
    """The options that the table of these columns keeps; none if they are of no table."""
    return kept_options({field.name: field.metadata.get("comment") for field in schema})


def _writable_table(columns: Mapping[str, str], kept: Mapping[str, str]) -> StructType:
    """The columns of a new table, which may be left out of INSERT."""
    left_out = {"CURRENT_DEFAULT": "NULL", "EXISTS_DEFAULT": "NULL"}  # Spark's names.
    schema = StructType()
    for name in columns:
        metadata = left_out | ({"comment": comment(kept)} if name == CARRIER else {})
        schema.add(name, _TYPES[name], True, metadata)
    return schema


def _refuse_limits(options: SourceOptions) -> None:
    limits = {
        "maxOffsetsPerTrigger": options.offsets_max,
        "maxBytesPerTrigger": options.bytes_max,
        "minOffsetsPerTrigger": options.offsets_min,
    }
    for name, limit in limits.items():
        if limit is not None:
            raise InvalidOption(
                f"{name} needs Spark 4.2 or newer, this is {VERSION_TEXT}: it does not say where a "
                "query stands when it asks how far to read. Leave the option out, then each "
                "trigger takes all there is, or use a newer Spark"
            )


def _loaded(values: ValueOptions) -> ValueOptions:
    """With a schema that lies in a file or a registry read from it, once and on the driver.

    Tasks may run where the file is not, and must all have the same schema.
    """
    if not values.schema and values.registry is not None:
        # With Arrow, which processes that only look the source up do without.
        from millstream.spark.registry import registry_for
        from millstream.spark.values.json_schema import json_schema_fields

        text = registry_for(values.registry).subject_schema(values.form)
        is_json = values.form is ValueFormat.JSON
        return replace(values, schema=json_schema_fields(text) if is_json else text)
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

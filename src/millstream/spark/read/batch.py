"""Reads batch queries: all records between two positions, planned once.

Spark asks for the plan of a DataFrame once and keeps it, so a DataFrame that is read twice has the
same rows twice, however much was written in between.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millstream.kafka_client.cluster import cluster_for
from millstream.spark.options.places import Specific
from millstream.spark.options.source import OnError, SourceOptions
from millstream.spark.read.arrow import Array, Schema
from millstream.spark.read.lookups import Positions
from millstream.spark.read.offset_ranges import OffsetRange, Offsets, ranges, split
from millstream.spark.read.range_reader import RangeReader, report_loss
from millstream.spark.read.views import check_filter
from millstream.spark.sentences import with_sentences
from millstream.spark.spark_api import arrow_schema
from millstream.spark.worker_memory import exempt_modules

if TYPE_CHECKING:
    from millstream.spark.values.bad_values import DecoderMaker


@with_sentences
class BatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks. Holds nothing that can't be sent to them."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        positions = Positions(self._options)
        targets = positions.require()
        starts, ends = positions.starting(targets), positions.ending(targets)
        if isinstance(self._options.ending, Specific):
            ends = self._bounded(ends, positions.latest(targets))
        # A range that ends before it starts is empty here; only streams meet topics made anew.
        topic_ids = positions.topic_ids()
        planned = [r for r in ranges(starts, ends, topic_ids) if r.start == starts[r.target]]
        check_filter(positions.cluster, planned, self._options.broker_filter)
        return [InputPartition(r) for r in tasks(planned, self._options)]

    def read(self, partition: InputPartition) -> Iterator[Array]:
        return read(partition, self._options, self._schema)

    def _bounded(self, ends: Offsets, latest: Offsets) -> Offsets:
        for target in sorted(ends):
            if ends[target] > latest[target]:
                report_loss(
                    f"endingOffsets asks for {target} up to {ends[target]}, it ends at "
                    f"{latest[target]}",
                    is_fatal=self._options.fails_on_data_loss,
                )
        return {target: min(ends[target], latest[target]) for target in ends}


def tasks(planned: list[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """Cut ranges into tasks as the options ask."""
    return split(
        planned,
        partitions_min=options.partitions_min,
        records_max=options.partition_records_max,
    )


def read(partition: InputPartition, options: SourceOptions, schema: StructType) -> Iterator[Array]:
    """Read the ranges of one task, with the client that this worker process keeps."""
    if partition.value is None:
        return iter(())  # Spark plans one empty task for a plan without ranges.
    planned: OffsetRange | tuple[OffsetRange, ...] = partition.value
    exempt_modules()
    columns = arrow_schema(schema)
    reader = RangeReader(
        cluster_for(options.client),
        columns,
        poll_ms_max=options.poll_ms_max,
        fails_on_data_loss=options.fails_on_data_loss,
        broker_filter=options.broker_filter,
        decoder_of=_decoder_maker(options, columns),
    )
    return reader.read(*([planned] if isinstance(planned, OffsetRange) else planned))


def _decoder_maker(options: SourceOptions, schema: Schema) -> "DecoderMaker | None":
    """How values are read, unless they stay bytes or are not asked for."""
    if options.values is None or "value" not in schema.names:
        return None
    # Every worker of every query would load these, and few have values to decode.
    from millstream.spark.values.bad_values import ValueDecoder
    from millstream.spark.values.dead_letters import DeadLetters
    from millstream.spark.values.formats import value_reader

    read_values = value_reader(options.values, schema.field("value").type)

    def decoder_of(offset_range: OffsetRange) -> "ValueDecoder":
        letters = None
        if options.on_error is OnError.DLQ:
            cluster = cluster_for(options.client)
            letters = DeadLetters(cluster, options.group, offset_range, options.letter_groups)
        return ValueDecoder(offset_range, read_values, options.on_error, letters)

    return decoder_of

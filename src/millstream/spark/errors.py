"""Errors between Spark and a broker, each with the sentence that a user reads.

Spark prints the message of an error and little else that helps, so each message says what happened
and, where there is one, what to do. `kafka_client.errors` has the errors of a
single request; those that users see are named here as well.
"""

from millstream import __version__
from millstream.errors import MillstreamError
from millstream.kafka_client.errors import Refused as Refused
from millstream.kafka_client.errors import UnknownPartition as UnknownPartition
from millstream.kafka_client.errors import Unreachable as Unreachable


class InvalidOption(MillstreamError, ValueError):
    """An option that is missing, misspelt, contradicted by another one, or not supported."""


class DataLoss(MillstreamError):
    """Records that the query should have seen are gone, and `failOnDataLoss` is true."""

    def __init__(self, loss: str) -> None:
        super().__init__(
            f"{loss}. Some data may have been missed. If that is acceptable, set the option "
            "failOnDataLoss to false and start the query again"
        )


class DamagedRecords(MillstreamError):
    """Records of the range cannot be served or decoded. `failOnDataLoss` never skips them.

    That option accepts records that are gone; these are still there, and may be restored.
    """

    @classmethod
    def on_disk(cls, topic: str, partition: int, position: int) -> "DamagedRecords":
        """The broker has refused to read at `position` with CORRUPT_MESSAGE."""
        return cls(
            f"partition {partition} of topic {topic} is damaged on the broker's disk at offset "
            f"{position} (CORRUPT_MESSAGE); no record was skipped. Restore the broker's file from "
            "a backup, or give the damaged records up, and start the query again. On Millstream, "
            "`millstream health` names all damaged offsets and the file, and this command gives "
            f"the records up: millstream repair --skip {topic}/{partition}@{position}"
        )

    @classmethod
    def on_the_way(
        cls, topic: str, partition: int, position: int, problem: Exception
    ) -> "DamagedRecords":
        """The bytes of a response are no batches, or fail their checksum."""
        return cls(
            f"the broker's response with partition {partition} of topic {topic} from offset "
            f"{position} on was damaged: {problem}; no record was skipped. Start the query again; "
            "if it fails at the same offset, see whether the broker reports damage there (on "
            "Millstream: millstream health)"
        )

    @classmethod
    def undecodable(
        cls, topic: str, partition: int, offsets: range, problem: Exception
    ) -> "DamagedRecords":
        """A batch with a right checksum holds what are no records."""
        return cls(
            f"records of partition {partition} of topic {topic} cannot be decoded, within offsets "
            f"{offsets.start} to {offsets.stop - 1}: {problem}; no record was skipped. Their "
            "checksum is right, so their producer wrote them like this. To read on behind them, "
            f'start a query with a new checkpoint and startingOffsets {{"{topic}": '
            f'{{"{partition}": {offsets.stop}}}}}'
        )


class UnreadableValue(MillstreamError):
    """A value is not of `valueFormat`, and `onError` is fail."""


class LibraryMissing(MillstreamError, ModuleNotFoundError):
    """An option needs a library that is not installed."""

    def __init__(self, option: str, library: str, extra: str) -> None:
        super().__init__(
            f"{option} needs the library {library}, in the Python of the workers too: pip install "
            f"'millstream[{extra}]'"
        )


class RegistryFailed(MillstreamError):
    """A schema registry does not answer, or not with what was asked for."""


class Fenced(MillstreamError):
    """Another attempt, or another driver with the same checkpoint, has taken over."""

    def __init__(self, producer: object) -> None:
        super().__init__(f"{producer} was taken over by another task or another run of this query")


class BatchRefused(MillstreamError):
    """A batch can't be ended as asked: it is decided already, or one of its parts is lost."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the broker refuses to end the batch: {reason}. If all of its tasks were cut off from "
            "the broker for longer than kafka.transaction.timeout.ms, raise that; the query may be "
            "started again"
        )


class OtherQuery(MillstreamError):
    """The checkpoint on the driver's disk is not the checkpoint of the query that writes."""

    def __init__(self, query: str, read: str) -> None:
        super().__init__(
            f"query {query} is not the one whose metadata lies in its checkpointLocation on the "
            f"driver's local disk ({read}): write the location with its scheme, as in hdfs://..., "
            "or set transactionalIdPrefix to a name of your own for this query"
        )


class OlderCheckpoint(MillstreamError):
    """The query goes on from a checkpoint that is older than its last committed batch."""

    def __init__(self, query: str, batch_id: int, last_committed_batch: int) -> None:
        super().__init__(
            f"query {query} runs batch {batch_id}, but the sink has committed its batches up to "
            f"{last_committed_batch}: the checkpoint is older than what was written, as a copy "
            "that was put back is. Nothing was written. Put back the newer checkpoint; or set the "
            "option transactionalIdPrefix to a name that was not used before, and the query goes "
            f"on from batch {batch_id}: what it reads again, it writes again"
        )


class UnwritableRow(MillstreamError):
    """The row cannot be written: invalid topic, partition or headers."""


class UnsupportedSpark(MillstreamError, ImportError):
    """The Spark that is installed is none that the source and sink run in."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f'this is Spark {version}; format("millstream") needs Spark 4.0 to 4.3, because '
            "earlier ones have no Python data sources and later ones were not tested: pip install "
            "'pyspark>=4.0,<4.4'. On an older Spark use its Kafka connector, format(\"kafka\"): "
            "the broker speaks its protocol"
        )


class WorkerLacksPackage(MillstreamError):
    """The Python that Spark's workers run lacks this package, or has it in another version."""

    def __init__(self, host: str, python: str, package: str) -> None:
        has = f"has millstream {package}" if package else "does not have the package millstream"
        super().__init__(
            f"the Python of Spark's workers on {host}, {python}, {has}, and this driver has "
            f"{__version__}: install the same on every node, or set PYSPARK_PYTHON to a Python "
            "that has it (docs/spark/clusters.md)"
        )


class JavaMissing(MillstreamError):
    """Java is missing, or too old for Spark."""


class QueryStopped(MillstreamError):
    """The query of a batch was stopped while the batch was written; the next run repeats it."""

"""Errors between Spark and a broker, each with the sentence that a user reads.

Spark prints the message of an error and little else that helps, so each message says what happened
and, where there is one, what to do. Errors of a single response of a broker are in `cluster`.
"""

from millstream.errors import MillstreamError


class InvalidOption(MillstreamError, ValueError):
    """An option that is missing, misspelt, contradicted by another one, or not supported."""


class DataLoss(MillstreamError):
    """Records that the query should have seen are gone, and `failOnDataLoss` is true."""

    def __init__(self, loss: str) -> None:
        super().__init__(
            f"{loss}. Some data may have been missed. If that is acceptable, set the option "
            "failOnDataLoss to false and start the query again"
        )


class UnknownPartition(MillstreamError):
    """The topic or the partition does not exist, or not any more."""

    def __init__(self, target: object) -> None:
        super().__init__(f"there is no topic or partition {target}")


class Unreachable(MillstreamError):
    """No broker completed the request within the time that the options allow."""


class Refused(MillstreamError):
    """A broker refused a request, and would refuse it again."""


class UnreadableValue(MillstreamError):
    """A value is not of `valueFormat`, and `onError` is fail."""


class LibraryMissing(MillstreamError, ModuleNotFoundError):
    """An option needs a library that is not installed."""

    def __init__(self, option: str, library: str, extra: str) -> None:
        super().__init__(
            f"{option} needs the library {library}, in the Python of the workers too: pip install "
            f"'millstream[{extra}]'"
        )


class Fenced(MillstreamError):
    """Another attempt, or another driver with the same checkpoint, has taken over."""

    def __init__(self, producer: object) -> None:
        super().__init__(f"{producer} was taken over by another task or another run of this query")


class BatchRefused(MillstreamError):
    """A batch can't be ended as asked: it is decided already, or one of its parts is lost."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the broker refuses to end the batch: {reason}. If a transaction took too long, raise "
            "kafka.transaction.timeout.ms or make batches smaller"
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


class JavaMissing(MillstreamError):
    """Java is missing, or too old for Spark."""

"""What can go wrong between Spark and a broker, as the sentence that a user reads.

Spark prints the message of these and little else that helps, so each says what was found and, where
there is one, the way out. What a single answer of a broker says is not here but in `cluster`.
"""

from millstream.errors import MillstreamError


class InvalidOption(MillstreamError, ValueError):
    """An option that is missing, misspelt, contradicted by another one, or not supported."""


class DataLoss(MillstreamError):
    """Records that the query should have seen are gone, and `failOnDataLoss` is true."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Some data may have been missed. If that is acceptable, set the option "
            "failOnDataLoss to false and start the query again"
        )


class UnknownPartition(MillstreamError):
    """The topic or the partition does not exist, or not any more."""

    def __init__(self, what: object) -> None:
        super().__init__(f"there is no topic or partition {what}")


class Unreachable(MillstreamError):
    """No broker did what was asked for within the time that the options allow."""


class Refused(MillstreamError):
    """A broker's answer that asking again does not change."""


class UnreadableValue(MillstreamError):
    """A value is not what `valueFormat` says, and `onError` is fail."""


class LibraryMissing(MillstreamError, ModuleNotFoundError):
    """What an option asks for needs a library that was not installed along."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the library {library}, in the Python of the workers too: pip install "
            f"'millstream[{extra}]'"
        )


class Fenced(MillstreamError):
    """Another attempt, or another driver with the same checkpoint, has taken over."""

    def __init__(self, what: object) -> None:
        super().__init__(f"{what} was taken over by another task or another run of this query")


class BatchRefused(MillstreamError):
    """A batch can't be ended as asked: it is decided already, or one of its parts is lost."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the broker refuses to end the batch: {what}. If a transaction took too long, raise "
            "kafka.transaction.timeout.ms or make batches smaller"
        )


class OtherQuery(MillstreamError):
    """The checkpoint that was read is not that of the query whose rows are written."""

    def __init__(self, query: str, read: str) -> None:
        super().__init__(
            f"query {query} is not the one whose metadata lies in its checkpointLocation on the "
            f"driver's local disk ({read}): write the location with its scheme, as in hdfs://..., "
            "or set transactionalIdPrefix to a name of your own for this query"
        )


class OlderCheckpoint(MillstreamError):
    """The query goes on from a checkpoint that is older than what was written from it."""

    def __init__(self, query: str, batch_id: int, last_committed_batch: int) -> None:
        super().__init__(
            f"query {query} runs batch {batch_id}, but the sink has committed its batches up to "
            f"{last_committed_batch}: the checkpoint is older than what was written, as a copy "
            "that was put back is. Nothing was written. Put back the newer checkpoint; or set the "
            "option transactionalIdPrefix to a name that was not used before, and the query goes "
            f"on from batch {batch_id}: what it reads again, it writes again"
        )


class UnwritableRow(MillstreamError):
    """A row that is no record: its topic, partition or headers say nothing that can be done."""


class JavaMissing(MillstreamError):
    """Spark needs a Java that is not there, or not in the right version."""

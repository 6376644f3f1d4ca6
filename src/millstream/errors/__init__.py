"""Errors of the broker, in four kinds.

`RequestError` becomes a reply and says whether asking again can help. `ProtocolError` closes one
connection. `StorageError` refuses one request if it is transient (a full disk, no descriptor left),
and else stops one partition, or one data directory; the node lives. `StartupError` is one sentence
to the operator before anything was touched.

Anything else, an `AssertionError` above all, is a mistake of this program. Raised below the gate
(engine, control, replication, raft, storage) it stops the node: wrong is worse than down. Raised in
what belongs to one client (a gateway, a decoder, a callback of a gateway) it ends that connection.
`server.faults` decides which.
"""

import errno
from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from millstream.base_error import MillstreamError as MillstreamError


class RequestError(MillstreamError):
    """Answered to the client. Subclasses state whether asking again can help."""

    retriable: ClassVar[bool] = False


class ProtocolError(MillstreamError):
    """The peer sent bytes that no rule allows. Answer if the protocol can, then close."""


class StorageError(MillstreamError):
    """Storage refused. A transient refusal changed nothing and may pass; any other one stays: the
    partition stops serving and says so.
    """

    is_transient: ClassVar[bool] = False


class StartupError(MillstreamError):
    """The node cannot start; the message is the sentence the operator reads."""


class InvalidRequest(RequestError):
    """The request contradicts itself, names a thing twice, or names what cannot be asked for."""


# -- topics ----------------------------------------------------------------------------------------


class InvalidTopicName(RequestError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:260]!r} is not a topic name: 1 to 249 of a-z A-Z 0-9 . _ -, not '.' or '..'"
        )
        self.name = name


class UnknownTopic(RequestError, LookupError):
    """No such topic or partition. Retriable: it may be on its way."""

    retriable = True

    def __init__(self, target: object) -> None:
        super().__init__(f"there is no topic or partition {target}")
        self.target = target


class TopicExists(RequestError):
    def __init__(self, name: str) -> None:
        super().__init__(f"topic {name!r} exists already")
        self.name = name


class TopicNameCollides(RequestError):
    """`.` and `_` are the same in metric names, so Kafka forbids two topics that differ in them."""

    def __init__(self, name: str, other: str) -> None:
        super().__init__(f"topic name {name!r} collides with {other!r}: '.' and '_' count as equal")


class InternalTopic(RequestError):
    """An internal topic of the broker; clients may read it, not write."""

    def __init__(self, name: str, act: str = "written to") -> None:
        super().__init__(f"{name} is the broker's own: it cannot be {act}")


class PolicyViolation(RequestError):
    """A rule of this cluster forbids it; the message says what to do."""


class QuotaExceeded(RequestError):
    """The client has changed too many partitions in too short a time (KIP-599)."""

    retriable = True

    def __init__(self, throttle_ms: int) -> None:
        super().__init__(f"the quota of changes is used up; ask again in {throttle_ms} ms")
        self.throttle_ms = throttle_ms


class InvalidPartitions(RequestError):
    """A partition count that is not allowed."""


class InvalidReplication(RequestError):
    """A replica count that the nodes at hand cannot give."""


class InvalidPlacement(RequestError):
    """Replicas on nodes that do not exist, twice on the same one, or not as many as needed."""


class InvalidSetting(RequestError):
    """A setting that does not exist, or a value that it cannot take."""


# -- batches ---------------------------------------------------------------------------------------


class InvalidBatch(RequestError):
    """The batch breaks a rule of the format: magic, counts, deltas, flags, nested compression."""


class InvalidRecords(InvalidBatch):
    """Some records break a rule of their topic. The batch is refused whole; `indexes` names them.

    `problem` is the end of a sentence that begins with the record.
    """

    def __init__(self, problem: str, indexes: Sequence[int]) -> None:
        super().__init__(f"record {indexes[0]} of the batch {problem}")
        self.problem = problem
        self.indexes = indexes


class DelayTooLong(InvalidBatch):
    """A record is to be delivered later than the node allows."""

    def __init__(self, index: int, delay_ms: int, delay_ms_max: int) -> None:
        super().__init__(
            f"record {index} is to be delivered in {delay_ms} ms, "
            f"at most {delay_ms_max} (limits.delay_ms_max) are allowed"
        )
        self.delay_ms_max = delay_ms_max


class CorruptBatch(RequestError):
    """The bytes are not what the producer wrote: checksum or lengths do not agree."""

    retriable = True


class BatchTooLarge(RequestError):
    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(f"batch of {size} bytes, at most {size_max} here")
        self.size = size
        self.size_max = size_max


class UnpackedTooLarge(BatchTooLarge):
    """The records of a compressed batch take more than they may."""

    def __init__(self, size_max: int) -> None:
        RequestError.__init__(
            self,
            f"the records of the batch unpack to more than {size_max} bytes, the most for a batch "
            "of this size; send less in one batch, or raise limits.batch_decompressed_bytes_max",
        )
        self.size = self.size_max = size_max


class UnsupportedCompression(RequestError):
    """A compression codec that does not exist or is not allowed here."""


class InvalidTimestamp(RequestError):
    """A timestamp outside of what the topic takes."""


# -- producers -------------------------------------------------------------------------------------


class OutOfOrderSequence(RequestError):
    def __init__(self, producer_id: int, expected: int, got: int) -> None:
        super().__init__(f"producer {producer_id} sent sequence {got}, expected {expected}")
        self.producer_id = producer_id
        self.expected = expected
        self.got = got


class StaleProducerEpoch(RequestError):
    def __init__(self, producer_id: int, current: int, got: int) -> None:
        super().__init__(f"producer {producer_id} is at epoch {current}, not {got}")
        self.producer_id = producer_id


class StaleCoordinatorEpoch(RequestError):
    """A deposed transaction coordinator tried to end a transaction."""

    def __init__(self, producer_id: int, current: int, got: int) -> None:
        super().__init__(f"coordinator of producer {producer_id} is at epoch {current}, not {got}")
        self.producer_id = producer_id


class InvalidTransactionState(RequestError):
    """The request does not fit the state of the producer's transaction."""


class ProducerFenced(RequestError):
    """Another process has taken over the transactional id: this one must stop."""

    def __init__(self, transactional_id: str, epoch: int) -> None:
        super().__init__(f"epoch {epoch} of {transactional_id!r} is over")


class UnknownProducer(RequestError):
    """The producer id is not the one that this transactional id has."""

    def __init__(self, transactional_id: str, producer_id: int) -> None:
        super().__init__(f"{transactional_id!r} has no producer {producer_id}")


class TransactionInProgress(RequestError):
    """The transaction before is still being ended: ask again in a moment."""

    retriable = True

    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"a transaction of {transactional_id!r} is still being ended")


class InvalidTransactionTimeout(RequestError):
    def __init__(self, got_ms: int, high_ms: int) -> None:
        super().__init__(f"transaction timeout {got_ms} ms, it must be in 1 to {high_ms}")


class TransactionNotFound(RequestError):
    def __init__(self, transactional_id: str) -> None:
        super().__init__(f"nothing is known of transactional id {transactional_id!r}")


class NotAttempted(RequestError):
    """Left undone, because another part of the same request was refused."""

    def __init__(self) -> None:
        super().__init__("not attempted, because something else in the request was refused")


# -- places and leadership -------------------------------------------------------------------------


class OffsetOutOfRange(RequestError):
    def __init__(self, target: object, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} of {target} is not in {start} to {end}")
        self.offset = offset
        self.start_offset = start
        self.end_offset = end


class NotLeader(RequestError):
    """Another node leads; `leader` is a hint and None during elections."""

    retriable = True

    def __init__(self, target: object, leader: int | None) -> None:
        led = "has no leader at the moment" if leader is None else f"is led by node {leader}"
        super().__init__(f"{target} {led}")
        self.leader = leader


class StaleLeaderEpoch(RequestError):
    """The client knows an older leader epoch than this node: refresh and ask again."""

    retriable = True


class UnknownLeaderEpoch(RequestError):
    """The client knows a newer leader epoch than this node: wait and ask again."""

    retriable = True


class ChangeRefused(RequestError):
    """The voters or the leader of a log stay as they are. `reason` is why; most reasons pass."""

    retriable = True

    def __init__(self, reason: Enum) -> None:
        super().__init__(f"refused: {reason.value}")
        self.reason = reason


class NotEnoughReplicas(RequestError):
    """Fewer replicas are in step than `min_insync_replicas` asks for. Nothing was written."""

    retriable = True


class NotEnoughReplicasAfterAppend(RequestError):
    """The records were written, and fewer replicas than `min_insync_replicas` follow since."""

    retriable = True


class TimedOut(RequestError, TimeoutError):
    """The answer did not come in time. What was asked may still happen."""

    retriable = True


class PeerUnreachable(RequestError):
    """Another node could not be asked, or its link was lost before it answered."""

    retriable = True

    def __init__(self, node: int, *, was_sent: bool) -> None:
        state = "was lost before it answered" if was_sent else "is not there"
        super().__init__(f"the link to node {node} {state}")
        self.node = node
        self.was_sent = was_sent  # Then what was asked may still happen.


class CallRefused(RequestError):
    """Another node refused a call, with an error of its own."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind  # The name of its error class.


class LeaderNotReady(RequestError):
    """A new leader has not committed its own epoch: it does not know yet what is committed."""

    retriable = True

    def __init__(self, target: object) -> None:
        super().__init__(f"the leader of {target} is new and does not know yet what is committed")


class Overloaded(RequestError):
    """A bounded queue is full: wait, then ask again."""

    retriable = True


class StorageUnavailable(RequestError):
    """The partition's disk refused. What a client sees of a `StorageError`."""

    retriable = True


class DamagedRecords(StorageUnavailable):
    """These records are not what was written: asking again does not help, an operator must act."""

    retriable = False


class Denied(RequestError, PermissionError):
    """The session may not do this."""

    def __init__(self, principal: object, operation: str, resource: str) -> None:
        super().__init__(f"{principal} may not {operation} {resource}")
        self.principal = principal
        self.operation = operation
        self.resource = resource

    def about(self, resource: str) -> "Denied":
        """The same refusal for what the client calls the resource."""
        return Denied(self.principal, self.operation, resource)


# -- coordinators ----------------------------------------------------------------------------------


class NotCoordinator(RequestError):
    """Another node coordinates this group or transactional id; `leader` is a hint, or None."""

    retriable = True

    def __init__(self, key: str, leader: int | None) -> None:
        where = "somewhere else" if leader is None else f"by node {leader}"
        super().__init__(f"{key!r} is coordinated {where}")
        self.leader = leader


class CoordinatorLoading(RequestError):
    """The coordinator is new and still reads what it must know."""

    retriable = True

    def __init__(self, key: str) -> None:
        super().__init__(f"the coordinator of {key!r} is still loading")


class CoordinatorUnavailable(RequestError):
    """It has no coordinator yet: the partition of its internal topic has no leader."""

    retriable = True

    def __init__(self, key: str) -> None:
        super().__init__(f"{key!r} has no coordinator at the moment")


# -- storage ---------------------------------------------------------------------------------------


class NoSpace(StorageError):
    """The disk is full. Reads go on; appends work again when there is space."""

    is_transient = True


class OutOfResources(StorageError):
    """The process has no file descriptor, thread or memory left. The disk itself is fine."""

    is_transient = True


class ReadPending(StorageError):
    """A thread reads what the log lacks: a lost index, which takes 10 s for a GiB of small batches,
    or a large snapshot of its producers. The same call succeeds once it is there."""

    is_transient = True


class DiskFailed(StorageError):
    """The disk reported an error. After a failed sync nothing written to it counts as durable."""


class DamagedLog(StorageError):
    """Bytes on disk are not what was written there, in a place where no torn write can be."""


class BrokenReplica(StorageError):
    """A replica met a state that the rules of consensus exclude: by a bug, here or at a peer."""


class UnusableCommand(DamagedLog):
    """A committed command of the control log that this node cannot decode or apply."""

    def __init__(self, offset: int, problem: object) -> None:
        super().__init__(
            f"the command at offset {offset} of the control log cannot be applied: {problem}; "
            "`millstream inspect DATA_DIR` shows it, "
            f"`millstream repair --skip-command {offset} --data-dir DATA_DIR` leaves it out"
        )
        self.offset = offset
        self.problem = str(problem)


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
# None of these says anything about the disk. A failed sync never carries one: see `ports.File`.
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_transient(problem: OSError) -> bool:
    """Whether the same call may succeed later, when space or resources are free again."""
    return problem.errno in NO_SPACE or problem.errno in OUT_OF_RESOURCES


class DamagedBatch(DamagedLog):
    """The offsets from `base_offset` to `end_offset` cannot be read; all others can."""

    def __init__(self, message: str, *, base_offset: int, end_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        self.end_offset = end_offset


def read_refusal(topic: str, partition: int, problem: StorageError) -> StorageUnavailable:
    """The error of a client whose read of a partition met a `StorageError`."""
    if not isinstance(problem, DamagedBatch):
        return StorageUnavailable(str(problem))
    return DamagedRecords(
        f"{topic}/{partition}: {problem}. Restore the file from a backup, or give these records "
        f"up with: millstream repair --skip {topic}/{partition}@{problem.base_offset}"
    )


def storage_error(problem: OSError, path: str) -> StorageError:
    """The error of an operation on `path` that the operating system refused."""
    kind: type[StorageError] = DiskFailed
    if problem.errno in NO_SPACE:
        kind = NoSpace
    elif problem.errno in OUT_OF_RESOURCES:
        kind = OutOfResources
    return kind(f"{path}: {problem.strerror or problem}")

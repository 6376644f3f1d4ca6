"""The vocabulary that every layer shares: names, positions, acknowledgements, sessions.

Owns words, not behaviour: values without I/O and without knowledge of any layer.

Invariant: `end_offset` is exclusive and `last_offset` inclusive, everywhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, NewType, TypeAlias
from uuid import UUID

from millstream.errors import InvalidTopicName

NodeId = NewType("NodeId", int)
Epoch = NewType("Epoch", int)
TopicName = NewType("TopicName", str)

# Offsets are counted with all day long; a NewType would be wrapped and unwrapped at every step.
Offset: TypeAlias = int

# What may hold bytes on the way from a socket to a file. Never copied only to change its type.
Buffer: TypeAlias = bytes | bytearray | memoryview

NO_EPOCH = Epoch(0)


_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def topic_name(text: str) -> TopicName:
    """Admit `text` as a topic name, by Kafka's rules; raise `InvalidTopicName` otherwise."""
    if _TOPIC_NAME.fullmatch(text) is None or text in {".", ".."}:
        raise InvalidTopicName(text)
    return TopicName(text)


class TopicPartition(NamedTuple):
    """A partition as users name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogId(NamedTuple):
    """A partition as storage names it: by the topic's id, so no name ever becomes a path.

    A topic that is deleted and created again is another log.
    """

    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex}-{self.partition}"

    @staticmethod
    def parse(text: str) -> "LogId":
        """Read what `str` wrote; raise `ValueError` for anything else."""
        topic_id, _, partition = text.rpartition("-")
        parsed = LogId(UUID(hex=topic_id), int(partition))
        if str(parsed) != text:
            raise ValueError(f"not a log id: {text!r}")
        return parsed


class Producer(NamedTuple):
    """A producer: an id that the cluster allocated, and how often its holder has changed."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)

CONTROL_LOG = LogId(UUID(int=0), 0)


class Position(NamedTuple):
    """A place in a log: the epoch of the last boundary before it, and the offset it ends at.

    The offset alone does not name a place, because opening an epoch takes no offset. Ordered as
    elections need it: epoch first, then length.
    """

    epoch: Epoch
    end_offset: Offset


ORIGIN = Position(NO_EPOCH, 0)  # Before the first boundary: every log contains it.


class Boundary(NamedTuple):
    """Epoch `epoch` was opened when the log ended at `start_offset`, and these nodes vote in it."""

    epoch: Epoch
    start_offset: Offset
    voters: frozenset[NodeId]


class HardState(NamedTuple):
    """The durable state of a voter: the epoch it is in, and its vote in that epoch."""

    epoch: Epoch
    voted_for: NodeId | None


NEVER_VOTED = HardState(NO_EPOCH, None)


class Acks(Enum):
    """When an append is answered."""

    NONE = 0  # Never.
    LEADER = 1  # Written on the leader.
    ALL = -1  # On stable storage on a majority of the replicas.


class Isolation(Enum):
    """How far a reader sees."""

    READ_UNCOMMITTED = 0  # To the high watermark.
    READ_COMMITTED = 1  # To the last stable offset.


CLIENT_ID_LENGTH_MAX = 256  # Longer ones are cut; quotas name client ids up to this length.


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The client of a call, and the protocol it speaks."""

    principal: str = "anonymous"
    client_id: str = ""
    address: str = ""
    protocol: str = "embedded"


_NONE: Mapping[int, Any] = MappingProxyType({})  # Of whatever values the field has.


class Appended(NamedTuple):
    """Where a batch went. For a duplicate: where the first copy of it had gone."""

    base_offset: Offset
    end_offset: Offset
    log_append_time_ms: int  # -1 unless the topic stamps batches with the broker's time.
    log_start_offset: Offset
    # By index in the batch: records that were there already, and where; -1 if that is not known in
    # this partition. If all are, the base offset is the first one's.
    duplicates: Mapping[int, Offset] = _NONE
    # By index in the batch: records that are delivered later, and their ids. If all are, the base
    # offset is -1.
    delayed: Mapping[int, str] = _NONE

"""The commands of the control log and their bytes.

Owns the vocabulary, the encoding, and the proof before a proposal that every node can decode it. A
command carries everything its outcome depends on, time and
random ids included, so that every node computes the same state from the same log.
"""

from uuid import UUID

import msgspec

from millstream.errors import InvalidRequest
from millstream.model import NodeId

# Which nodes hold a partition; the first is preferred as its leader.
Replicas = tuple[NodeId, ...]


class Command(msgspec.Struct, frozen=True, tag=True, tag_field="command"):
    """Base of all commands; the tag is the class name, so names are part of the format."""


class CreateTopic(Command, frozen=True, kw_only=True):
    name: str
    topic_id: UUID
    placement: tuple[Replicas, ...]
    overrides: dict[str, str]
    created_ms: int


class DeleteTopic(Command, frozen=True, kw_only=True):
    name: str


class AddPartitions(Command, frozen=True, kw_only=True):
    name: str
    count_before: int  # Refused when the topic has moved on since the proposal.
    placement: tuple[Replicas, ...]


class AlterTopic(Command, frozen=True, kw_only=True):
    name: str
    changes: dict[str, str | None]  # None: back to the default.


class ReserveProducerIds(Command, frozen=True, kw_only=True):
    count: int


class AlterQuotas(Command, frozen=True, kw_only=True):
    user: str | None
    client_id: str | None
    changes: dict[str, float | None]  # None: no limit any more.


class AlterResource(Command, frozen=True, kw_only=True):
    """Change settings of what is no topic: a node, a group, client metrics."""

    kind: str
    name: str
    changes: dict[str, str | None]  # None: back to the default.


TopicCommand = CreateTopic | DeleteTopic | AddPartitions | AlterTopic
AnyCommand = TopicCommand | ReserveProducerIds | AlterQuotas | AlterResource

# What `decode` raises for bytes that are no command of this version.
UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyCommand)


def encode(command: AnyCommand) -> bytes:
    return _encoder.encode(command)


def decode(data: bytes) -> AnyCommand:
    """Read a command; one of `UNDECODABLE` means a newer format or damage, never a client."""
    command: AnyCommand = _decoder.decode(data)
    return command


def encode_for_proposal(command: AnyCommand) -> bytes:
    """Encode a command that decodes to an equal one; raise `InvalidRequest` for any other.

    Annotations do not stop a caller from passing an int for text, and a command that no node can
    decode would stop every node for good.
    """
    name = type(command).__name__
    try:
        data = encode(command)
        copy = decode(data)
    except (*UNDECODABLE, TypeError) as problem:
        raise InvalidRequest(f"{name} was not proposed, it cannot be decoded: {problem}") from None
    if copy != command:
        raise InvalidRequest(f"{name} was not proposed, a value changes when it is written")
    return data

"""The commands of the control log and their bytes.

Owns the vocabulary, the encoding, and the proof before a proposal that every node can decode it. A
command carries everything its outcome depends on, time and
random ids included, so that every node computes the same state from the same log.
"""

from typing import ClassVar, Literal
from uuid import UUID

import msgspec

from millstream.control.acls import Acl
from millstream.errors import InvalidRequest
from millstream.model import (
    FIRST_LEVELS,
    SYSTEM_SESSION,
    LevelRange,
    NodeId,
    ReplicaId,
    Session,
    node_principal,
)

# Which nodes hold a partition; the first is preferred as its leader.
Replicas = tuple[NodeId, ...]


class Actor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The client that asked for a command, and when: the trail of administrative acts."""

    principal: str
    at_ms: int
    roles: tuple[str, ...] = ()
    mechanism: str = ""
    listener: str = ""
    protocol: str = ""
    address: str = ""
    client_id: str = ""


def actor_of(session: Session, at_ms: int, node: int) -> Actor:
    """`node` writes the command; what no client asked for is its own act."""
    principal = node_principal(node) if session == SYSTEM_SESSION else session.principal
    return Actor(
        principal=str(principal),
        at_ms=at_ms,
        roles=session.roles,
        mechanism=session.mechanism,
        listener=session.listener,
        protocol=session.protocol,
        address=session.address,
        client_id=session.client_id,
    )


class Command(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, tag_field="command"
):
    """Base of all commands; the tag is the class name, so names are part of the format."""

    # The level of `cluster.version` from which on it is written.
    LEVEL: ClassVar[int] = FIRST_LEVELS.lowest

    by: Actor | None = None  # None: by a version that did not write it down.


class CreateTopic(Command, frozen=True, kw_only=True):
    name: str
    topic_id: UUID
    placement: tuple[Replicas, ...]
    overrides: dict[str, str]
    created_ms: int
    follows_cluster: bool = False  # It gets more replicas when nodes join.


class DeleteTopic(Command, frozen=True, kw_only=True):
    name: str


class AddPartitions(Command, frozen=True, kw_only=True):
    name: str
    count_before: int  # Refused when the topic has moved on since the proposal.
    placement: tuple[Replicas, ...]


class AddReplicas(Command, frozen=True, kw_only=True):
    """Place more replicas of each partition. The offset of this command is their incarnation: they
    follow, and vote once they are in step."""

    name: str
    topic_id: UUID  # Refused for another topic of that name.
    count_before: int  # Replicas of a partition; refused when the topic has moved on.
    added: tuple[Replicas, ...]  # By partition.


class MoveReplicas(Command, frozen=True, kw_only=True):
    """Move partitions to other nodes. The offset of this command is the incarnation of replicas
    that are new; those before it stay until these vote."""

    name: str
    topic_id: UUID  # Refused for another topic of that name.
    targets: dict[int, Replicas | None]  # By partition. None: back to where it was.


class FinishedMove(msgspec.Struct, frozen=True, kw_only=True):
    """The replicas of a partition vote as they should, by the word of its confirmed leader."""

    partition: int
    moved_offset: int  # Of the command that began the move: refused after another one.
    removed: tuple[ReplicaId, ...]  # Given up with their records.


class FinishMoves(Command, frozen=True, kw_only=True):
    name: str
    topic_id: UUID
    moves: tuple[FinishedMove, ...]


class AlterTopic(Command, frozen=True, kw_only=True):
    name: str
    changes: dict[str, str | None]  # None: back to the default.


class ReserveProducerIds(Command, frozen=True, kw_only=True):
    count: int


class RaiseSchemaIds(Command, frozen=True, kw_only=True):
    """Ids of schemas up to `highest` were given: none of them is given again.

    Proposed before schemas are deleted for good, which takes their ids out of `_schemas`.
    """

    context: str
    highest: int


class AlterQuotas(Command, frozen=True, kw_only=True):
    user: str | None
    client_id: str | None
    changes: dict[str, float | None]  # None: no limit any more.
    ip: str | None = None


class AlterResource(Command, frozen=True, kw_only=True):
    """Change settings of what is no topic: a node, a group, client metrics."""

    kind: str
    name: str
    changes: dict[str, str | None]  # None: back to the default.


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """What proves a password by SCRAM (RFC 5802, section 3), and not the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class UserChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to become of one user; what is None stays."""

    name: str
    existence: Literal["new", "existing", "any"] = "any"  # Else it is refused.
    is_deleted: bool = False
    roles: tuple[str, ...] | None = None
    is_enabled: bool | None = None
    # By mechanism. None: removed.
    credentials: dict[str, Credential | None] = {}


class AlterUsers(Command, frozen=True, kw_only=True):
    """Change users, each by itself: one that is refused does not keep the others from it."""

    changes: tuple[UserChange, ...]
    # Makes the salts that unknown users are shown; that of the first command counts, for ever.
    salt_key: bytes = b""


class PutRole(Command, frozen=True, kw_only=True):
    name: str
    description: str = ""


class DeleteRole(Command, frozen=True, kw_only=True):
    name: str


class AddAcls(Command, frozen=True, kw_only=True):
    """What is there already stays as it is."""

    acls: tuple[Acl, ...]


class RemoveAcls(Command, frozen=True, kw_only=True):
    acls: tuple[Acl, ...]


class ReplaceAcls(Command, frozen=True, kw_only=True):
    """Remove and add in one step: no client ever finds the half of it."""

    removed: tuple[Acl, ...]
    added: tuple[Acl, ...]


class NodeEncryption(msgspec.Struct, frozen=True, kw_only=True):
    """How a node keeps records at rest. The check value tells root keys apart, and tells nothing
    about them."""

    mode: Literal["on", "read", "off"]
    key_name: str = ""
    check: str = ""  # Empty: a key service keeps the key to itself.


class RequireEncryption(Command, frozen=True, kw_only=True):
    """Only nodes that encrypt what they write are part of the cluster, or no longer so."""

    is_required: bool


class InviteNode(Command, frozen=True, kw_only=True):
    """Let one node join until `expires_ms`: the one that knows the secret with this hash.

    One that expires when it is made takes the earlier one with this hash back.
    """

    secret_hash: bytes
    made_ms: int
    expires_ms: int


class RegisterNode(Command, frozen=True, kw_only=True):
    """A node joins, or says that its addresses, rack or version have changed."""

    node_id: int
    directory_id: UUID
    peer: tuple[str, int]  # Where other nodes reach it.
    listeners: dict[str, tuple[str, int]]
    roles: tuple[str, ...]
    version: str
    joined_ms: int
    rack: str = ""
    machine: str = ""
    invitation: bytes = b""  # The hash of its secret; of a node that is new.
    encryption: NodeEncryption | None = None  # None: of a version that did not say.
    levels: LevelRange = FIRST_LEVELS  # Of the feature `cluster.version`.


class ChangeNode(Command, frozen=True, kw_only=True):
    """Drain a node, take it back, move its replicas away, or remove it for ever."""

    node_id: int
    state: str
    successor: int = 0  # Of a node that leaves: the node that takes its replicas. 0: any.


class FinalizeLevel(Command, frozen=True, kw_only=True):
    """Write what the nodes know from this level of `cluster.version` on. There is no way back.

    It stands in the log before any command of that level: an older node stops here.
    """

    LEVEL = 2

    level: int


NodeCommand = InviteNode | RegisterNode | ChangeNode
ClusterCommand = NodeCommand | RequireEncryption | FinalizeLevel
AccessCommand = AlterUsers | PutRole | DeleteRole | AddAcls | RemoveAcls | ReplaceAcls
TopicCommand = (
    CreateTopic
    | DeleteTopic
    | AddPartitions
    | AddReplicas
    | MoveReplicas
    | FinishMoves
    | AlterTopic
)
AnyCommand = (
    TopicCommand
    | ReserveProducerIds
    | RaiseSchemaIds
    | AlterQuotas
    | AlterResource
    | AccessCommand
    | ClusterCommand
)

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
